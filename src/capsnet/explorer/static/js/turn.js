/**
 * Turn it and watch: the picture is turned, sheared, scaled, shifted; the length of its capsule, the direction of its
 * pose, and a network without capsules answer. Equivariance to be felt, up to its limit.
 */

import { latest, report } from "./api.js";
import { MOVES, angleBetween, moved, unmoved } from "./affine.js";
import { Chart } from "./chart.js";
import { button, figure, h } from "./elements.js";
import { PRESENT, chooseModel, framed, show, startRequest } from "./network.js";
import { fits, fromWire, isBlank, paint, toWire } from "./pixels.js";
import { principal, project } from "./principal.js";
import { currentModel, state } from "./state.js";
import { fairPair, twinOf } from "./twins.js";
import { whenSeen } from "./visible.js";

const SAMPLES = 25; // points of a curve, odd: one is where nothing is moved
const HANDLE = 0.4; // of the picture's side: how far the handle is from the middle

const LIMIT = "This is learnt, not built in: beyond what training showed, the length falls and the class changes.";

const [askNow, askTwin, askCurve] = [latest({ live: true }), latest({ live: true }), latest()];

class TurnPanel {
  constructor(body) {
    Object.assign(this, { move: unmoved(), active: "turn", curve: null, number: 0 });
    this.build(body);
    this.visible = whenSeen(body, () => { this.change(); this.sample(); });
  }

  build(body) {
    const picture = figure("turned", "Drag the handle");
    const drawn = figure("turned-drawn", "What its capsule draws");
    this.picture = picture.canvas;
    this.handle = h("span", { class: "turn-handle", "aria-hidden": "true", "data-testid": "turn-handle" });
    this.arm = h("span", { class: "turn-arm", "aria-hidden": "true" });
    const stage = h("div", { class: "turn-stage" }, picture.canvas, this.arm, this.handle);
    picture.figure.prepend(stage);
    this.drag(stage);
    this.tabs = Object.entries(MOVES).map(([key, { name }]) =>
      button(name, () => this.choose(key), { "data-testid": `turn-${key}`, class: "button small" }));
    const slide = () => this.set(Number(this.range.value));
    this.range = h("input", { type: "range", "data-testid": "turn-range", oninput: slide });
    this.value = h("output", { class: "turn-value", "data-testid": "turn-value" });
    this.drawn = drawn;
    const onPoint = (x) => this.set(x);
    this.lengths = new Chart({ testid: "turn-lengths", label: "How sure the networks are", height: 170, onPoint });
    this.angles = new Chart({ testid: "turn-angles", label: "The direction of the pose", height: 110, onPoint });
    const look = { class: "turn-plane", role: "img", "aria-label": "The pose on its way", "data-testid": "turn-plane" };
    this.plane = h("canvas", look);
    this.legend = h("p", { class: "row note turn-legend" });
    this.words = h("p", { class: "turn-words", "aria-live": "polite", "data-testid": "turn-words" });
    this.reason = h("p", { class: "note", hidden: true });
    const small = (testid, text, onclick) => button(text, onclick, { class: "button small", "data-testid": testid });
    this.fair = small("turn-fair", "", () => chooseModel(this.better.name));
    this.fair.hidden = true;
    this.use = small("turn-use", "Use it as the input", () => this.give());
    const reset = small("turn-reset", "Reset", () => { this.move = unmoved(); this.change(); this.sample(); });
    this.stage = h("div", { class: "turn" },
      h("div", { class: "turn-left" },
        h("div", { class: "row" }, ...this.tabs, reset),
        h("div", { class: "turn-slider" }, this.range, this.value),
        h("div", { class: "turn-pictures" }, picture.figure, drawn.figure),
        h("div", { class: "row" }, this.use)),
      h("div", { class: "turn-right" },
        h("h3", {}, "How sure"), this.legend, this.lengths.canvas,
        h("div", { class: "turn-directions" },
          h("div", {}, h("h3", {}, "Its direction, from the start"), this.angles.canvas),
          h("div", {}, h("h3", {}, "The pose on its way"), this.plane)),
        this.words,
        h("p", { class: "note" }, LIMIT),
        h("div", { class: "row" }, this.fair)));
    body.append(this.reason, this.stage);
    addEventListener("themechange", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.plane);
    this.choose("turn");
  }

