/** The view as text for the address bar, and back: `#m=model&x=picture&k=capsule&p=knobs&i=iteration`. */

import { report } from "./api.js";
import { LARGEST, chooseModel, ownPose, restore, startRequest } from "./network.js";
import { fromBase64url, toBase64url } from "./pixels.js";
import { state } from "./state.js";

const LONGEST = 60000; // characters of a picture that a link still carries; a large photograph has more

const registered = new Map();

/** Let a module keep something of its own in the link. null stands for the default and is left out. */
export const register = (key, { encode, decode }) => registered.set(key, { encode, decode });

async function through(bytes, stream) {
  const piped = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(piped).arrayBuffer());
}

/** Bytes, deflated (raw), as base64url: a digit takes some 200 characters. */
export async function pack(bytes) {
  return toBase64url(await through(bytes, new CompressionStream("deflate-raw")));
}

/** [dimension, value] of each knob that was turned. */
export function turned() {
  const [pose, own] = [state.get("pose"), ownPose(state.get("answer"), state.get("klass"))];
  if (!pose || !own) return [];
  return Array.from(pose, (value, d) => [d, value]).filter(([d, value]) => value !== own[d]);
}

/** The state of the page as the text behind "#". */
export async function encode() {
  const fields = new URLSearchParams();
  const seen = state.get("seen");
  fields.set("m", state.get("model"));
  const packed = seen ? await pack(seen.bytes) : "";
  if (packed && packed.length <= LONGEST) fields.set("x", packed);
  if (state.get("chosen")) fields.set("k", state.get("klass"));
  const knobs = turned().map(([d, value]) => `${d}:${Number(value.toPrecision(9))}`);
  if (knobs.length) fields.set("p", knobs.join(","));
  if (state.get("iteration") !== null) fields.set("i", state.get("iteration"));
  if (!state.get("centre")) fields.set("c", "0");
  for (const [key, { encode: encodeOne }] of registered) {
    const text = encodeOne();
    if (text !== null) fields.set(key, text);
  }
  return fields.toString().replaceAll("%3A", ":").replaceAll("%2C", ","); // both are allowed behind "#"
}

/** Apply a link's text. False if it holds no picture. */
export async function decode(text) {
  const fields = new URLSearchParams(text);
  const models = state.get("models");
  const model = models.find(({ name }) => name === (fields.get("m") ?? models[0].name));
  if (!model) throw new Error(`The link is about the network “${fields.get("m")}”, which is not loaded here.`);
  const seen = fields.has("x") ? await picture(fields.get("x"), model) : null;
  if (!seen) {
    if (fields.has("m")) chooseModel(model.name);
    decodeRegistered(fields);
    return false;
  }
  const klass = fields.has("k") ? Number(fields.get("k")) : null;
  const chosen = Number.isInteger(klass) && klass >= 0 && klass < model.classes.length;
  startRequest();
  restore(knobValues(fields.get("p")), seen);
  chooseModel(model.name, {
    seen, seenFrom: "link", klass: chosen ? klass : null, chosen, centre: fields.get("c") !== "0",
    iteration: /^\d+$/.test(fields.get("i") ?? "") ? Number(fields.get("i")) : null,
  });
  decodeRegistered(fields);
  return true;
}

function decodeRegistered(fields) {
  for (const [key, { decode: decodeOne }] of registered) {
    try {
      decodeOne(fields.get(key));
    } catch (error) {
      report(error);
    }
  }
}

async function picture(text, { image_size: [height, width], channels }) {
  const unpack = async () => through(fromBase64url(text) ?? [], new DecompressionStream("deflate-raw"));
  const bytes = await unpack().catch(() => []);
  if (bytes.length === width * height * channels) return { width, height, channels, bytes };
  throw new Error("The link's picture is damaged: was the whole link copied?");
}

function knobValues(text) {
  const pairs = (text ?? "").split(",").map((part) => part.split(":").map(Number));
  const valid = pairs.filter(([d, value]) => Number.isInteger(d) && d >= 0 && Number.isFinite(value));
  const within = valid.filter(([, value]) => Math.abs(value) <= LARGEST);
  if (within.length < valid.length) report(`The link's knobs beyond ±${LARGEST} are left as they were.`);
  return within;
}
