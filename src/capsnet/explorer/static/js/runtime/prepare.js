/** From any picture to a network's input, as `capsnet.data.Preprocess` does it. */

import { clipped, map, plane, resize } from "./filters.js";
import { findInk } from "./find_ink.js";
import { BOX, frameInk } from "./frame_ink.js";
import { imageData } from "./image.js";
import { round, toByte } from "./numbers.js";

const LUMA = [0.299, 0.587, 0.114];
const LEAST_SIDE = 8;
const ENOUGH = 768; // pixels of the longer side in which ink is looked for
const MOST_PIXELS = 40e6;
const NO_DIGIT = "no digit was found: the image is blank, or the ink is too faint to tell from the paper";

/** What the network sees of a drawing; black where there is no ink yet, which is not an error of the user's. */
export function see(picture, model, centre) {
  const { image_size: [height, width], channels } = model;
  const how = preparation(model, centre);
  if (how.style === "digit" && Math.min(picture.height, picture.width) < LEAST_SIDE) {
    const size = `${picture.width} x ${picture.height}`;
    throw new Error(`a digit needs at least ${LEAST_SIDE} x ${LEAST_SIDE} pixels, image has ${size}`);
  }
  const blank = picture.bytes.every((byte) => byte === 0);
  const planes = blank ? null : prepared(planesOf(picture), how);
  return planes ? toPicture(planes) : { width, height, channels, bytes: new Uint8Array(width * height * channels) };
}

/** What the network sees of a picture file. */
export async function upload(file, model, centre) {
  const options = { imageOrientation: "from-image", premultiplyAlpha: "none", colorSpaceConversion: "none" };
  const bitmap = await createImageBitmap(file, options).catch(() => {
    throw new Error("this is not a picture that the browser can read");
  });
  if (bitmap.width * bitmap.height > MOST_PIXELS) {
    const size = `${bitmap.width} x ${bitmap.height}`;
    throw new Error(`the image is too large: ${size}, at most ${MOST_PIXELS.toLocaleString("en-GB")} pixels are read`);
  }
  const how = preparation(model, centre);
  const enough = how.style === "digit" ? ENOUGH : 4 * Math.max(how.height, how.width);
  const planes = prepared(opaque(reduced(imageData(bitmap), enough)), how);
  if (!planes) throw new Error(NO_DIGIT);
  return toPicture(planes);
}

/** The model's own preparation, or, not centred, the picture fitted into its frame as it is. */
function preparation({ prepare, image_size: [height, width], channels }, centre) {
  return centre ? prepare : { style: "plain", height, width, channels, fit: "pad", border: 0 };
}

/** Planes in [0, 1] of the frame's size, one per channel; null if no digit was found. */
export function prepared(planes, how) {
  if (how.style !== "digit") return plain(planes, how);
  const framed = digit(planes, how);
  return framed && Array.from({ length: how.channels }, () => framed);
}

function digit(planes, { height, width, border }) {
  const ready = alreadyFramed(planes, height, width);
  if (ready) return ready;
  const [high, wide] = [height - 2 * border, width - 2 * border];
  let inner = alreadyFramed(planes, high, wide);
  if (!inner) {
    const ink = findInk(planes);
    if (!ink) return null;
    inner = frameInk(ink, high, wide);
  }
  const out = plane(height, width);
  for (let y = 0; y < high; y += 1) {
    out.data.set(inner.data.subarray(y * wide, (y + 1) * wide), (y + border) * width + border);
  }
  return out;
}

/** A picture in MNIST's format (either polarity) as it is, white on black; else null. */
function alreadyFramed(planes, height, width) {
  if (planes[0].height !== height || planes[0].width !== width) return null;
  let grey = map(planes[0], (_, n) => planes.reduce((sum, { data }) => sum + data[n], 0) / planes.length);
  const margin = Math.max(1, round(((1 - BOX) / 2) * 0.4 * Math.min(height, width)));
  const border = [];
  const collect = () => grey.data.filter((_, n) => {
    const [y, x] = [Math.floor(n / width), n % width];
    return Math.min(y, x, height - 1 - y, width - 1 - x) < margin;
  });
  border.push(...collect());
  if (border.reduce((sum, value) => sum + value, 0) / border.length > 0.5) {
    grey = map(grey, (value) => 1 - value);
    border.splice(0, border.length, ...collect());
  }
  let [mass, down, right, most] = [0, 0, 0, 0];
  grey.data.forEach((value, n) => {
    mass += value;
    down += value * Math.floor(n / width);
    right += value * (n % width);
    most = Math.max(most, value);
  });
  if (Math.max(...border) > 0.1 || most < 0.9) return null;
  const away = Math.max(Math.abs(down / mass - height / 2) / height, Math.abs(right / mass - width / 2) / width);
  return away < 1.2 / 28 ? grey : null;
}

