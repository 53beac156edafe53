/** The colours of votes: those of the classes. */

import { hue } from "./hues.js";

/** The colour of class j of `count`, paler with less `strength`: for the black ground of a picture, or a "light" one. */
export function hueOf(j, count, ground = "dark", strength = 1) {
  const [lightness, chroma] = ground === "dark" ? [0.78, 0.14] : [0.55, 0.14];
  return `oklch(${lightness} ${chroma * strength} ${hue(j, count).toFixed(1)})`;
}

const known = new Map();
let probe = null;

/** A CSS colour as [r, g, b] bytes. */
export function bytesOf(colour) {
  if (!known.has(colour)) {
    probe ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    probe.fillStyle = colour;
    probe.fillRect(0, 0, 1, 1);
    known.set(colour, [...probe.getImageData(0, 0, 1, 1).data.subarray(0, 3)]);
  }
  return known.get(colour);
}
