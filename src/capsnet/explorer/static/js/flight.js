/**
 * Routing on the picture: the strokes lit by what their children contribute to a class, the class capsules beside it,
 * and the votes that fly from one to the other. Those of losers fade from iteration to iteration.
 */

import { Strokes } from "./contributions.js";
import { h } from "./elements.js";
import { bytesOf, hueOf } from "./flight_hues.js";
import { dye } from "./hues.js";
import { paint } from "./pixels.js";
import { fit } from "./ramp.js";

const LINES = 160; // votes that are drawn: the largest ones
const UNLIT = 0.42; // brightness of ink that contributes nothing

export class Flight {
  /** `onChoose` gets the class whose capsule is chosen. */
  constructor(onChoose) {
    this.onChoose = onChoose;
    const look = { class: "flight-picture", role: "img", "aria-label": "Contributions", "data-testid": "contributions" };
    this.picture = h("canvas", look);
    this.parents = h("div", { class: "flight-parents", role: "group", "aria-label": "Class capsules" });
    this.lines = h("canvas", { class: "flight-lines", "aria-hidden": "true" });
    this.words = h("p", { class: "note flight-words", "data-testid": "contribution-words" });
    this.hue = h("input", { type: "checkbox", "data-testid": "class-hue", onchange: () => this.redraw() });
    this.hueLabel = h("label", { class: "check", hidden: true }, this.hue, "Colour by class");
    this.stage = h("div", { class: "flight-stage" }, this.picture, this.parents, this.lines);
    this.element = h("div", { class: "flight" }, this.stage, this.words, this.hueLabel);
    this.rows = [];
    this.hovered = null;
    new ResizeObserver(() => this.place()).observe(this.stage);
  }

  /** Take the contributions of a new trace; null where nobody computes them. */
  show(contributions, seen, model) {
    this.stage.hidden = this.words.hidden = !contributions;
    if (!contributions) {
      this.curves = null;
      return;
    }
    const { trace } = contributions;
    Object.assign(this, { contributions, trace, classes: model.classes, long: model.routing.presence_is_length });
    this.strokes = new Strokes(seen, trace, model.receptive);
    if (this.rows.length !== trace.J || this.model !== model.name) this.build(model);
    this.model = model.name;
    this.hueLabel.hidden = trace.H * trace.W === 1;
    if (this.hueLabel.hidden) this.hue.checked = false;
    this.measure();
    this.place();
  }

  build({ classes }) {
    this.rows = classes.map((name, j) => {
      const [bar, number] = [h("span", { class: "flight-fill" }), h("span", { class: "number" })];
      const hover = (parent) => () => { this.hovered = parent; this.redraw(); };
      const button = h("button", {
        type: "button", class: "flight-parent", "data-testid": `parent-${j}`, onclick: () => this.onChoose(j),
        onpointerenter: hover(j), onpointerleave: hover(null), onfocus: hover(j), onblur: hover(null),
      }, h("b", {}, name), h("span", { class: "flight-bar", "aria-hidden": "true" }, bar), number);
      dye(button, j, classes.length);
      return { button, bar, number };
    });
    this.parents.replaceChildren(...this.rows.map(({ button }) => button));
  }

  /** The ends of the scales over all iterations and classes, and the votes that are worth drawing. */
  measure() {
    const { R, J, H, W } = this.trace;
    const votes = [];
    [this.hottest, this.largest] = [1e-9, 1e-9];
    for (let j = 0; j < J; j += 1) {
      const most = new Float32Array(H * W);
      for (let r = 0; r < R; r += 1) {
        const cells = this.contributions.cells(r, j);
        cells.forEach((value, cell) => { most[cell] = Math.max(most[cell], value); });
        if (r === R - 1) this.hottest = this.strokes.spread(cells).reduce((a, b) => Math.max(a, b), this.hottest);
      }
      most.forEach((value, cell) => votes.push({ parent: j, cell, value }));
    }
    this.votes = votes.sort((a, b) => b.value - a.value).slice(0, LINES);
    this.largest = Math.max(this.largest, this.votes[0].value);
  }

  /** Where the votes begin and end on the page: asked of the browser once per layout, not per frame. */
  place() {
    if (!this.trace || !this.stage.clientWidth) return;
    const box = this.stage.getBoundingClientRect();
    const from = this.picture.getBoundingClientRect();
    const starts = this.strokes.seen.map(({ middle: [x, y] }) => [
      from.left - box.left + (x / this.strokes.width) * from.width,
      from.top - box.top + (y / this.strokes.height) * from.height]);
    const below = this.parents.getBoundingClientRect().top > from.bottom - 4; // on a narrow screen
    const ends = this.rows.map(({ button }) => {
      const to = button.getBoundingClientRect();
      const [left, top] = [to.left - box.left, to.top - box.top];
      return below ? [left + to.width / 2, top] : [left, top + to.height / 2];
    });
    this.curves = this.votes.map(({ parent, cell }) => {
      const [[x0, y0], [x1, y1]] = [starts[cell], ends[parent]];
      const [cx, cy] = below ? [x0, (y0 + y1) / 2] : [(x0 + x1) / 2, y0];
      const [dx, dy] = below ? [x1, (y0 + y1) / 2] : [(x0 + x1) / 2, y1];
      return { x0, y0, cx, cy, dx, dy, x1, y1 };
    });
    this.size = [box.width, box.height];
    this.redraw();
  }

  redraw() {
    if (this.last) this.draw(...this.last);
  }

