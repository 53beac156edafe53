/** The same picture through two or three networks or routings, side by side. */

import { latest, report } from "./api.js";
import { button, choice, h, offer } from "./elements.js";
import { dye } from "./hues.js";
import { PRESENT, framed } from "./network.js";
import { fits, fromWire, isBlank, paint, toWire } from "./pixels.js";
import { register } from "./link.js";
import { currentModel, routingOf, state } from "./state.js";

const MOST = 3;
const REMEMBERED = 7; // calls whose median time is shown
const ITERATIONS = [1, 2, 3, 4, 5, 7, 10];

/** What to compare by default: the network with fewer and more iterations, or with others. */
function defaults(model, models) {
  if (iterates(model)) {
    const counts = [1, model.routing.iterations, 10].filter((count, n, all) => all.indexOf(count) === n);
    return counts.map((iterations) => ({ model: model.name, iterations }));
  }
  const others = models.filter(({ name }) => name !== model.name);
  return [model, ...others].slice(0, MOST).map(({ name }) => ({ model: name }));
}

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** Whether this routing of a network takes a number of iterations. Without a server it may be `fixed`. */
const iterates = (model, routing) => Boolean(routingOf(model, routing)?.iterations) && !(model.fixed && !routing);

class Card {
  constructor(number, { onChange, onRemove }) {
    this.fit = latest();
    this.classify = latest();
    this.onChange = onChange;
    this.turn = 0; // counts requests: stale responses are ignored
    const model = choice("Network", [], { onchange: () => onChange({ model: this.model.value }) });
    const routing = choice("Routing", [], { onchange: () => this.rerouted() });
    const iterations = choice("Iterations", [], { onchange: () => this.rerouted() });
    [this.model, this.routing, this.iterations] = [model, routing, iterations].map(({ select }) => select);
    this.verdict = h("p", { class: "compare-verdict" });
    this.bars = h("div", { class: "compare-bars", role: "img" });
    this.facts = h("p", { class: "note compare-facts" });
    this.canvas = h("canvas", { class: "compare-picture", role: "img", hidden: true });
    this.remove = button("×", onRemove, { class: "button icon small", "aria-label": `Remove column ${number + 1}` });
    const choices = h("div", { class: "compare-choices" }, model.label, this.remove, routing.label, iterations.label);
    const look = { class: "compare-card", "data-testid": "compare-row", "aria-label": `Column ${number + 1}` };
    const top = h("div", { class: "compare-head" }, this.verdict, this.canvas);
    this.element = h("article", look, choices, top, this.bars, this.facts);
  }

  rerouted() {
    const model = this.described;
    const routing = this.routing.value || undefined;
    const iterations = iterates(model, routing) ? Number(this.iterations.value) || undefined : undefined;
    this.onChange({ model: model.name, routing, iterations });
  }

  /** Show the choices of an entry of `state.compare`. */
  set(entry, models, removable) {
    const model = models.find(({ name }) => name === entry.model) ?? models[0];
    const key = JSON.stringify([entry, model.name]);
    if (key !== this.key) Object.assign(this, { times: [], timed: null }); // `timed`: the answer whose time is the last
    Object.assign(this, { key, entry, described: model });
    offer(this.model, models.map(({ name, title }) => [name, title]));
    this.model.value = model.name;
    const own = model.routing?.name;
    const others = model.routings.filter((name) => name !== own).map((name) => [name, name]);
    offer(this.routing, [["", own ?? "none"], ...others]);
    this.routing.value = entry.routing && entry.routing !== own ? entry.routing : "";
    this.routing.disabled = others.length === 0;
    const counts = [...new Set([...ITERATIONS, entry.iterations ?? 1])].sort((a, b) => a - b);
    const usual = this.routing.value === "" && own ? `as trained (${model.routing.iterations ?? "none"})` : "usual";
    const able = iterates(model, entry.routing);
    offer(this.iterations, able ? [["", usual], ...counts.map((count) => [count, String(count)])] : [["", "none"]]);
    this.iterations.value = able ? (entry.iterations ?? "") : "";
    this.iterations.disabled = !able;
    this.remove.hidden = !removable;
  }

  async ask(seen) {
    this.turn += 1;
    const { described: model, entry: { routing, iterations }, key, turn } = this;
    const current = () => key === this.key && turn === this.turn;
    const fit = () => this.fit("/api/see", { model: model.name, image: toWire(seen), centre: state.get("centre") });
    // the very same picture in the middle of this network's frame, where that is possible
    const picture = fits(seen, model) ? seen : framed(seen, model) ?? fromWire((await fit())?.seen);
    if (!picture || !current()) return;
    const own = !routing && (iterations ?? model.routing?.iterations) === model.routing?.iterations;
    const known = own && model.name === state.get("model") && picture === state.get("seen"); // compute nothing twice
    const body = { model: model.name, seen: toWire(picture), routing, iterations };
    const answer = (known && state.get("answer")) || await this.classify("/api/classify", body);
    if (answer && current()) this.show(answer, model, picture, picture !== seen);
  }

  /** Nothing is drawn. */
  clear() {
    this.turn += 1;
    this.verdict.replaceChildren(h("span", {}, "nothing drawn yet"));
    for (const bar of this.bars.querySelectorAll(".fill")) bar.style.height = "0";
    this.bars.setAttribute("aria-label", "Lengths: nothing drawn yet");
    this.canvas.hidden = true;
  }

