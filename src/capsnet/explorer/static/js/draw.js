/** Panel 1: draw with mouse, pen, finger or keys; beside it what the network really sees. */

import { latest, report } from "./api.js";
import { button, figure, h } from "./elements.js";
import { mount as mountGallery } from "./gallery.js";
import { Ink, SIDE } from "./ink.js";
import { origin, show, startRequest } from "./network.js";
import { fromWire, isBlank, paint, toWire } from "./pixels.js";
import { currentModel, state } from "./state.js";
import { mount as mountUpload, upload } from "./upload.js";

const see = latest({ live: true });
const HELP = "Keys: arrows move the pen (Shift: faster), Space puts it down or lifts it, Ctrl+Z takes a stroke back.";

let ink = null;
let tools = null; // the panel's controls, by name
let stroke = 0; // counts strokes and other changes: stale responses are ignored
let example = false; // the first visit's picture, which the first stroke clears
let started = false; // before the first picture there is nothing to go back to
let shown = null; // the picture that was seen last, before it was brought to a network's frame
let file = null; // what was uploaded last: goes with its picture into `ink.source`, to be prepared again

export function mount(section) {
  const canvas = h("canvas", {
    "data-testid": "canvas", class: "paper", tabindex: "0", role: "application", "aria-label": "Drawing area",
    "aria-describedby": "draw-help",
  });
  const cursor = h("div", { class: "cursor", hidden: true });
  const invitation = h("p", { class: "invitation", "aria-hidden": "true" });
  tools = { canvas, cursor, invitation, ...buildTools() };
  const extras = h("div", { class: "sources" });
  section.querySelector(".body").append(
    h("div", { class: "easel" },
      h("div", { class: "stage" }, canvas, cursor, invitation),
      h("div", { class: "side" }, tools.figure, tools.panel)),
    h("p", { id: "draw-help", class: "note keys" }, HELP), extras);
  ink = new Ink(canvas);
  ink.listen({ down, move, up: endStroke });
  listenToKeys(canvas, cursor);
  mountUpload(tools.uploads, (chosen) => { file = chosen; });
  mountGallery(extras);
  state.on(["seen"], follow);
  state.on(["centre", "model"], prepareAgain);
  state.on(["centre"], () => { tools.centre.checked = state.get("centre"); });
}

/** The first visit's picture: an example that the first stroke clears. */
export function showExample(seen) {
  show(seen, "gallery");
  example = true;
  refresh();
}

function buildTools() {
  const make = (text, onclick) => button(text, onclick, { "data-testid": text.toLowerCase() });
  const toggle = () => eraser.setAttribute("aria-pressed", !erasing());
  const [undo, redo] = [make("Undo", () => back(false)), make("Redo", () => back(true))];
  const [eraser, clear] = [make("Eraser", toggle), make("Clear", wipe)];
  eraser.setAttribute("aria-pressed", false);
  const brush = h("input", { type: "range", id: "brush", "data-testid": "brush", min: 12, max: 64, value: 34 });
  const centre = h("input", {
    type: "checkbox", "data-testid": "centre", onchange: () => state.set({ centre: centre.checked }),
  });
  centre.checked = state.get("centre");
  const seen = figure("seen", "What the network sees", { class: "seen" });
  const uploads = h("div", { class: "uploads" });
  return {
    undo, redo, eraser, brush, centre, seen: seen.canvas, figure: seen.figure, uploads,
    panel: h("div", { class: "controls" },
      h("div", { class: "buttons" }, undo, redo, eraser, clear),
      h("label", { class: "brush", for: "brush" }, h("span", {}, "Brush"), brush),
      h("label", { class: "check", title: "Cut out, scale and centre the ink, as MNIST's digits were" },
        centre, "Centre like MNIST"),
      uploads),
  };
}

const erasing = () => tools.eraser.getAttribute("aria-pressed") === "true";

/** Send the drawing; what comes back is what the network sees. */
async function look() {
  const [model, asked, penDown] = [currentModel(), stroke, ink.pen !== null];
  if (!model) return;
  const image = toWire(ink.pixels(model.channels));
  try {
    const answer = await see("/api/see", { model: model.name, image, centre: state.get("centre") });
    if (!answer || model.name !== state.get("model") || asked !== stroke) return;
    show(fromWire(answer.seen), "draw", { penDown });
  } catch (error) {
    state.set({ penDown, drawing: penDown });
    report(error);
  }
}

/**
 * Pictures from elsewhere (gallery, file, link, pair) are put on the canvas, so that one can draw on them. A pair only
 * covers the drawing, which comes back when the pair is no longer the input.
 */
