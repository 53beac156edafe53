/** A small chart on a canvas: lines over an axis, and a mark where one is now. */

import { h } from "./elements.js";
import { colourOf, fit } from "./ramp.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [34, 10, 8, 22];
const WIDE = 7; // from 700 pixels of its panel on, a chart grows with it

export class Chart {
  /** `height` in CSS pixels, more in a wide panel; `onPoint(x)` gets the place on the axis that a pointer presses or drags to. */
  constructor({ testid, label, height = 150, onPoint = null }) {
    this.canvas = h("canvas", { class: "chart", role: "img", "aria-label": label, "data-testid": testid });
    this.canvas.style.height = `max(${height}px, ${(height / WIDE).toFixed(1)}cqi)`;
    this.plot = null;
    if (onPoint) this.listen(onPoint);
    addEventListener("themechange", () => { this.colours = null; this.redraw(); });
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
  }

  listen(onPoint) {
    const point = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const [low, high] = this.plot?.x ?? [0, 1];
      const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
      if (event.buttons & 1) onPoint(low + Math.min(1, Math.max(0, share)) * (high - low));
    };
    this.canvas.style.touchAction = "pan-y";
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      point(event);
    });
    this.canvas.addEventListener("pointermove", point);
  }

  redraw() {
    if (this.plot) this.draw(this.plot);
  }

  /**
   * Draw `lines` [{points: [[x, y], ...], colour, dash, line, dots}] over the ranges `x` and `y`. `now` is marked by a
   * line; `ticks` [x, text] stand below the axis, `levels` [y, text] beside it, `marks` [x, text] at dashed lines.
   * Colours may be names of custom properties.
   */
  draw(plot) {
    this.plot = plot;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const context = fit(this.canvas, width, height);
    const paint = this.palette();
    const { x: [x0, x1], y: [y0, y1], lines, now, ticks = [], levels = [], marks = [] } = plot;
    const px = (x) => LEFT + ((x - x0) / (x1 - x0)) * (width - LEFT - RIGHT);
    const py = (y) => height - BOTTOM - ((y - y0) / (y1 - y0)) * (height - TOP - BOTTOM);
    const stroke = (colour, line, path) => {
      Object.assign(context, { strokeStyle: colour, lineWidth: line });
      context.beginPath();
      path();
      context.stroke();
    };
    context.font = "11.5px system-ui, sans-serif";
    const write = (text, x, y, align, colour = paint("--muted")) => {
      Object.assign(context, { fillStyle: colour, textAlign: align });
      context.fillText(text, x, y);
    };
    for (const [y, text] of levels) {
      stroke(paint("--line"), 1, () => { context.moveTo(LEFT, py(y)); context.lineTo(width - RIGHT, py(y)); });
      write(text, LEFT - 5, py(y) + 4, "right");
    }
    const inside = (x) => Math.min(width - RIGHT - 8, Math.max(LEFT + 4, x));
    for (const [x, text] of ticks) write(text, inside(px(x)), height - 6, "center");
    const upright = (x) => () => { context.moveTo(px(x), TOP); context.lineTo(px(x), py(y0)); };
    for (const [x, text] of marks) {
      context.setLineDash([4, 3]);
      stroke(paint("--muted"), 1, upright(x));
      context.setLineDash([]);
      write(text, px(x) + 4, TOP + 10, "left", paint("--ink"));
    }
    if (now !== undefined) stroke(paint("--ink"), 1, upright(now));
    for (const { points, colour, dash = [], line = 2, dots = false } of lines) {
      context.setLineDash(dash);
      const place = ([x, y]) => [px(x), py(Math.min(y1, Math.max(y0, y)))];
      const path = () => points.forEach((point, n) => context[n ? "lineTo" : "moveTo"](...place(point)));
      stroke(paint(colour), line, path);
      context.setLineDash([]);
      context.fillStyle = paint(colour);
      for (const point of dots ? points : []) {
        context.beginPath();
        context.arc(...place(point), 4, 0, 2 * Math.PI);
        context.fill();
      }
    }
  }

  /** What a custom property, or any CSS colour, is on this page: asked once per theme. */
  palette() {
    this.colours ??= new Map();
    return (name) => {
      if (!this.colours.has(name)) {
        this.colours.set(name, colourOf(this.canvas.parentElement, name.startsWith("--") ? `var(${name})` : name));
      }
      return this.colours.get(name);
    };
  }
}
