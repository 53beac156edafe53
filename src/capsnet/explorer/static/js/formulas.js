/** Formulas, and the panels with their heads: a title, a sentence and a formula. */

import { h } from "./elements.js";
import { currentModel, state } from "./state.js";

const VECTOR = "A capsule is a vector; its length says how sure the network is that its class is present.";
const POSE = "A capsule is a pose and, apart from it, how sure the network is that its class is present.";
const PLAIN = "How sure the network is that each class is present.";

const SPOKEN = [
  [/Σ_(\p{L})/gu, " the sum over $1 of "], [/√/g, " the square root of "], [/·/g, " times "], [/\//g, " over "],
  [/\^2(?!\p{N})/gu, " squared"], [/\^([\p{L}\p{N}.\u00a0×]+)/gu, " to the power of $1"], [/=/g, " is "],
  [/-/g, " minus "], [/×/g, "by"], [/∈/g, "in"], [/\|/g, " "],
  [/_([\p{L}\p{N}]+)/gu, (_, index) => ` ${[...index].join(" ")}`], [/\s+/g, " "],
];

/** A formula as text, with `_` before subscripts and `^` before superscripts, for screen readers. */
const spoken = (text) => SPOKEN.reduce((words, [symbol, word]) => words.replaceAll(symbol, word), text).trim();

/** The same as elements: variables, which have one letter, are in italics. */
function typeset(text) {
  const variable = (word) => /^(?!Σ)\p{L}\p{M}*$/u.test(word);
  const words = (part) => part.split(/((?:\p{L}\p{M}*)+)/u).map((word) => (variable(word) ? h("i", {}, word) : word));
  return text.replaceAll("-", "−").split(/([_^][\p{L}\p{N}.\u00a0×]+)/u).flatMap((part) => {
    if (part.startsWith("_")) return [h("sub", {}, h("i", {}, part.slice(1)))];
    return part.startsWith("^") ? [h("sup", {}, ...words(part.slice(1)))] : words(part);
  });
}

/** An empty panel. */
export function panel(id, title, sentence = "", formula = "") {
  const section = h("section", { class: "panel", id, "aria-labelledby": `${id}-title` },
    h("header", {}, h("h2", { id: `${id}-title` }, title), h("p"), h("p", { class: "equation", role: "math" })),
    h("div", { class: "body" }));
  head(section, sentence, formula);
  return section;
}

/** Write the head of a panel: a sentence and a formula. */
export function head(section, sentence, formula = "") {
  const [words, equation] = section.querySelectorAll("header > p");
  words.textContent = sentence;
  equation.hidden = !formula;
  equation.setAttribute("aria-label", spoken(formula));
  equation.replaceChildren(...typeset(formula));
}

/** Keep those heads up to date that describe the network: what it sees, what its capsules are, how they are routed. */
export function mount() {
  const [draw, classes, routing] = ["draw", "classes", "routing"].map((id) => document.getElementById(id));
  const describe = ({ image_size: size, channels, dims, routing: own, style }) => {
    const frame = [...size, ...(channels > 1 ? [channels] : [])].join("\u00a0×\u00a0");
    head(draw, "Draw a picture, choose one, or drop one on the page.", `x ∈ [0, 1]^${frame}`);
    classes.querySelector("h2").textContent = style === "digit" ? "Which digit?" : "Which class?";
    head(classes, own?.presence_is_length ? VECTOR : dims ? POSE : PLAIN, own?.presence);
    head(routing, own?.sentence ?? "This network routes nothing.", own?.coupling);
  };
  state.on(["model"], () => describe(currentModel()));
}