function follow() {
  const [seen, from] = [state.get("seen"), state.get("seenFrom")];
  const original = origin(seen);
  paint(tools.seen, seen);
  tools.seen.setAttribute("aria-label", `What the network sees, ${seen.width} by ${seen.height} pixels`);
  if (from !== "pair" && ink.below?.shown === original) uncover();
  if (from !== "draw" && ink.source?.loaded !== seen) take(seen, original, from);
  shown = original;
  started = true;
  refresh();
}

function take(seen, original, from) {
  stroke += 1;
  const source = { seen: original, from, loaded: seen, file: from === "upload" ? file : null };
  const same = ink.source?.seen === original || (source.file && ink.source?.file === file);
  if (from === "pair" && !same) {
    ink.load(seen, source, ink.below ?? { ...ink.snapshot(), shown, example });
    example = false;
  } else if (same) {
    ink.load(seen, source, ink.below); // the same picture in another frame, or prepared in another way
  } else {
    example = false;
    if (started && (from === "gallery" || from === "upload")) ink.remember();
    ink.load(seen, source);
  }
  if (!ink.pen) state.set({ penDown: false }); // the answer to the last stroke, which would do so, is ignored
}

function uncover() {
  stroke += 1;
  const below = ink.uncover();
  example = below.example;
  if (below.stale) prepareAgain();
}

/** The switch or the network changed: prepare the drawing or upload again. Other pictures stay as they are. */
function prepareAgain() {
  if (ink.below) ink.below.stale = true; // prepared when it is seen again
  else if (ink.source?.file) upload(ink.source.file);
  else if (!ink.source && (state.get("seen") || ink.past.length)) look(); // also what was drawn before there was a network
}

function refresh() {
  tools.undo.disabled = !ink.past.length && !ink.below;
  tools.redo.disabled = !ink.future.length;
  const empty = !state.get("drawing") && state.get("seen") && isBlank(state.get("seen"));
  tools.invitation.hidden = !(example || empty);
  tools.invitation.textContent = example ? "An example. Draw your own: the first stroke clears it." : "Draw here";
}

/** Before the drawing is changed: remember it, and clear it if it is the example. */
function beginChange() {
  stroke += 1;
  startRequest();
  ink.remember();
  if (example) ink.clear();
  example = false;
}

function beginStroke(point, options) {
  beginChange();
  ink.begin(point, options);
  state.set({ penDown: true, drawing: true, pairMode: false });
  refresh();
  look();
}

function endStroke() {
  ink.end();
  look();
}

function wipe() {
  beginChange();
  ink.clear();
  state.set({ chosen: false });
  refresh();
  look();
}

function back(forth) {
  const { below } = ink;
  if (ink.pen || !ink.step(forth)) return; // a pointer's stroke is ended first
  stroke += 1;
  startRequest();
  example = !forth && Boolean(below?.example);
  state.set({ pairMode: false });
  if (ink.source) show(ink.source.seen, ink.source.from, { penDown: false, drawing: false });
  else look();
  if (!forth && below?.stale && ink.source) prepareAgain();
  refresh();
}

function width(event) {
  const brush = Number(tools.brush.value);
  return event?.pointerType === "pen" && event.pressure ? brush * (0.4 + 1.2 * event.pressure) : brush;
}

function down(event) {
  const rubber = (event.buttons & 32) !== 0; // the other end of a pen
  beginStroke(ink.place(event), { width: width(event), erase: erasing() || rubber });
}

function move(event) {
  const points = event.getCoalescedEvents?.() ?? [];
  for (const point of points.length ? points : [event]) ink.move(ink.place(point), width(point));
  look();
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function listenToKeys(canvas, cursor) {
  const at = { x: SIDE / 2, y: SIDE / 4 };
  let down = false;
  const mark = () => {
    cursor.style.left = `${(at.x / SIDE) * 100}%`;
    cursor.style.top = `${(at.y / SIDE) * 100}%`;
    cursor.classList.toggle("down", down);
  };
  const step = ([right, below], far) => {
    at.x = Math.min(SIDE, Math.max(0, at.x + far * right));
    at.y = Math.min(SIDE, Math.max(0, at.y + far * below));
    if (!down) return;
    ink.move({ ...at });
    look();
  };
  const lift = () => {
    if (!down) return;
    down = false;
    endStroke();
    mark();
  };
  const press = () => {
    down = true;
    beginStroke({ ...at }, { width: width(), erase: erasing() });
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
    if (event.key === " ") (down ? lift : press)();
    if (event.key === "Escape") lift();
    if (arrow) step(arrow, event.shiftKey ? 32 : 10);
    mark();
  });
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    if (!(event.ctrlKey || event.metaKey) || event.altKey || !["z", "y"].includes(key)) return;
    if (event.target.matches("input[type=number], input[type=text], textarea")) return; // these undo for themselves
    event.preventDefault();
    lift();
    back(key === "y" || event.shiftKey);
  });
}
