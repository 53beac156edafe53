/** The six steps of the story: words, the panels in the light, and what “Show me” does. */

import { h, mayMove, tween } from "./elements.js";
import { sketch } from "./draw.js";
import { chooseModel } from "./network.js";
import { currentModel, state } from "./state.js";
import { turnTo } from "./turn.js";

const FOUR = [[[0.36, 0.18], [0.28, 0.5], [0.72, 0.52]], [[0.62, 0.22], [0.58, 0.86]]]; // strokes, as shares of the canvas
const REACH = 20; // degrees by which the picture is turned
const term = (word) => h("dfn", {}, word);
const strong = (word) => h("b", {}, word);

/** Wait; false if the step was left meanwhile. */
const pause = (milliseconds, alive) =>
  new Promise((resolve) => { setTimeout(() => resolve(alive()), mayMove() ? milliseconds : 0); });

/** Draw with shares from 0 to 1, and wait for the end. */
const animate = (milliseconds, alive, draw) => new Promise((resolve) => {
  const stop = tween(milliseconds, (share) => {
    if (alive()) draw(share);
    else stop?.();
    if (share === 1 || !alive()) resolve();
  });
});

/** The network to tell the story with: one that draws and routes in steps, if there is one. */
export function teacher() {
  const own = currentModel();
  const able = ({ decoder, grid, routing }) => Boolean(decoder && grid && routing?.iterations);
  return able(own) ? own : state.get("models").find(able) ?? own;
}

const choose = (model) => model && model.name !== state.get("model") && chooseModel(model.name);

/** To one side, to the other, and back; without motion, to one side. */
async function turnOne(alive) {
  if (!mayMove()) {
    turnTo(REACH);
    return;
  }
  await animate(4200, alive, (share) => turnTo(REACH * Math.sin(2 * Math.PI * share)));
  if (alive()) turnTo(0);
}

async function playRouting(alive) {
  const last = (state.get("entropy")?.length ?? 1) - 1;
  for (let iteration = 0; iteration <= last; iteration += 1) {
    state.set({ iteration: iteration === last ? null : iteration });
    if (!(await pause(1100, alive))) return;
  }
}

async function moveApart(alive) {
  const pair = state.get("pair");
  if (!pair) return;
  const to = [[-3, -4], [3, 4]];
  for (let n = 1; n <= 6; n += 1) {
    const share = mayMove() ? n / 6 : 1;
    const offsets = pair.offsets.map((offset, k) => offset.map((move, axis) => Math.round(move + share * (to[k][axis] - move))));
    state.set({ pair: { ...pair, offsets, initial: false } });
    if (!(await pause(240, alive))) return;
  }
}

/** What the couplings of the present picture did, in a sentence. */
function decided() {
  const entropy = state.get("entropy");
  if (!entropy) return "";
  const [first, last] = [entropy[0], entropy.at(-1)].map((value) => value.toFixed(3));
  return entropy.at(-1) > 0.9
    ? `Here the couplings stay nearly even (entropy ${last}; 1 is even, 0 decided): in this network the votes decide.`
    : `Here the couplings decide: their entropy goes from ${first} to ${last} (1 is even, 0 decided).`;
}

function trainedOnPairs() {
  const { title, multi } = currentModel();
  return multi ? `${title} was trained on such pairs.` : `${title} was trained on single digits only, so it may fail.`;
}

const draws = ({ decoder, dims }) =>
  (decoder ? ` Beside it the network draws what it believes, from the ${dims} numbers of the arrow alone.` : "");

/** `needs(model)`: whether a network can show the step; `live()`: a sentence made of the present numbers. */
export const STEPS = [
  {
    title: "Same parts, wrong places", panels: ["scramble"], needs: () => true,
    words: () => ["Many neural networks that read pictures ask ", strong("whether"), " the parts are there, and hardly ",
      strong("where"), ". Here the parts of a picture changed places; nothing was added. Would you still call it what it " +
      "was? Networks of capsules, which this story is about, were invented to ask where."],
  },
  {
    title: "Draw: how long is the arrow?", panels: ["draw", "classes"], needs: () => true,
    words: () => ["A ", term("capsule"), " is an arrow, a list of numbers, for one thing that may be in the picture; here " +
      "there is one for each ", term("class"), ", each kind of thing that the network knows. Its ", strong("length"),
      " says how sure the network is that the thing is there. Draw, and watch one bar grow."],
    act: (alive) => sketch(FOUR, 700, alive),
  },
  {
    title: "Turn it: where does it point?", panels: ["turn"], needs: ({ dims, multi }) => Boolean(dims && !multi),
    words: () => ["The arrow's ", strong("direction"), ", its ", term("pose"), ", says how the thing looks: how it is " +
      "turned, how wide, how thick. Drag the orange handle. The direction moves with your hand; the length hardly does, " +
      `until you turn too far.${draws(currentModel())}`],
    act: turnOne,
  },
  {
    title: "The parts vote", panels: ["routing"], needs: ({ grid, routing }) => Boolean(grid && routing),
    words: () => ["A ", term("child"), " is a small capsule that sees one patch of the picture. The capsule of a class is a ",
      term("parent"), ". Each child casts a ", term("vote"), " for each parent: “if I am part of you, you look like this”. " +
      "Votes that agree make their parent long. How much of a child goes to a parent is the ", term("coupling"), "; ",
      term("routing"), " raises it, step by step, where votes agree."],
    live: decided, act: playRouting,
  },
  {
    title: "Two digits at once", panels: ["pair"], needs: ({ channels, pairs, decoder }) => channels === 1 && pairs && decoder,
    network: () => state.get("models").find(({ multi, decoder }) => multi && decoder),
    words: () => ["Two digits, one over the other. Both capsules are long, and each has a pose of its own: so each draws " +
      "its own digit, in its own colour. Where a stroke belongs to both, both may draw it."],
    live: trainedOnPairs, act: moveApart,
  },
  {
    title: "Your turn", panels: null, needs: () => true,
    words: () => ["Everything is in the light. Bend a 4 into a 9, stroke by stroke. Each knob is one number of a pose: turn " +
      "some until the digit is another one. Erase half a digit: which capsule gives up first?"],
  },
];

/** Prepare the network of a step. */
export const prepare = (step, own) => choose(step.network?.() ?? own);
