/** Panel 3: one slider per number of the selected capsule; the decoder draws the changed pose, live. */

import { latest, report, say } from "./api.js";
import { button, figure, fixed, h, svg } from "./elements.js";
import { record } from "./history.js";
import { dye } from "./hues.js";
import { LARGEST, ownPose, select } from "./network.js";
import { apartness, difference, fromWire, isBlank, paint } from "./pixels.js";
import { currentModel, state } from "./state.js";

const decode = latest({ live: true });
const USUAL = [-0.3, 0.3]; // a slider's range where the data set's statistics are not known

let knobs = [];
let parts = null;

export function mount(section) {
  const [input, drawn] = [figure("knobs-input", "input"), figure("reconstruction", "reconstruction")];
  const apart = figure("difference", "difference");
  apart.figure.append(h("p", { class: "row note pair-legend" },
    h("span", { class: "less" }, "missing"), h("span", { class: "more" }, "added")));
  const title = h("h3", {});
  const length = h("p", { class: "length" });
  const resetAll = button("Reset all", () => change(base()), { "data-testid": "reset-all" });
  const sliders = h("div", { class: "sliders" });
  const panel = h("div", { class: "knobs" },
    h("div", { class: "pictures" }, input.figure, drawn.figure, apart.figure,
      h("div", { class: "row capsule" }, title, length, resetAll)),
    sliders);
  parts = { section, sliders, title, length, resetAll };
  Object.assign(parts, { input: input.canvas, drawn: drawn.canvas, apart: apart.canvas });
  section.querySelector(".body").append(panel);
  state.on(["model"], build);
  state.on(["answer", "klass", "measured"], label);
  state.on(["pose"], () => { update(); draw().catch(report); });
  state.on(["seen", "picture"], showPictures);
}

export function turn(dimension, value) {
  const pose = Float64Array.from(state.get("pose"));
  pose[dimension] = Math.min(LARGEST, Math.max(-LARGEST, value));
  if (pose[dimension] !== value) say(`A knob goes from −${LARGEST} to ${LARGEST}.`);
  change(pose, dimension);
}

/** Set the values of all knobs; Ctrl+Z restores those before. A `dimension` that moves on is one change. */
export function change(pose, dimension = null) {
  const [klass, before] = [state.get("klass"), state.get("pose")];
  const put = (values) => () => {
    select(klass);
    state.set({ pose: values });
  };
  record("knobs", { undo: put(before), redo: put(pose), key: dimension === null ? null : `${klass}.${dimension}` });
  state.set({ pose });
}

/** The selected capsule's pose as the network gave it. */
export const base = () => ownPose(state.get("answer"), state.get("klass"));

/** "3 slant", or "3" where the dimension has no name. */
export function dimensionName(model, klass, dimension) {
  const known = model.names?.[klass]?.[dimension];
  return known ? `${dimension + 1} ${known}` : String(dimension + 1);
}

function build() {
  const model = currentModel();
  const works = Boolean(model.dims && model.decoder);
  parts.section.hidden = !works; // the bars' legend says why
  knobs = works ? Array.from({ length: model.dims }, (_, d) => buildKnob(d)) : [];
  parts.sliders.style.setProperty("--half", Math.ceil(knobs.length / 2));
  parts.sliders.replaceChildren(...knobs.map(({ row }) => row));
}

function buildKnob(d) {
  const name = h("label", { for: `knob-${d}` });
  const revert = () => turn(d, base()[d]);
  const slider = h("input", {
    type: "range", id: `knob-${d}`, "data-testid": `knob-${d}`, step: "any",
    oninput: () => turn(d, Number(slider.value)), ondblclick: revert,
  });
  const tick = h("span", { class: "tick" });
  const number = h("input", {
    type: "number", "data-testid": `knob-number-${d}`, step: "0.01", inputmode: "decimal",
    onchange: () => {
      if (Number.isFinite(number.valueAsNumber)) turn(d, number.valueAsNumber);
      else update(); // not a number: show the old one again
    },
    onblur: () => update(), // rounded again
  });
  const undo = button(arrow(), () => { revert(); slider.focus(); },
    { class: "button icon small", "data-testid": `knob-reset-${d}` });
  const row = h("div", { class: "knob" }, name, h("span", { class: "track" }, tick, slider), number, undo);
  return { row, name, slider, tick, number, undo };
}

