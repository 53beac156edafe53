/**
 * Build a scene: parts of a house, a boat or a face, each to be dragged and turned, and what the networks that know
 * these wholes say of it. Shown only where such a network is loaded.
 */

import { latest, report } from "./api.js";
import { button, figure, h } from "./elements.js";
import { dye } from "./hues.js";
import { register } from "./link.js";
import { chooseModel, show, startRequest } from "./network.js";
import { paint, toWire } from "./pixels.js";
import { rove } from "./rove.js";
import { ARRANGEMENTS, assemble, drawParts, partAt } from "./shapes.js";
import { state } from "./state.js";
import { whenSeen } from "./visible.js";

const WHOLES = Object.keys(ARRANGEMENTS);
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const TURN = Math.PI / 36;
const NEAR = 1; // pixels and tenths of a radian: a part that is off by less is in its place

class Scene {
  constructor(section, networks) {
    Object.assign(this, { section, networks, side: networks[0].image_size[0], whole: WHOLES[0], chosen: 0 });
    this.build(section.querySelector(".body"));
    this.visible = whenSeen(section, () => this.ask().catch(report));
    this.begin("house");
  }

  build(body) {
    const paper = figure("scene", "Drag a part; the ring turns the chosen one");
    this.canvas = paper.canvas;
    this.ring = h("span", { class: "scene-ring", "aria-hidden": "true", "data-testid": "scene-ring" });
    this.field = h("div", { class: "scene-field" }, this.canvas, this.ring);
    paper.figure.prepend(this.field);
    this.drag();
    const small = (testid, text, onclick) => button(text, onclick, { class: "button small", "data-testid": testid });
    this.wholes = WHOLES.map((whole) => small(`scene-${whole}`, whole, () => this.begin(whole)));
    const keys = "Parts: arrow keys move, Shift and arrows turn";
    this.list = h("div", { class: "row scene-parts", role: "group", "aria-label": keys });
    this.turn = h("input", {
      type: "range", min: -180, max: 180, step: 1, id: "scene-turn", "data-testid": "scene-turn",
      oninput: () => this.set(this.chosen, { angle: (Number(this.turn.value) * Math.PI) / 180 }),
    });
    this.turnLabel = h("label", { for: "scene-turn", class: "note" });
    this.rows = this.networks.map((model) => this.row(model));
    this.words = h("p", { class: "scene-words", "aria-live": "polite", "data-testid": "scene-words" });
    body.append(h("div", { class: "scene" },
      h("div", { class: "row" }, ...this.wholes, small("scene-scramble", "Scramble", () => this.scramble())),
      h("div", { class: "scene-stage" }, paper.figure,
        h("div", { class: "scene-side" }, ...this.rows.map(({ element }) => element))),
      this.list,
      h("div", { class: "scene-turn" }, this.turnLabel, this.turn),
      this.words,
      h("p", { class: "note" }, "Both were trained on whole pictures only, and no answer says “none of these”."),
      h("div", { class: "row" }, small("scene-use", "Use it as the input of all panels", () => this.give()))));
  }

  row(model) {
    const bars = model.classes.map((name, j) => {
      const [fill, value] = [h("span", { class: "fill" }), h("span", { class: "value" })];
      const row = h("div", { class: "scene-bar" }, h("span", {}, name), h("span", { class: "meter" }, fill), value);
      dye(row, j, model.classes.length);
      return { fill, value, row };
    });
    const kind = model.dims ? "capsules: length" : "no capsules: probability";
    const element = h("div", { class: "scene-network", "data-testid": `scene-says-${model.name}` },
      h("h3", {}, model.title), h("p", { class: "note" }, kind), ...bars.map(({ row }) => row));
    return { model, bars, element, ask: latest({ live: true }) };
  }

