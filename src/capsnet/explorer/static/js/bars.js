/** Panel 2: one bar per class, as long as its capsule; the first, the second, and the one that is selected. */

import { h } from "./elements.js";
import { dye } from "./hues.js";
import { PRESENT, select } from "./network.js";
import { isBlank } from "./pixels.js";
import { currentModel, state } from "./state.js";

let rows = [];
let parts = null;

export function mount(section) {
  const first = h("p", { class: "first", "data-testid": "first" });
  const second = h("p", { class: "second", "data-testid": "second" });
  const bars = h("div", { class: "bars", role: "radiogroup", "aria-label": "Selected capsule" });
  const verdict = h("div", { class: "verdict", "aria-live": "polite" }, first, second);
  const legend = h("p", { class: "note legend" });
  const body = section.querySelector(".body");
  parts = { body, verdict, bars, first, second, legend };
  body.append(verdict, bars, legend);
  state.on(["model"], build);
  state.on(["answer", "klass"], update);
  state.on(["seen"], () => nothing() && update());
}

const NO_DECODER = "It has no decoder, so there are no knobs: what its capsules hold cannot be drawn.";

function describe(model, answer) {
  const meaning = explain(model, answer);
  return model.decoder || !(model.dims || answer?.poses) ? meaning : `${meaning} ${NO_DECODER}`;
}

function explain({ dims, margins }, answer) {
  if (!dims && answer?.poses) return "How present each class is, from 0 to 1."; // an ensemble
  if (!dims) return answer ? "These are probabilities: this network has no capsules, so there are no knobs either." : "";
  const choose = "Choose a row to look into its capsule.";
  if (!margins) return `How active each capsule is: trained to be ahead of the others, not to reach a value. ${choose}`;
  return `Trained to end above ${margins.present} where the class is present, else below ${margins.absent}. ${choose}`;
}

function build() {
  const model = currentModel();
  const { classes, margins } = model;
  rows = classes.map((name, k) => {
    const radio = h("input", {
      type: "radio", name: "klass", value: k, class: "visually-hidden", "aria-labelledby": `class-${k}`,
      onchange: () => select(k),
    });
    const fill = h("div", { class: "fill" });
    const meter = h("div", {
      class: "meter", role: "meter", "data-testid": `bar-${k}`, "aria-label": `How present ${name} is`,
      "aria-valuemin": "0", "aria-valuemax": "1", "aria-valuenow": "0.000",
    }, fill);
    const value = h("span", { class: "value" });
    const title = h("span", { class: "name", id: `class-${k}`, title: name }, name);
    const row = dye(h("label", { class: "bar-row" }, radio, title, meter, value), k, classes.length);
    return { row, radio, fill, meter, value };
  });
  const scale = h("div", { class: "bar-scale", "aria-hidden": "true" });
  for (const value of margins ? [margins.absent, margins.present] : []) {
    const mark = h("span", {}, String(value));
    mark.style.left = `${value * 100}%`;
    scale.append(mark);
  }
  parts.body.classList.toggle("wide", classes.some((name) => name.length > 2));
  parts.bars.replaceChildren(scale, ...rows.map(({ row }) => row));
  update();
}

function update() {
  const [answer, klass] = [state.get("answer"), state.get("klass")];
  parts.legend.textContent = describe(currentModel(), answer);
  rows.forEach(({ row, radio, fill, meter, value }, k) => {
    const length = answer?.lengths[k] ?? 0;
    fill.style.width = `${Math.min(1, length) * 100}%`;
    meter.setAttribute("aria-valuenow", length.toFixed(3));
    value.textContent = answer ? length.toFixed(3) : "";
    row.classList.toggle("is-selected", k === klass);
    radio.checked = k === klass;
  });
  if (answer) speak(answer);
  else if (nothing()) {
    parts.first.replaceChildren(h("span", {}, "nothing drawn yet"));
    parts.second.replaceChildren();
  }
}

const nothing = () => Boolean(state.get("seen") && isBlank(state.get("seen")));

function speak({ lengths, order }) {
  const { classes } = currentModel();
  const words = (k) => [dye(h("b", {}, classes[k]), k, classes.length), " · ", lengths[k].toFixed(2)];
  parts.verdict.setAttribute("aria-live", state.get("drawing") ? "off" : "polite"); // announced when the stroke has ended
  const none = [h("span", {}, `not sure (all below ${PRESENT}), closest: `), ...words(order[0])];
  const first = lengths[order[0]] >= PRESENT ? [h("span", {}, "first: "), ...words(order[0])] : none;
  parts.first.replaceChildren(...first);
  parts.second.replaceChildren(...(order.length < 2 ? [] : [h("span", {}, "second: "), ...words(order[1])]));
}
