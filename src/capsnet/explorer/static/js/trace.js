/**
 * What happened in each iteration of a routing: couplings (R, I, J) as bytes, with the children on a grid. `at` is a
 * point in time that may lie between two iterations, so that views can move smoothly.
 */

import { fromBase64 } from "./pixels.js";

export class Trace {
  /**
   * @param {object} answer of /api/trace. A byte b means offset + scale * b / 255: attention's couplings are small, and
   *   with a learned prior they may be below zero. `start` is an equal share; null where nothing is shared out.
   */
  constructor({ iterations, grid, couplings, offset, scale, start, entropy, lengths }) {
    [this.H, this.W, this.T] = grid;
    this.R = iterations;
    this.J = lengths[0].length;
    this.I = this.H * this.W * this.T;
    Object.assign(this, { offset, entropy, lengths, scale: scale / 255 });
    this.most = Math.max(-offset, offset + scale, 1e-12); // the largest coupling, of either sign
    this.shared = start !== null;
    this.start = start ?? 0; // where all couplings begin; of those that share nothing out: neither for nor against
    this.bytes = fromBase64(couplings);
    this.even = isEven(this.bytes.subarray(0, this.I * this.J)); // else the first iteration has routed already
  }

  /** Where a child is: they are ordered (y, x, type). */
  place(child) {
    const cell = Math.floor(child / this.T);
    return { y: Math.floor(cell / this.W), x: cell % this.W, type: child % this.T };
  }

  coupling(at, child, parent) {
    return between(at, this.R, (r) => this.offset + this.scale * this.bytes[(r * this.I + child) * this.J + parent]);
  }

  length(at, parent) {
    return between(at, this.R, (r) => this.lengths[r][parent]);
  }

  /** Couplings of the children of a type to a parent, or (null) the mean over the types, row by row: H * W numbers. */
  map(at, parent, type = null) {
    const types = type === null ? [...Array(this.T).keys()] : [type];
    return Array.from({ length: this.H * this.W }, (_, cell) =>
      types.reduce((sum, each) => sum + this.coupling(at, cell * this.T + each, parent), 0) / types.length);
  }

  /**
   * The least and the largest value of a map, of any parent, in any iteration: the ends of its scale. It is never
   * narrower than a third around the start, so that rounding does not look like routing.
   */
  range(map) {
    let [least, most] = [(2 / 3) * this.start, (4 / 3) * this.start];
    for (let n = 0; n < this.R * this.J; n += 1) {
      const values = map(Math.floor(n / this.J), n % this.J);
      [least, most] = [Math.min(least, ...values), Math.max(most, ...values)];
    }
    return [least, most];
  }
}

/** All the same, but for rounding. */
function isEven(bytes) {
  let [least, most] = [255, 0];
  for (const byte of bytes) [least, most] = [Math.min(least, byte), Math.max(most, byte)];
  return most - least <= 1;
}

/** A coupling in words: two decimals, of a small one two digits. */
export const digits = (value) => value === 0 || Math.abs(value) >= 0.1 ? value.toFixed(2) : value.toPrecision(2);

/** A quantity that is known at whole iterations, at a place in time between two of them. */
export function between(at, count, value) {
  const place = Math.min(count - 1, Math.max(0, at));
  const before = Math.floor(place);
  const share = place - before;
  return share === 0 ? value(before) : (1 - share) * value(before) + share * value(before + 1);
}