  /** One pointer drags a part, or, from the ring, turns the chosen one. */
  drag() {
    let held = null;
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top].map((value) => (value / box.width) * this.side - 0.5);
    };
    this.field.addEventListener("pointerdown", (event) => {
      const [x, y] = place(event);
      const part = this.parts[this.chosen];
      const [ringX, ringY] = this.ringPlace();
      const turning = Math.hypot(x - ringX, y - ringY) < 2.5;
      const hit = turning ? this.chosen : partAt(this.parts, x, y);
      if (hit < 0) return;
      event.preventDefault();
      this.field.setPointerCapture(event.pointerId);
      this.choose(hit);
      const angle = part.angle - Math.atan2(y - part.y, x - part.x);
      held = { turning, x: x - this.parts[hit].x, y: y - this.parts[hit].y, angle };
    });
    this.field.addEventListener("pointermove", (event) => {
      if (!held || !this.field.hasPointerCapture(event.pointerId)) return;
      const [x, y] = place(event);
      const { x: midX, y: midY } = this.parts[this.chosen];
      if (held.turning) this.set(this.chosen, { angle: held.angle + Math.atan2(y - midY, x - midX) });
      else this.set(this.chosen, { x: x - held.x, y: y - held.y });
    });
    this.field.addEventListener("lostpointercapture", () => { held = null; });
  }

  begin(whole) {
    this.whole = whole;
    this.own = assemble(whole, this.side);
    this.parts = assemble(whole, this.side);
    this.wholes.forEach((each, n) => each.setAttribute("aria-pressed", WHOLES[n] === whole));
    this.list.replaceChildren(...this.parts.map(({ name }, n) => button(name, () => this.choose(n), {
      class: "button small", "data-testid": `scene-part-${n}`, tabindex: "-1", onfocus: () => this.choose(n),
      onkeydown: (event) => this.key(event, n),
    })));
    this.stop ??= rove(this.list, "button");
    this.stop(this.list.firstElementChild);
    this.choose(0);
    this.change();
  }

  /** Arrows move the part on which the focus is (so they do not move the focus), with Shift they turn it. */
  key(event, n) {
    const arrow = ARROWS[event.key];
    if (!arrow || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const part = this.parts[n];
    if (event.shiftKey) this.set(n, { angle: part.angle + TURN * (arrow[0] || arrow[1]) });
    else this.set(n, { x: part.x + arrow[0], y: part.y + arrow[1] });
  }

  choose(n) {
    this.chosen = n;
    [...this.list.children].forEach((each, k) => each.setAttribute("aria-pressed", k === n));
    this.stop?.(this.list.children[n]);
    this.mark();
  }

  set(n, changes) {
    const part = { ...this.parts[n], ...changes };
    part.x = Math.min(this.side - 1, Math.max(0, part.x));
    part.y = Math.min(this.side - 1, Math.max(0, part.y));
    part.angle = Math.atan2(Math.sin(part.angle), Math.cos(part.angle));
    this.parts = this.parts.with(n, part);
    this.change();
  }

  /** Every part but the first somewhere else, and turned. */
  scramble() {
    const within = () => this.side * (0.28 + 0.44 * Math.random());
    const anywhere = () => ({ x: within(), y: within(), angle: 2 * Math.PI * (Math.random() - 0.5) });
    this.parts = this.own.map((part, n) => (n ? { ...part, ...anywhere() } : part));
    this.change();
  }

  change() {
    this.picture = drawParts(this.parts, this.side);
    paint(this.canvas, this.picture);
    this.mark();
    state.set({ scene: this.encode() });
    this.ask().catch(report);
  }

  ringPlace() {
    const { x, y, angle, width, aspect } = this.parts[this.chosen];
    const far = 0.5 * Math.max(width, width * aspect) + 3;
    const inside = (value) => Math.min(this.side - 2, Math.max(1, value));
    return [inside(x + far * Math.sin(angle)), inside(y - far * Math.cos(angle))];
  }

  mark() {
    const [x, y] = this.ringPlace();
    const [left, top] = [x, y].map((value) => `${(100 * (value + 0.5)) / this.side}%`);
    Object.assign(this.ring.style, { left, top });
    const { name, angle } = this.parts[this.chosen];
    this.turn.value = Math.round((angle * 180) / Math.PI);
    this.turnLabel.textContent = `Turn the ${name}: ${this.turn.value.replace("-", "−")}°`;
  }

  /** Parts that are not where the whole has them. */
  misplaced() {
    return this.parts.filter(({ x, y, angle }, n) => {
      const own = this.own[n];
      return Math.hypot(x - own.x, y - own.y) > NEAR || Math.abs(Math.sin((angle - own.angle) / 2)) > NEAR / 20;
    }).map(({ name }) => name);
  }

  async ask() {
    if (!this.visible?.()) return;
    const { picture } = this;
    const seen = toWire(picture);
    const asked = this.rows.map(({ model, ask }) => ask("/api/classify", { model: model.name, seen }));
    const answers = await Promise.all(asked);
    if (picture !== this.picture || answers.includes(null)) return;
    answers.forEach(({ lengths }, n) => this.rows[n].bars.forEach(({ fill, value }, j) => {
      fill.style.width = `${100 * Math.min(1, lengths[j])}%`;
      value.textContent = lengths[j].toFixed(2);
    }));
    const off = this.misplaced();
    const says = answers.map(({ lengths, order: [first] }, n) => {
      const { title, classes } = this.rows[n].model;
      return `${title}: ${classes[first]} ${lengths[first].toFixed(2)}`;
    }).join(", ");
    const right = `All parts of the ${this.whole} are in place.`;
    const arrangement = off.length ? `Not in place: ${off.join(", ")}.` : right;
    this.words.textContent = `${arrangement} ${says}.`;
    this.canvas.setAttribute("aria-label", `Parts of a ${this.whole}. ${arrangement}`);
  }

  give() {
    startRequest();
    const [best] = this.networks;
    chooseModel(best.name);
    show(this.picture, "gallery", { pairMode: false });
  }

  /** The parts that were moved, for the link: "boat" or "boat.x_y_degrees.…". */
  encode() {
    if (!this.misplaced().length) return this.whole === WHOLES[0] ? null : this.whole;
    const number = (value) => String(Math.round(10 * value) / 10);
    const parts = this.parts.map(({ x, y, angle }) => [x, y, (angle * 180) / Math.PI].map(number).join("_"));
    return [this.whole, ...parts].join("~");
  }

  decode(text) {
    const [whole, ...parts] = (text ?? WHOLES[0]).split("~");
    if (!WHOLES.includes(whole)) return;
    this.begin(whole);
    parts.slice(0, this.parts.length).forEach((part, n) => {
      const [x, y, degrees] = part.split("_").map(Number);
      if ([x, y, degrees].every(Number.isFinite)) this.set(n, { x, y, angle: (degrees * Math.PI) / 180 });
    });
  }
}

export function mount(section) {
  let scene = null;
  let linked = null; // what the link says, until the networks are known
  section.hidden = true;
  const knows = ({ classes, channels, image_size: [height, width] }) =>
    channels === 1 && height === width && WHOLES.every((whole) => classes.includes(whole));
  state.on(["models"], () => {
    const networks = state.get("models").filter(knows);
    const same = networks.filter(({ image_size: [side] }) => side === networks[0].image_size[0]);
    if (scene || !same.length) return;
    section.hidden = false;
    scene = new Scene(section, same.slice(0, 3));
    if (linked) scene.decode(linked);
  });
  register("scene", {
    encode: () => scene?.encode() ?? null,
    decode: (text) => { linked = text; scene?.decode(text); },
  });
}
