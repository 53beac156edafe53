/**
 * Two digits in one picture: merged as MultiMNIST merges them, separated by their capsules, or by their phases. Other
 * data sets have other pairs: two outlines. `state.pair` is {first, second, offsets, classes, absent}: two pictures,
 * [[dy, dx], [dy, dx]], the two classes to draw (null stands for the longest and the second longest capsule), and an
 * absent class; `initial` marks the pair of a first visit, `of` holds the classes that a random pair is of.
 */

import { latest, report, sentence } from "./api.js";
import { record } from "./history.js";
import { dye, inkOf } from "./hues.js";
import { button, choice, figure, h, offer } from "./elements.js";
import { head } from "./formulas.js";
import { register } from "./link.js";
import { PRESENT, chooseModel, origin, show, startRequest } from "./network.js";
import { packPair, unpackPair } from "./pair_link.js";
import { Slot } from "./pair_slot.js";
import { alike, fromWire, isBlank, paint, tint, toWire } from "./pixels.js";
import { currentModel, state } from "./state.js";

const DIGIT = 28; // pixels: what a frame has to hold if a network has no pairs of its own
const PAIRS = 100_000; // numbers to draw a random pair from
const GHOST = 0.4; // how bright the input shines through under the reconstructions

/** The pictures of capsules: test id, title, label of the choice of a class. */
const DRAWN = [
  ["pair-first", "First capsule", "Decode the longest"],
  ["pair-second", "Second capsule", "Decode the second"],
  ["decode-absent", "An absent class", "Decode an absent class"],
];

const [askRandom, askMerge, askClassify, askDecode] = [latest(), latest(), latest(), latest()];

/** How far a picture may be moved in a frame: four pixels beyond its edge, at most twelve. */
const reach = (frame, side) => Math.max(0, Math.min(12, Math.floor((frame - side) / 2) + 4));

const sides = ({ first, second }) => [first.width, first.height, second.width, second.height];

/** Whether a pair can be shown to a network: its frame holds both pictures, and they are of its classes, if known. */
const suits = (pair, { image_size: frame, classes }) =>
  Math.max(...sides(pair)) <= Math.min(...frame) && (pair.of ?? classes.join()) === classes.join();

/** What a network's classes are. */
const thingOf = ({ classes }) => (classes.every((name) => /^\d$/.test(name)) ? "digit" : "object");

/** Why a network cannot look at pairs, or null. */
function reasonAgainst({ channels, pairs, image_size: frame }) {
  if (channels !== 1) return "Pairs are made of grey pictures, and this network takes colours.";
  return !pairs && Math.min(...frame) < DIGIT ? "This network's pictures are too small for a digit." : null;
}

/** What a network was trained on. */
function expectation(model) {
  const { multi, decoder, dims, grid } = model;
  const trained = `This network was trained on ${multi ? "overlapping" : "single"} ${thingOf(model)}s${multi ? "" : " only"}.`;
  if (decoder) return trained;
  if (multi && grid && grid[0] * grid[1] > 1) {
    return `${trained} It draws nothing, but you can see which ink contributes to which ${thingOf(model)}: use this pair ` +
      "as the input of all panels, and tick “Colour by class” in See the routing.";
  }
  return `${trained} It has no ${dims ? "decoder, so it cannot draw its capsules" : "capsules that could draw them"}.`;
}

/** Both reconstructions in their colours over the input, which shines through where neither has ink. */
function overlay(input, first, second, inks) {
  const both = tint(first, second, inks);
  for (let n = 0; n < input.bytes.length; n += 1) {
    const free = 1 - Math.max(first.bytes[n], second.bytes[n]) / 255;
    for (let c = 0; c < 3; c += 1) both.bytes[3 * n + c] += GHOST * input.bytes[n] * free;
  }
  return both;
}

class PairPanel {
  constructor(section) {
    this.section = section;
    Object.assign(this, { merged: null, answer: null, before: null }); // `before` is the input that the pair replaced
    this.slots = [0, 1].map((n) => new Slot(n + 1, {
      onDigit: (picture) => this.change({ [n === 0 ? "first" : "second"]: picture, classes: null }),
      onOffset: (offset) => this.change({ offsets: state.get("pair").offsets.with(n, offset) }, `offset ${n}`),
    }));
    this.note = h("p", { class: "pair-note" });
    this.build(section.querySelector(".body"));
  }

