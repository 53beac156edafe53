/** One of the two digits of a pair: a small canvas to draw on, and two sliders that move it in the frame. */

import { latest, report } from "./api.js";
import { button, h } from "./elements.js";
import { Ink } from "./ink.js";
import { blank, centred, fromWire, toWire } from "./pixels.js";
import { currentModel, state } from "./state.js";

const BRUSH = 36; // of the canvas's pixels: about two of MNIST's
const DIGIT = 28; // a digit's frame, whatever the network's

/** The middle of a picture, as large as a digit at the most. */
const middle = (picture) => centred(picture, Math.min(DIGIT, picture.width), Math.min(DIGIT, picture.height));

export class Slot {
  /** @param {number} number 1 or 2  @param {{onDigit: Function, onOffset: Function}} hooks */
  constructor(number, { onDigit, onOffset }) {
    this.see = latest(`pair-see-${number}`);
    this.onDigit = onDigit;
    this.picture = null;
    const name = number === 1 ? "First" : "Second";
    this.canvas = h("canvas", { class: "pair-paper", role: "img", "data-testid": `pair-canvas-${number}` });
    this.canvas.setAttribute("aria-label", `${name} digit. Draw with the pointer, or use the buttons below.`);
    this.ink = new Ink(this.canvas);
    this.listen();
    this.sliders = ["dy", "dx"].map((axis, n) => {
      const words = `${name} digit, ${n === 0 ? "down" : "right"}`;
      const value = h("output", { class: "value" });
      const testid = `pair-${axis}-${number}`;
      const input = h("input", { type: "range", step: 1, "data-testid": testid, "aria-label": words });
      input.addEventListener("input", () => onOffset(this.sliders.map((slider) => Number(slider.input.value))));
      const label = h("label", { class: "pair-slider" }, h("span", {}, n === 0 ? "down" : "right"), input, value);
      return { input, value, label };
    });
    const make = (text, words, onclick) => button(text, onclick, { class: "button small", "aria-label": words });
    this.element = h(
      "div",
      { class: `pair-slot slot-${number}` },
      h("h3", {}, `${name} digit`),
      this.canvas,
      h(
        "div",
        { class: "row" },
        make("Clear", `Clear the ${name.toLowerCase()} digit`, () => this.clear()),
        make("Use my drawing", `Use my drawing as the ${name.toLowerCase()} digit`, () => this.take()),
      ),
      ...this.sliders.map(({ label }) => label),
    );
  }

  listen() {
    const { canvas, ink } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      if (ink.source) ink.clear(); // a picture that was put here makes way for the first stroke
      ink.begin(ink.place(event), { width: BRUSH });
    });
    canvas.addEventListener("pointermove", (event) => ink.pen && ink.move(ink.place(event)));
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, () => {
        if (!ink.pen) return;
        ink.end();
        this.drawn();
      });
    }
  }

  /** The drawing becomes a digit: sized and centred as the network knows them. */
  drawn() {
    const { name } = currentModel();
    this.see("/api/see", { model: name, image: toWire(this.ink.pixels(1)), centre: true }).then((answer) => {
      if (!answer) return;
      this.picture = middle(fromWire(answer.seen));
      this.onDigit(this.picture);
    }).catch(report);
  }

  clear() {
    this.see.forget(); // else what was drawn before comes back
    this.ink.clear();
    this.picture = blank(DIGIT, DIGIT);
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
      this.ink.load(picture, picture);
    }
    this.picture = picture;
    this.sliders.forEach(({ input, value }, axis) => {
      Object.assign(input, { min: -limit, max: limit, value: offset[axis] });
      value.textContent = String(offset[axis]);
    });
  }
}
