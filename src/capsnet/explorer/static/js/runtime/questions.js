/** The page's questions and their answers: as the server's, from the graphs beside the page. */

import { centred, fromWire } from "../pixels.js";
import { digit, galleryPage, randomPair } from "./examples.js";
import { decoded, forward } from "./networks.js";
import { descending, toBase64, toByte } from "./numbers.js";
import { see, upload } from "./prepare.js";
import { json, run } from "./sessions.js";
import { describeTrace, entropies, rows } from "./trace.js";

const OFFSETS = Array.from({ length: 11 }, (_, n) => Math.round(-25 + 5 * n) / 100); // of a sweep

const networks = () => json("networks.json");

/** One of several by its name. */
function named(what, all, name) {
  const found = all.find((each) => each.name === name);
  if (!found) throw new Error(`there is no ${what} ${name} here; there are ${all.map((each) => each.name).join(", ")}`);
  return found;
}

const find = async (name) => named("model", (await networks()).models, name);

/** For the wire: pictures are sent as on the way to a server, so that the page knows one form only. */
const toWire = ({ width, height, channels, bytes }) => ({ width, height, channels, data: toBase64(bytes) });

/** Planes of numbers in [0, 1], (N, C, H, W), as N pictures. */
function pictures(values, [count, channels, height, width]) {
  return Array.from({ length: count }, (_, n) => {
    const bytes = new Uint8Array(height * width * channels);
    for (let place = 0; place < height * width; place += 1) {
      for (let c = 0; c < channels; c += 1) {
        bytes[place * channels + c] = toByte(values[(n * channels + c) * height * width + place]);
      }
    }
    return { width, height, channels, bytes };
  });
}

/** Pictures of equal size in a grid of so many columns, as one. */
function tiled(all, columns) {
  const [{ width, height, channels }] = all;
  const whole = { width: columns * width, height: (all.length / columns) * height, channels };
  whole.bytes = new Uint8Array(whole.width * whole.height * channels);
  all.forEach(({ bytes }, n) => {
    const [top, left] = [Math.floor(n / columns) * height, (n % columns) * width];
    for (let y = 0; y < height; y += 1) {
      const row = bytes.subarray(y * width * channels, (y + 1) * width * channels);
      whole.bytes.set(row, ((top + y) * whole.width + left) * channels);
    }
  });
  return whole;
}

async function draw(model, poses, classes) {
  if (!model.decoder_file) throw new Error("this model has no decoder: its poses cannot be drawn");
  const { values, shape } = await decoded(model, poses, classes);
  return pictures(values, shape);
}

async function classify({ model: name, seen, routing, iterations }) {
  const model = await find(name);
  const { lengths, poses, reconstruction, milliseconds } = await forward(model, fromWire(seen), routing, iterations);
  if (lengths.some(Number.isNaN)) throw new Error("the network's answer is not a number");
  const order = descending(lengths);
  const own = reconstruction ? pictures(reconstruction.values, [1, ...reconstruction.shape])[0] : null;
  const drawn = model.decoder_file ? (await draw(model, [poses[order[0]]], [order[0]]))[0] : own;
  return {
    lengths, poses: poses ?? null, order, reconstruction: drawn && toWire(drawn), phases: null,
    milliseconds: Math.round(1000 * milliseconds) / 1000, parameters: model.parameters,
  };
}

async function decode({ model: name, poses, classes }) {
  return { pictures: (await draw(await find(name), poses, classes)).map(toWire) };
}

async function sweep({ model: name, pose, class: klass }) {
  const model = await find(name);
  const moved = pose.flatMap((_, d) => OFFSETS.map((offset) => pose.with(d, pose[d] + offset)));
  const drawn = await draw(model, moved, moved.map(() => klass));
  return { offsets: OFFSETS, pictures: toWire(tiled(drawn, OFFSETS.length)) };
}

async function trace({ model: name, seen, class: klass, routing, iterations }) {
  const model = await find(name);
  const { steps } = await forward(model, fromWire(seen), routing, iterations);
  if (!steps) throw new Error("this model has no layer of class capsules to look into");
  const { routings } = await networks();
  const own = !routing || routing === model.routing.name ? model.routing : named("routing", routings, routing);
  return { grid: model.grid, ...describeTrace(steps, own.normalised, klass ?? null) };
}

async function toy({ votes, routing: name, iterations }) {
  const { routings } = await networks();
  const routing = named("routing", routings, name);
  const shape = [1, votes.length, votes[0].length, 2];
  const steps = await run(routing.file, { votes: { values: Float32Array.from(votes.flat(2)), shape } });
  const count = Math.min(steps.couplings.shape[0], iterations ?? routing.iterations ?? 1);
  const each = (part) => rows(steps[part]).slice(0, count);
  return {
    couplings: each("couplings"), poses: each("steps"), presences: each("activations"),
    entropy: entropies(steps, routing.normalised).slice(0, count),
  };
}

/** Two pictures moved, added and clipped, as MultiMNIST is made. */
async function pair({ model: name, first, second, offsets }) {
  const { image_size: [height, width] } = await find(name);
  const alone = [first, second].map((wire, n) => moved(centred(fromWire(wire), width, height), offsets[n]));
  const bytes = alone[0].bytes.map((byte, n) => Math.min(255, byte + alone[1].bytes[n]));
  return { seen: toWire({ ...alone[0], bytes }), alone: alone.map(toWire) };
}

/** A picture moved down and right; black comes in. */
function moved({ width, height, channels, bytes }, [down, right]) {
  const out = new Uint8Array(bytes.length);
  for (let y = Math.max(0, down); y < Math.min(height, height + down); y += 1) {
    for (let x = Math.max(0, right); x < Math.min(width, width + right); x += 1) {
      const [to, from] = [(y * width + x) * channels, ((y - down) * width + x - right) * channels];
      for (let c = 0; c < channels; c += 1) out[to + c] = bytes[from + c];
    }
  }
  return { width, height, channels, bytes: out };
}

const WITH_BODY = {
  see: async ({ model, image, centre }) => ({ seen: toWire(see(fromWire(image), await find(model), centre ?? true)) }),
  classify, decode, sweep, trace, pair, "toy/route": toy,
};

const WITHOUT = {
  models: networks,
  gallery: async (model, query) => {
    const [kind, page] = [query.get("kind") ?? "any", Number(query.get("page"))];
    const { items, pictures: shown, pages } = await galleryPage(model, kind, page);
    return { items, sprite: toWire(tiled(shown, shown.length)), pages };
  },
  "pair/random": async (model, query) => {
    const number = query.has("number") ? Number(query.get("number")) : null;
    const { first, second, ...rest } = await randomPair(model, number);
    return { first: toWire(first), second: toWire(second), ...rest };
  },
};

/** The answer to a question: a path with a query, as for the server, and a body or none. */
export async function answer(path, body) {
  const { pathname, searchParams: query } = new URL(path, "http://here");
  const name = pathname.replace("/api/", "");
  if (WITH_BODY[name] && body) return WITH_BODY[name](body);
  const model = query.has("model") ? await find(query.get("model")) : null;
  if (name === "upload") return { seen: toWire(await upload(body, model, query.get("centre") !== "false")) };
  const index = /^digit\/(\d+)$/.exec(name);
  if (index) {
    const { picture, labels } = await digit(model, Number(index[1]));
    return { seen: toWire(picture), labels };
  }
  if (!WITHOUT[name]) throw new Error(`This page has no server, which would be needed for ${path}.`);
  return WITHOUT[name](model, query);
}
