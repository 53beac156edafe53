/** From a picture to an answer, and from an answer to a selected capsule: both are decided in this file. */

import { latest, report } from "./api.js";
import { forget } from "./history.js";
import { fits, fromWire, isBlank, placed, toWire } from "./pixels.js";
import { currentModel, state } from "./state.js";

/** A class is present if its capsule is at least this long. */
export const PRESENT = 0.5;

/** The largest value of a knob, and the server's limit: far beyond what networks give. */
export const LARGEST = 1000;

const classify = latest({ live: true });
const refit = latest();
let resized = null; // {seen, original}: the picture before it was brought to another network's frame
let moves = null; // {values, seen}: slider values of a link, waiting for the answer to its picture
let turned = new Map(); // slider values of capsules that were left for another one, by class
let requests = 0;

/**
 * A person asks for another picture: draws, undoes, picks, uploads, opens a link. Gives a function that says whether this
 * is still the latest request: stale responses are ignored.
 */
export function startRequest() {
  const number = (requests += 1);
  return () => number === requests;
}

/** The picture itself where `seen` is what was made of it for the frame of another network. */
export const origin = (seen) => resized?.seen === seen ? resized.original : seen;

/** A digit in the middle of a network's frame, as it is; null for networks of other things and where ink is cut off. */
export const framed = (picture, model) => model.style === "digit" || model.multi ? placed(picture, model) : null;

/** Show a picture to the network. The choice of a capsule survives strokes, but not another picture. */
export function show(seen, from, changes = {}) {
  state.set({ seen, seenFrom: from, chosen: from === "draw" && state.get("chosen"), ...changes });
}

/** Choose a network; the answers of the old one are cleared. `changes` are further keys to set. */
export function chooseModel(name, changes = {}) {
  state.set({
    model: name, answer: null, pose: null, picture: null, klass: null, chosen: false, iteration: null, ...changes,
  });
}

/** Select a capsule. To select the longest one is to follow the longest one again. */
export function select(klass) {
  const answer = state.get("answer");
  if (!answer) return;
  if (state.get("pose")) turned.set(state.get("klass"), state.get("pose")); // to come back to
  state.set({ klass, chosen: klass !== answer.order[0], pose: turned.get(klass) ?? ownPose(answer, klass) });
}

/** Slider values to set as soon as the picture they belong to is answered: [[dimension, value], ...]. */
export function restore(values, seen) {
  moves = { values, seen };
}

/** A copy of the pose that the network itself gave to a class, or null. */
export const ownPose = (answer, klass) => answer?.poses ? Float64Array.from(answer.poses[klass]) : null;

async function ask() {
  const [model, seen] = [currentModel(), state.get("seen")];
  if (!model || !seen) return;
  const original = origin(seen); // resizing twice would blur it
  if (fits(original, model) && original !== seen) {
    state.set({ seen: original });
  } else if (!fits(seen, model)) {
    await bringToFrame(original, model);
  } else if (isBlank(seen)) {
    classify.forget();
    startOver();
    state.set({ answer: null, klass: null, chosen: false, pose: null, picture: null, drawing: state.get("penDown") });
  } else {
    const answer = await classify("/api/classify", { model: model.name, seen: toWire(seen) });
    if (answer && model.name === state.get("model")) take(answer, seen);
  }
}

/** Another network may want another size: a digit is put into the middle of a larger frame, as MultiMNIST does, or cut
 * out of one; other pictures are resized. That sets `seen` and so asks again. */
async function bringToFrame(original, model) {
  const shown = state.get("seen");
  const ask = () => refit("/api/see", { model: model.name, image: toWire(original), centre: false });
  const seen = framed(original, model) ?? fromWire((await ask())?.seen);
  if (!seen || shown !== state.get("seen")) return;
  resized = { seen, original };
  state.set({ seen });
}

/** Knobs belong to an answer: with another one, turned knobs and their history are gone. */
function startOver() {
  turned = new Map();
  forget("knobs");
}

function take(answer, seen) {
  startOver();
  const newest = seen === state.get("seen");
  const klass = state.get("chosen") ? state.get("klass") : answer.order[0];
  const pose = ownPose(answer, klass);
  const linked = pose && moves?.seen === seen ? moves.values : []; // not for an answer to an earlier picture
  for (const [dimension, value] of linked) {
    if (dimension < pose.length) pose[dimension] = value;
  }
  if (newest) moves = null;
  state.set({ answer, klass, pose, ...(newest && !state.get("penDown") && { drawing: false }) });
}

/** Ask whenever there is another picture or another network. */
export function start() {
  state.on(["seen", "model", "models"], () => ask().catch((error) => {
    state.set({ drawing: state.get("penDown") });
    report(error);
  }));
}
