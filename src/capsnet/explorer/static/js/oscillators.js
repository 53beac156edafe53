/** Oscillators: the Kuramoto model, live. Beyond a critical coupling a common rhythm appears. */

import { Chart } from "./chart.js";
import { button, h, mayMove } from "./elements.js";
import { criticalCoupling, frequencies, lockedOrder, mean, order, stepCircle, stepSphere } from "./kuramoto.js";
import { register } from "./link.js";
import { animate } from "./panel_export.js";
import { fit } from "./ramp.js";
import { state } from "./state.js";
import { whenSeen } from "./visible.js";

const DT = 0.05;
const STEPS = 2; // per frame
const SHOWN = 30; // units of time in the chart of r
const START = { kind: "circle", K: 1.2, spread: 1, N: 120 };
const LIMITS = { K: [0, 4, 0.02], spread: [0.1, 2, 0.05], N: [10, 500, 10] };
const NAMES = { K: "Coupling K", spread: "Spread of frequencies", N: "Oscillators N" };
const SPHERE = "On a sphere there is no threshold: any coupling aligns a part of them (Chandra, Girvan, Ott 2019).";

/** Numbers between 0 and 1, the same for the same seed (mulberry32). */
function generator(seed) {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

class Oscillators {
  constructor(body) {
    Object.assign(this, { settings: { ...START }, seed: 1, running: mayMove(), frame: null });
    this.canvas = h("canvas", { class: "oscillators-ring", role: "img", "data-testid": "oscillators" });
    const small = (id, text, onclick) =>
      button(text, onclick, { class: "button small", "data-testid": `oscillators-${id}` });
    this.kinds = [["circle", "Circle"], ["sphere", "Sphere"]].map(([kind, text]) =>
      small(kind, text, () => this.change({ kind })));
    this.play = small("play", "Pause", () => this.toggle());
    const again = small("again", "Start again", () => { this.seed += 1; this.begin(); });
    const sliders = Object.entries(LIMITS).map(([key, limits]) => [key, this.slider(key, ...limits)]);
    this.sliders = Object.fromEntries(sliders);
    this.tick = h("span", { class: "oscillators-tick", title: "the critical coupling" });
    this.sliders.K.track.append(this.tick);
    this.now = h("output", { class: "oscillators-order", "data-testid": "oscillators-order" });
    this.words = h("p", { class: "note", "data-testid": "oscillators-words" });
    this.overTime = new Chart({ testid: "oscillators-time", label: "Order over time", height: 110 });
    const onPoint = (K) => this.change({ K: Math.round(50 * K) / 50 });
    this.overK = new Chart({ testid: "oscillators-curve", label: "Order against coupling", height: 130, onPoint });
    const couplings = Array.from({ length: 113 }, (_, n) => (n < 80 ? 0.1 * n : n - 72)); // in units of the spread
    const sorted = [...couplings, criticalCoupling(1)].sort((a, b) => a - b);
    this.curve = sorted.map((K) => [K, lockedOrder(K, 1)]);
    body.append(h("div", { class: "oscillators" },
      h("div", { class: "row" }, ...this.kinds, this.play, again),
      h("div", { class: "oscillators-stage" }, this.canvas,
        h("div", { class: "oscillators-side" }, ...Object.values(this.sliders).map(({ row }) => row),
          h("p", {}, "order r = ", this.now), this.words)),
      h("div", {}, h("h3", {}, "Order over time"), this.overTime.canvas),
      this.theory = h("div", {}, h("h3", {}, "Order against coupling"), this.overK.canvas)));
    addEventListener("themechange", () => this.draw());
    this.begin();
    this.visible = whenSeen(body, () => this.run(), () => this.rest());
  }

  slider(key, min, max, step) {
    const value = h("output", {});
    const input = h("input", {
      type: "range", id: `oscillators-${key}`, min, max, step, "data-testid": `oscillators-${key}`,
      oninput: () => this.change({ [key]: Number(input.value) }),
    });
    const track = h("span", { class: "track" }, input);
    const row = h("div", { class: "oscillators-slider" }, h("label", { for: input.id }, NAMES[key]), track, value);
    return { input, value, track, row };
  }

  /** Coupling changes while they run; another number, spread or space begins anew. */
  change(changes) {
    this.settings = { ...this.settings, ...changes };
    state.set({ oscillators: this.encode() });
    if (Object.keys(changes).every((key) => key === "K")) this.label();
    else this.begin();
    if (!this.frame) this.draw();
  }

  begin() {
    const { kind, N, spread } = this.settings;
    const random = generator(this.seed);
    const omega = frequencies(N, spread);
    if (kind === "circle") {
      Object.assign(this, { x: Float64Array.from(omega, () => 2 * Math.PI * random()), rates: omega });
    } else {
      const normal = () => Math.sqrt(-2 * Math.log(random() + 1e-12)) * Math.cos(2 * Math.PI * random());
      const direction = () => [normal(), normal(), normal()];
      const unit = (vector) => vector.map((value) => value / Math.hypot(...vector));
      this.x = Float64Array.from(Array.from({ length: N }, () => unit(direction())).flat());
      this.rates = Float64Array.from([...omega].flatMap((speed) => unit(direction()).map((value) => speed * value)));
    }
    this.time = 0;
    this.history = [];
    this.label();
    this.step(0);
    this.draw();
  }

  label() {
    const { kind, K, spread } = this.settings;
    const critical = criticalCoupling(spread);
    this.kinds.forEach((each, n) => each.setAttribute("aria-pressed", (n === 0) === (kind === "circle")));
    for (const [key, { input, value }] of Object.entries(this.sliders)) {
      input.value = this.settings[key];
      value.textContent = key === "N" ? this.settings.N : this.settings[key].toFixed(2);
    }
    const circle = kind === "circle";
    this.tick.hidden = !circle || critical > LIMITS.K[1];
    this.tick.style.setProperty("--at", critical / LIMITS.K[1]);
    this.theory.hidden = !circle;
    this.expected = circle ? lockedOrder(K, spread) : null;
    const locks = `above it: a part of them locks, and r settles near ${this.expected?.toFixed(2)}`;
    const side = K > critical ? locks : "below it: no common rhythm";
    const threshold = `The critical coupling is K_c = ${critical.toFixed(2)}; you are ${side}.`;
    this.words.textContent = circle ? threshold : SPHERE;
  }

  order() {
    if (this.settings.kind === "circle") return order(this.x).r;
    return Math.hypot(...mean(this.x, 3));
  }

  step(count) {
    const move = this.settings.kind === "circle" ? stepCircle : stepSphere;
    for (let n = 0; n < count; n += 1) move(this.x, this.rates, this.settings.K, DT);
    this.time += count * DT;
    this.history.push([this.time, this.order()]);
    while (this.history[0][0] < this.time - SHOWN) this.history.shift();
  }

  toggle() {
    this.running = !this.running;
    if (this.running) this.run();
    else this.rest();
  }

  /** Move while someone looks. */
  run() {
    this.play.textContent = this.running ? "Pause" : "Play";
    if (!this.running || this.frame || !this.visible?.()) return;
    const tick = () => {
      this.step(STEPS);
      this.draw();
      this.frame = requestAnimationFrame(tick);
    };
    this.frame = requestAnimationFrame(tick);
  }

  rest() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    this.play.textContent = this.running ? "Pause" : "Play";
  }

  draw() {
    const { kind, K, spread } = this.settings;
    const now = this.history.at(-1)[1];
    this.now.textContent = now.toFixed(2);
    this.canvas.setAttribute("aria-label", `${this.settings.N} oscillators on a ${kind}, order ${now.toFixed(2)}`);
    this.drawRing();
    const from = Math.max(0, this.time - SHOWN);
    const within = this.curve.map(([each, r]) => [each * spread, r]).filter(([each]) => each <= LIMITS.K[1]);
    const theory = { colour: "--muted", dash: [4, 4], line: 1.5 };
    const level = [[from, this.expected], [from + SHOWN, this.expected]];
    this.overTime.draw({
      x: [from, from + SHOWN], y: [0, 1], levels: [[0, "0"], [0.5, "0.5"], [1, "1"]],
      ticks: [[from + 2, `t = ${from.toFixed(0)}`], [from + SHOWN - 2, (from + SHOWN).toFixed(0)]],
      lines: [...(kind === "circle" ? [{ ...theory, points: level }] : []), { points: this.history, colour: "--blue" }],
    });
    if (kind !== "circle") return;
    const critical = criticalCoupling(spread);
    this.overK.draw({
      x: [0, LIMITS.K[1]], y: [0, 1], levels: [[0, "0"], [0.5, "0.5"], [1, "1"]],
      ticks: [0, 1, 2, 3, 4].map((value) => [value, value === 4 ? "K = 4" : String(value)]),
      marks: critical < LIMITS.K[1] ? [[critical, "K_c"]] : [],
      lines: [
        { ...theory, points: within },
        { points: [[K, now]], colour: "--orange", dots: true },
      ],
    });
  }

  /** The oscillators as dots in the colour of their phase, and the mean as an arrow from the middle. */
  drawRing() {
    const side = this.canvas.clientWidth;
    if (!side) return;
    const context = fit(this.canvas, side, side);
    const paint = this.overTime.palette();
    const [middle, radius] = [side / 2, side / 2 - 12];
    Object.assign(context, { strokeStyle: paint("--line"), lineWidth: 1.5 });
    context.beginPath();
    context.arc(middle, middle, radius, 0, 2 * Math.PI);
    context.stroke();
    const circle = this.settings.kind === "circle";
    const dots = circle ? [...this.x].map((phase) => [Math.cos(phase), Math.sin(phase), 1]) : spots(this.x);
    const size = Math.max(2.5, 6 - this.settings.N / 120);
    for (const [x, y, near] of dots) {
      context.globalAlpha = 0.35 + 0.5 * near;
      context.fillStyle = `hsl(${((Math.atan2(y, x) * 180) / Math.PI + 360) % 360} 75% 55%)`;
      context.beginPath();
      context.arc(middle + radius * x, middle - radius * y, size * (0.6 + 0.4 * near), 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
    const { r, angle } = circle ? order(this.x) : { r: 0, angle: 0 };
    const [x, y] = circle ? [r * Math.cos(angle), r * Math.sin(angle)] : seenFrom(mean(this.x, 3));
    Object.assign(context, { strokeStyle: paint("--ink"), fillStyle: paint("--ink"), lineWidth: 3 });
    context.beginPath();
    context.moveTo(middle, middle);
    context.lineTo(middle + radius * x, middle - radius * y);
    context.stroke();
    context.beginPath();
    context.arc(middle + radius * x, middle - radius * y, 5, 0, 2 * Math.PI);
    context.fill();
  }

  encode() {
    const { kind, K, spread, N } = this.settings;
    const text = `${kind}.${[K, spread, N].join("_")}`;
    return text === `${START.kind}.${[START.K, START.spread, START.N].join("_")}` ? null : text;
  }

  decode(text) {
    const [, kind, ...numbers] = /^(circle|sphere)\.([\d.]+)_([\d.]+)_(\d+)$/.exec(text ?? "") ?? [];
    const within = ([low, high], n) => Math.min(high, Math.max(low, Number(numbers[n])));
    const [K, spread, N] = Object.values(LIMITS).map(within);
    this.change(kind && Number.isFinite(K + spread + N) ? { kind, K, spread, N } : START);
  }
}

/** A point of the sphere as seen a little from above: right, up, and how near it is (0 to 1). */
function seenFrom([x, y, z]) {
  const [cos, sin] = [Math.cos(0.45), Math.sin(0.45)];
  return [x, cos * z + sin * y, (1 + sin * z - cos * y) / 2];
}

const spots = (x) => Array.from({ length: x.length / 3 }, (_, n) => seenFrom([x[3 * n], x[3 * n + 1], x[3 * n + 2]]));

/** Frames of what happens next, drawn apart from the page's own clock. */
function frames(panel) {
  const { canvas } = panel;
  const side = Math.min(320, canvas.clientWidth);
  const sheet = new OffscreenCanvas(side, side).getContext("2d", { willReadFrequently: true });
  return Array.from({ length: 60 }, () => {
    panel.step(2 * STEPS);
    panel.draw();
    sheet.fillStyle = getComputedStyle(canvas.closest(".panel")).backgroundColor;
    sheet.fillRect(0, 0, side, side);
    sheet.drawImage(canvas, 0, 0, side, side);
    return sheet.getImageData(0, 0, side, side);
  });
}

export function mount(section) {
  const panel = new Oscillators(section.querySelector(".body"));
  animate("oscillators", () => frames(panel));
  register("osc", { encode: () => panel.encode(), decode: (text) => panel.decode(text) });
}
