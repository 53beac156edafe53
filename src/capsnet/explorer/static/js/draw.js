/** Panel 1: draw with mouse, pen, finger or keys; beside it what the network really sees. */

import { latest, report } from "./api.js";
import { button, figure, h, tween } from "./elements.js";
import { mount as mountGallery } from "./gallery.js";
import { drop, listen as listenToUndo, record, step } from "./history.js";
import { Ink, SIDE } from "./ink.js";
import { origin, show, startRequest } from "./network.js";
import { listenToKeys } from "./pen_keys.js";
import { fromWire, isBlank, paint, toWire } from "./pixels.js";
import { currentModel, state } from "./state.js";
import { mount as mountUpload, upload } from "./upload.js";

const see = latest({ live: true });
const STEPS = 40; // points of a stroke that the page draws itself
const HELP = "Keys: arrows move the pen (Shift: faster), Space puts it down or lifts it, Ctrl+Z takes the last change back.";

let ink = null;
let tools = null; // the panel's controls, by name
let stroke = 0; // counts strokes and other changes: stale responses are ignored
let example = false; // the first visit's picture, which the first stroke clears
let started = false; // before the first picture there is nothing to go back to
let shown = null; // the picture that was seen last, before it was brought to a network's frame
let covering = null; // in the history: that a pair was laid over the drawing
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
  const lift = listenToKeys(canvas, cursor, {
    down: (point) => beginStroke(point, { width: width(), erase: erasing() }),
    move: (point) => { ink.move(point); look(); },
    up: endStroke,
  });
  listenToUndo(() => {
    lift();
    return ink.pen === null;
  });
  mountUpload(tools.uploads, (chosen) => { file = chosen; });
  mountGallery(extras);
  state.on(["seen"], follow);
  state.on(["centre", "model"], prepareAgain);
  state.on(["model"], meet);
  state.on(["centre"], () => { tools.centre.checked = state.get("centre"); });
}

/** Tools that depend on the network: colours of the ink; only digits are centred. */
function meet() {
  const { channels, style } = currentModel();
  tools.panel.querySelector(".ink-colour").hidden = channels !== 3;
  tools.panel.querySelector(".centring").hidden = style !== "digit";
}

/**
 * Draw strokes on a cleared paper, as a person would: `strokes` are lists of [x, y], shares of the paper. Stops when
 * `alive()` is false or somebody else draws.
 */
export async function sketch(strokes, milliseconds, alive) {
  wipe();
  for (const points of strokes) {
    const path = points.map(([x, y]) => ({ x: x * SIDE, y: y * SIDE }));
    if (ink.pen || !alive()) return;
    beginStroke(path[0], { width: width(), erase: false });
    const own = stroke;
    let drawn = 0;
    await new Promise((resolve) => {
      tween(milliseconds, (share) => {
        if (own !== stroke || !ink.pen) return resolve();
        for (const steps = Math.round(share * STEPS); drawn < steps; drawn += 1) ink.move(along(path, (drawn + 1) / STEPS));
        look();
        return share === 1 && resolve();
      });
    });
    if (own !== stroke) return;
    if (ink.pen) endStroke();
  }
}

/** The point at a share of the way along a path. */
function along(path, share) {
  const place = share * (path.length - 1);
  const n = Math.min(path.length - 2, Math.floor(place));
  const [from, to, part] = [path[n], path[n + 1], place - n];
  return { x: from.x + part * (to.x - from.x), y: from.y + part * (to.y - from.y) };
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
  const [undo, redo] = [make("Undo", () => stepBack(false)), make("Redo", () => stepBack(true))];
  const [eraser, clear] = [make("Eraser", toggle), make("Clear", wipe)];
  eraser.setAttribute("aria-pressed", false);
  const brush = h("input", { type: "range", id: "brush", "data-testid": "brush", min: 12, max: 64, value: 34 });
  const colour = h("input", { type: "color", id: "colour", "data-testid": "colour", value: "#ffffff" });
  const centre = h("input", {
    type: "checkbox", "data-testid": "centre", onchange: () => state.set({ centre: centre.checked }),
  });
  centre.checked = state.get("centre");
  const seen = figure("seen", "What the network sees", { class: "seen" });
  const uploads = h("div", { class: "uploads" });
  return {
    undo, redo, eraser, brush, colour, centre, seen: seen.canvas, figure: seen.figure, uploads,
    panel: h("div", { class: "controls" },
      h("div", { class: "buttons" }, undo, redo, eraser, clear),
      h("label", { class: "brush", for: "brush" }, h("span", {}, "Brush"), brush),
      h("label", { class: "brush ink-colour", for: "colour", hidden: true }, h("span", {}, "Ink"), colour),
      h("label", { class: "check centring", title: "Cut out, scale and centre the ink, as MNIST's digits were" },
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
    if (!ink.below) covering = remember();
    ink.load(seen, source, ink.below ?? { ...ink.snapshot(), shown, example });
    example = false;
  } else if (same) {
    ink.load(seen, source, ink.below); // the same picture in another frame, or prepared in another way
  } else {
    example = false;
    if (started && (from === "gallery" || from === "upload")) keep();
    ink.load(seen, source);
  }
  if (!ink.pen) state.set({ penDown: false }); // the answer to the last stroke, which would do so, is ignored
}

function uncover() {
  stroke += 1;
  drop(covering); // taken away by the switch, which is no step back
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

const remember = () => record("draw", { undo: () => back(false), redo: () => back(true) });

/** Keep the drawing as it is, to come back to. */
function keep() {
  ink.remember();
  remember();
}

/** A step of this panel alone: by its buttons. */
const stepBack = (forth) => step(forth, "draw") || back(forth);

/** Before the drawing is changed: keep it, and clear it if it is the example. */
function beginChange() {
  stroke += 1;
  startRequest();
  keep();
  if (example) ink.clear();
  example = false;
}

function beginStroke(point, options) {
  beginChange();
  ink.begin(point, { ...options, colour: currentModel()?.channels === 3 ? tools.colour.value : undefined });
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
