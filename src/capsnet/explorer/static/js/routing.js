/**
 * The routing of the picture, iteration by iteration, in three views: the picture (where), the maps (to which class, from
 * which type), the votes (why). Pointing at one highlights the same children in the others.
 */

import { capitalised, latest, report } from "./api.js";
import { button, choice, h, offer, tween } from "./elements.js";
import { dye } from "./hues.js";
import { register } from "./link.js";
import { Legend, Overview, Types } from "./maps.js";
import { select } from "./network.js";
import { isBlank, toWire } from "./pixels.js";
import { colourOf, ramp } from "./ramp.js";
import { Regions } from "./regions.js";
import { describeIteration, describeSpot } from "./routing_words.js";
import { sparkline } from "./sparkline.js";
import { currentModel, state } from "./state.js";
import { Trace } from "./trace.js";
import { VotePlot } from "./votes.js";

const PLAY = 1100; // milliseconds per iteration
const MOVE = 420; // of which things move

const askTrace = latest();

class RoutingPanel {
  constructor(body) {
    Object.assign(this, { trace: null, pinned: null, hovered: null, timer: null });
    this.at = 0; // the point in time that is drawn; moves towards the iteration
    this.still = () => {}; // stops the animation
    this.spark = sparkline();
    this.note = h("p", { class: "routing-note" });
    this.story = h("p", { class: "routing-story", "aria-live": "polite", "data-testid": "routing-story" });
    this.votes = new VotePlot((child) => this.point({ hovered: child === null ? null : this.trace?.place(child) }));
    this.stage = h("div", { class: "routing-stage", hidden: true });
    this.controls = this.makeControls();
    body.append(this.controls, this.note, this.story, this.stage);
    this.body = body;
    this.recolour();
    addEventListener("themechange", () => {
      this.recolour();
      this.draw();
    });
    new ResizeObserver(() => this.draw()).observe(this.votes.canvas);
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
    const steps = [this.reset, this.back, this.play, this.next, this.number];
    const buttons = h("div", { class: "row routing-buttons" }, ...steps);
    return h("div", { class: "row routing-controls", hidden: true }, buttons, runs.label, this.spark.element);
  }

  /** The colours of the theme, and of the selected class. */
  recolour() {
    const [model, klass] = [currentModel(), state.get("klass")];
    dye(this.body, klass ?? 0, model?.classes.length ?? 1);
    const paint = (property) => colourOf(this.body, `var(${property})`);
    const [ink, line, vote, parent] = ["--ink", "--line", "--map-high", "--class"].map(paint);
    this.look = { colour: ramp(this.body), ink, line, vote, parent };
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
    this.controls.hidden = this.story.hidden = this.stage.hidden = reason !== null || !this.trace;
    if (reason !== null) this.pause();
    if (reason !== null || state.get("drawing") || !state.get("answer")) return; // wait for the end of the stroke
    const [model, seen, klass] = [currentModel(), state.get("seen"), state.get("klass")];
    const runs = model.routing?.iterations ? state.get("runs") : null; // null: the network's own number
    const body = { model: model.name, seen: toWire(seen), class: klass, ...(runs && { iterations: runs }) };
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
    this.regions.picture(seen);
    this.votes.show(answer.votes, klass, model.classes[klass]);
    this.offerRuns(model.routing?.iterations);
    this.controls.hidden = this.story.hidden = this.stage.hidden = false;
    this.at = last ? this.trace.R - 1 : Math.min(this.at, this.trace.R - 1);
    this.settle(false);
  }

  /** How many iterations can be run; a link may name another number. */
  offerRuns(own) {
    const runs = state.get("runs");
    const counts = [...new Set([3, 5, 10, runs])].filter((count) => count && count !== own).sort((a, b) => a - b);
    const others = counts.map((count) => [count, `${count} iterations`]);
    offer(this.count, own ? [["", `as trained (${own} iterations)`], ...others] : [["", "no iterations"]]);
    this.count.value = (own && runs !== own && runs) || "";
    this.count.disabled = !own;
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
    if (this.target() === this.trace.R - 1) this.go(0);
    this.timer = setInterval(() => {
      this.go(this.target() + 1);
      if (this.target() === this.trace.R - 1) this.pause();
    }, PLAY);
    this.play.textContent = "Pause";
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }

  /** Go to the iteration that the state asks for, in one jump or on a moving picture. */
  settle(animate) {
    if (!this.trace || !currentModel()?.routing) return;
    this.still();
    const [from, to] = [this.at, this.target()];
    this.label(to);
    this.still = tween(animate ? MOVE : 0, (share) => {
      this.at = from + (to - from) * share;
      this.draw();
    });
  }

  label(iteration) {
    const { R, entropy } = this.trace;
    const { classes, routing } = currentModel();
    this.number.textContent = `${capitalised(routing.iteration_name)} ${iteration + 1} of ${R}`;
    this.back.disabled = this.reset.disabled = iteration === 0;
    this.next.disabled = iteration === R - 1;
    for (const each of [this.reset, this.back, this.play, this.next]) each.hidden = R < 2; // there is nothing to step to
    this.spark.draw(entropy, iteration);
    const klass = state.get("klass");
    const known = klass !== null && klass < this.trace.J;
    this.story.textContent = known ? describeIteration(this.trace, routing, iteration, klass, classes[klass]) : "";
  }

  draw() {
    const klass = state.get("klass");
    if (!this.trace || this.stage.hidden || klass === null || klass >= this.trace.J) return;
    const { trace, at } = this;
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

export function mount(section) {
  const panel = new RoutingPanel(section.querySelector(".body"));
  state.on(["answer", "drawing", "model", "runs", "klass"], () => panel.ask());
  state.on(["iteration"], () => panel.settle(true));
  state.on(["klass"], () => {
    panel.recolour();
    panel.settle(false);
  });
  register("runs", {
    encode: () => (state.get("runs") ? String(state.get("runs")) : null),
    decode: (text) => state.set({ runs: /^([1-9]|10)$/.test(text ?? "") ? Number(text) : null }),
  });
  panel.ask();
}