function plain(planes, { height, width, channels, fit }) {
  const colours = channels === 3 && planes.length === 1 ? [planes[0], planes[0], planes[0]] : planes;
  const grey = () => (planes.length === 1 ? planes[0]
    : map(planes[0], (_, n) => planes.reduce((sum, { data }, c) => sum + LUMA[c] * data[n], 0)));
  // a resize needs two pixels a side: repeat a single row or column
  return (channels === 1 ? [grey()] : colours).map((each) => clipped(fitted(doubled(each), height, width, fit)));
}

function doubled(of) {
  const [high, wide] = [Math.max(2, of.height), Math.max(2, of.width)];
  const from = (n) => Math.min(of.height - 1, Math.floor(n / wide)) * of.width + Math.min(of.width - 1, n % wide);
  return map(plane(high, wide), (_, n) => of.data[from(n)]);
}

function fitted(of, height, width, fit) {
  if (fit === "stretch") return resize(of, [height, width]);
  if (fit === "pad") {
    const scale = Math.min(height / of.height, width / of.width);
    const [high, wide] = [Math.max(1, round(scale * of.height)), Math.max(1, round(scale * of.width))];
    const [top, left] = [Math.floor((height - high) / 2), Math.floor((width - wide) / 2)];
    const [small, out] = [resize(of, [high, wide]), plane(height, width)];
    for (let y = 0; y < high; y += 1) {
      out.data.set(small.data.subarray(y * wide, (y + 1) * wide), (y + top) * width + left);
    }
    return out;
  }
  const scale = Math.min(of.height / height, of.width / width);
  const [high, wide] = [scale * height, scale * width];
  const [top, left] = [(of.height - high) / 2, (of.width - wide) / 2];
  return resize(of, [height, width], undefined, [left, top, left + wide, top + high]);
}

/** Bytes as planes in [0, 1]. */
function planesOf({ width, height, channels, bytes }) {
  return Array.from({ length: channels }, (_, c) => map(plane(height, width), (_, n) => bytes[n * channels + c] / 255));
}

function toPicture(planes) {
  const [{ height, width }, channels] = [planes[0], planes.length];
  const bytes = new Uint8Array(height * width * channels);
  planes.forEach(({ data }, c) => data.forEach((value, n) => { bytes[n * channels + c] = toByte(value); }));
  return { width, height, channels, bytes };
}

/** A large photograph averaged over squares, so that its longer side has little more than `enough` pixels. */
function reduced({ width, height, data }, enough) {
  const factor = Math.max(1, Math.floor(Math.max(width, height) / enough));
  const [wide, high] = [Math.ceil(width / factor), Math.ceil(height / factor)];
  return Array.from({ length: 4 }, (_, c) => map(plane(high, wide), (_, n) => {
    const [top, left] = [Math.floor(n / wide) * factor, (n % wide) * factor];
    const [bottom, right] = [Math.min(height, top + factor), Math.min(width, left + factor)];
    let sum = 0;
    for (let y = top; y < bottom; y += 1) for (let x = left; x < right; x += 1) sum += data[4 * (y * width + x) + c];
    return Math.round(sum / ((bottom - top) * (right - left))) / 255;
  }));
}

/** Colours on white, or on black if the opaque part is light. */
function opaque([red, green, blue, alpha]) {
  const colours = [red, green, blue];
  const mean = (value) => alpha.data.reduce((sum, _, n) => sum + value(n), 0) / alpha.data.length;
  const covered = mean((n) => alpha.data[n]);
  if (covered === 1) return colours;
  const bright = mean((n) => (alpha.data[n] * (red.data[n] + green.data[n] + blue.data[n])) / 3);
  const light = covered > 0 && bright / covered > 0.5;
  const paper = light && covered < 0.9 ? 0 : 1;
  return colours.map((each) => map(each, (value, n) => value * alpha.data[n] + paper * (1 - alpha.data[n])));
}