  drag(stage) {
    const follow = (event) => {
      const box = stage.getBoundingClientRect();
      const [x, y] = [(event.clientX - box.left) / box.width - 0.5, (event.clientY - box.top) / box.height - 0.5];
      const far = Math.hypot(x, y) / HANDLE;
      const degrees = (Math.atan2(x, -y) * 180) / Math.PI;
      this.set({ turn: degrees, shear: x / HANDLE, size: far, shift: x * this.seen.width }[this.active]);
    };
    stage.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      stage.setPointerCapture(event.pointerId);
      follow(event);
    });
    stage.addEventListener("pointermove", (event) => stage.hasPointerCapture(event.pointerId) && follow(event));
  }

  /** The move that the handle and the curves are about. */
  choose(key) {
    this.active = key;
    const { range: [low, high], step, name } = MOVES[key];
    Object.assign(this.range, { min: low, max: high, step });
    this.range.setAttribute("aria-label", name);
    this.tabs.forEach((tab, n) => tab.setAttribute("aria-pressed", Object.keys(MOVES)[n] === key));
    this.change();
    this.sample();
  }

  turnTo(degrees) {
    if (this.active !== "turn") this.choose("turn");
    this.set(degrees);
  }

  set(value) {
    const { range: [low, high], step } = MOVES[this.active];
    const snapped = Math.round(Math.min(high, Math.max(low, value)) / step) * step;
    if (snapped === this.move[this.active]) return;
    this.move = { ...this.move, [this.active]: snapped };
    this.change();
  }

  /** Another picture, another network: begin again. */
  begin() {
    const [model, answer] = [currentModel(), state.get("answer")];
    if (state.get("drawing") || !model) return;
    const seen = state.get("seen");
    const several = model.multi ? "This is about one object at a time: choose a network of single ones." : null;
    const none = !seen || isBlank(seen) ? "Draw something first." : several;
    this.reason.hidden = none === null;
    this.reason.textContent = none ?? "";
    this.stage.hidden = none !== null;
    if (none || !answer || !fits(seen, model)) return;
    const same = this.seen === seen && this.model === model;
    Object.assign(this, { seen, model, klass: state.get("klass") ?? answer.order[0], start: answer });
    if (!same) this.move = unmoved();
    this.twin = twinOf(model, state.get("models"));
    if (this.twin && !this.frame(seen, this.twin)) this.twin = null;
    this.better = fairPair(model, state.get("models"));
    this.fair.hidden = !this.better;
    if (this.better) this.fair.textContent = `Compare equals: ${this.better.title} and its plain twin`;
    this.latest = { caps: answer, plain: null };
    this.explain();
    this.change();
    this.sample();
  }

  frame(picture, model) {
    return fits(picture, model) ? picture : framed(picture, model);
  }

  explain() {
    const million = (count) => `${(count / 1e6).toFixed(1)} million`;
    const size = ({ parameters: count }) => (count >= 1e6 ? million(count) : `${Math.round(count / 1e3)} thousand`);
    const entry = (kind, model, more = "") => h("span", { class: kind }, `${model.title}, ${size(model)} parameters${more}`);
    const twin = this.twin ? [entry("twin", this.twin, " (no capsules)")] : [];
    this.legend.replaceChildren(entry("caps", this.model), ...twin);
  }

  /** The picture moves: paint it, ask both networks about it. */
  change() {
    if (!this.seen) return;
    const picture = moved(this.seen, this.move);
    this.now = picture;
    paint(this.picture, picture);
    const { write } = MOVES[this.active];
    const value = this.move[this.active];
    this.range.value = value;
    this.value.textContent = write(value);
    this.range.setAttribute("aria-valuetext", write(value));
    this.placeHandle(value);
    this.ask(picture).catch(report);
    this.drawSoon();
  }

  drawSoon() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      this.draw();
    });
  }

  placeHandle(value) {
    const angle = this.active === "turn" ? (value * Math.PI) / 180 : 0;
    const [x, y] = {
      turn: () => [Math.sin(angle), -Math.cos(angle)], shear: () => [value, -1],
      size: () => [value * 0.7071, -value * 0.7071], shift: () => [value / (HANDLE * this.seen.width), 0],
    }[this.active]().map((each) => HANDLE * each);
    Object.assign(this.handle.style, { left: `${100 * (0.5 + x)}%`, top: `${100 * (0.5 + y)}%` });
    const far = Math.hypot(x, y);
    Object.assign(this.arm.style, { width: `${100 * far}%`, transform: `rotate(${Math.atan2(y, x)}rad)` });
  }

  async ask(picture) {
    if (!this.visible()) return;
    const { model, twin } = this;
    const twinPicture = twin && this.frame(picture, twin);
    const [caps, plain] = await Promise.all([
      askNow("/api/classify", { model: model.name, seen: toWire(picture) }),
      twinPicture ? askTwin("/api/classify", { model: twin.name, seen: toWire(twinPicture) }) : null,
    ]);
    if (!caps || model !== this.model) return;
    this.latest = { caps, plain: plain ?? this.latest?.plain };
    this.drawSoon();
    this.drawn.figure.hidden = !caps.reconstruction;
    if (caps.reconstruction) paint(this.drawn.canvas, fromWire(caps.reconstruction));
    const { classes } = model;
    this.drawn.caption.textContent = `Capsule “${classes[caps.order[0]]}” draws`;
    const was = classes[this.klass];
    const [length, first] = [caps.lengths[this.klass].toFixed(2), classes[caps.order[0]]];
    const angle = caps.poses ? `, its direction ${this.angleOf(caps).toFixed(0)}° from the start` : "";
    const read = first === was ? "" : ` It is read as “${first}” now.`;
    const other = plain && twin ? ` ${twin.title} gives “${was}” ${plain.lengths[this.klass].toFixed(2)}.` : "";
    this.words.textContent = `“${was}” has ${length}${angle}.${read}${other}`;
  }

  /** How far the pose of an answer points away from that of the unmoved picture, in degrees; 0 without poses. */
  angleOf({ poses }) {
    return poses ? angleBetween(poses[this.klass], this.start.poses[this.klass]) : 0;
  }

  /** The curves, point by point from the middle outwards; only while someone looks. */
  async sample() {
    if (!this.seen || !this.visible?.() || state.get("drawing")) return;
    const { model, twin, active, seen } = this;
    const key = JSON.stringify([model.name, twin?.name, active, { ...this.move, [active]: null }]);
    if (this.curve?.key === key && this.curve.seen === seen) return;
    const number = (this.number += 1);
    const [low, high] = MOVES[active].range;
    const values = Array.from({ length: SAMPLES }, (_, n) => low + (n / (SAMPLES - 1)) * (high - low));
    const own = MOVES[active].own;
    const curve = { key, seen, points: [] };
    this.curve = curve;
    const move = { ...this.move };
    for (const value of values.toSorted((a, b) => Math.abs(a - own) - Math.abs(b - own))) {
      const picture = moved(seen, { ...move, [active]: value });
      const about = (each) => ({ model: each.name, seen: toWire(this.frame(picture, each)) });
      const caps = await askCurve("/api/classify", about(model));
      const plain = caps && twin && this.frame(picture, twin) ? await askCurve("/api/classify", about(twin)) : null;
      if (!caps || number !== this.number) return;
      curve.points.push({ value, caps, plain });
      if (curve.points.length % 4 === 0) this.draw();
    }
    curve.points.sort((a, b) => a.value - b.value);
    this.draw();
    this.canvasWords(curve);
  }

  draw() {
    if (!this.seen || !this.visible?.()) return;
    const points = [...(this.curve?.points ?? [])].sort((a, b) => a.value - b.value);
    const { range, write } = MOVES[this.active];
    const ticks = [range[0], (range[0] + range[1]) / 2, range[1]].map((value) => [value, write(value)]);
    const shared = { x: range, now: this.move[this.active], ticks };
    const known = (of) => points.filter((point) => of(point) !== undefined).map((point) => [point.value, of(point)]);
    const line = (of, colour, dash) => ({ points: known(of), colour, dash });
    const lines = [line(({ caps }) => caps.lengths[this.klass], "--blue")];
    if (this.twin) lines.push(line(({ plain }) => plain?.lengths[this.klass], "--orange", [6, 4]));
    this.lengths.draw({ ...shared, y: [0, 1], levels: [[0, "0"], [PRESENT, "0.5"], [1, "1"]], lines });
    const has = Boolean(this.start.poses);
    this.angles.canvas.parentElement.parentElement.hidden = !has;
    if (!has) return;
    const turned = line(({ caps }) => this.angleOf(caps), "--blue");
    const top = turned.points.some(([, angle]) => angle > 90) ? 180 : 90;
    this.angles.draw({ ...shared, y: [0, top], levels: [0, top / 2, top].map((y) => [y, `${y}°`]), lines: [turned] });
    this.drawPlane(points);
  }

  /** The plane of the curve's poses and their places in it: found again only when there are more of them. */
  planeOf(points) {
    const { curve, klass } = this;
    if (curve.plane?.count !== points.length || curve.plane.klass !== klass) {
      const plane = principal(points.map(({ caps }) => caps.poses[klass]));
      const spots = points.map(({ caps }) => project(plane, caps.poses[klass]));
      curve.plane = { plane, spots, count: points.length, klass };
    }
    return curve.plane;
  }

  /** The pose in the plane in which it moves most, from one end of the range to the other. */
  drawPlane(points) {
    const context = this.plane.getContext("2d");
    const side = (this.plane.width = this.plane.height = 220);
    const colours = this.angles.palette();
    if (points.length < 4) return;
    const { plane, spots } = this.planeOf(points);
    const reach = 1.15 * Math.max(1e-6, ...spots.flat().map(Math.abs));
    const at = ([x, y]) => [(side / 2) * (1 + x / reach), (side / 2) * (1 - y / reach)];
    Object.assign(context, { strokeStyle: colours("--blue"), lineWidth: 2.5, lineJoin: "round" });
    context.beginPath();
    spots.forEach((spot, n) => context[n ? "lineTo" : "moveTo"](...at(spot)));
    context.stroke();
    const dot = (spot, colour, radius) => {
      context.fillStyle = colour;
      context.beginPath();
      context.arc(...at(spot), radius, 0, 2 * Math.PI);
      context.fill();
    };
    for (const spot of spots) dot(spot, colours("--blue"), 3);
    dot(project(plane, this.start.poses[this.klass]), colours("--ink"), 6);
    const now = this.latest?.caps;
    if (now?.poses) dot(project(plane, now.poses[this.klass]), colours("--orange"), 8);
  }

  canvasWords({ points }) {
    const { write } = MOVES[this.active];
    const name = this.model.classes[this.klass];
    const run = (good) => {
      const own = points.findIndex(({ value }) => Math.abs(value - MOVES[this.active].own) < 1e-9);
      let [first, last] = [own, own];
      while (first > 0 && good(points[first - 1])) first -= 1;
      while (last < points.length - 1 && good(points[last + 1])) last += 1;
      return `${write(points[first].value)} to ${write(points[last].value)}`;
    };
    const caps = run((point) => point.caps.lengths[this.klass] >= PRESENT);
    const twin = this.twin && run(({ plain }) => plain?.lengths[this.klass] >= PRESENT);
    const plain = twin ? `; ${this.twin.title}: ${twin}` : "";
    this.lengths.canvas.setAttribute("aria-label", `“${name}” stays above ${PRESENT} from ${caps}${plain}`);
    const far = Math.max(...points.map(({ caps: each }) => this.angleOf(each)));
    this.angles.canvas.setAttribute("aria-label", `The pose of “${name}” turns by up to ${far.toFixed(0)}°`);
    this.plane.setAttribute("aria-label", `The pose of “${name}” in the plane in which it moves most`);
  }

  give() {
    startRequest();
    show(this.now, "gallery", { pairMode: false });
  }
}

let panel = null;

/** Turn the picture by so many degrees, as the handle does: for the story. */
export const turnTo = (degrees) => panel?.turnTo(degrees);

export function mount(section) {
  panel = new TurnPanel(section.querySelector(".body"));
  state.on(["answer", "drawing", "klass"], () => panel.begin());
}