  build(body) {
    const another = () => this.draw(Math.floor(Math.random() * PAIRS));
    this.random = button("Random pair", another, { "data-testid": "pair-random" });
    const use = () => this.use(this.toggle.checked);
    this.toggle = h("input", { type: "checkbox", "data-testid": "pair-toggle", onchange: use });
    this.switch = button("", () => chooseModel(this.better.name), { class: "button small", hidden: true });
    const picture = (id, title) => figure(id, title, { class: "pair-figure" });
    this.seen = picture("pair-seen", "What the network sees");
    this.both = picture("pair-both", "Both over the input");
    this.phases = picture("pair-phases", "Colour is phase: one colour, one object");
    this.phases.figure.hidden = true;
    this.drawn = DRAWN.map(([id, title, label], n) => {
      const { label: box, select } = choice(label, [], { onchange: () => this.choose(n), "data-testid": `${id}-class` });
      return { ...picture(id, title), box, select };
    });
    this.figures = h("div", { class: "pair-figures" }, this.seen.figure, this.both.figure, this.phases.figure,
      ...this.drawn.map((part, n) => h("div", { class: `pair-pick pick-${n + 1}` }, part.figure, part.box)));
    const check = h("label", { class: "check" }, this.toggle, "Use this pair as the input of all panels");
    const slots = h("div", { class: "pair-slots" }, ...this.slots.map(({ element }) => element));
    this.controls = h("div", { class: "row pair-controls" }, this.random, check);
    this.stage = h("div", { class: "pair-stage" }, slots, this.figures);
    body.append(this.controls, h("div", { class: "row pair-about" }, this.note, this.switch), this.stage);
  }

  change(parts, key = null) {
    this.put({ ...state.get("pair"), ...parts, initial: false }, key);
  }

  /** Set the pair; Ctrl+Z restores the one before. With a `key`, changes that follow each other at once are one. */
  put(pair, key = null) {
    const before = state.get("pair");
    if (before && !pair.initial) record("pair", { undo: () => state.set({ pair: before }), redo: () => state.set({ pair }), key });
    state.set({ pair });
  }

  choose(n) {
    const [first, second, absent] = this.drawn.map(({ select: { value } }) => (value === "" ? null : Number(value)));
    if (n === 2) this.change({ absent });
    else this.change({ classes: first === null && second === null ? null : [first, second] });
  }

  /**
   * The random pair of a number: two test pictures of different classes. null stands for the pair of a first visit, the
   * first one that this network and those for pairs read.
   */
  async draw(number = null) {
    const before = state.get("pair");
    try {
      const model = encodeURIComponent(state.get("model"));
      const answer = await askRandom(`/api/pair/random?model=${model}${number === null ? "" : `&number=${number}`}`);
      if (!answer || state.get("pair") !== before) return; // a link or a stroke set another one meanwhile
      const { first, second, offsets } = answer;
      const parts = { first: fromWire(first), second: fromWire(second), offsets, classes: null, absent: null };
      this.put({ ...parts, initial: number === null, of: currentModel().classes.join() });
    } catch (error) {
      if (state.get("pair")) report(error); // the present pair stays
      else this.explain(sentence(error));
    }
  }

  /** Make the pair the input of all panels, or restore the input before it. */
  use(on) {
    startRequest();
    if (on) {
      const [seen, from] = [state.get("seen"), state.get("seenFrom")];
      if (from !== "pair") this.before = { seen: seen && origin(seen), from };
      show(this.merged ?? state.get("seen"), "pair", { pairMode: true });
    } else if (this.before?.seen) {
      show(this.before.seen, this.before.from, { pairMode: false });
    } else {
      state.set({ pairMode: false });
    }
  }

  /** Another network has another frame, and perhaps no pairs. */
  meet() {
    const model = currentModel();
    if (!model) return;
    const others = state.get("models").filter(({ multi }) => multi);
    const same = others.find(({ classes }) => classes.join() === model.classes.join());
    this.better = model.multi ? null : same ?? (model.pairs ? null : others[0]);
    this.name(model);
    this.switch.hidden = !this.better;
    if (this.better) this.switch.textContent = `Switch to ${this.better.title}`;
    this.answer = null;
    this.explain(reasonAgainst(model));
    return this.merge();
  }

  /** Speak of digits or of objects. */
  name(model) {
    const thing = thingOf(model);
    this.section.querySelector("h2").textContent = `Two ${thing}s`;
    const rest = model.decoder ? ", each drawn by its own capsule" : ": move them, and see what the network makes of it";
    head(this.section, `Two ${thing}s in one picture${rest}.`, "x = min(1, x_1 + x_2)");
    for (const slot of this.slots) slot.call(thing);
  }

  /** Say why there are no pairs for this network, or, with null, what it was trained on. */
  explain(reason) {
    this.note.textContent = reason ?? expectation(currentModel());
    this.controls.hidden = this.stage.hidden = reason !== null;
  }

