/**
 * Panels that nobody looks at neither ask the network nor move: those below the fold, and those that the story dims. This
 * says when one comes into sight.
 */

import { state } from "./state.js";

/** Calls back whenever the element comes into sight. Returns a function that says whether it is. */
export function whenSeen(element, callback, onHidden = () => {}) {
  let [near, seen] = [false, false];
  const update = () => {
    const now = near && !element.closest("[inert]");
    if (now === seen) return;
    seen = now;
    if (seen) callback();
    else onHidden();
  };
  new IntersectionObserver((entries) => {
    near = entries.at(-1).isIntersecting;
    update();
  }, { rootMargin: "80px" }).observe(element);
  state.on(["story"], () => setTimeout(update)); // after the story has moved the light
  return () => seen;
}
