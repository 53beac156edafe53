/** Drawing by keyboard: arrows move the pen (Shift: faster), Space puts it down or lifts it, Escape lifts it. */

import { SIDE } from "./ink.js";

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const [SLOW, FAST] = [10, 32]; // canvas pixels per key

/** `down` and `move` get {x, y} in canvas pixels. Returns a function that lifts the pen. */
export function listenToKeys(canvas, cursor, { down, move, up }) {
  const at = { x: SIDE / 2, y: SIDE / 4 };
  let drawing = false;
  const mark = () => {
    cursor.style.left = `${(at.x / SIDE) * 100}%`;
    cursor.style.top = `${(at.y / SIDE) * 100}%`;
    cursor.classList.toggle("down", drawing);
  };
  const step = ([right, below], far) => {
    at.x = Math.min(SIDE, Math.max(0, at.x + far * right));
    at.y = Math.min(SIDE, Math.max(0, at.y + far * below));
    if (drawing) move({ ...at });
  };
  const lift = () => {
    if (!drawing) return;
    drawing = false;
    up();
    mark();
  };
  const press = () => {
    drawing = true;
    down({ ...at });
    mark();
  };
  canvas.addEventListener("focus", () => { cursor.hidden = !canvas.matches(":focus-visible"); mark(); });
  canvas.addEventListener("pointerdown", () => { lift(); cursor.hidden = true; }, { capture: true });
  canvas.addEventListener("blur", () => { lift(); cursor.hidden = true; });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = ARROWS[event.key];
    if (!arrow && event.key !== " " && event.key !== "Escape") return;
    if (event.key !== "Escape") event.preventDefault(); // neither arrows nor Space scroll the page
    cursor.hidden = false;
    if (event.key === " ") (drawing ? lift : press)();
    if (event.key === "Escape") lift();
    if (arrow) step(arrow, event.shiftKey ? FAST : SLOW);
    mark();
  });
  return lift;
}