  show(answer, model, picture, resized) {
    const { lengths, order, milliseconds, parameters, reconstruction } = answer;
    const { classes, image_size: [height, width] } = model;
    if (answer !== this.timed) this.times = [...this.times, milliseconds].slice(-REMEMBERED); // shown again: same call
    this.timed = answer;
    const words = (klass) => `${classes[klass]} ${lengths[klass].toFixed(3)}`;
    const line = (text) => h("span", {}, text);
    const first = [dye(h("b", {}, classes[order[0]]), order[0], classes.length), ` ${lengths[order[0]].toFixed(3)}`];
    const second = order.length > 1 ? [line(`second: ${words(order[1])}`)] : [];
    const unsure = lengths[order[0]] < PRESENT ? [line(`not sure (all below ${PRESENT})`)] : [];
    this.verdict.replaceChildren(...first, ...second, ...unsure);
    this.bars.classList.toggle("wide", classes.some((name) => name.length > 2));
    this.bars.setAttribute("aria-label", `Lengths: ${classes.map((_, klass) => words(klass)).join(", ")}`);
    this.bars.replaceChildren(
      ...classes.map((name, klass) => {
        const bar = h("span", { class: "fill" });
        bar.style.height = `${100 * Math.min(1, lengths[klass])}%`;
        const column = h("span", { class: klass === order[0] ? "column first" : "column" },
          h("span", { class: "track" }, bar), h("span", { class: "name", title: name }, name));
        return dye(column, klass, classes.length);
      }),
    );
    const time = `${median(this.times).toFixed(1)} ms`;
    const calls = this.times.length === 1 ? "one call" : `median of ${this.times.length} calls`;
    const fitted = resized ? ` Fitted to its ${width} × ${height} frame.` : "";
    this.facts.textContent = `${time} (${calls}), ${parameters.toLocaleString("en-GB")} parameters.${fitted}`;
    this.canvas.hidden = !reconstruction;
    if (!reconstruction) return;
    paint(this.canvas, fromWire(reconstruction));
    this.canvas.setAttribute("aria-label", `What its capsule ${classes[order[0]]} draws`);
  }
}

class ComparePanel {
  constructor(body) {
    this.cards = [];
    this.grid = h("div", { class: "compare-cards" });
    this.add = button("Add a column", () => this.append(), { "data-testid": "compare-add" });
    body.append(this.grid, this.add);
  }

  /** The chosen entries, else the defaults of the chosen network. */
  entries() {
    const chosen = state.get("compare") ?? [];
    const model = currentModel();
    return chosen.length ? chosen.slice(0, MOST) : model ? defaults(model, state.get("models")) : [];
  }

  append() {
    const entries = this.entries();
    state.set({ compare: [...entries, { model: state.get("model") }].slice(0, MOST) });
    this.cards.at(-1)?.model.focus();
  }

  update() {
    const entries = this.entries();
    while (this.cards.length < entries.length) this.cards.push(this.make(this.cards.length));
    this.cards.length = entries.length;
    const [shown, fresh] = [this.grid.children, this.cards.map(({ element }) => element)];
    if (shown.length !== fresh.length || fresh.some((element, n) => element !== shown[n])) {
      this.grid.replaceChildren(...fresh); // only then, because it takes the focus away
    }
    this.cards.forEach((card, n) => card.set(entries[n], state.get("models"), entries.length > 1));
    this.add.hidden = entries.length >= MOST;
    this.ask();
  }

  make(number) {
    return new Card(number, {
      onChange: (entry) => state.set({ compare: this.entries().map((old, n) => (n === number ? entry : old)) }),
      onRemove: () => {
        state.set({ compare: this.entries().filter((_, n) => n !== number) });
        this.add.focus();
      },
    });
  }

  ask() {
    const seen = state.get("seen");
    if (!seen || isBlank(seen)) for (const card of this.cards) card.clear();
    if (!seen || !state.get("answer") || state.get("drawing")) return; // at the end of a stroke
    for (const card of this.cards) card.ask(seen).catch(report);
  }
}

/** The chosen columns as text: model*routing*iterations, one after another; null for the defaults. */
function encode() {
  const entries = state.get("compare") ?? [];
  const safe = (part) => encodeURIComponent(part).replaceAll("*", "%2A"); // "," and "*" stand between parts
  const columns = entries.map(({ model, routing = "", iterations = "" }) =>
    [model, routing, iterations].map(safe).join("*"));
  return columns.join(",") || null;
}

/** Undo `encodeURIComponent`; a text with broken codes stays as it is, and names nothing. */
function plain(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function decode(text) {
  const known = state.get("models").map(({ name }) => name);
  const columns = (text ?? "").split(",").slice(0, MOST).map((column) => {
    const [model, routing, iterations] = column.split("*").map(plain);
    const count = /^([1-9]|10)$/.test(iterations ?? "") ? Number(iterations) : undefined;
    return { model, routing: routing || undefined, iterations: count };
  });
  state.set({ compare: columns.filter(({ model }) => known.includes(model)) });
}

export function mount(section) {
  const panel = new ComparePanel(section.querySelector(".body"));
  state.on(["compare", "model", "models"], () => panel.update());
  state.on(["answer", "drawing"], () => panel.ask());
  register("compare", { encode, decode });
  panel.update();
}
