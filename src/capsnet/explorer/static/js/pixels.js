/**
 * Pictures: {width, height, channels, bytes}, row by row, channels last; a byte b means b / 255. On the wire the bytes
 * are base64 in `data`. One channel is grey, three are colours, four are colours with opacity.
 */

// Okabe and Ito's sky blue and orange, which people with any colour vision tell apart: missing and added ink.
const BLUE = [86, 180, 233];
const ORANGE = [230, 159, 0];

const toBase64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

export const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

/** Bytes as base64url: for the address bar. */
export const toBase64url = (bytes) => toBase64(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");

/** Undo `toBase64url`; null for any other text. */
export function fromBase64url(text) {
  try {
    return fromBase64(text.replaceAll("-", "+").replaceAll("_", "/"));
  } catch {
    return null;
  }
}

/** A picture as the server sent it, ready to use. null stays null. */
export function fromWire(wire) {
  if (!wire) return null;
  const { width, height, channels } = wire;
  return { width, height, channels, bytes: fromBase64(wire.data) };
}

export const toWire = ({ width, height, channels, bytes }) => ({ width, height, channels, data: toBase64(bytes) });

export function blank(width, height, channels = 1) {
  return { width, height, channels, bytes: new Uint8Array(width * height * channels) };
}

/** Nothing is on it. */
export const isBlank = ({ bytes }) => bytes.every((byte) => byte === 0);

/** Whether a picture is of a network's own size and channels. */
export function fits(picture, { image_size: [height, width], channels }) {
  return picture.height === height && picture.width === width && picture.channels === channels;
}

export function alike(a, b) {
  return a.width === b.width && a.height === b.height && a.channels === b.channels &&
    a.bytes.every((byte, n) => byte === b.bytes[n]);
}

/** A part of a picture; what lies outside of the picture is black. */
function crop(picture, left, top, width, height) {
  const { channels } = picture;
  const part = blank(width, height, channels);
  const [first, last] = [Math.max(0, -left), Math.min(width, picture.width - left)];
  for (let y = Math.max(0, -top); y < Math.min(height, picture.height - top); y += 1) {
    const from = ((y + top) * picture.width + left + first) * channels;
    part.bytes.set(picture.bytes.subarray(from, from + (last - first) * channels), (y * width + first) * channels);
  }
  return part;
}

/** The middle of a picture, or the picture in the middle of a larger black frame. */
export function centred(picture, width, height) {
  return crop(picture, -((width - picture.width) >> 1), -((height - picture.height) >> 1), width, height);
}

/** A picture in the middle of a network's frame; null where ink would be cut off, or for other channels. */
export function placed(picture, { image_size: [height, width], channels }) {
  if (picture.channels !== channels) return null;
  const whole = centred(picture, width, height);
  const ink = ({ bytes }) => bytes.reduce((count, byte) => count + (byte > 0), 0);
  return ink(whole) === ink(picture) ? whole : null;
}

/** A canvas of the picture's own size, to draw others from. */
export function nativeCanvas(pixels) {
  const canvas = new OffscreenCanvas(pixels.width, pixels.height);
  canvas.getContext("2d").putImageData(toImageData(pixels), 0, 0);
  return canvas;
}

/**
 * Put a picture on a canvas, one canvas pixel per picture pixel: CSS gives it its size on the page. `palette` turns a
 * grey byte into [r, g, b].
 */
export function paint(canvas, pixels, { palette } = {}) {
  const image = toImageData(pixels, palette);
  if (canvas.width !== image.width) canvas.width = image.width;
  if (canvas.height !== image.height) canvas.height = image.height;
  canvas.classList.add("pixels");
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function toImageData({ width, height, channels, bytes }, palette) {
  const image = new ImageData(width, height);
  const out = image.data;
  const last = Math.min(channels, 3) - 1; // a grey byte serves as all three colours
  for (let n = 0, from = 0, to = 0; n < width * height; n += 1, from += channels, to += 4) {
    const colour = palette?.(bytes[from]);
    for (let c = 0; c < 3; c += 1) out[to + c] = colour ? colour[c] : bytes[from + Math.min(c, last)];
    out[to + 3] = channels === 4 ? bytes[from + 3] : 255;
  }
  return image;
}

/** The brightness of each pixel, 0..255, whatever the channels. */
function brightness({ width, height, channels, bytes }) {
  if (channels === 1) return bytes;
  const grey = new Uint8Array(width * height);
  for (let n = 0; n < grey.length; n += 1) {
    grey[n] = 0.299 * bytes[n * channels] + 0.587 * bytes[n * channels + 1] + 0.114 * bytes[n * channels + 2];
  }
  return grey;
}

/** How far two pictures of one size are apart: the mean difference, in percent. */
export function apartness(a, b) {
  const sum = a.bytes.reduce((total, byte, n) => total + Math.abs(byte - b.bytes[n]), 0);
  return (100 * sum) / (255 * a.bytes.length);
}

/** a - b as a picture: orange where a has more, blue where b has more, black where they agree. */
export function difference(a, b) {
  const [first, second] = [brightness(a), brightness(b)];
  return mix(a, (n) => Math.max(0, second[n] - first[n]), (n) => Math.max(0, first[n] - second[n]));
}

/** Two pictures over one another, each in its ink ([r, g, b]); both add up where both have some. */
export function tint(a, b, inks) {
  const [first, second] = [brightness(a), brightness(b)];
  return mix(a, (n) => first[n], (n) => second[n], inks);
}

function mix({ width, height }, one, other, [first, second] = [BLUE, ORANGE]) {
  const bytes = new Uint8ClampedArray(width * height * 3);
  for (let n = 0; n < width * height; n += 1) {
    const [x, y] = [one(n) / 255, other(n) / 255];
    for (let c = 0; c < 3; c += 1) bytes[3 * n + c] = x * first[c] + y * second[c];
  }
  return { width, height, channels: 3, bytes };
}

/** Picture number n of those that stand side by side in one row, each `width` wide. */
export const frame = (sprite, n, width) => crop(sprite, n * width, 0, width, sprite.height);
