/**
 * The story's first picture: a whole with its parts in wrong places, and what the loaded networks say of it. Faces, houses
 * and boats with exchanged parts, where networks with and without capsules know them, else test digits with exchanged
 * quarters. The words follow from the answers, whichever way they fall.
 */

import { capitalised, get, latest } from "./api.js";
import { figure, h } from "./elements.js";
import { panel } from "./formulas.js";
import { dye } from "./hues.js";
import { PRESENT } from "./network.js";
import { apartness, blank, fits, frame, fromWire, paint, placed, toWire } from "./pixels.js";
import { ARRANGEMENTS, assemble, drawParts } from "./shapes.js";
import { currentModel, state } from "./state.js";

const COUNT = 12; // test pictures that are asked about
const SHIFTS = [1, 2, 3]; // places by which the parts of a face are handed on
const classify = latest();

/** A picture with its quarters exchanged crosswise: the same ink, nothing in its place. */
export function exchanged(picture) {
  const { width, height, channels, bytes } = picture;
  const moved = blank(width, height, channels);
  const [right, down] = [width >> 1, height >> 1];
  const at = (y, x) => (y * width + x) * channels;
  for (let y = 0; y < 2 * down; y += 1) {
    for (let x = 0; x < 2 * right; x += 1) {
      const from = at(y, x);
      const to = at((y + down) % (2 * down), (x + right) % (2 * right));
      moved.bytes.set(bytes.subarray(from, from + channels), to);
    }
  }
  return moved;
}

/** The parts of a whole, each in the place of another one; what surrounds them all, a face's head, stays. */
function handedOn(parts, by) {
  const inner = parts.filter(({ kind, filled }) => !(kind === "ellipse" && !filled));
  return parts.map((part) => {
    if (!inner.includes(part)) return part;
    const { x, y } = inner[(inner.indexOf(part) + by) % inner.length];
    return { ...part, x, y };
  });
}

/** Networks with and without capsules that know faces, houses and boats, and pictures of these; null without. */
function faces() {
  const [wholes, models] = [Object.keys(ARRANGEMENTS).toReversed(), state.get("models")];
  const know = models.filter(({ classes, channels }) => channels === 1 && wholes.every((whole) => classes.includes(whole)));
  const plain = know.find(({ dims, routing }) => !dims && !routing);
  const capsules = plain && know.find(({ dims, image_size: size }) => dims && size.join() === plain.image_size.join());
  if (!capsules) return null;
  const [side] = plain.image_size;
  const made = wholes.flatMap((whole) => SHIFTS.map((by) => {
    const parts = assemble(whole, side);
    return { whole: drawParts(parts, side), moved: drawParts(handedOn(parts, by), side) };
  }));
  return { models: [plain, capsules], pictures: made, what: `of ${made.length} such pictures of ${wholes.length} things` };
}

/** The same of test pictures whose quarters are exchanged. */
async function digits() {
  const models = networks();
  const made = (await pictures(models.at(-1))).map((whole) => ({ whole, moved: exchanged(whole) }));
  return { models, pictures: made, what: `of the first ${made.length} test pictures, quarters exchanged` };
}

/**
 * The networks that are asked: the chosen one, before it one without capsules that knows the same classes, and between
 * them that one's twin with capsules, of the same frame: two networks differ in more than capsules.
 */
function networks() {
  const own = currentModel();
  const same = ({ classes, multi }) => classes.join() === own.classes.join() && multi === own.multi;
  const others = state.get("models").filter((model) => model !== own && same(model));
  const plain = others.find(({ dims, routing }) => !dims && !routing);
  const alike = ({ dims, multi, image_size: size }) => dims && !multi && size.join() === plain.image_size.join();
  const twin = plain && !alike(own) ? others.find(alike) : null;
  return [plain, twin, own].filter(Boolean);
}

/** The first test pictures of the network; without a gallery the picture on the canvas. */
async function pictures(model) {
  if (!model.gallery) return [state.get("seen")].filter(Boolean);
  const query = new URLSearchParams({ model: model.name, kind: "any", page: 0 });
  const { items, sprite } = await get(`/api/gallery?${query}`);
  const row = fromWire(sprite);
  return items.slice(0, COUNT).map((_, n) => frame(row, n, row.width / items.length));
}

/** What a network says of a picture, or null where its frame does not hold it. */
async function ask(model, picture) {
  const seen = fits(picture, model) ? picture : placed(picture, model);
  if (!seen) return null;
  const { lengths, order, reconstruction } = await classify("/api/classify", { model: model.name, seen: toWire(seen) });
  return { klass: order[0], length: lengths[order[0]], drawn: fromWire(reconstruction), seen };
}

