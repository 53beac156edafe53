/**
 * The routing of the picture, iteration by iteration, in three views: the picture (where), the maps (to which class, from
 * which type), the votes (why). Pointing at one highlights the same children in the others.
 */

import { capitalised, latest, report } from "./api.js";
import { Contributions } from "./contributions.js";
import { button, choice, h, mayMove, offer, tween } from "./elements.js";
import { Flight } from "./flight.js";
import { head } from "./formulas.js";
import { dye } from "./hues.js";
import { register } from "./link.js";
import { Legend, Overview, Types } from "./maps.js";
import { chooseModel, select } from "./network.js";
import { isBlank, toWire } from "./pixels.js";
import { animate } from "./panel_export.js";
import { colourOf, ramp } from "./ramp.js";
import { Regions } from "./regions.js";
import { describeIteration, describeSpot } from "./routing_words.js";
import { sparkline } from "./sparkline.js";
import { currentModel, routingOf, state } from "./state.js";
import { mostDecided } from "./suggest.js";
import { Trace } from "./trace.js";
import { VotePlot } from "./votes.js";

const PLAY = 1400; // milliseconds per iteration
const FLY = 1000; // of which votes fly
const MOVE = 420; // milliseconds of a single step
const SLOW = 4; // times slower
const FRAMES = 10; // of an animation, per iteration
const OPENED = "capsnet-couplings";

const askTrace = latest();

class RoutingPanel {
  constructor(body) {
    Object.assign(this, { trace: null, pinned: null, hovered: null, timer: null, flying: null });
    this.at = 0; // the point in time that is drawn; moves towards the iteration
    this.still = () => {}; // stops the animation
    this.spark = sparkline();
    this.note = h("p", { class: "routing-note" });
    this.story = h("p", { class: "routing-story", "aria-live": "polite", "data-testid": "routing-story" });
    this.votes = new VotePlot((child) => this.point({ hovered: child === null ? null : this.trace?.place(child) }));
    this.stage = h("div", { class: "routing-stage" });
    this.flight = new Flight(select);
    this.details = h("details", { class: "routing-details", "data-testid": "routing-details" },
      h("summary", {}, "The couplings behind it: maps, types of children, votes"), this.stage);
    this.details.open = remembered(OPENED) === "1";
    this.details.addEventListener("toggle", () => {
      remembered(OPENED, this.details.open ? "1" : "0");
      this.draw();
    });
    const choose = () => chooseModel(this.better.name);
    this.offer = button("", choose, { class: "button small", "data-testid": "routing-offer" });
    this.offerRow = h("p", { class: "row routing-offer", hidden: true }, h("span", { class: "note" }), this.offer);
    this.controls = this.makeControls();
    this.shown = [this.controls, this.story, this.flight.element, this.details];
    body.append(this.controls, this.note, this.story, this.offerRow, this.flight.element, this.details);
    this.body = body;
    this.hide(true);
    this.watch(body);
    this.recolour();
    addEventListener("themechange", () => {
      this.recolour();
      this.draw();
    });
    new ResizeObserver(() => this.draw()).observe(this.votes.canvas);
  }

  hide(hidden) {
    for (const part of this.shown) part.hidden = hidden;
    if (hidden) this.offerRow.hidden = true;
  }

  /** Other networks are asked only when someone looks at this panel. */
  watch(body) {
    new IntersectionObserver(([entry]) => {
      this.visible = entry.isIntersecting;
      this.suggest().catch(report);
    }).observe(body);
  }

  /** Offer the network in which the routing is worth seeing, if it is another one. */
  async suggest() {
    const [model, trace, seen] = [currentModel(), this.trace, state.get("seen")];
    if (model === this.better) this.offerRow.hidden = true; // it was chosen
    if (!this.visible || !trace || !model || this.shape === undefined) return;
    const found = state.get("route") ? null : await mostDecided(state.get("models"), model, trace.entropy.at(-1), seen);
    if (model !== currentModel()) return;
    this.better = found?.model;
    this.offerRow.hidden = !found;
    if (!found) return;
    this.offerRow.firstChild.textContent = "The couplings of this network hardly move.";
    this.offer.textContent = `See them decide: ${found.model.title} (entropy ${found.entropy.toFixed(2)})`;
  }

