/**
 * A map of poses: a plane of pictures that one capsule draws, to walk in. Its axes are two knobs, or the two directions
 * in which the poses of test pictures of the class differ most. One's own drawing is a pin on it.
 */

import { get, latest, report } from "./api.js";
import { button, choice, figure, h, offer } from "./elements.js";
import { change, dimensionName } from "./knobs.js";
import { frame, fromWire, nativeCanvas, paint, toWire } from "./pixels.js";
import { principal, project } from "./principal.js";
import { currentModel, state } from "./state.js";
import { whenSeen } from "./visible.js";

const SIDE = 9; // pictures on each axis
const AT_ONCE = 16; // that the server decodes
const EXAMPLES = 16; // test pictures whose poses are looked at
const REACH = 2.2; // deviations to either side, of principal directions
const [LOW, HIGH] = [-0.3, 0.3]; // of a knob whose range is not known

const PINS =
  "The orange ring is where you stand, the dark pin your drawing, at the nearest place: a plane has only two of all directions.";

const [decodeSheet, decodeHere] = [latest(), latest({ live: true })];

/** A pose moved by factors of axes. */
const add = (pose, ...terms) =>
  pose.map((value, d) => terms.reduce((sum, [factor, axis]) => sum + factor * axis[d], value));

/** Test pictures of a class that the network recognises, with their poses. */
async function gatherExamples(model, klass) {
  const query = new URLSearchParams({ model: model.name, kind: klass, page: 0 });
  const { items, sprite } = await get(`/api/gallery?${query}`);
  const row = fromWire(sprite);
  const ask = latest();
  const found = [];
  for (let n = 0; n < Math.min(EXAMPLES, items.length); n += 1) {
    const picture = frame(row, n, row.width / items.length);
    const answer = await ask("/api/classify", { model: model.name, seen: toWire(picture) });
    if (answer.order[0] === klass) found.push({ picture, pose: answer.poses[klass] });
  }
  return found;
}

class PoseMap {
  constructor(body) {
    Object.assign(this, { number: 0, key: null, plane: null, at: [0, 0], end: null, morph: 0 });
    this.examples = new Map(); // by network and class: test pictures with their poses
    this.build(body);
    this.seen = whenSeen(body, () => this.begin().catch(report));
  }

  build(body) {
    const rechoose = () => this.rechoose().catch(report);
    const axes = (name) => choice(name, [], { "data-testid": `map-${name.toLowerCase()}`, onchange: rechoose });
    const [across, up] = [axes("Across"), axes("Up")];
    [this.across, this.up] = [across.select, up.select];
    const look = { class: "pixels map-sheet", role: "img", "aria-label": "A map of poses", "data-testid": "map-sheet" };
    this.sheet = h("canvas", look);
    const pin = (kind) => h("span", { class: `map-pin ${kind}`, "data-testid": `map-pin-${kind}`, hidden: true });
    this.pins = Object.fromEntries(["own", "end", "here"].map((kind) => [kind, pin(kind)]));
    this.field = h("div", { class: "map-field" }, this.sheet, ...Object.values(this.pins));
    this.walk(this.field);
    const range = (axis, label) => h("input", {
      type: "range", min: -1, max: 1, step: 0.01, value: 0, "aria-label": label, "data-testid": `map-range-${axis}`,
      oninput: () => this.go(this.at.with(axis, Number(this.ranges[axis].value))),
    });
    this.ranges = [range(0, "Place on the map, across"), range(1, "Place on the map, up")];
    this.here = figure("map-here", "What the capsule draws");
    this.words = h("p", { class: "note", "data-testid": "map-words" });
    const small = (testid, text, onclick) => button(text, onclick, { class: "button small", "data-testid": testid });
    this.knobs = small("map-knobs", "Set the knobs to this", () => this.plane && change(Float64Array.from(this.pose())));
    this.slider = h("input", {
      type: "range", min: 0, max: 1, step: 0.01, value: 0, "aria-label": "From your drawing to the other one",
      "data-testid": "map-morph",
      oninput: () => { this.morph = Number(this.slider.value); this.draw(); },
    });
    this.other = small("map-another", "Another one", () => this.another().catch(report));
    this.keep = small("map-keep", "Keep this drawing", () => this.keepThis());
    this.ends = [["map-from", "Your drawing"], ["map-to", "The other one"]].map(([id, label]) =>
      h("canvas", { class: "pixels", role: "img", "data-testid": id, "aria-label": label }));
    this.reason = h("p", { class: "note", hidden: true });
    this.stage = h("div", { class: "map" },
      h("div", { class: "map-left" }, h("div", { class: "row" }, across.label, up.label), this.field,
        h("div", { class: "map-ranges" }, h("span", { class: "note" }, "across"), this.ranges[0],
          h("span", { class: "note" }, "up"), this.ranges[1])),
      h("div", { class: "map-right" }, this.here.figure, this.words, h("div", { class: "row" }, this.knobs),
        h("h3", {}, "Morph"),
        h("div", { class: "map-morph" }, this.ends[0], this.slider, this.ends[1]),
        h("div", { class: "row" }, this.other, this.keep)));
    body.append(this.reason, this.stage);
  }

