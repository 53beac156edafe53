/**
 * Routing by hand: votes in the plane that can be dragged, and the parents that follow. Each parent has its own plane,
 * because each child casts another vote for each parent. The server computes every iteration with the chosen routing.
 */

import { latest, report } from "./api.js";
import { button, choice, h, offer, tween } from "./elements.js";
import { head } from "./formulas.js";
import { record } from "./history.js";
import { register } from "./link.js";
import { sparkline } from "./sparkline.js";
import { routingOf, state } from "./state.js";
import { PARENTS, pack, shuffled, snap, start, unpack } from "./toy_scene.js";
import { Plane, Shares } from "./toy_views.js";

const MOST = 10;
const TWEEN = 320; // milliseconds
const FIRST = `dynamic.3.${pack(start())}`;
const NUMBERED = ["dynamic", "fixed-point", "attention", "uniform"]; // in the links of earlier versions

const route = latest({ live: true });

const between = (from, to, t) =>
  Array.isArray(from) ? from.map((value, n) => between(value, to[n], t)) : from + t * (to - from);
const scaled = (values, factor) =>
  Array.isArray(values) ? values.map((value) => scaled(value, factor)) : factor * values;

class Toy {
  constructor(section) {
    this.section = section;
    this.trace = null; // the server's answer
    this.planes = PARENTS.map((_, j) => new Plane(j, this));
    this.shares = new Shares(this);
    this.spark = sparkline();
    this.spark.element.removeAttribute("data-testid"); // that is the routing panel's
    this.still = () => {}; // stops the animation
    const kinds = choice("Routing", [], { onchange: () => this.change({ kind: this.kinds.value }) });
    this.kinds = kinds.select;
    this.slider = h("input", {
      type: "range", min: 0, step: 1, "aria-label": "Iterations of the toy",
      oninput: () => this.change({ iteration: Number(this.slider.value) }),
    });
    this.back = button("Back", () => this.change({ iteration: this.shown() - 1 }));
    this.next = button("Step", () => this.change({ iteration: this.shown() + 1 }));
    this.number = h("output", { class: "toy-iteration" });
    this.words = h("p", { class: "toy-words", "aria-live": "polite" });
    const scenes = [
      button("Reset", () => this.recorded(() => this.change({ votes: start() }))),
      button("Shuffle", () => this.recorded(() => this.change({ votes: shuffled() }))),
    ];
    section.querySelector(".body").append(h("div", { class: "toy", "data-testid": "toy" },
      h("div", { class: "row toy-controls" },
        kinds.label,
        h("div", { class: "toy-stepper" }, this.back, this.slider, this.next, this.number),
        h("div", { class: "row toy-buttons" }, ...scenes)),
      this.words,
      h("div", { class: "toy-planes" },
        ...this.planes.map((plane) => plane.element),
        h("div", { class: "toy-summary" }, this.shares.element, this.spark.element))));
    this.decode(null);
    state.on(["routings"], () => this.change({}));
  }

  /** A vote moves: it is drawn at once, and the parents when the answer arrives. */
  move(i, j, point) {
    this.recorded(() => {
      this.votes[i][j] = point.map(snap);
      if (this.drawn) this.draw({ ...this.drawn, votes: this.votes });
      this.change({}, false);
    }, `${i}.${j}`);
  }

  /** Change the scene so that Ctrl+Z restores it; with a `key`, changes that follow each other at once are one. */
  recorded(change, key = null) {
    const before = this.encode();
    change();
    const after = this.encode();
    record("toy", { undo: () => this.decode(before), redo: () => this.decode(after), key });
  }

  /** Set `votes`, `kind` or `iteration` and ask the server. */
  change(changes, animate = true) {
    Object.assign(this, changes);
    state.set({ toy: this.encode() });
    const routing = routingOf(null, this.kind); // undefined before the server's list is known
    if (!routing) return;
    offer(this.kinds, state.get("routings").map(({ name }) => [name, name]));
    this.kinds.value = this.kind;
    const { votes, kind } = this;
    const body = { votes, routing: kind, ...(routing.iterations && { iterations: MOST }) };
    route("/api/toy/route", body).then((answer) => {
      if (!answer || kind !== this.kind) return;
      this.trace = answer;
      this.show(animate);
    }).catch(report);
  }

