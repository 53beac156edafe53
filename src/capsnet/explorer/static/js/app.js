/** The page: mount the panels, load the networks, open the link or an example. */

import { get, report } from "./api.js";
import { mount as mountBars } from "./bars.js";
import { mount as mountCompare } from "./compare.js";
import { mount as mountDraw, showExample } from "./draw.js";
import { offer } from "./elements.js";
import { mount as mountFormulas } from "./formulas.js";
import { firstExample } from "./gallery.js";
import { mount as mountHints } from "./hints.js";
import { mount as mountKnobs } from "./knobs.js";
import { chooseModel, show, start, startRequest } from "./network.js";
import { blank } from "./pixels.js";
import { mount as mountPair } from "./pair.js";
import { mount as mountRouting } from "./routing.js";
import { mount as mountShare, open } from "./share.js";
import { currentModel, state } from "./state.js";
import { mount as mountSweep } from "./sweep.js";
import { mount as mountToy } from "./toy.js";

const PANELS = {
  draw: mountDraw, who: mountBars, knobs: mountKnobs, sweep: mountSweep, routing: mountRouting, toy: mountToy,
  pair: mountPair, compare: mountCompare, share: mountShare,
};

const AGAIN = 2000; // milliseconds until the descriptions of networks are asked for again
const TRIES = 30;

function describe({ parameters, routing, test_accuracy: accuracy, summary }) {
  const millions = parameters >= 1e6;
  const size = millions ? `${(parameters / 1e6).toFixed(1)} million` : `${Math.round(parameters / 1e3)} thousand`;
  const facts = [`${size} parameters`];
  if (routing) facts.push(`${routing.name} routing${routing.iterations ? `, ${routing.iterations} iterations` : ""}`);
  if (accuracy) facts.push(`${(100 * accuracy).toFixed(2)} % of the test set`);
  return { facts: facts.join(" · "), summary };
}

function mountPicker() {
  const picker = document.getElementById("model");
  picker.addEventListener("change", () => chooseModel(picker.value));
  state.on(["models"], () => offer(picker, state.get("models").map(({ name, title }) => [name, title])));
  state.on(["model"], () => {
    const model = currentModel();
    const { facts, summary } = describe(model);
    picker.value = model.name;
    picker.title = summary ?? "";
    document.getElementById("model-facts").textContent = facts;
    document.getElementById("frame-size").textContent =
      `${model.image_size.join(" × ")}${model.channels > 1 ? ` × ${model.channels}` : ""}`;
  });
}

function mountSkip() {
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part behind "#" belongs to the view
    document.getElementById("main").focus();
  });
}

/** Ranges of a network that is not bundled are measured while the page is open: ask again for a minute. */
function awaitRanges(tries = TRIES) {
  const missing = state.get("models").filter(({ dims, ranges, gallery }) => dims && !ranges && gallery);
  if (!missing.length || tries === 0) return;
  setTimeout(async () => {
    const { models } = await get("/api/models").catch(() => ({ models: [] })); // the next try may work
    for (const model of missing) {
      const fresh = models.find(({ name }) => name === model.name);
      if (!fresh?.ranges) continue;
      Object.assign(model, { ranges: fresh.ranges, means: fresh.means, names: fresh.names });
      state.set({ measured: state.get("measured") + 1 }); // `models` stays the same object: no knob is reset
    }
    awaitRanges(tries - 1);
  }, AGAIN);
}

async function load() {
  const current = startRequest(); // a stroke drawn while the page loads is kept
  const { models, routings } = await get("/api/models");
  if (!models.length) throw new Error("The server has no network loaded.");
  state.set({ models, routings });
  awaitRanges();
  const linked = await open().catch((error) => { report(error); return false; });
  if (linked) return;
  if (!state.get("model")) chooseModel(models[0].name);
  const example = await firstExample();
  if (!current()) return;
  const { image_size: [height, width], channels } = currentModel();
  if (example) showExample(example);
  else show(blank(width, height, channels), "draw");
}

function main() {
  mountSkip();
  mountPicker();
  mountHints(document.getElementById("hints"));
  mountFormulas(document.getElementById("who"), document.getElementById("routing"));
  for (const [id, mount] of Object.entries(PANELS)) mount(document.getElementById(id));
  start();
  load().catch(report);
}

main();
