/**
 * The couplings in three views: the picture (where), the maps (to which class, from which type), the votes (why).
 * Pointing at one highlights the same children in the others.
 */

import { h } from "./elements.js";
import { Legend, Overview, Types } from "./maps.js";
import { select } from "./network.js";
import { Regions } from "./regions.js";
import { describeSpot } from "./routing_words.js";
import { VotePlot } from "./votes.js";

const OPENED = "capsnet-couplings";

export class Details {
  /** `redraw()` is called when something else is pointed at, or the details were opened. */
  constructor(redraw) {
    Object.assign(this, { redraw, trace: null, pinned: null, hovered: null });
    this.votes = new VotePlot((child) => this.point({ hovered: child === null ? null : this.trace?.place(child) }));
    this.stage = h("div", { class: "routing-stage" });
    this.element = h("details", { class: "routing-details", "data-testid": "routing-details" },
      h("summary", {}, "The couplings behind it: maps, types of children, votes"), this.stage);
    this.element.open = remembered(OPENED) === "1";
    this.element.addEventListener("toggle", () => {
      remembered(OPENED, this.element.open ? "1" : "0");
      redraw();
    });
    new ResizeObserver(redraw).observe(this.votes.canvas);
  }

  /** Show a new trace. The stage is rebuilt only if its shape changes. */
  show(trace, answer, model, seen, klass) {
    this.trace = trace;
    this.model = model;
    const shape = JSON.stringify([answer.grid, model.name]);
    if (shape !== this.shape) this.build(model);
    this.shape = shape;
    this.overview.rescale(trace);
    this.types.rescale(trace);
    this.regions.picture(seen);
    this.votes.show(answer.votes, klass, model.classes[klass]);
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

  /** Draw a point in time, and say what is pointed at in that iteration. */
  draw(at, iteration, klass, look) {
    if (!this.element.open || !this.trace) return;
    const { trace, model } = this;
    const name = model.classes[klass];
    const place = this.hovered ?? this.pinned;
    const spot = place && { type: null, ...place };
    this.overview.draw(trace, at, klass, { ...look, spot });
    this.types.draw(trace, at, klass, name, { ...look, spot });
    const { colour } = look;
    [this.overview, this.types].forEach(({ range }, n) => this.legends[n].draw({ colour, range }, trace));
    const inSpot = (child) => {
      const { y, x, type } = trace.place(child);
      return y === spot.y && x === spot.x && (spot.type === null || type === spot.type);
    };
    this.votes.draw(trace, at, spot && inSpot, look);
    this.regions.light(spot);
    this.typesTitle.textContent = `Couplings to “${name}”: ${this.typesWords}`;
    this.votesTitle.textContent = `Votes for “${name}”`;
    this.spotWords.textContent = spot
      ? describeSpot(trace, iteration, spot, model)
      : "Point at a square, or walk over them with the arrow keys.";
  }

  /** Set the place that is `hovered` or `pinned`: {y, x}, of a map of types with its type, or null. */
  point(place) {
    Object.assign(this, place);
    this.redraw();
  }
}
