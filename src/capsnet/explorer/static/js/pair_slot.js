/** One of the two objects of a pair, often digits: a small canvas to draw on, and two sliders that move it in the frame. */

import { latest, report } from "./api.js";
import { button, h } from "./elements.js";
import { Ink } from "./ink.js";
import { listenToKeys } from "./pen_keys.js";
import { blank, centred, fromWire, toWire } from "./pixels.js";
import { currentModel, state } from "./state.js";

const BRUSH = 36; // of the canvas's pixels: about two of MNIST's
const DIGIT = 28; // a digit's frame, whatever the network's

/** The middle of a picture, as large as a digit at the most. */
const middle = (picture) => centred(picture, Math.min(DIGIT, picture.width), Math.min(DIGIT, picture.height));

/** An empty picture of that size, or of the network's where that is smaller. */
function nothing() {
  const [height, width] = currentModel().image_size;
  return middle(blank(width, height));
}

export class Slot {
  constructor(number, { onDigit, onOffset }) {
    this.see = latest();
    this.onDigit = onDigit;
    this.picture = null;
    this.drawings = new WeakMap(); // digits that were drawn here, to the drawings they were made of
    const name = number === 1 ? "First" : "Second";
    const canvas = h("canvas", {
      class: "pair-paper", tabindex: "0", role: "application", "data-testid": `pair-canvas-${number}`,
      "aria-describedby": "draw-help",
    });
    const cursor = h("div", { class: "cursor", hidden: true });
    this.ink = new Ink(canvas);
    const pen = {
      down: (point) => {
        if (this.ink.source) this.ink.clear(); // a picture is cleared by the first stroke on it
        this.ink.begin(point, { width: BRUSH });
      },
      move: (point) => this.ink.move(point),
      up: () => {
        this.ink.end();
        this.drawn();
      },
    };
    const at = (act) => (event) => act(this.ink.place(event));
    this.ink.listen({ down: at(pen.down), move: at(pen.move), up: pen.up });
    listenToKeys(canvas, cursor, pen);
    const moved = () => onOffset(this.sliders.map(({ input }) => Number(input.value)));
    this.sliders = [["dy", "down"], ["dx", "right"]].map(([axis, words]) => {
      const input = h("input", { type: "range", step: 1, oninput: moved, "data-testid": `pair-${axis}-${number}` });
      const value = h("output", { class: "value" });
      return { input, value, words, label: h("label", { class: "pair-slider" }, h("span", {}, words), input, value) };
    });
    const make = (text, onclick) => button(text, onclick, { class: "button small" });
    const buttons = [make("Clear", () => this.clear()), make("Use my drawing", () => this.take())];
    const title = h("h3", {});
    Object.assign(this, { name, title, canvas, buttons });
    this.element = h("div", { class: `pair-slot slot-${number}` },
      title, h("div", { class: "pair-easel" }, canvas, cursor), h("div", { class: "row" }, ...buttons),
      ...this.sliders.map(({ label }) => label));
  }

  /** Say what a pair is made of: "digit" or "object". */
  call(thing) {
    const name = `${this.name} ${thing}`;
    const [clear, take] = this.buttons;
    this.title.textContent = name;
    this.canvas.setAttribute("aria-label", `${name}, drawing area`);
    clear.setAttribute("aria-label", `Clear the ${name.toLowerCase()}`);
    take.setAttribute("aria-label", `Use my drawing as the ${name.toLowerCase()}`);
    for (const { input, words } of this.sliders) input.setAttribute("aria-label", `${name}, ${words}`);
  }

  /** The drawing becomes a digit: sized and centred as the network knows them. */
  drawn() {
    const { name } = currentModel();
    const drawing = { ...this.ink.snapshot(), source: null };
    this.see("/api/see", { model: name, image: toWire(this.ink.pixels(1)), centre: true }).then((answer) => {
      if (!answer) return;
      this.picture = middle(fromWire(answer.seen));
      this.drawings.set(this.picture, drawing);
      this.onDigit(this.picture);
    }).catch(report);
  }

  clear() {
    this.see.forget(); // else what was drawn before comes back
    this.ink.clear();
    this.picture = nothing();
    this.onDigit(this.picture);
  }

  take() {
    const seen = state.get("seen");
    if (!seen) return;
    this.see.forget();
    this.onDigit(middle(seen));
  }

  /** Show a pair's digit and offset; a drawing that led to this digit stays as it was drawn. */
  show(picture, offset, limit) {
    if (picture !== this.picture) {
      this.see.forget();
      if (this.drawings.has(picture)) this.ink.put(this.drawings.get(picture));
      else this.ink.load(picture, picture);
    }
    this.picture = picture;
    this.sliders.forEach(({ input, value }, axis) => {
      Object.assign(input, { min: -limit, max: limit, value: offset[axis] });
      value.textContent = String(offset[axis]);
    });
  }
}
