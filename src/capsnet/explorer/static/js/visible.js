/** Panels below the fold neither ask the network nor move: this says when one comes into sight. */

/** Calls back whenever the element comes into sight. Returns a function that says whether it is. */
export function whenSeen(element, callback, onHidden = () => {}) {
  let seen = false;
  new IntersectionObserver((entries) => {
    const before = seen;
    seen = entries.at(-1).isIntersecting;
    if (seen && !before) callback();
    if (!seen && before) onHidden();
  }, { rootMargin: "80px" }).observe(element);
  return () => seen;
}
