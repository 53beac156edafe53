/** A pair in the address bar: offsets, classes, the absent class, whether it is the input, two pictures. */

import { fromBase64url, toBase64url } from "./pixels.js";
import { state } from "./state.js";

const DAMAGED = "The link's pair is damaged: was the whole link copied?";

/** Bytes with their runs of black as (0, length): a digit is mostly black. */
function squeeze(bytes) {
  const packed = [];
  for (let n = 0; n < bytes.length; n += 1) {
    packed.push(bytes[n]);
    if (bytes[n] !== 0) continue;
    let run = 1;
    while (run < 255 && bytes[n + run] === 0) run += 1;
    packed.push(run);
    n += run - 1;
  }
  return Uint8Array.from(packed);
}

function unsqueeze(packed) {
  const bytes = [];
  for (let n = 0; n < packed.length; n += 1) {
    if (packed[n] !== 0) bytes.push(packed[n]);
    else for (let left = packed[(n += 1)]; left > 0; left -= 1) bytes.push(0);
  }
  return Uint8Array.from(bytes);
}

/** A grey picture as text that a link may hold; the width tells its shape. */
const packPicture = ({ width, bytes }) => `${width}*${toBase64url(squeeze(bytes))}`;

function unpackPicture(text) {
  const [first, packed = ""] = text.split("*");
  const [width, bytes] = [Number(first), unsqueeze(fromBase64url(packed) ?? [])];
  const height = bytes.length / width;
  if (!Number.isInteger(height) || width < 1 || width > 28 || height < 1 || height > 28) {
    throw new Error(DAMAGED);
  }
  return { width, height, channels: 1, bytes };
}

/** The whole numbers of a text; null stands for anything else. */
const numbers = (text) => text.split("*").map((word) => (/^-?\d+$/.test(word) ? Number(word) : null));

/** The pair as text; null for the pair of a first visit. */
export function packPair() {
  const pair = state.get("pair");
  if (!pair || (pair.initial && !state.get("pairMode"))) return null;
  const { offsets, classes, absent, first, second } = pair;
  const words = [offsets.flat().join("*"), (classes ?? [null, null]).map((k) => k ?? "").join("*"), absent ?? ""];
  return [...words, Number(state.get("pairMode")), packPicture(first), packPicture(second)].join(".");
}

/** Undo `packPair`, into the state; null is the pair of a first visit. Invalid numbers are ignored. */
export function unpackPair(text) {
  if (text === null) {
    if (!state.get("pair")?.initial) state.set({ pair: null });
    state.set({ pairMode: false });
    return;
  }
  const words = text.split(".");
  if (words.length !== 6) throw new Error(DAMAGED);
  const [moves, chosen, absent, mode, first, second] = words;
  const [a, b, c, d] = numbers(moves);
  const classes = numbers(chosen);
  const pair = {
    first: unpackPicture(first),
    second: unpackPicture(second),
    offsets: [[a ?? 0, b ?? 0], [c ?? 0, d ?? 0]],
    classes: classes.some((klass) => klass !== null) ? [classes[0], classes[1] ?? null] : null,
    absent: numbers(absent)[0],
  };
  const pairMode = mode === "1";
  state.set({ pair, pairMode, ...(pairMode && { seenFrom: "pair" }) }); // the link's picture is this pair, merged
}
