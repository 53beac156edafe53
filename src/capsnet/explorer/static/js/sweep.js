/** Panel 4: each row moves one number of the selected capsule from -0.25 to +0.25 [Figure 4 of the paper]. */

import { latest, report } from "./api.js";
import { effectsOf } from "./effects.js";
import { h } from "./elements.js";
import { base, dimensionName, turn } from "./knobs.js";
import { fromWire, nativeCanvas } from "./pixels.js";
import { rove } from "./rove.js";
import { currentModel, state } from "./state.js";

const sweep = latest();
const OFFSETS = Array.from({ length: 11 }, (_, n) => Math.round(-25 + 5 * n) / 100);
const HALF = 0.025; // of a step between two of them
const GAP = 2; // picture pixels between two frames

let grid = null;
let parts = null;

export function mount(section) {
  const holder = h("div", {
    class: "sweep", role: "grid", "aria-label": "Sweep of each dimension", "data-testid": "sweep",
    onclick: ({ target }) => choose(target.closest(".cell")),
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(event.target.closest(".cell"));
    },
  });
  parts = { section, holder, stop: rove(holder, ".cell") };
  section.querySelector(".body").append(holder);
  state.on(["model"], build);
  state.on(["answer", "klass"], () => ask().catch(report));
  state.on(["pose"], mark);
}

/** The strip as it is on the page, for the exported picture; null where there is none. */
export const strip = () => grid?.painted ? grid.canvas : null;

function build() {
  const { dims, decoder, image_size: [height, width] } = currentModel();
  const works = Boolean(dims && decoder);
  parts.section.hidden = !works;
  grid = null;
  if (!works) return;
  const canvas = h("canvas", { class: "pixels", role: "presentation" });
  const head = h("div", { class: "line", role: "row" }, h("span", { role: "columnheader", class: "corner" },
    h("span", { class: "visually-hidden" }, "dimension")),
  ...OFFSETS.map((offset) => h("span", { role: "columnheader", class: "offset" }, signed(offset))));
  const rows = Array.from({ length: dims }, (_, d) => {
    const name = h("span", { role: "rowheader", class: "name" });
    const cells = OFFSETS.map((offset, n) =>
      h("span", { role: "gridcell", class: "cell", tabindex: "-1", "data-row": d, "data-column": n }));
    return { name, cells, line: h("div", { class: "line", role: "row" }, name, ...cells) };
  });
  grid = { canvas, rows, painted: false };
  parts.holder.style.setProperty("--rows", dims);
  parts.holder.style.setProperty("--aspect", (width + GAP) / (height + GAP));
  const sheet = h("div", { class: "sheet", role: "presentation" }, canvas);
  parts.holder.replaceChildren(head, ...rows.map(({ line }) => line), sheet);
  parts.stop(rows[0].cells[5]);
}

const signed = (offset) => (offset > 0 ? `+${offset.toFixed(2)}` : offset.toFixed(2).replace("-", "−"));

async function ask() {
  const [model, klass, pose] = [currentModel(), state.get("klass"), base()];
  if (!grid || !pose || state.get("drawing")) return; // 176 pictures per event would slow the stroke itself
  const asked = grid;
  const answer = await sweep("/api/sweep", { model: model.name, pose: Array.from(pose), class: klass });
  if (answer && asked === grid) fill(fromWire(answer.pictures), model, klass);
}

function fill(sprite, model, klass) {
  const [columns, rows] = [OFFSETS.length, grid.rows.length];
  const [width, height] = [sprite.width / columns, sprite.height / rows];
  const image = nativeCanvas(sprite);
  const { canvas } = grid;
  canvas.width = columns * (width + GAP);
  canvas.height = rows * (height + GAP);
  const context = canvas.getContext("2d");
  for (let d = 0; d < rows; d += 1) {
    for (let n = 0; n < columns; n += 1) {
      const to = [n * (width + GAP) + GAP / 2, d * (height + GAP) + GAP / 2];
      context.drawImage(image, n * width, d * height, width, height, ...to, width, height);
    }
  }
  grid.painted = true;
  state.set({ effects: effectsOf(sprite, rows, columns) });
  parts.holder.classList.toggle("named", Boolean(model.names?.[klass]?.some(Boolean)));
  grid.rows.forEach(({ name, cells }, d) => {
    const words = dimensionName(model, klass, d);
    name.textContent = words;
    name.title = words;
    cells.forEach((cell, n) => cell.setAttribute("aria-label", `dimension ${words}, ${signed(OFFSETS[n])}`));
  });
  mark();
}

/** Mark in each row the picture that is nearest to where its knob stands. */
function mark() {
  const [pose, own] = [state.get("pose"), base()];
  if (!grid || !pose || !own || own.length !== grid.rows.length) return;
  grid.rows.forEach(({ cells }, d) => {
    const offset = pose[d] - own[d];
    cells.forEach((cell, n) => {
      const here = Math.abs(OFFSETS[n] - offset) <= HALF + 1e-9;
      cell.classList.toggle("here", here);
      cell.classList.toggle("moved", here && offset !== 0);
      cell.setAttribute("aria-selected", here);
    });
  });
}

function choose(cell) {
  const own = base();
  if (!cell || !own) return;
  const [d, n] = [Number(cell.dataset.row), Number(cell.dataset.column)];
  parts.stop(cell);
  turn(d, own[d] + OFFSETS[n]);
}