function arrow() {
  return svg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" },
    svg("path", { d: "M3 8a5 5 0 1 0 1.6-3.7M3 2.4v2.9h2.9", fill: "none", stroke: "currentColor", "stroke-width": 1.6,
      "stroke-linecap": "round", "stroke-linejoin": "round" }));
}

/** Set a slider's range; the tick marks the capsule's own value. */
function scale({ slider, tick }, low, high, own) {
  Object.assign(slider, { min: low, max: high });
  tick.style.setProperty("--at", (own - low) / (high - low));
}

function label() {
  const [model, klass, own] = [currentModel(), state.get("klass"), base()];
  if (!own || !knobs.length) return;
  parts.sliders.classList.toggle("named", Boolean(model.names?.[klass]?.some(Boolean)));
  const name = dye(h("span", {}, model.classes[klass]), klass, model.classes.length);
  parts.title.replaceChildren("Capsule “", name, "”");
  knobs.forEach((knob, d) => {
    const { name, slider, tick, number, undo } = knob;
    const [low, high] = model.ranges?.[klass]?.[d] ?? USUAL; // of the class in the data
    const words = dimensionName(model, klass, d);
    const known = model.names?.[klass]?.[d];
    name.replaceChildren(h("span", { class: "number" }, String(d + 1)), ` ${known ?? ""}`);
    knob.range = [Math.min(low, own[d] - 0.05), Math.max(high, own[d] + 0.05)];
    scale(knob, ...knob.range, own[d]);
    tick.title = `the capsule's own value, ${fixed(own[d], 3)}`;
    slider.setAttribute("aria-label", `Dimension ${words}`);
    number.setAttribute("aria-label", `Dimension ${words}, as a number`);
    undo.setAttribute("aria-label", `Reset dimension ${words}`);
  });
  update();
}

function update() {
  const [pose, own] = [state.get("pose"), base()];
  if (!pose || !own || pose.length !== knobs.length) return;
  let moved = false;
  knobs.forEach((knob, d) => {
    const { row, slider, number, undo } = knob;
    const here = pose[d] !== own[d];
    moved ||= here;
    const [low, high] = [Math.min(slider.min, pose[d]), Math.max(slider.max, pose[d])];
    if (low < slider.min || high > slider.max) scale(knob, low, high, own[d]); // a typed value may lie outside
    else if (!here && knob.range) scale(knob, ...knob.range, own[d]);
    if (Number(slider.value) !== pose[d]) slider.value = pose[d];
    slider.setAttribute("aria-valuetext", fixed(pose[d], 3));
    if (document.activeElement !== number || Number(number.value) !== pose[d]) number.value = fixed(pose[d], 3);
    row.classList.toggle("moved", here);
    undo.disabled = !here;
  });
  parts.resetAll.disabled = !moved;
  const norm = (vector) => Math.hypot(...vector).toFixed(3);
  const was = moved ? `its own: ${norm(own)}` : "";
  parts.length.replaceChildren("‖", h("i", {}, "v"), "‖ = ", h("b", {}, norm(pose)), h("span", {}, was));
}

async function draw() {
  const [model, answer, klass, pose] = [currentModel(), state.get("answer"), state.get("klass"), state.get("pose")];
  if (!pose || !model.decoder) return;
  const untouched = klass === answer.order[0] && pose.every((value, d) => value === answer.poses[klass][d]);
  if (untouched && answer.reconstruction) {
    decode.forget(); // a request in flight is older than this
    state.set({ picture: fromWire(answer.reconstruction) });
    return;
  }
  const reply = await decode("/api/decode", { model: model.name, poses: [Array.from(pose)], classes: [klass] });
  if (reply && model.name === state.get("model")) state.set({ picture: fromWire(reply.pictures[0]) });
}

function showPictures() {
  const [seen, picture] = [state.get("seen"), state.get("picture")];
  if (!seen) return;
  paint(parts.input, seen);
  if (!picture && isBlank(seen)) for (const canvas of [parts.drawn, parts.apart]) paint(canvas, seen);
  if (!picture) return;
  const name = currentModel().classes[state.get("klass")];
  paint(parts.drawn, picture);
  parts.drawn.setAttribute("aria-label", `What the capsule of ${name} draws`);
  if (picture.width !== seen.width || picture.height !== seen.height) return; // the network was just changed
  paint(parts.apart, difference(picture, seen));
  const percent = apartness(picture, seen).toFixed(1);
  parts.apart.setAttribute("aria-label", `Reconstruction less input: ${percent} % apart on average`);
}
