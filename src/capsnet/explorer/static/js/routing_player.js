/** The time of the routing panel: buttons, play and slow motion, a slider through the iterations. */

import { button, h, mayMove, tween } from "./elements.js";
import { state } from "./state.js";

const PLAY = 1400; // milliseconds per iteration
const FLY = 1000; // of which votes fly
const MOVE = 420; // milliseconds of a single step
const SLOW = 4; // times slower
const FRAMES = 10; // of an animation, per iteration

export class Player {
  /** `draw()` draws the point in time `at`; `label(iteration)` says it in words and returns the short form of them. */
  constructor({ draw, label }) {
    Object.assign(this, { draw, words: label, count: 0, timer: null });
    this.at = 0; // the point in time that is drawn; moves towards the iteration
    this.flying = null; // how far the votes have come, 0 to 1, or null when they rest
    this.still = () => {}; // stops the animation
    const make = (id, text, onclick) => button(text, onclick, { "data-testid": `routing-${id}` });
    this.back = make("back", "Back", () => this.step(-1));
    this.next = make("step", "Step", () => this.step(1));
    this.play = make("play", "Play", () => this.toggle());
    this.reset = make("reset", "Reset", () => this.go(0));
    this.number = h("output", { class: "routing-iteration", "data-testid": "routing-iteration" });
    this.scrub = h("input", {
      type: "range", min: 0, step: 0.02, "aria-label": "Move through the iterations", "data-testid": "routing-scrub",
      oninput: () => this.scrubTo(Number(this.scrub.value)),
      onchange: () => { this.go(Math.round(Number(this.scrub.value))); this.settle(true); },
    });
    this.slow = h("input", { type: "checkbox", "data-testid": "routing-slow" });
    this.elements = [
      h("div", { class: "row routing-buttons" }, this.reset, this.back, this.play, this.next),
      h("div", { class: "routing-scrub" }, this.scrub, this.number),
      h("label", { class: "check" }, this.slow, "Slow motion"),
    ];
  }

  /** Another trace, of `count` iterations. Who looked at the last one looks at the last one again. */
  load(count) {
    const last = this.count === 0 || this.target() >= this.count - 1;
    this.count = count;
    this.scrub.max = count - 1;
    this.at = last ? count - 1 : Math.min(this.at, count - 1);
  }

  target() {
    const last = Math.max(0, this.count - 1);
    return Math.min(last, state.get("iteration") ?? last);
  }

  go(iteration) {
    if (!this.count) return;
    const last = this.count - 1;
    const to = Math.min(last, Math.max(0, iteration));
    state.set({ iteration: to === last ? null : to }); // null follows the last one, however many there will be
  }

  step(by) {
    this.pause();
    this.go(this.target() + by);
  }

  toggle() {
    if (this.timer !== null) {
      this.pause();
      return;
    }
    this.play.textContent = "Pause";
    this.timer = setTimeout(() => this.advance(), this.pace(PLAY));
    if (this.target() !== this.count - 1) return;
    this.at = 0;
    this.go(0);
    this.settle(true); // the votes fly from the start, also where there is only one iteration
  }

  /** The next iteration of a play; the pace is asked each time, so that slow motion can be switched on meanwhile. */
  advance() {
    const last = this.count - 1;
    if (this.target() < last) this.go(this.target() + 1);
    if (this.target() === last) this.timer = setTimeout(() => this.pause(), mayMove() ? this.pace(FLY) : 0);
    else this.timer = setTimeout(() => this.advance(), this.pace(PLAY));
  }

  pace(milliseconds) {
    return this.slow.checked ? SLOW * milliseconds : milliseconds;
  }

  /** Any point in time between two iterations. */
  scrubTo(at) {
    this.pause();
    this.still();
    Object.assign(this, { at, flying: at % 1 || null });
    this.label(Math.round(at));
    this.draw();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }

  /** Go to the iteration that the state asks for, in one jump or on a moving picture. */
  settle(animate) {
    if (!this.count) return;
    this.still();
    const [from, to] = [this.at, this.target()];
    this.label(to);
    const time = this.timer === null ? MOVE : this.pace(FLY);
    this.still = tween(animate ? time : 0, (share) => {
      this.at = from + (to - from) * share;
      this.flying = share < 1 && to >= from ? share : null;
      this.scrub.value = this.at;
      this.draw();
    });
  }

  label(iteration) {
    const { count } = this;
    this.back.disabled = this.reset.disabled = iteration === 0;
    this.next.disabled = iteration === count - 1;
    const steps = [this.reset, this.back, this.play, this.next, this.scrub];
    for (const each of steps) each.hidden = count < 2; // there is nothing to step to
    this.scrub.disabled = count < 2;
    this.number.textContent = this.words(iteration);
    this.scrub.setAttribute("aria-valuetext", this.number.textContent);
  }

  /** The frames of a whole play, as `compose()` makes them. */
  frames(compose) {
    const { at, flying } = this;
    const made = [];
    for (let r = 0; r < this.count; r += 1) {
      for (let n = 0; n <= FRAMES; n += 1) {
        const share = n / FRAMES;
        Object.assign(this, { at: r === 0 ? 0 : r - 1 + share, flying: share < 1 ? share : null });
        this.draw();
        made.push(compose());
      }
      for (let n = 0; n < FRAMES / 2; n += 1) made.push(made.at(-1));
    }
    Object.assign(this, { at, flying });
    this.draw();
    return made;
  }
}
