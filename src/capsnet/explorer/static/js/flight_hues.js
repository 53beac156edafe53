/** The colours of votes and phases: those of the classes, and what lies between them on the colour circle. */

import { hue } from "./hues.js";

/** The colour of class j of `count`: for the black ground of a picture, or ("light") for a white one. */
export const hueOf = (j, count, ground = "dark") => phaseColour(j / count, count, 1, ground);

/** The colour of a phase, paler with less `strength`. Class j of `count` has the phase j / count, in turns. */
export function phaseColour(turn, count, strength = 1, ground = "dark") {
  const [lightness, chroma] = ground === "dark" ? [0.78, 0.14] : [0.55, 0.14];
  return `oklch(${lightness} ${chroma * strength} ${hue(turn * count, count).toFixed(1)})`;
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