  /** What the routing that is shown declares: the network's own, or the one chosen instead. */
  routing() {
    return routingOf(currentModel(), state.get("route"));
  }

  makeControls() {
    const make = (id, text, onclick) => button(text, onclick, { "data-testid": `routing-${id}` });
    this.back = make("back", "Back", () => this.step(-1));
    this.next = make("step", "Step", () => this.step(1));
    this.play = make("play", "Play", () => this.toggle());
    this.reset = make("reset", "Reset", () => this.go(0));
    this.number = h("output", { class: "routing-iteration", "data-testid": "routing-iteration" });
    const runs = choice("Run", [["", "as trained"]], {
      "aria-label": "How many iterations to run",
      onchange: () => state.set({ runs: Number(this.count.value) || null, iteration: null }),
    });
    this.count = runs.select;
    const routes = choice("Route with", [], {
      "data-testid": "routing-route", onchange: () => state.set({ route: this.route.value || null, iteration: null }),
    });
    [this.route, this.routeLabel] = [routes.select, routes.label];
    this.scrub = h("input", {
      type: "range", min: 0, step: 0.02, "aria-label": "Move through the iterations", "data-testid": "routing-scrub",
      oninput: () => this.scrubTo(Number(this.scrub.value)),
      onchange: () => { this.go(Math.round(Number(this.scrub.value))); this.settle(true); },
    });
    this.slow = h("input", { type: "checkbox", "data-testid": "routing-slow" });
    const steps = [this.reset, this.back, this.play, this.next];
    const buttons = h("div", { class: "row routing-buttons" }, ...steps);
    return h("div", { class: "row routing-controls", hidden: true }, buttons,
      h("div", { class: "routing-scrub" }, this.scrub, this.number),
      h("label", { class: "check" }, this.slow, "Slow motion"), routes.label, runs.label, this.spark.element);
  }

  /** The colours of the theme, and of the selected class. */
  recolour() {
    const [model, klass] = [currentModel(), state.get("klass")];
    dye(this.body, klass ?? 0, model?.classes.length ?? 1);
    const paint = (property) => colourOf(this.body, `var(${property})`);
    const [ink, line, vote, parent] = ["--ink", "--line", "--map-high", "--class"].map(paint);
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
      || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    this.look = { colour: ramp(this.body), ink, line, vote, parent, ground: dark ? "dark" : "light" };
  }

  /** Why there is nothing to show, or null. */
  reason() {
    const model = currentModel();
    if (!model || !state.get("seen") || isBlank(state.get("seen"))) return "Draw something first: its routing appears here.";
    const none = `${model.title} has none. Choose another network above.`;
    return model.grid ? null : `This panel shows class capsules whose children lie in the picture. ${none}`;
  }

  ask() {
    const reason = this.reason();
    this.note.textContent = reason ?? "";
    this.note.hidden = reason === null;
    this.hide(reason !== null || !this.trace);
    if (reason !== null) this.pause();
    if (reason !== null || state.get("drawing") || !state.get("answer")) return; // wait for the end of the stroke
    const [model, seen, klass] = [currentModel(), state.get("seen"), state.get("klass")];
    const route = model.routings.includes(state.get("route")) ? state.get("route") : null;
    if (route !== state.get("route")) state.set({ route });
    const runs = this.routing()?.iterations && !model.fixed ? state.get("runs") : null; // null: the routing's own number
    const changes = { ...(runs && { iterations: runs }), ...(route && { routing: route }) };
    const body = { model: model.name, seen: toWire(seen), class: klass, ...changes };
    askTrace("/api/trace", body).then((answer) => answer && this.show(answer, model, seen, klass)).catch(report);
  }

