/** Maps of couplings: one small picture of H x W squares per class, and per capsule type of the selected class. */

import { h } from "./elements.js";
import { dye } from "./hues.js";
import { digits } from "./trace.js";

const SIDE = 96; // canvas pixels at least; CSS gives the map its size on the page
const CELL = 16; // canvas pixels per child at least

/** One map of H x W couplings. `onPoint` gets {y, x}, or null outside of it. */
class CouplingMap {
  constructor(H, W, onPoint) {
    const cell = Math.max(CELL, Math.floor(SIDE / Math.max(H, W)));
    Object.assign(this, { H, W, cell });
    const point = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const y = Math.floor(((event.clientY - box.top) / box.height) * H);
      const x = Math.floor(((event.clientX - box.left) / box.width) * W);
      onPoint(y >= 0 && y < H && x >= 0 && x < W ? { y, x } : null);
    };
    this.canvas = h("canvas", {
      class: "map", role: "img", width: W * cell, height: H * cell,
      onpointermove: point, onpointerleave: () => onPoint(null),
    });
  }

  /** Draw H * W couplings in colours of a scale with this range; `spot` is marked. */
  draw(values, { colour, range: [least, most], spot, parent }) {
    const context = this.canvas.getContext("2d");
    const side = this.cell;
    values.forEach((value, cell) => {
      context.fillStyle = colour((value - least) / (most - least || 1));
      context.fillRect((cell % this.W) * side, Math.floor(cell / this.W) * side, side, side);
    });
    if (!spot) return;
    context.strokeStyle = parent;
    context.lineWidth = 2.5;
    context.strokeRect(spot.x * side + 1.25, spot.y * side + 1.25, side - 2.5, side - 2.5);
  }
}

/** One map per class; below it how present the class is, and lighter how present it was before. A click selects the class. */
export class Overview {
  constructor(trace, classes, { onChoose, onPoint }) {
    this.cards = classes.map((name, j) => {
      const map = new CouplingMap(trace.H, trace.W, onPoint);
      const bar = h("span", { class: "length-now" });
      const ghost = h("span", { class: "length-before" });
      const number = h("span", { class: "number" });
      const button = h("button",
        { type: "button", class: "map-class", "data-testid": `map-class-${j}`, onclick: () => onChoose(j) },
        map.canvas,
        h("span", { class: "row map-caption" }, h("b", {}, name), number),
        h("span", { class: "length-bar", "aria-hidden": "true" }, ghost, bar));
      dye(button, j, classes.length);
      return { map, bar, ghost, number, button, name };
    });
    this.element = h("div", { class: "maps-overview" }, ...this.cards.map(({ button }) => button));
  }

  /** One scale for all classes and iterations of a trace, so that maps can be compared. */
  rescale(trace) {
    this.range = trace.range((r, parent) => trace.map(r, parent));
  }

  draw(trace, at, klass, look) {
    const iteration = Math.round(at);
    const spot = trace.H * trace.W > 1 ? look.spot : null; // a single place needs no mark
    this.cards.forEach(({ map, bar, ghost, number, button, name }, j) => {
      const values = trace.map(at, j);
      const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
      const now = trace.lengths[iteration][j];
      const before = trace.lengths[Math.max(0, iteration - 1)][j];
      map.draw(values, { ...look, range: this.range, spot });
      map.canvas.setAttribute("aria-label", `Couplings to ${name}: ${mean.toFixed(2)} on average`);
      bar.style.width = `${100 * trace.length(at, j)}%`;
      ghost.style.width = `${100 * before}%`;
      number.textContent = now.toFixed(2);
      button.setAttribute("aria-pressed", String(j === klass));
      button.setAttribute("aria-label", `${name}: ${now.toFixed(2)}, one iteration before ${before.toFixed(2)}`);
    });
  }
}

/** The selected class, taken apart into capsule types. */
export class Types {
  constructor(trace, { onPoint }) {
    this.maps = Array.from({ length: trace.T }, (_, type) => {
      const map = new CouplingMap(trace.H, trace.W, (place) => onPoint(place && { ...place, type }));
      map.canvas.setAttribute("data-testid", `map-type-${type}`);
      return map;
    });
    this.element = h("div", { class: "maps-types" }, ...this.maps.map(({ canvas }) => canvas));
    this.element.style.setProperty("--columns", trace.T > 16 ? 8 : Math.min(4, trace.T));
  }

  /** One scale for all types, classes and iterations: a darker square is always a stronger coupling. */
  rescale(trace) {
    const children = [...Array(trace.I).keys()];
    this.range = trace.range((r, parent) => children.map((child) => trace.coupling(r, child, parent)));
  }

  draw(trace, at, klass, name, look) {
    this.maps.forEach((map, type) => {
      const values = trace.map(at, klass, type);
      const marked = look.spot && (look.spot.type === null ? trace.H * trace.W > 1 : look.spot.type === type);
      map.draw(values, { ...look, range: this.range, spot: marked ? look.spot : null });
      const most = Math.max(...values).toFixed(2);
      map.canvas.setAttribute("aria-label", `Type ${type + 1} to ${name}: couplings up to ${most}`);
    });
  }
}

/** The colour scale with its numbers; a tick marks an equal share, where most routings start, or else zero. */
export class Legend {
  constructor(what) {
    this.canvas = h("canvas", { class: "map-scale-ramp", width: 128, height: 1, role: "img" });
    this.tick = h("span", { class: "map-scale-tick" });
    this.least = h("span", {});
    this.most = h("span", {});
    this.begin = h("span", {});
    const bar = h("span", { class: "map-scale-bar" }, this.canvas, this.tick);
    this.element = h("div", { class: "row map-scale" }, h("span", {}, what), this.least, bar, this.most, this.begin);
  }

  draw({ colour, range: [least, most] }, { start, even, shared }) {
    const context = this.canvas.getContext("2d");
    for (let n = 0; n < 128; n += 1) {
      context.fillStyle = colour(n / 127);
      context.fillRect(n, 0, 1, 1);
    }
    this.least.textContent = digits(least);
    this.most.textContent = digits(most);
    this.tick.style.left = `${(100 * (start - least)) / (most - least || 1)}%`;
    const share = even ? `all start at ${digits(start)}` : `an equal share, ${digits(start)}`;
    this.begin.textContent = `(mark: ${shared ? share : "zero; negative votes count against"})`;
    this.canvas.setAttribute("aria-label", `Colour scale from ${digits(least)} to ${digits(most)}`);
  }
}
