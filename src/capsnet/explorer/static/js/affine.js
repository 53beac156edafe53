/** Turning, shearing, scaling and shifting a picture around its middle, with bilinear sampling. */

import { blank } from "./pixels.js";

/** What a person can do with a picture: the name, the range, the value that changes nothing, how a value is written. */
export const MOVES = {
  turn: { name: "Turn", range: [-90, 90], step: 1, own: 0, write: (value) => `${signed(value, 0)}°` },
  shear: { name: "Shear", range: [-1, 1], step: 0.01, own: 0, write: (value) => signed(value, 2) },
  size: { name: "Scale", range: [0.5, 1.5], step: 0.01, own: 1, write: (value) => `× ${value.toFixed(2)}` },
  shift: { name: "Shift", range: [-10, 10], step: 0.1, own: 0, write: (value) => `${signed(value, 1)} px` },
};

const signed = (value, digits) => {
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : `${value > 0 ? "+" : "−"}${text}`;
};

export const unmoved = () => Object.fromEntries(Object.entries(MOVES).map(([key, { own }]) => [key, own]));

/** The matrix [a, b, c, d] from picture to picture, without the shift: turned clockwise after it was sheared. */
function matrix({ turn, shear, size }) {
  const [cos, sin] = [Math.cos((turn * Math.PI) / 180), Math.sin((turn * Math.PI) / 180)];
  return [size * cos, size * (-shear * cos - sin), size * sin, size * (-shear * sin + cos)];
}

/** The picture moved so; what comes from outside of the frame is black. */
export function moved(picture, move) {
  const { width, height, channels, bytes } = picture;
  const [a, b, c, d] = matrix(move);
  const determinant = a * d - b * c;
  const result = blank(width, height, channels);
  const [midX, midY] = [(width - 1) / 2, (height - 1) / 2];
  const read = (x, y, k) => (x < 0 || y < 0 || x >= width || y >= height ? 0 : bytes[(y * width + x) * channels + k]);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const right = x - midX - move.shift;
      const down = y - midY;
      const fromX = midX + (d * right - b * down) / determinant;
      const fromY = midY + (a * down - c * right) / determinant;
      const left = Math.floor(fromX);
      const top = Math.floor(fromY);
      const u = fromX - left;
      const v = fromY - top;
      for (let k = 0; k < channels; k += 1) {
        const above = (1 - u) * read(left, top, k) + u * read(left + 1, top, k);
        const below = (1 - u) * read(left, top + 1, k) + u * read(left + 1, top + 1, k);
        result.bytes[(y * width + x) * channels + k] = Math.round((1 - v) * above + v * below);
      }
    }
  }
  return result;
}

/** The angle between two vectors in degrees. */
export function angleBetween(first, second) {
  const dot = first.reduce((sum, value, n) => sum + value * second[n], 0);
  const lengths = Math.hypot(...first) * Math.hypot(...second);
  return lengths > 0 ? (Math.acos(Math.min(1, Math.max(-1, dot / lengths))) * 180) / Math.PI : 0;
}
