/**
 * The story's first picture: test digits with their quarters exchanged, and what the loaded networks say of them. The
 * words follow from the answers, whichever way they fall.
 */

import { get, latest } from "./api.js";
import { figure, h } from "./elements.js";
import { panel } from "./formulas.js";
import { dye } from "./hues.js";
import { PRESENT } from "./network.js";
import { apartness, blank, fits, frame, fromWire, paint, placed, toWire } from "./pixels.js";
import { currentModel, state } from "./state.js";

const COUNT = 12; // test pictures that are asked about
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

/**
 * The networks that are asked: the chosen one, before it one without capsules that knows the same classes, and between
 * them that one's twin with capsules, of the same frame: two networks differ in more than capsules.
 */
function networks() {
  const own = currentModel();
  const others = state.get("models").filter((model) => model !== own && model.classes.join() === own.classes.join());
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
async function askAll(models, whole) {
  const answers = [];
  for (const model of models) {
    const row = { model, whole: [], moved: [] };
    for (const picture of whole) {
      row.whole.push(await ask(model, picture));
      row.moved.push(await ask(model, exchanged(picture)));
    }
    if (row.whole.every(Boolean)) answers.push(row);
  }
  return answers;
}

const sure = (answer) => answer.length >= PRESENT;

/** How many of the scrambled pictures each network is still sure of, and what that means. */
function conclude(answers, total) {
  const own = answers.at(-1);
  const kept = own.moved.filter(sure).length;
  const counts = answers.map(({ model, moved }, n) =>
    `${model.title}${n ? "" : " is still sure"} of ${moved.filter(sure).length}`);
  const first = `Of the first ${total} test pictures, taken apart like this, ${counts.join(", ")}.`;
  if (!own.model.decoder) return first;
  const [whole, moved] = ["whole", "moved"].map((kind) => {
    const parts = own[kind].map(({ drawn, seen }) => apartness(drawn, seen));
    return `${(parts.reduce((sum, part) => sum + part, 0) / parts.length).toFixed(1)} %`;
  });
  const verdict = kept > total / 2
    ? "Length alone does not cure this. But a capsule also says what it believes, and can be caught:"
    : "And a capsule also says what it believes:";
  const away = `its drawing is ${whole} away from whole pictures, ${moved} from these.`;
  return `${first} ${verdict} ${away} (A glance; “capsnet reproduce scramble” measures it.)`;
}

export class Scramble {
  constructor(main) {
    this.section = panel("scramble", "Same parts, wrong places");
    this.section.hidden = true;
    main.prepend(this.section);
    this.figures = [["scramble-whole", "a test picture"], ["scramble-moved", "its quarters exchanged"],
      ["scramble-drawn", "what the capsule draws of it"]].map(([id, title]) => figure(id, title));
    this.answers = h("ul", { class: "scramble-answers", "data-testid": "scramble-answers" });
    this.section.querySelector(".body").append(h("div", { class: "scramble" },
      h("div", { class: "scramble-figures" }, ...this.figures.map((part) => part.figure)), this.answers));
    this.known = new Map(); // by network: asked once
  }

  /** Ask the networks, show the first picture that fools one, and give the conclusion as a sentence. */
  async show() {
    const models = networks();
    const key = models.map(({ name }) => name).join();
    if (!this.known.has(key)) {
      const whole = await pictures(models.at(-1));
      this.known.set(key, { whole, answers: whole.length ? await askAll(models, whole) : [] });
    }
    const { whole, answers } = this.known.get(key);
    if (!answers.length) return "";
    const { whole: before, moved } = answers[0];
    const same = moved.findIndex((answer, n) => sure(answer) && answer.klass === before[n].klass);
    this.paint(whole, answers, Math.max(0, same < 0 ? moved.findIndex(sure) : same));
    return conclude(answers, whole.length);
  }

  paint(whole, answers, n) {
    const [first, second, third] = this.figures;
    paint(first.canvas, whole[n]);
    paint(second.canvas, exchanged(whole[n]));
    const own = answers.at(-1).moved[n];
    third.figure.hidden = !own.drawn;
    if (own.drawn) {
      paint(third.canvas, own.drawn);
      third.caption.textContent = `what the capsule “${currentModel().classes[own.klass]}” draws of it`;
    }
    this.answers.replaceChildren(...answers.map(({ model, whole: before, moved }) => {
      const words = ({ klass, length }) => {
        const name = dye(h("b", {}, model.classes[klass]), klass, model.classes.length);
        return length >= PRESENT ? [name, ` ${length.toFixed(2)}`] : ["not sure, closest ", name, ` ${length.toFixed(2)}`];
      };
      return h("li", {}, h("span", {}, model.dims ? model.title : `${model.title} (no capsules)`),
        h("span", {}, "whole: ", ...words(before[n])), h("span", {}, "taken apart: ", ...words(moved[n])));
    }));
  }
}
