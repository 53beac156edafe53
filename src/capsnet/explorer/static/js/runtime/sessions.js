/** The files beside the page, and the graphs among them, each loaded once. */

import * as ort from "../../../runtime/ort.wasm.min.js";
import { imageData } from "./image.js";

const RUNTIME = new URL("../../../runtime/", import.meta.url);
const NETWORKS = new URL("../../../networks/", import.meta.url);

Object.assign(ort.env.wasm, {
  numThreads: 1, // more need headers that most web servers do not send
  wasmPaths: {
    mjs: new URL("ort-wasm-simd-threaded.js", RUNTIME).href,
    wasm: new URL("ort-wasm-simd-threaded.wasm", RUNTIME).href,
  },
});

const loaded = new Map();

/** What `load` makes of a file, once. A failure is forgotten, so that the next question tries again. */
function once(name, load) {
  if (!loaded.has(name)) {
    loaded.set(name, load(name).catch((error) => {
      loaded.delete(name);
      throw error;
    }));
  }
  return loaded.get(name);
}

async function fetched(name) {
  const response = await fetch(new URL(name, NETWORKS)).catch(() => null);
  if (!response?.ok) throw new Error(`The file networks/${name} cannot be loaded. Is the web server still running?`);
  return response;
}

export const json = (name) => once(name, async () => (await fetched(name)).json());

/** A picture file as {width, height, channels, bytes}. */
export const picture = (name, channels) => once(name, async () => {
  const bitmap = await createImageBitmap(await (await fetched(name)).blob(), { colorSpaceConversion: "none" });
  const { width, height, data } = imageData(bitmap);
  const bytes = new Uint8Array(width * height * channels);
  for (let n = 0; n < bytes.length; n += 1) bytes[n] = data[4 * Math.floor(n / channels) + (n % channels)];
  return { width, height, channels, bytes };
});

const session = (name) => once(name, async () =>
  ort.InferenceSession.create(new Uint8Array(await (await fetched(name)).arrayBuffer())));

/** Run a graph: inputs by name, {values, shape}; BigInt64Array are whole numbers. Outputs likewise, of Float32Array. */
export async function run(name, inputs) {
  const graph = await session(name);
  const feeds = Object.fromEntries(Object.entries(inputs).map(([key, { values, shape }]) =>
    [key, new ort.Tensor(values instanceof BigInt64Array ? "int64" : "float32", values, shape)]));
  const outputs = await graph.run(feeds);
  return Object.fromEntries(Object.entries(outputs).map(([key, { data: values, dims: shape }]) => [key, { values, shape }]));
}

// a graph that hands on one number (onnx.helper makes it of one Identity)
const NOTHING = "CAg6NwoQCgF4EgF5IghJZGVudGl0eRIBZ1oPCgF4EgoKCAgBEgQKAggBYg8KAXkSCgoICAESBAoCCAFCBAoAEBE=";

/** Load and compile the runtime, which takes longest, while nobody knows yet which graph to load. */
export const wake = () =>
  ort.InferenceSession.create(Uint8Array.from(atob(NOTHING), (letter) => letter.charCodeAt(0))).then(() => {}, () => {});

/** Load a graph before it is needed. */
export const warm = (name) => session(name).then(() => {}, () => {});
