/** Test pictures and pairs that were put beside the page. */

import { centred } from "../pixels.js";
import { json, picture } from "./sessions.js";

const PAGE = 24;
const COLUMNS = 24; // of pictures in a file

/** Picture number n of a file. */
async function cut({ file, size: [height, width, channels] }, n) {
  const whole = await picture(file, channels);
  const [top, left] = [Math.floor(n / COLUMNS) * height, (n % COLUMNS) * width];
  const bytes = new Uint8Array(height * width * channels);
  for (let y = 0; y < height; y += 1) {
    const from = ((top + y) * whole.width + left) * channels;
    bytes.set(whole.bytes.subarray(from, from + width * channels), y * width * channels);
  }
  return { width, height, channels, bytes };
}

async function ownOf({ name }) {
  const { models, sets } = await json("examples.json");
  if (!models[name]) throw new Error("there is no gallery for this model");
  return { ...models[name], set: sets[models[name].set] };
}

/** An example in the middle of the model's frame. */
async function framed(set, index, { image_size: [height, width] }) {
  const n = set.indices.indexOf(index);
  if (n < 0) throw new Error(`example number ${index} was not put beside this page`);
  return centred(await cut(set, n), width, height);
}

export async function galleryPage(model, kind, page) {
  const { kinds, set } = await ownOf(model);
  const rows = kinds[kind] ?? [];
  const shown = rows.slice(page * PAGE, (page + 1) * PAGE);
  const items = shown.map(([index, labels, seenAs]) => ({ index, labels, seen_as: seenAs }));
  const { image_size: [height, width], channels } = model;
  const empty = { width, height, channels, bytes: new Uint8Array(width * height * channels) };
  const pictures = await Promise.all(shown.map(([index]) => framed(set, index, model)));
  return { items, pictures: pictures.length ? pictures : [empty], pages: Math.max(1, Math.ceil(rows.length / PAGE)) };
}

export async function digit(model, index) {
  const { kinds, set } = await ownOf(model);
  const [, labels] = kinds.any.find(([n]) => n === index) ?? [];
  return { picture: await framed(set, index, model), labels };
}

/** The pair of a number (there are fewer than on a server: the numbers begin again), or, with null, the first one. */
export async function randomPair(model, number) {
  const { set: { pairs }, first_pair: first } = await ownOf(model);
  if (!pairs) throw new Error("there are no pairs for this model");
  const n = (number ?? first) % pairs.labels.length;
  const pictures = await Promise.all([cut(pairs, 2 * n), cut(pairs, 2 * n + 1)]);
  return { first: pictures[0], second: pictures[1], labels: pairs.labels[n], offsets: pairs.offsets[n] };
}
