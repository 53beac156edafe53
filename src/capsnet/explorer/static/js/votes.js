/** The votes of all children for one parent, in the plane where they differ most, and the parent moving among them. */

import { h } from "./elements.js";
import { fromBase64 } from "./pixels.js";
import { fit } from "./ramp.js";
import { between } from "./trace.js";

const NEAR = 14; // CSS pixels: how close a pointer has to come to a vote

export class VotePlot {
  /** `onPoint` gets the number of a child, or null. */
  constructor(onPoint) {
    this.canvas = h("canvas", { class: "votes", role: "img", "data-testid": "votes" });
    this.words = h("p", { class: "note votes-words" });
    this.element = h("div", { class: "votes-box" }, this.canvas, this.words);
    this.votes = null;
    this.view = { x: 0, y: 0, reach: 1 };
    this.canvas.addEventListener("pointermove", (event) => onPoint(this.nearest(event)));
    this.canvas.addEventListener("pointerleave", () => onPoint(null));
  }

  /** Take the votes of /api/trace for a class. */
  show({ points, parents, origin, explained }, klass, name) {
    const numbers = new Float32Array(fromBase64(points).buffer); // little-endian, as machines with a browser are
    const moved = (place) => place.map((value, axis) => value - origin[axis]); // the vote of length zero: in the middle
    const votes = Array.from({ length: numbers.length / 2 }, (_, n) => moved([numbers[2 * n], numbers[2 * n + 1]]));
    const path = parents.map(moved);
    Object.assign(this, { votes, path, explained, klass, name, view: viewOf([[0, 0], ...path, ...votes]) });
  }

  /** Where something of the plane is on the canvas; y points upwards. */
  screen(x, y) {
    const half = this.size / 2;
    const { x: midX, y: midY, reach } = this.view;
    return [half + ((x - midX) / reach) * half, half - ((y - midY) / reach) * half];
  }

  nearest(event) {
    if (!this.votes) return null;
    const box = this.canvas.getBoundingClientRect();
    const [left, top] = [event.clientX - box.left, event.clientY - box.top];
    let [best, least] = [null, NEAR];
    this.votes.forEach((vote, child) => {
      const [x, y] = this.screen(...vote);
      const distance = Math.hypot(x - left, y - top);
      if (distance < least) [best, least] = [child, distance];
    });
    return best;
  }

  /** Draw the votes at a point in time; `hot(child)` says whether a vote is pointed at, null if none is. */
  draw(trace, at, hot, colours) {
    this.size = this.canvas.clientWidth || 320;
    const context = fit(this.canvas, this.size, this.size);
    this.frame(context, colours.line);
    if (!this.votes) return;
    const { votes, explained, name } = this;
    const order = [...votes.keys()];
    if (hot) order.sort((a, b) => hot(a) - hot(b)); // those that are pointed at lie on top
    for (const child of order) {
      const coupling = trace.coupling(at, child, this.klass) / trace.most;
      const strength = Math.abs(coupling);
      context.globalAlpha = (hot && !hot(child) ? 0.3 : 1) * Math.min(1, 0.1 + 1.4 * strength);
      context.fillStyle = coupling < 0 ? "transparent" : colours.vote;
      disc(context, ...this.screen(...votes[child]), 1.5 + 7 * strength);
      if (coupling < 0) ring(context, colours.vote);
      context.globalAlpha = 1;
      if (hot?.(child)) ring(context, colours.ink);
    }
    const [x, y] = this.drawPath(context, at, colours);
    this.canvas.setAttribute(
      "aria-label",
      `${order.length} votes for ${name} in the plane; after iteration ${Math.round(at) + 1} the capsule ` +
        `is ${Math.hypot(x, y).toFixed(2)} from the middle`,
    );
    this.words.textContent =
      `Each dot is one child's vote for “${name}”, larger and stronger the more it is coupled` +
      `${trace.offset < 0 ? ", hollow where it counts against it" : ""}. The line is the ` +
      `capsule, iteration by iteration. The plane shows ${Math.round(100 * explained)}\u00a0% of how the votes differ.`;
  }

  /** The circle of length 1 and a cross at the origin. */
  frame(context, line) {
    const [x, y] = this.screen(0, 0);
    const path = new Path2D(`M${x - 5} ${y}h10M${x} ${y - 5}v10`);
    path.moveTo(x + this.size / 2 / this.view.reach, y);
    path.arc(x, y, this.size / 2 / this.view.reach, 0, 2 * Math.PI);
    Object.assign(context, { strokeStyle: line, lineWidth: 1 });
    context.stroke(path);
  }

  /** The parent from the first iteration on, as far as time has come: a line, small dots, one big one. */
  drawPath(context, at, { ink, parent }) {
    const { path } = this;
    const here = [0, 1].map((axis) => between(at, path.length, (r) => path[r][axis]));
    const stops = [...path.slice(0, Math.floor(at) + 1), here].map((stop) => this.screen(...stop));
    Object.assign(context, { strokeStyle: parent, fillStyle: parent, lineWidth: 2.5 });
    context.stroke(new Path2D(`M${[this.screen(0, 0), ...stops].join("L")}`));
    for (const stop of stops.slice(0, -1)) disc(context, ...stop, 3.5);
    disc(context, ...stops.at(-1), 9);
    ring(context, ink);
    return here;
  }
}

function ring(context, colour) {
  Object.assign(context, { strokeStyle: colour, lineWidth: 1.5 });
  context.stroke();
}

function disc(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

/** The square that holds all these places. */
function viewOf(places) {
  const [x, y] = [0, 1].map((axis) => {
    const values = places.map((place) => place[axis]);
    return { low: Math.min(...values), high: Math.max(...values) };
  });
  const side = Math.max(x.high - x.low, y.high - y.low, 1);
  return { x: (x.low + x.high) / 2, y: (y.low + y.high) / 2, reach: 0.56 * side };
}