  /** Show a new trace. The stage is rebuilt only if its shape changes. */
  show(answer, model, seen, klass) {
    if (model.name !== state.get("model")) return;
    const shape = JSON.stringify([answer.grid, model.name]);
    const last = this.trace === null || this.target() >= this.trace.R - 1;
    this.trace = new Trace(answer);
    state.set({ entropy: answer.entropy });
    if (shape !== this.shape) this.build(model);
    this.shape = shape;
    this.overview.rescale(this.trace);
    this.types.rescale(this.trace);
    this.scrub.max = this.trace.R - 1;
    this.flight.show(answer.contributions ? new Contributions(answer, this.trace) : null, seen, model);
    this.offerRoutes(model);
    this.regions.picture(seen);
    this.votes.show(answer.votes, klass, model.classes[klass]);
    this.offerRuns(this.routing()?.iterations);
    this.hide(false);
    this.suggest().catch(report);
    this.at = last ? this.trace.R - 1 : Math.min(this.at, this.trace.R - 1);
    this.settle(false);
  }

  /** Routings that can be put in the place of the network's own, where the server can do that. */
  offerRoutes(model) {
    const { name, sentence, coupling } = this.routing() ?? {};
    this.routeLabel.hidden = !model.routings.length;
    const others = model.routings.filter((each) => each !== model.routing.name).map((each) => [each, each]);
    offer(this.route, [["", `its own: ${model.routing.name}`], ...others]);
    this.route.value = state.get("route") ?? "";
    if (name) head(this.body.closest("section"), sentence, coupling);
  }

  /** How many iterations can be run; a link may name another number. */
  offerRuns(own) {
    const runs = state.get("runs");
    const counts = [...new Set([3, 5, 10, runs])].filter((count) => count && count !== own).sort((a, b) => a - b);
    const others = counts.map((count) => [count, `${count} iterations`]);
    offer(this.count, own ? [["", `as trained (${own} iterations)`], ...others] : [["", "no iterations"]]);
    this.count.value = (own && runs !== own && runs) || "";
    this.count.disabled = !own;
    this.count.closest("label").hidden = Boolean(currentModel().fixed); // without a server not all can be changed
  }

  build(model) {
    const { H, W, T } = this.trace;
    const onPoint = (hovered) => this.point({ hovered });
    this.regions = new Regions(H, W, model.receptive, { onPoint, onPin: (pinned) => this.point({ pinned }) });
    this.overview = new Overview(this.trace, model.classes, { onChoose: select, onPoint });
    this.types = new Types(this.trace, { onPoint });
    this.legends = [new Legend("mean coupling"), new Legend("coupling")];
    this.typesTitle = h("h3", {});
    this.votesTitle = h("h3", {});
    this.spotWords = h("p", { class: "note spot-words", "aria-live": "polite" });
    const block = (name, ...parts) => h("div", { class: `routing-${name}` }, ...parts);
    const where = h("h3", {}, "Where each class gets its votes from");
    const classes = block("classes", where, this.overview.element, this.legends[0].element);
    classes.setAttribute("data-testid", "maps");
    this.stage.replaceChildren(
      block("left",
        block("where", h("h3", {}, "The picture and its children"), this.regions.element, this.spotWords),
        block("votes", this.votesTitle, this.votes.element)),
      block("right",
        classes,
        block("types", this.typesTitle, this.types.element, this.legends[1].element)),
    );
    this.typesWords = `${T} types of children, ${H} × ${W} of each`;
  }

  target() {
    const last = this.trace ? this.trace.R - 1 : 0;
    return Math.min(last, state.get("iteration") ?? last);
  }

  go(iteration) {
    if (!this.trace) return;
    const last = this.trace.R - 1;
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
    if (this.target() !== this.trace.R - 1) return;
    this.at = 0;
    this.go(0);
    this.settle(true); // the votes fly from the start, also where there is only one iteration
  }

