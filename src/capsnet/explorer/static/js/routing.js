/** The routing of the picture, iteration by iteration: what the strokes contribute, and the couplings behind it. */

import { capitalised, latest, report } from "./api.js";
import { Contributions } from "./contributions.js";
import { button, choice, h, offer } from "./elements.js";
import { Flight } from "./flight.js";
import { head } from "./formulas.js";
import { dye } from "./hues.js";
import { register } from "./link.js";
import { chooseModel, select } from "./network.js";
import { animate } from "./panel_export.js";
import { isBlank, toWire } from "./pixels.js";
import { colourOf, ramp } from "./ramp.js";
import { Details } from "./routing_details.js";
import { Player } from "./routing_player.js";
import { describeIteration, glossary } from "./routing_words.js";
import { sparkline } from "./sparkline.js";
import { currentModel, routingOf, state } from "./state.js";
import { mostDecided } from "./suggest.js";
import { Trace } from "./trace.js";

const askTrace = latest();

/** What the routing that is shown declares: the network's own, or the one chosen instead. */
const routing = () => routingOf(currentModel(), state.get("route"));

class RoutingPanel {
  constructor(body) {
    Object.assign(this, { body, trace: null });
    this.spark = sparkline();
    this.note = h("p", { class: "routing-note" });
    this.story = h("p", { class: "routing-story", "aria-live": "polite", "data-testid": "routing-story" });
    this.flight = new Flight(select);
    this.details = new Details(() => this.draw());
    this.player = new Player({ draw: () => this.draw(), label: (iteration) => this.label(iteration) });
    const choose = () => chooseModel(this.better.name);
    this.offer = button("", choose, { class: "button small", "data-testid": "routing-offer" });
    this.offerRow = h("p", { class: "row routing-offer", hidden: true }, h("span", { class: "note" }), this.offer);
    this.controls = this.makeControls();
    this.shown = [this.controls, this.story, this.flight.element, this.details.element];
    body.append(this.controls, this.note, this.story, this.offerRow, this.flight.element, this.details.element, glossary());
    this.hide(true);
    this.watch(body);
    this.recolour();
    addEventListener("themechange", () => {
      this.recolour();
      this.draw();
    });
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
    if (!this.visible || !trace || !model) return;
    const found = state.get("route") ? null : await mostDecided(state.get("models"), model, trace.entropy.at(-1), seen);
    if (model !== currentModel()) return;
    this.better = found?.model;
    this.offerRow.hidden = !found;
    if (!found) return;
    this.offerRow.firstChild.textContent = "The couplings of this network hardly move.";
    this.offer.textContent = `See them decide: ${found.model.title} (entropy ${found.entropy.toFixed(2)})`;
  }

  makeControls() {
    const runs = choice("Run", [["", "as trained"]], {
      "aria-label": "How many iterations to run",
      onchange: () => state.set({ runs: Number(this.count.value) || null, iteration: null }),
    });
    this.count = runs.select;
    const routes = choice("Route with", [], {
      "data-testid": "routing-route", onchange: () => state.set({ route: this.route.value || null, iteration: null }),
    });
    [this.route, this.routeLabel] = [routes.select, routes.label];
    return h("div", { class: "row routing-controls", hidden: true },
      ...this.player.elements, routes.label, runs.label, this.spark.element);
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
    if (reason !== null) this.player.pause();
    if (reason !== null || state.get("drawing") || !state.get("answer")) return; // wait for the end of the stroke
    const [model, seen, klass] = [currentModel(), state.get("seen"), state.get("klass")];
    const route = model.routings.includes(state.get("route")) ? state.get("route") : null;
    if (route !== state.get("route")) state.set({ route });
    const runs = routing()?.iterations && !model.fixed ? state.get("runs") : null; // null: the routing's own number
    const changes = { ...(runs && { iterations: runs }), ...(route && { routing: route }) };
    const body = { model: model.name, seen: toWire(seen), class: klass, ...changes };
    askTrace("/api/trace", body).then((answer) => answer && this.show(answer, model, seen, klass)).catch(report);
  }

  show(answer, model, seen, klass) {
    if (model.name !== state.get("model")) return;
    this.trace = new Trace(answer);
    state.set({ entropy: answer.entropy });
    this.player.load(this.trace.R);
    this.details.show(this.trace, answer, model, seen, klass);
    this.flight.show(answer.contributions ? new Contributions(answer, this.trace) : null, seen, model);
    this.offerRoutes(model);
    this.offerRuns(routing()?.iterations);
    this.hide(false);
    this.suggest().catch(report);
    this.player.settle(false);
  }

  /** Routings that can be put in the place of the network's own, where the server can do that. */
  offerRoutes(model) {
    const { name, sentence, coupling } = routing() ?? {};
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

  /** Say where the player is; returns the short form. */
  label(iteration) {
    const { R, entropy, J } = this.trace;
    const [{ classes }, own, klass] = [currentModel(), routing(), state.get("klass")];
    if (!own) return ""; // the network was changed, and the next one has no routing
    this.spark.draw(entropy, iteration);
    const known = klass !== null && klass < J;
    this.story.textContent = known ? describeIteration(this.trace, own, iteration, klass, classes[klass]) : "";
    return `${capitalised(own.iteration_name)} ${iteration + 1} of ${R}`;
  }

  draw() {
    const klass = state.get("klass");
    if (!this.trace || this.controls.hidden || klass === null || klass >= this.trace.J) return;
    const { player } = this;
    this.flight.draw(player.at, klass, player.flying, this.look.ground);
    this.details.draw(player.at, player.target(), klass, this.look);
  }
}

export function mount(section) {
  const panel = new RoutingPanel(section.querySelector(".body"));
  animate("routing", () => panel.player.frames(() => panel.flight.compose()));
  state.on(["answer", "drawing", "model", "runs", "route", "klass"], () => panel.ask());
  state.on(["iteration"], () => panel.player.settle(true));
  state.on(["klass"], () => {
    panel.recolour();
    panel.player.settle(false);
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