  look(child) {
    for (const part of [...this.planes, this.shares]) part.look(child);
  }

  /** The iteration that is shown: a routing that does not iterate has one. */
  shown() {
    return Math.min(this.trace?.entropy.length ?? MOST, Math.max(0, this.iteration));
  }

  show(animate) {
    const { trace, votes } = this;
    const [routing, most, shown] = [routingOf(null, this.kind), trace.entropy.length, this.shown()];
    const now = shown - 1; // no iteration: votes only
    const shownOf = (values) => (now < 0 ? scaled(values[0], 0) : values[now]);
    const [couplings, poses, presences] = [trace.couplings, trace.poses, trace.presences].map(shownOf);
    const target = { votes, couplings, poses, presences };
    this.shares.name(routing);
    Object.assign(this.slider, { max: most, value: shown });
    this.slider.setAttribute("aria-valuetext", `${shown} of ${most} iterations`);
    this.number.textContent = `${shown} of ${most}`;
    this.back.disabled = shown === 0;
    this.next.disabled = shown === most;
    head(this.section, `Drag the votes and see the parents follow. ${routing.sentence}`, routing.coupling);
    this.words.textContent = this.sentence(now, routing);
    this.spark.draw(trace.entropy, now);
    this.still();
    const from = this.drawn ?? target;
    this.still = tween(animate ? TWEEN : 0, (share) => {
      this.draw(Object.fromEntries(Object.keys(target).map((key) => [key, between(from[key], target[key], share)])));
    });
  }

  draw(drawn) {
    this.drawn = structuredClone(drawn);
    const byParent = routingOf(null, this.kind).normalised === "children";
    const scale = byParent ? this.votes.length / PARENTS.length : 1; // to the same total
    const couplings = scaled(drawn.couplings, scale);
    this.planes.forEach((plane, j) => plane.draw(drawn.votes, couplings, drawn.poses[j], drawn.presences[j]));
    this.shares.draw(drawn.couplings, scale);
  }

  sentence(now, routing) {
    if (now < 0) return "Votes only: nothing is routed yet. Step once.";
    const { couplings, presences } = this.trace;
    const flat = couplings[now].flat();
    if (!routing.decides) return "The couplings do not depend on the votes.";
    if (now === 0) {
      const even = Math.max(...flat) - Math.min(...flat) < 1e-6;
      return even ? "At first all couplings are equal: bundled votes add up, scattered ones cancel." : "";
    }
    const words = PARENTS.map((name, j) => {
      const [before, after] = [presences[now - 1][j], presences[now][j]];
      const verb = Math.abs(after - before) < 0.005 ? "stays" : after > before ? "grows" : "shrinks";
      return `${name} ${verb} (${before.toFixed(2)} → ${after.toFixed(2)})`;
    });
    return `Presence of the parents: ${words.join(", ")}.`;
  }

  /** The toy in the address bar, or null while it is as on a first visit. */
  encode() {
    const text = `${this.kind}.${this.iteration}.${pack(this.votes)}`;
    return text === FIRST ? null : text;
  }

  /** Undo `encode`; null is the scene of a first visit. */
  decode(text) {
    const [first, iteration, packed = ""] = (text ?? FIRST).split(".");
    const [votes, kind] = [unpack(packed), NUMBERED[first] ?? first];
    const known = state.get("routings").length === 0 || routingOf(null, kind);
    if (!votes || !known || !(Number(iteration) >= 0)) return;
    this.change({ votes, kind, iteration: Math.min(MOST, Math.round(Number(iteration))) }, false);
  }
}

export function mount(section) {
  const toy = new Toy(section);
  register("toy", { encode: () => toy.encode(), decode: (text) => toy.decode(text) });
}