/** [{model, whole, moved}, ...]: the answers of each network to pictures and to the same ones taken apart. */
async function askAll({ models, pictures: made }) {
  const answers = [];
  for (const model of models) {
    const row = { model, whole: [], moved: [] };
    for (const { whole, moved } of made) {
      row.whole.push(await ask(model, whole));
      row.moved.push(await ask(model, moved));
    }
    if (row.whole.every(Boolean)) answers.push(row);
  }
  return answers;
}

const sure = (answer) => answer.length >= PRESENT;

/** How many of the scrambled pictures each network is still sure of, and what that means. */
function conclude(answers, what) {
  const own = answers.at(-1);
  const kept = own.moved.filter(sure).length > own.moved.length / 2;
  const counts = answers.map(({ model, moved }, n) =>
    `${model.title}${n ? "" : " is still sure"} of ${moved.filter(sure).length}`);
  const meaning = kept
    ? "Capsules alone do not cure this: no network here was taught to say “none of these”."
    : "The parts must agree on one whole, and these hardly do.";
  return [`${capitalised(what)}, ${counts.join(", ")}.`, meaning, caught(own),
    "(A quick look; the command “capsnet reproduce scramble” measures it.)"].filter(Boolean).join(" ");
}

/** A capsule also says what it believes: how far its drawing is from the picture. Empty without a decoder. */
function caught({ model, whole, moved }) {
  if (!model.decoder) return "";
  const [near, far] = [whole, moved].map((answers) => {
    const parts = answers.map(({ drawn, seen }) => apartness(drawn, seen));
    return `${(parts.reduce((sum, part) => sum + part, 0) / parts.length).toFixed(1)} %`;
  });
  return `But with capsules a network also draws what it believes: ${near} away from whole pictures, ${far} from these.`;
}

export class Scramble {
  constructor(main) {
    this.section = panel("scramble", "Same parts, wrong places");
    this.section.hidden = true;
    main.prepend(this.section);
    this.figures = [["scramble-whole", "whole"], ["scramble-moved", "parts in wrong places"],
      ["scramble-drawn", "what the network believes"]].map(([id, title]) => figure(id, title));
    this.answers = h("ul", { class: "scramble-answers", "data-testid": "scramble-answers" });
    this.section.querySelector(".body").append(h("div", { class: "scramble" },
      h("div", { class: "scramble-figures" }, ...this.figures.map((part) => part.figure)), this.answers));
    this.known = new Map(); // by network: asked once
  }

  /** Ask the networks, show the first picture that fools one, and give the conclusion as a sentence. */
  async show() {
    const shapes = faces();
    const key = shapes ? "faces" : state.get("model");
    if (!this.known.has(key)) {
      const subject = shapes ?? await digits();
      this.known.set(key, { ...subject, answers: await askAll(subject) });
    }
    const { pictures: made, answers, what } = this.known.get(key);
    if (!answers.length || !made.length) return "";
    const { whole: before, moved } = answers[0];
    const same = moved.findIndex((answer, n) => sure(answer) && answer.klass === before[n].klass);
    this.paint(made, answers, Math.max(0, same < 0 ? moved.findIndex(sure) : same));
    return conclude(answers, what);
  }

  paint(made, answers, n) {
    const [first, second, third] = this.figures;
    paint(first.canvas, made[n].whole);
    paint(second.canvas, made[n].moved);
    const { model: { classes }, moved } = answers.at(-1);
    third.figure.hidden = !moved[n].drawn;
    if (moved[n].drawn) {
      paint(third.canvas, moved[n].drawn);
      third.caption.textContent = `what the network with capsules believes: “${classes[moved[n].klass]}”`;
    }
    this.answers.replaceChildren(...answers.map(({ model, whole, moved: apart }) => {
      const words = ({ klass, length }) => {
        const name = dye(h("b", {}, model.classes[klass]), klass, model.classes.length);
        return length >= PRESENT ? [name, ` ${length.toFixed(2)}`] : ["not sure, closest ", name, ` ${length.toFixed(2)}`];
      };
      return h("li", {}, h("span", {}, model.dims ? model.title : `${model.title} (no capsules)`),
        h("span", {}, "whole: ", ...words(whole[n])), h("span", {}, "taken apart: ", ...words(apart[n])));
    }));
  }
}
