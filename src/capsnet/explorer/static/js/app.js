/** The page: build the panels, load the networks, open the link or an example. */

import { get, report } from "./api.js";
import { mount as mountBars } from "./bars.js";
import { mount as mountCompare } from "./compare.js";
import { mount as mountDraw, showExample } from "./draw.js";
import { mount as mountEffects } from "./effects.js";
import { offer } from "./elements.js";
import { mount as mountFormulas, panel } from "./formulas.js";
import { firstExample } from "./gallery.js";
import { mount as mountHints } from "./hints.js";
import { mount as mountIdle } from "./idle.js";
import { mount as mountKnobs } from "./knobs.js";
import { mount as mountMini } from "./mini.js";
import { chooseModel, show, start, startRequest } from "./network.js";
import { mount as mountMap } from "./map.js";
import { blank } from "./pixels.js";
import { mount as mountOscillators } from "./oscillators.js";
import { mount as mountPair } from "./pair.js";
import { mount as mountTools } from "./panel_export.js";
import { mount as mountPhases } from "./phases.js";
import { mount as mountRouting } from "./routing.js";
import { mount as mountScene } from "./scene.js";
import { mount as mountShare, open } from "./share.js";
import { currentModel, state } from "./state.js";
import { mount as mountStory } from "./story.js";
import { mount as mountSweep } from "./sweep.js";
import { mount as mountToy } from "./toy.js";
import { mount as mountTurn } from "./turn.js";

/** [id, mount, title, sentence, formula]; where the last two are missing, they depend on the network or the routing. */
const PANELS = [
  ["draw", mountDraw, "Draw"],
  ["classes", mountBars, "Which digit?"],
  ["knobs", mountKnobs, "Turn the knobs",
    "A capsule's numbers, its pose, say how the object looks: change one and see what it means.", "x̂ = decoder(v_k + δ)"],
  ["phases", mountPhases, "Which pixel belongs to which object?",
    "Each pixel of this network has a phase. By equal phases it binds pixels to one object."],
  ["sweep", mountSweep, "Sweep",
    "Each row moves one number of the capsule; choose a picture to turn that knob.", "x̂_dδ = decoder(v_k + δ e_d)"],
  ["turn", mountTurn, "Turn it and watch",
    "The length says that it is there, the direction says how: turn the picture and see which of them follows.",
    "|v(g x)| ≈ |v(x)|"],
  ["routing", mountRouting, "See the routing"],
  ["toy", mountToy, "Routing by hand"],
  ["map", mountMap, "A map of poses",
    "Everything this capsule can draw, on two of its directions: walk, and see where your drawing lies.",
    "x̂ = decoder(v_k + a e_1 + b e_2)"],
  ["oscillators", mountOscillators, "Oscillators",
    "Each oscillator has a rhythm of its own and is pulled by the others. Pull harder: when do they agree? " +
    "In Kuramoto routing capsules agree in this way.",
    "dθ_i/dt = ω_i + K/N Σ_j sin(θ_j - θ_i)"],
  ["pair", mountPair, "Two digits"],
  ["scene", mountScene, "Build a scene",
    "The same parts make a house, a boat or no whole at all: move them and see who notices."],
  ["compare", mountCompare, "Compare", "The same picture through other networks and routings.", "|v_k|"],
  ["share", mountShare, "Share and export",
    "The address bar holds this view; the same picture and weights give the same numbers anywhere.", "v = f_θ(x)"],
];

const AGAIN = 2000; // milliseconds until the descriptions of networks are asked for again

function describe({ parameters, routing, test_accuracy: accuracy }) {
  const size = parameters >= 1e6 ? `${(parameters / 1e6).toFixed(1)} million` : `${Math.round(parameters / 1e3)} thousand`;
  const facts = [`${size} parameters`];
  if (routing) facts.push(`${routing.name} routing${routing.iterations ? `, ${routing.iterations} iterations` : ""}`);
  if (accuracy) facts.push(`${(100 * accuracy).toFixed(2)} % test accuracy`);
  return facts.join(" · ");
}

const tagline = ({ style, decoder, routing }) => [
  style === "digit" ? "Draw a digit" : "Draw or choose a picture",
  ...(decoder ? ["turn the knobs of its capsule"] : []), ...(routing ? ["watch the routing"] : []),
].join(", ");

function mountPicker() {
  const picker = document.getElementById("model");
  picker.addEventListener("change", () => chooseModel(picker.value));
  state.on(["models"], () => offer(picker, state.get("models").map(({ name, title }) => [name, title])));
  state.on(["model"], () => {
    const model = currentModel();
    Object.assign(picker, { value: model.name, title: model.summary });
    document.getElementById("model-facts").textContent = describe(model);
    document.getElementById("model-purpose").textContent = model.purpose;
    document.getElementById("tagline").textContent = `${tagline(model)}.`;
    document.getElementById("main").classList.toggle("undrawn", !model.decoder);
  });
}

/** Ranges of a network that is not bundled are measured while the page is open: ask again for a minute. */
function awaitRanges(tries = 30) {
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

async function load(tellStory) {
  const current = startRequest(); // a stroke drawn while the page loads is kept
  const { models, routings } = await get("/api/models");
  if (!models.length) throw new Error("The server has no network loaded.");
  state.set({ models, routings });
  awaitRanges();
  const linked = await open().catch((error) => { report(error); return false; });
  if (linked) return;
  if (!state.get("model")) chooseModel(models[0].name);
  const example = await firstExample();
  tellStory();
  if (!current()) return;
  const { image_size: [height, width], channels } = currentModel();
  if (example) showExample(example);
  else show(blank(width, height, channels), "draw");
}

function main() {
  const place = document.getElementById("main");
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part behind "#" belongs to the view
    place.focus();
  });
  place.append(...PANELS.map(([id, , ...words]) => panel(id, ...words)));
  mountPicker();
  mountHints(document.getElementById("hints"));
  mountFormulas();
  mountIdle();
  mountMini(place);
  for (const [id, mount] of PANELS) mount(document.getElementById(id));
  mountEffects(document.getElementById("knobs"));
  mountTools(place);
  const tellStory = mountStory(place);
  start();
  load(tellStory).catch(report);
}

main();