  walk(field) {
    const follow = (event) => {
      const box = field.getBoundingClientRect();
      const share = (value) => Math.min(1, Math.max(-1, (2 * value - 1) * (SIDE / (SIDE - 1))));
      this.go([share((event.clientX - box.left) / box.width), -share((event.clientY - box.top) / box.height)]);
    };
    field.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      field.setPointerCapture(event.pointerId);
      follow(event);
    });
    field.addEventListener("pointermove", (event) => field.hasPointerCapture(event.pointerId) && follow(event));
  }

  /** Another picture, capsule or network. */
  async begin() {
    const [model, answer, klass] = [currentModel(), state.get("answer"), state.get("klass")];
    const works = Boolean(model?.dims && model.decoder);
    this.reason.hidden = works;
    this.reason.textContent = "This network has no decoder: its poses cannot be drawn.";
    this.stage.hidden = !works;
    if (!works || !answer || klass === null || state.get("drawing") || !this.seen?.()) return;
    this.own = answer.poses[klass];
    const key = `${model.name}.${klass}`;
    if (key !== this.key) {
      Object.assign(this, { key, model, klass, end: null, plane: null, turn: null });
      this.offerAxes();
    }
    this.other.hidden = !model.gallery;
    this.other.textContent = `Another “${model.classes[klass]}”`;
    paint(this.ends[0], state.get("seen"));
    if (!this.plane) this.decode(this.own).catch(report); // something to look at while the map is made
    await this.rechoose();
  }

  offerAxes() {
    const { model, klass } = this;
    const dims = Array.from({ length: model.dims }, (_, d) => [String(d), `knob ${dimensionName(model, klass, d)}`]);
    const first = model.gallery ? [["p", "what differs most"]] : [];
    const second = model.gallery ? [["p", "what differs next"]] : [];
    offer(this.across, [...first, ...dims]);
    offer(this.up, [...second, ...dims]);
    if (model.gallery) this.across.value = this.up.value = "p";
    else [this.across.value, this.up.value] = ["0", "1"];
  }

  /** The plane: a middle, and for each axis the vector from the middle to its end. */
  async rechoose() {
    const number = (this.number += 1);
    const chosen = [this.across.value, this.up.value];
    const name = this.model.classes[this.klass];
    this.words.textContent = `Looking at test pictures of “${name}” to find where their poses differ most …`;
    const known = chosen.includes("p") ? await this.gather() : [];
    if (number !== this.number) return;
    const found = known.length > 3 ? principal(known.map(({ pose }) => pose)) : null;
    const middle = found && chosen.every((each) => each === "p") ? found.mean : this.own;
    const axes = chosen.map((each, n) => {
      if (each === "p" && found) return found.axes[n].map((value) => REACH * found.deviations[n] * value);
      const d = each === "p" ? n : Number(each);
      const [low, high] = this.model.ranges?.[this.klass]?.[d] ?? [LOW, HIGH];
      return this.own.map((_, k) => (k === d ? (high - low) / 2 : 0));
    });
    const start = add(middle);
    chosen.forEach((each, n) => { // a knob's axis reaches from end to end of its range
      const [low, high] = this.model.ranges?.[this.klass]?.[Number(each)] ?? [LOW, HIGH];
      if (each !== "p") start[Number(each)] = (low + high) / 2;
      else if (!found) axes[n] = axes[n].map(() => 0);
    });
    this.plane = { middle: start, axes };
    this.at = this.placeOf(this.own);
    this.slider.value = this.morph = 0;
    this.draw();
    await this.fill(number);
  }

  /** Gathered once per network and class. */
  gather() {
    if (!this.examples.has(this.key)) this.examples.set(this.key, gatherExamples(this.model, this.klass));
    return this.examples.get(this.key);
  }

  /** Where a pose lies on the map, from -1 to 1 on each axis: the nearest place, since a plane cannot hold it all. */
  placeOf(pose) {
    const { middle, axes } = this.plane;
    const units = axes.map((axis) => axis.map((value) => value / (Math.hypot(...axis) || 1)));
    const spot = project({ mean: middle, axes: units }, pose);
    return spot.map((value, n) => Math.min(1, Math.max(-1, value / (Math.hypot(...axes[n]) || 1))));
  }

  pose() {
    const { middle, axes } = this.plane;
    const between = (value, d) => (1 - this.morph) * value + this.morph * this.end.pose[d];
    if (this.morph > 0 && this.end) return this.own.map(between);
    return add(middle, [this.at[0], axes[0]], [this.at[1], axes[1]]);
  }

  async fill(number) {
    const { image_size: [height, width] } = this.model;
    const { middle, axes } = this.plane;
    const share = (n) => (2 * n) / (SIDE - 1) - 1;
    const poses = Array.from({ length: SIDE * SIDE }, (_, n) =>
      add(middle, [share(n % SIDE), axes[0]], [-share(Math.floor(n / SIDE)), axes[1]]));
    Object.assign(this.sheet, { width: SIDE * width, height: SIDE * height });
    const context = this.sheet.getContext("2d");
    for (let first = 0; first < poses.length; first += AT_ONCE) {
      const some = poses.slice(first, first + AT_ONCE);
      const body = { model: this.model.name, poses: some, classes: some.map(() => this.klass) };
      const answer = await decodeSheet("/api/decode", body);
      if (!answer || number !== this.number) return;
      answer.pictures.forEach((picture, k) => {
        const n = first + k;
        context.drawImage(nativeCanvas(fromWire(picture)), (n % SIDE) * width, Math.floor(n / SIDE) * height);
      });
    }
    const name = this.model.classes[this.klass];
    this.sheet.setAttribute("aria-label", `What capsule ${name} draws at ${SIDE} by ${SIDE} places of the map`);
  }

  go(at) {
    Object.assign(this, { at, morph: 0 });
    this.slider.value = 0;
    this.draw();
  }

  /** Move the pins, and let the capsule draw the place where one stands. */
  draw() {
    if (!this.plane) return;
    const pin = (element, place) => {
      element.hidden = !place;
      const side = (value) => `${50 + (value * 50 * (SIDE - 1)) / SIDE}%`;
      if (place) Object.assign(element.style, { left: side(place[0]), top: side(-place[1]) });
    };
    const pose = this.pose();
    if (this.morph > 0) this.at = this.placeOf(pose);
    pin(this.pins.own, this.placeOf(this.own));
    pin(this.pins.end, this.end && this.placeOf(this.end.pose));
    pin(this.pins.here, this.at);
    this.ranges.forEach((range, n) => { range.value = this.at[n]; });
    this.slider.disabled = !this.end;
    const length = Math.hypot(...pose).toFixed(2);
    const where = this.morph > 0 ? `${Math.round(100 * this.morph)} % of the way to the other one` : "where you stand";
    this.here.caption.textContent = `What the capsule draws ${where}; ‖v‖ = ${length}`;
    this.words.textContent = PINS;
    this.decode(pose).catch(report);
  }

  async decode(pose) {
    const { model, klass } = this;
    const answer = await decodeHere("/api/decode", { model: model.name, poses: [pose], classes: [klass] });
    if (!answer || model !== this.model) return;
    paint(this.here.canvas, fromWire(answer.pictures[0]));
    this.here.canvas.setAttribute("aria-label", `What capsule ${model.classes[klass]} draws here`);
  }

  /** The next test picture of the class becomes the other end of the morph. */
  async another() {
    const far = ({ pose }) => Math.hypot(...pose.map((value, d) => value - this.own[d]));
    const known = (await this.gather()).toSorted((a, b) => far(b) - far(a)); // the least similar ones first
    if (!known.length) return;
    this.turn = ((this.turn ?? -1) + 1) % known.length;
    this.take(known[this.turn]);
  }

  /** This drawing becomes the other end: draw another one of the class, and morph between them. */
  keepThis() {
    this.take({ picture: state.get("seen"), pose: this.own });
  }

  take(end) {
    this.end = end;
    paint(this.ends[1], end.picture);
    this.draw();
  }
}

export function mount(section) {
  const map = new PoseMap(section.querySelector(".body"));
  state.on(["answer", "klass", "drawing", "measured"], () => map.begin().catch(report));
}