  async merge() {
    const [pair, model] = [state.get("pair"), currentModel()];
    if (!model || reasonAgainst(model)) return;
    if (model.pairs && !(pair && suits(pair, model))) return this.draw();
    if (!pair) return this.explain("There are no pairs for this network: it was trained on other pictures.");
    const limit = reach(Math.min(...model.image_size), Math.min(...sides(pair)));
    const offsets = pair.offsets.map((offset) => offset.map((move) => Math.min(limit, Math.max(-limit, move))));
    this.slots.forEach((slot, n) => slot.show(n === 0 ? pair.first : pair.second, offsets[n], limit));
    const body = { model: model.name, first: toWire(pair.first), second: toWire(pair.second), offsets };
    const answer = await askMerge("/api/pair", body);
    if (!answer || model.name !== state.get("model")) return;
    const [made, seen] = [fromWire(answer.seen), state.get("seen")];
    this.merged = seen && alike(made, seen) ? seen : made;
    paint(this.seen.canvas, this.merged);
    this.explain(null);
    if (state.get("pairMode") && this.merged !== seen) show(this.merged, "pair"); // a link may have set it already
    if (isBlank(this.merged)) {
      this.nothing();
      return;
    }
    const lengths = await askClassify("/api/classify", { model: model.name, seen: toWire(this.merged) });
    if (!lengths || model.name !== state.get("model")) return;
    this.answer = lengths;
    await this.decode(model);
  }

  /** Both digits were cleared. */
  nothing() {
    askClassify.forget();
    askDecode.forget();
    this.answer = null;
    this.seen.caption.textContent = "Nothing drawn yet";
    this.seen.canvas.setAttribute("aria-label", "Two in one picture: nothing drawn yet");
    for (const part of this.figures.children) part.hidden = part !== this.seen.figure;
  }

  /** The classes to draw: the chosen ones, else the longest and the second longest; and an absent one. */
  wanted() {
    const { classes, absent } = state.get("pair");
    const { order } = this.answer;
    const [first, second] = [0, 1].map((n) => classes?.[n] ?? order[n]);
    return [first, second, absent ?? order.findLast((klass) => klass !== first && klass !== second) ?? first];
  }

  async decode(model) {
    const { classes: names } = model;
    const { lengths, order, poses } = this.answer;
    const wanted = this.wanted();
    const say = (klass) => `${names[klass]} (${lengths[klass].toFixed(2)})`;
    this.drawn.forEach(({ select }, n) => {
      const own = n < 2 ? [["", `${n === 0 ? "longest" : "second"}: ${say(order[n])}`]] : [];
      offer(select, [...own, ...names.map((_, klass) => [klass, say(klass)])]);
      select.value = n < 2 ? state.get("pair").classes?.[n] ?? "" : wanted[n];
    });
    const longest = `${say(order[0])} and ${say(order[1])}`;
    this.seen.canvas.setAttribute("aria-label", `Two ${thingOf(model)}s in one picture; the strongest answers are ${longest}`);
    this.seen.caption.textContent = `Seen: ${longest}`;
    const drawable = poses !== null && model.decoder;
    for (const part of this.figures.children) part.hidden = !drawable && part !== this.seen.figure;
    this.colour(model);
    if (!drawable) return;
    const body = { model: model.name, poses: wanted.map((klass) => poses[klass]), classes: wanted };
    const answer = await askDecode("/api/decode", body);
    if (!answer || model.name !== state.get("model")) return;
    this.paint(answer.pictures.map(fromWire), wanted, names);
  }

  /** A network whose pixels have phases says by them what belongs together, also without capsules. */
  colour({ title }) {
    const { phases } = this.answer;
    this.phases.figure.hidden = !phases;
    if (!phases) return;
    paint(this.phases.canvas, fromWire(phases));
    this.phases.canvas.setAttribute("aria-label", `The phases of ${title} as colours: one colour, one object`);
  }

  /** Each capsule's picture in the hue of its class; a class twice is the same picture twice. */
  paint(pictures, wanted, classes) {
    const inks = wanted.map((klass) => inkOf(klass, classes.length));
    const names = wanted.map((klass) => classes[klass]);
    paint(this.both.canvas, overlay(this.merged, pictures[0], pictures[1], inks));
    const words = `What capsules ${names[0]} and ${names[1]} draw, each in its colour, over the input`;
    this.both.canvas.setAttribute("aria-label", words);
    const present = this.answer.lengths[this.wanted()[2]] >= PRESENT ? "present" : "absent";
    this.drawn.forEach(({ canvas, caption }, n) => {
      paint(canvas, pictures[n], { palette: (byte) => inks[n].map((full) => (full * byte) / 255) });
      dye(caption, wanted[n], classes.length);
      canvas.setAttribute("aria-label", `What capsule ${names[n]} draws${n < 2 ? "" : `, ${present}`}`);
      caption.textContent = `Capsule ${names[n]}${n < 2 ? " alone" : `, ${present}`}`;
    });
  }

  /** After another picture was drawn or picked, the pair is no longer the input. */
  yield() {
    const pair = state.get("seenFrom") === "pair";
    if (state.get("pairMode") && !pair && state.get("seen") !== null) state.set({ pairMode: false });
    if (!state.get("pairMode")) this.before = null;
    this.toggle.checked = state.get("pairMode");
  }
}

export function mount(section) {
  const panel = new PairPanel(section);
  state.on(["model", "models"], () => panel.meet()?.catch(report));
  state.on(["pair"], () => panel.merge().catch(report));
  state.on(["seen", "seenFrom", "pairMode"], () => panel.yield());
  register("pair", { encode: packPair, decode: unpackPair });
  panel.meet()?.catch(report);
}
