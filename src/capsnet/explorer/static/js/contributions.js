/**
 * What each child contributes to a class capsule, c (û · v) / |v|: over all children this adds up to |s|, the length
 * before it is squashed. Here it is painted on the strokes that the children see.
 */

import { fromBase64 } from "./pixels.js";
import { between } from "./trace.js";

const CORE = 6; // a child sees its patch all over, but mostly its middle: that many deviations fit into it

export class Contributions {
  /** @param {object} answer of /api/trace, @param {Trace} trace the same answer, read. */
  constructor({ contributions, contribution }, trace) {
    const bytes = fromBase64(contributions);
    this.numbers = new Int16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
    this.unit = contribution / 32767;
    this.trace = trace;
    this.sums = this.sumUp();
  }

  /** Contributions of each cell of the grid, all types together: (R, J, H * W). */
  sumUp() {
    const { R, J, I, T } = this.trace;
    const cells = I / T;
    const sums = new Float32Array(R * J * cells);
    for (let r = 0; r < R; r += 1) {
      for (let child = 0; child < I; child += 1) {
        const cell = Math.floor(child / T);
        const row = (r * I + child) * J;
        for (let j = 0; j < J; j += 1) sums[(r * J + j) * cells + cell] += this.unit * this.numbers[row + j];
      }
    }
    return sums;
  }

  /** What the children at one place contribute to a class. */
  cell(at, parent, cell) {
    const { R, J, H, W } = this.trace;
    return between(at, R, (r) => this.sums[(r * J + parent) * H * W + cell]);
  }

  cells(at, parent) {
    return Float32Array.from({ length: this.trace.H * this.trace.W }, (_, cell) => this.cell(at, parent, cell));
  }

  /** |s|: the length of a class before it is squashed. */
  total(at, parent) {
    return this.cells(at, parent).reduce((sum, value) => sum + value, 0);
  }
}

/** Which pixels the children of each place see, and how much of their contribution each of these gets. */
export class Strokes {
  constructor({ width, height, channels, bytes }, { H, W }, receptive) {
    this.ink = new Float32Array(width * height);
    for (let n = 0; n < this.ink.length; n += 1) {
      for (let c = 0; c < channels; c += 1) this.ink[n] = Math.max(this.ink[n], bytes[n * channels + c] / 255);
    }
    Object.assign(this, { width, height });
    const patches = (near) => Array.from({ length: H * W }, (_, cell) =>
      this.patch(near(span(cell % W, W, width, receptive)), near(span(Math.floor(cell / W), H, height, receptive))));
    this.seen = patches((axis) => axis);
    this.own = patches((axis) => core(axis, receptive)); // hardly any other place has it: it tells the places apart
  }

  /** Inked pixels of a patch with weights that add up to one, so that nothing of a contribution is lost; or none. */
  patch(x, y) {
    const [pixels, weights, middle] = [[], [], [0, 0]];
    let sum = 0;
    for (let row = y.first; row < y.last; row += 1) {
      for (let column = x.first; column < x.last; column += 1) {
        const n = row * this.width + column;
        if (this.ink[n] < 0.05) continue;
        const far = ((column + 0.5 - x.middle) ** 2 + (row + 0.5 - y.middle) ** 2) / (2 * x.spread ** 2);
        const weight = this.ink[n] * Math.exp(-far);
        pixels.push(n);
        weights.push(weight);
        sum += weight;
        middle[0] += weight * (column + 0.5);
        middle[1] += weight * (row + 0.5);
      }
    }
    const place = sum ? middle.map((value) => value / sum) : [x.middle, y.middle];
    return { pixels, weights: weights.map((weight) => weight / sum), middle: place };
  }

  /** Contributions of the places (H * W) as contributions of the pixels. */
  spread(cells, patches = this.seen) {
    const heat = new Float32Array(this.ink.length);
    patches.forEach(({ pixels, weights }, cell) => {
      for (let n = 0; n < pixels.length; n += 1) heat[pixels[n]] += cells[cell] * weights[n];
    });
    return heat;
  }
}

/** The pixels of one axis that the children of a position see, or, if that is not known, those of its share. */
function span(position, count, size, receptive) {
  const long = receptive?.size ?? size / count;
  const start = receptive ? receptive.start + receptive.stride * position : position * long;
  const [first, last] = [Math.max(0, Math.floor(start)), Math.min(size, Math.ceil(start + long))];
  const whole = count === 1 || !receptive; // one place sees all of the picture alike
  return { first, last, middle: start + long / 2, spread: whole ? 1e6 : long / CORE };
}

/** The middle of what a place sees: as far as the next place on each side. */
function core({ first, last, middle }, receptive) {
  const reach = receptive?.stride ?? last - first;
  const [from, to] = [Math.max(first, Math.floor(middle - reach)), Math.min(last, Math.ceil(middle + reach))];
  return { first: from, last: to, middle, spread: reach / 2 };
}
