/**
 * Procedure 1 where it can be seen: votes in the plane that a person drags, and the parents that follow.
 *
 * Each parent has its own plane, because each child casts another vote for each parent. What a child gives to one it
 * takes from the others: that is the row of bars below.
 */

import { choice, h, mayMove, tween } from "./elements.js";
import { register } from "./share.js";
import { sparkline } from "./sparkline.js";
import { state } from "./state.js";
import { KINDS, route } from "./toy_math.js";
import { PARENTS, pack, shuffled, snap, start, unpack } from "./toy_scene.js";
import { Plane, Shares } from "./toy_views.js";

const MOST = 10;
const TWEEN = 320; // milliseconds
const FIRST = `0.3.${pack(start())}`; // dynamic routing, three iterations
const WORDS = {
  dynamic: "dynamic: agreement adds up",
  "fixed-point": "fixed point: agreement is set, not added",
  attention: "attention: parents choose children",
  uniform: "uniform: no routing",
};

const between = (from, to, t) =>
  Array.isArray(from) ? from.map((value, n) => between(value, to[n], t)) : from + t * (to - from);

class Toy {
  constructor() {
    this.votes = start();
    this.kind = "dynamic";
    this.iteration = 3;
    this.planes = PARENTS.map((_, j) => new Plane(j, this));
    this.shares = new Shares(this);
    this.spark = sparkline();
    this.spark.element.removeAttribute("data-testid"); // the routing panel's is the one that tests look for
    this.still = () => {}; // stops what moves
  }

  mount(body) {
    const kinds = choice("Routing", KINDS.map((kind) => [kind, WORDS[kind]]), {
      onchange: (event) => {
        this.kind = event.target.value;
        this.changed();
      },
    });
    this.kinds = kinds.select;
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: MOST,
      step: 1,
      "aria-label": "Iterations of the toy",
      oninput: () => this.go(Number(this.slider.value)),
    });
    this.back = h("button", { type: "button", class: "button", onclick: () => this.go(this.iteration - 1) }, "Back");
    this.next = h("button", { type: "button", class: "button", onclick: () => this.go(this.iteration + 1) }, "Step");
    this.number = h("output", { class: "toy-iteration" });
    this.words = h("p", { class: "toy-words", "aria-live": "polite" });
    body.append(
      h(
        "div",
        { class: "toy", "data-testid": "toy" },
        h(
          "div",
          { class: "toy-controls" },
          kinds.label,
          h("div", { class: "toy-stepper" }, this.back, this.slider, this.next, this.number),
          h(
            "div",
            { class: "toy-buttons" },
            h("button", { type: "button", class: "button", onclick: () => this.scene(start()) }, "Reset"),
            h("button", { type: "button", class: "button", onclick: () => this.scene(shuffled()) }, "Shuffle"),
          ),
        ),
        this.words,
        h(
          "div",
          { class: "toy-planes" },
          ...this.planes.map((plane) => plane.element),
          h(
            "div",
            { class: "toy-summary" },
            this.shares.element,
            this.spark.element,
          ),
        ),
      ),
    );
    this.update(false);
  }

  /** A child's vote goes somewhere else: everything follows at once. */
  move(i, j, point) {
    this.votes[i][j] = point.map(snap);
    this.update(false);
    state.set({ toy: this.encode() });
  }

  go(iteration) {
    this.iteration = Math.min(MOST, Math.max(0, iteration));
    this.changed();
  }

  scene(votes) {
    this.votes = votes;
    this.changed();
  }

  changed() {
    this.update(true);
    state.set({ toy: this.encode() });
  }

  look(child) {
    for (const part of [...this.planes, this.shares]) part.look(child);
  }

  update(animate) {
    this.trace = route(this.votes, { iterations: MOST, kind: this.kind });
    const now = this.iteration - 1; // 0 iterations: votes and nothing else
    const target = {
      votes: this.votes,
      couplings: now < 0 ? this.votes.map((row) => row.map(() => 0)) : this.trace.couplings[now],
      poses: now < 0 ? PARENTS.map(() => [0, 0]) : this.trace.poses[now],
    };
    this.kinds.value = this.kind;
    this.shares.name(this.kind);
    this.slider.value = this.iteration;
    this.slider.setAttribute("aria-valuetext", `${this.iteration} of ${MOST} iterations`);
    this.number.textContent = `${this.iteration} of ${MOST}`;
    this.back.disabled = this.iteration === 0;
    this.next.disabled = this.iteration === MOST;
    this.words.textContent = this.sentence(now);
    this.spark.draw(this.trace.entropy, now);
    this.show(target, animate && mayMove());
  }

  /** Move from what is on the screen to the target, or jump. */
  show(target, animate) {
    this.still();
    const from = this.shown;
    if (!animate || !from) return this.draw(target);
    this.still = tween(TWEEN, (share) => {
      this.draw(Object.fromEntries(Object.keys(target).map((key) => [key, between(from[key], target[key], share)])));
    });
    return undefined;
  }

  draw(shown) {
    this.shown = structuredClone(shown);
    const scale = this.kind === "attention" ? this.votes.length / PARENTS.length : 1; // to the same total
    const couplings = shown.couplings.map((row) => row.map((coupling) => scale * coupling));
    this.planes.forEach((plane, j) => plane.draw(shown.votes, couplings, shown.poses[j]));
    this.shares.draw(shown.couplings, scale);
  }

  sentence(now) {
    if (now < 0) return "Votes alone: nothing is routed yet. Step once.";
    if (this.kind === "uniform") return "Every child gives each parent a third, whatever it voted.";
    if (now === 0) return "At first all couplings are equal: bundled votes add up, scattered ones cancel.";
    const [before, after] = [this.trace.lengths[now - 1], this.trace.lengths[now]];
    const words = PARENTS.map((name, j) => {
      const change = after[j] - before[j];
      const verb = Math.abs(change) < 0.005 ? "stays" : change > 0 ? "grows" : "shrinks";
      return `${name} ${verb} (${before[j].toFixed(2)} → ${after[j].toFixed(2)})`;
    });
    return `Votes near their parent gained: ${words.join(", ")}.`;
  }

  /** The toy in the address bar, or null while it is as it was at first. */
  encode() {
    const text = `${KINDS.indexOf(this.kind)}.${this.iteration}.${pack(this.votes)}`;
    return text === FIRST ? null : text;
  }

  /** Undo `encode`; null is the scene that every visitor finds. */
  decode(text) {
    const [kind, iteration, packed = ""] = (text ?? FIRST).split(".");
    const votes = unpack(packed);
    if (!votes || !KINDS[kind] || !(Number(iteration) >= 0)) return;
    Object.assign(this, { votes, kind: KINDS[kind], iteration: Math.min(MOST, Math.round(Number(iteration))) });
    this.update(false);
    state.set({ toy: this.encode() });
  }
}

/** Fill the toy's section. */
export function mount(section) {
  const toy = new Toy();
  toy.mount(section.querySelector(".body"));
  register("toy", { encode: () => toy.encode(), decode: (text) => toy.decode(text) });
}
