/** One hue per class, evenly around the colour circle, in steps that look equally different. */

const FIRST = 25; // degrees of the first class

/** The colour of class j of `count`, as a CSS colour: for the black ground of a picture, or, dark, for text on white. */
export const hueOf = (j, count, ground = "dark") => colourAt(j / count, 1, ground);

/** The same for any place on the circle (0 to 1), paler with less `strength`. */
export function colourAt(turn, strength = 1, ground = "dark") {
  const [lightness, chroma] = ground === "dark" ? [0.78, 0.15] : [0.56, 0.15];
  return `oklch(${lightness} ${chroma * strength} ${((360 * turn + FIRST) % 360).toFixed(1)})`;
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