  /** Draw a point in time; `flying` is how far the votes have come, 0 to 1, or null when they rest. */
  draw(at, klass, flying, ground) {
    this.last = [at, klass, flying, ground];
    if (!this.curves) return;
    const shown = this.hovered ?? klass;
    this.paintStrokes(at, shown);
    this.drawVotes(at, shown, flying, ground);
    const { trace, contributions } = this;
    this.rows.forEach(({ button, bar, number }, j) => {
      bar.style.width = `${100 * Math.min(1, trace.length(at, j))}%`;
      number.textContent = trace.length(at, j).toFixed(2);
      button.setAttribute("aria-pressed", String(j === klass));
    });
    this.describe(at, shown, contributions.total(at, shown), trace.length(at, shown));
  }

  describe(at, parent, total, length) {
    const name = this.classes[parent];
    const whole = this.trace.H * this.trace.W === 1;
    const where = whole
      ? "Every child of this network sees the whole picture, so the strokes cannot tell them apart."
      : "Bright strokes are where its votes come from; dark ones count against it.";
    const classes = "Ink has the colour of the class to which the children there contribute most, grey where two do.";
    const words = `What the children contribute to “${name}” adds up to ${total.toFixed(2)}; ` +
      `its ${this.long ? "length" : "presence"} is ${length.toFixed(2)}. ${this.hue.checked ? classes : where}`;
    if (this.words.textContent !== words) this.words.textContent = words;
    this.picture.setAttribute("aria-label", `Contributions to ${name} on the picture, ${total.toFixed(2)} in all`);
  }

  /** Ink lit by contributions to a class, in its colour; or in the colours of the classes that it contributes to. */
  paintStrokes(at, parent) {
    const { ink, width, height } = this.strokes;
    const heat = this.strokes.spread(this.contributions.cells(at, parent));
    const own = bytesOf(hueOf(parent, this.trace.J));
    const winner = this.hue.checked ? this.winners(at) : null;
    const bytes = new Uint8ClampedArray(3 * width * height);
    for (let n = 0; n < ink.length; n += 1) {
      const share = Math.max(-1, Math.min(1, heat[n] / this.hottest));
      const lit = winner ? 1 : Math.sqrt(Math.max(0, share));
      const colour = winner ? winner(n) : own;
      const grey = 255 * UNLIT * (share < 0 ? 1 - Math.sqrt(-share) : 1);
      for (let c = 0; c < 3; c += 1) bytes[3 * n + c] = ink[n] * (grey + (colour[c] - grey) * lit);
    }
    paint(this.picture, { width, height, channels: 3, bytes });
  }

  /** The colour of each pixel: that of the class with the largest contribution, paler the closer the second one is. */
  winners(at) {
    const { J } = this.trace;
    const heats = Array.from({ length: J }, (_, j) =>
      this.strokes.spread(this.contributions.cells(at, j), this.strokes.own));
    return (n) => {
      let [best, first, second] = [0, 0, 0];
      for (let j = 0; j < J; j += 1) {
        const value = heats[j][n];
        if (value > first) [best, first, second] = [j, value, first];
        else if (value > second) second = value;
      }
      const ahead = first ? 1 - second / first : 0;
      return bytesOf(hueOf(best, J, "dark", Math.round(8 * Math.sqrt(ahead)) / 8)); // few colours, each made once
    };
  }

  /** The stage as one picture, for an animation: ImageData at the page's size. */
  compose() {
    const [width, height] = this.size.map(Math.round);
    const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    const box = this.stage.getBoundingClientRect();
    const colour = (element, property) => getComputedStyle(element)[property];
    const place = (element) => {
      const { left, top, width: wide, height: high } = element.getBoundingClientRect();
      return [left - box.left, top - box.top, wide, high];
    };
    context.fillStyle = colour(this.stage.closest(".panel"), "backgroundColor");
    context.fillRect(0, 0, width, height);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, ...place(this.picture));
    context.imageSmoothingEnabled = true;
    context.drawImage(this.lines, 0, 0, width, height);
    for (const { button, bar, number } of this.rows) {
      context.fillStyle = colour(bar.parentElement, "backgroundColor");
      context.fillRect(...place(bar.parentElement));
      context.fillStyle = colour(bar, "backgroundColor");
      context.fillRect(...place(bar));
      context.fillStyle = colour(button, "color");
      for (const text of [button.firstChild, number]) {
        context.font = `${colour(text, "fontWeight")} 13px system-ui, sans-serif`;
        const [x, y, , high] = place(text);
        context.fillText(text.textContent, x, y + 0.75 * high);
      }
    }
    return context.getImageData(0, 0, width, height);
  }

  drawVotes(at, shown, flying, ground) {
    const context = fit(this.lines, ...this.size);
    const { J } = this.trace;
    this.votes.forEach(({ parent, cell }, n) => {
      const share = Math.max(0, this.contributions.cell(at, parent, cell)) / this.largest;
      if (share < 0.002) return;
      const { x0, y0, cx, cy, dx, dy, x1, y1 } = this.curves[n];
      const strong = Math.sqrt(share);
      context.globalAlpha = (parent === shown ? 1 : 0.55) * Math.min(1, 0.06 + 0.8 * strong);
      context.strokeStyle = context.fillStyle = hueOf(parent, J, ground);
      context.lineWidth = 0.5 + 3 * strong;
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(cx, cy, dx, dy, x1, y1);
      context.stroke();
      if (flying === null) return;
      const [t, u] = [flying, 1 - flying];
      const along = (a, b, c, d) => u * u * u * a + 3 * u * u * t * b + 3 * u * t * t * c + t * t * t * d;
      context.globalAlpha = Math.min(1, 0.25 + strong);
      context.beginPath();
      context.arc(along(x0, cx, dx, x1), along(y0, cy, dy, y1), 1.5 + 6 * strong, 0, 2 * Math.PI);
      context.fill();
    });
    context.globalAlpha = 1;
  }
}
