/**
 * Which knobs matter: how much of the ink each number of the capsule changes between -0.25 and +0.25. The six with the
 * largest effect come first, the others are folded; names say what a number changes most, never all it changes.
 */

import { h } from "./elements.js";
import { frame } from "./pixels.js";
import { currentModel, state } from "./state.js";

const FIRST = 6;
const OPENED = "capsnet-knobs";

let ordered = null; // the network and class that the present order belongs to

/** From the sheet of a sweep: for each row, the share of ink in which its first and last picture differ. */
export function effectsOf(sheet, rows, columns) {
  const [width, height] = [sheet.width / columns, sheet.height / rows];
  return Array.from({ length: rows }, (_, d) => {
    const strip = { ...sheet, height, bytes: rowOf(sheet, d, height) };
    const [first, last] = [frame(strip, 0, width), frame(strip, columns - 1, width)];
    let [apart, ink] = [0, 0];
    first.bytes.forEach((byte, n) => {
      apart += Math.abs(byte - last.bytes[n]);
      ink += byte + last.bytes[n];
    });
    return ink ? apart / ink : 0;
  });
}

function rowOf({ width, channels, bytes }, row, height) {
  const size = width * height * channels;
  return bytes.subarray(row * size, (row + 1) * size);
}

export function mount(section) {
  const sliders = section.querySelector(".sliders");
  const rest = h("div", { class: "sliders" });
  const summary = h("summary", {});
  const more = h("details", { class: "more-knobs", "data-testid": "more-knobs", hidden: true }, summary, rest);
  more.open = remembered(OPENED) === "1";
  more.addEventListener("toggle", () => remembered(OPENED, more.open ? "1" : "0"));
  sliders.after(more);
  const rowOfKnob = (d) => document.getElementById(`knob-${d}`)?.closest(".knob");
  state.on(["model"], () => { // knobs.js has built them anew
    ordered = null;
    rest.replaceChildren();
    more.hidden = true;
  });
  state.on(["effects"], () => {
    const [effects, model, klass] = [state.get("effects"), currentModel(), state.get("klass")];
    const key = `${model.name}.${klass}`;
    if (!effects || effects.length !== model.dims || key === ordered) return; // rows stay put while one plays
    ordered = key;
    const order = effects.map((_, d) => d).sort((a, b) => effects[b] - effects[a]);
    const rows = order.map(rowOfKnob);
    const held = document.activeElement;
    sliders.replaceChildren(...rows.slice(0, FIRST));
    rest.replaceChildren(...rows.slice(FIRST));
    if (sliders.contains(held) || rest.contains(held)) held.focus();
    for (const part of [sliders, rest]) part.style.setProperty("--half", Math.ceil(part.children.length / 2));
    more.hidden = rows.length <= FIRST;
    summary.textContent = `${rows.length - FIRST} more knobs, with smaller effects`;
  });
  state.on(["effects", "answer", "klass", "measured"], () => {
    const [effects, model, klass] = [state.get("effects"), currentModel(), state.get("klass")];
    effects?.forEach((effect, d) => label(rowOfKnob(d), model?.names?.[klass]?.[d], d, effect));
    rest.classList.toggle("named", sliders.classList.contains("named"));
  });
}

/** "3 mostly width" and, smaller, how much of the ink it changes. */
function label(row, name, d, effect) {
  if (!row) return;
  const percent = `${Math.round(100 * effect)} %`;
  row.querySelector("label").replaceChildren(
    h("span", { class: "number" }, String(d + 1)),
    h("span", {}, name ? `mostly ${name}` : "", h("small", { class: "effect" }, percent)));
  row.title = `From −0.25 to +0.25 this number changes ${percent} of the ink${name ? `, mostly the ${name}` : ""}.`;
}
