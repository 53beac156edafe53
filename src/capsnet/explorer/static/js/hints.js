/** Three short hints for the first visit; the "?" button brings them back. */

import { button, h, mayMove } from "./elements.js";

const HINTS = [
  ["draw", "Draw", "Each bar says how sure the network is of one class."],
  ["knobs", "Turn a knob", "Each number of the capsule changes how the digit looks."],
  ["routing", "Watch the routing", "Step by step, the parts agree on the whole."],
];
const WRITES = "input[type=number], input[type=text], textarea, select";
const SEEN = "capsnet-hints-seen";

/** Fill the strip, and show it if it was never closed in this browser. */
export function mount(strip) {
  const help = document.getElementById("help");
  const show = (visible) => {
    strip.hidden = !visible;
    help.setAttribute("aria-expanded", visible);
  };
  const close = () => {
    const inside = strip.contains(document.activeElement);
    show(false);
    remembered(SEEN, "1");
    if (inside) help.focus(); // the focus must not go back to the top of the page
  };
  const go = (id) => {
    const title = document.getElementById(`${id}-title`);
    title.tabIndex = -1;
    title.scrollIntoView({ behavior: mayMove() ? "smooth" : "auto", block: "start" });
    title.focus({ preventScroll: true });
  };
  strip.append(
    h("ol", {}, ...HINTS.map(([id, name, text]) => h("li", {},
      h("div", {}, button(name, () => go(id), { class: "plain" }), h("p", {}, text))))),
    button("Got it", close, { class: "button close" }),
  );
  help.addEventListener("click", () => {
    if (!strip.hidden) return close();
    show(true);
    return strip.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !strip.hidden) close();
    if (event.key === "?" && !event.target.matches(WRITES)) help.click();
  });
  show(remembered(SEEN) === null);
}