  /** The next iteration of a play; the pace is asked each time, so that slow motion can be switched on meanwhile. */
  advance() {
    const last = this.trace.R - 1;
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
    if (!this.trace || !this.routing()) return;
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
    const { R, entropy } = this.trace;
    const [{ classes }, routing] = [currentModel(), this.routing()];
    this.number.textContent = `${capitalised(routing.iteration_name)} ${iteration + 1} of ${R}`;
    this.back.disabled = this.reset.disabled = iteration === 0;
    this.next.disabled = iteration === R - 1;
    for (const each of [this.reset, this.back, this.play, this.next, this.scrub]) each.hidden = R < 2; // there is nothing to step to
    this.scrub.disabled = R < 2;
    this.scrub.setAttribute("aria-valuetext", this.number.textContent);
    this.spark.draw(entropy, iteration);
    const klass = state.get("klass");
    const known = klass !== null && klass < this.trace.J;
    this.story.textContent = known ? describeIteration(this.trace, routing, iteration, klass, classes[klass]) : "";
  }

  draw() {
    const klass = state.get("klass");
    if (!this.trace || this.details.hidden || klass === null || klass >= this.trace.J) return;
    const { trace, at } = this;
    this.flight.draw(at, klass, this.flying, this.look.ground);
    if (!this.details.open) return;
    const name = currentModel().classes[klass];
    const place = this.hovered ?? this.pinned;
    const spot = place && { type: null, ...place };
    const look = { ...this.look, spot };
    this.overview.draw(trace, at, klass, look);
    this.types.draw(trace, at, klass, name, look);
    const { colour } = this.look;
    [this.overview, this.types].forEach(({ range }, n) => this.legends[n].draw({ colour, range }, trace));
    const inSpot = (child) => {
      const { y, x, type } = trace.place(child);
      return y === spot.y && x === spot.x && (spot.type === null || type === spot.type);
    };
    this.votes.draw(trace, at, spot && inSpot, this.look);
    this.regions.light(spot);
    this.typesTitle.textContent = `Couplings to “${name}”: ${this.typesWords}`;
    this.votesTitle.textContent = `Votes for “${name}”`;
    this.spotWords.textContent = spot
      ? describeSpot(trace, this.target(), spot, currentModel())
      : "Point at a square, or walk over them with the arrow keys.";
  }

  /** Set the place that is `hovered` or `pinned`: {y, x}, of a map of types with its type, or null. */
  point(place) {
    Object.assign(this, place);
    this.draw();
  }
}

/** The frames of a whole play of the routing. */
function frames(panel) {
  const [last, { at, flying }] = [panel.trace.R - 1, panel];
  const made = [];
  for (let r = 0; r <= last; r += 1) {
    for (let n = 0; n <= FRAMES; n += 1) {
      const share = n / FRAMES;
      Object.assign(panel, { at: r === 0 ? 0 : r - 1 + share, flying: share < 1 ? share : null });
      panel.draw();
      made.push(panel.flight.compose());
    }
    for (let n = 0; n < FRAMES / 2; n += 1) made.push(made.at(-1));
  }
  Object.assign(panel, { at, flying });
  panel.draw();
  return made;
}

export function mount(section) {
  const panel = new RoutingPanel(section.querySelector(".body"));
  animate("routing", () => frames(panel));
  state.on(["answer", "drawing", "model", "runs", "route", "klass"], () => panel.ask());
  state.on(["iteration"], () => panel.settle(true));
  state.on(["klass"], () => {
    panel.recolour();
    panel.settle(false);
  });
  register("runs", {
    encode: () => (state.get("runs") ? String(state.get("runs")) : null),
    decode: (text) => state.set({ runs: /^([1-9]|10)$/.test(text ?? "") ? Number(text) : null }),
  });
  register("route", {
    encode: () => state.get("route"),
    decode: (text) => state.set({ route: text || null }),
  });
  panel.ask();
}
