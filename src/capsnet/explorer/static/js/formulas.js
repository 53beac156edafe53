/** Formulas, and the heads of two panels: what the network's capsules are and how they are routed. */

import { h } from "./elements.js";
import { currentModel, state } from "./state.js";

const VECTOR = "A capsule is a vector; its length says how sure the network is that its class is present.";
const POSE = "A capsule is a pose and, apart from it, how sure the network is that its class is present.";
const PLAIN = "How sure the network is that each class is present.";

const SPOKEN = [
  [/Σ_(\p{L})/gu, " the sum over $1 of "], [/√/g, " the square root of "], [/·/g, " times "], [/\//g, " over "],
  [/\^2(?!\p{N})/gu, " squared"], [/\^([\p{L}\p{N}.]+)/gu, " to the power of $1"], [/=/g, " is "], [/-/g, " minus "],
  [/_([\p{L}\p{N}]+)/gu, (_, index) => ` ${[...index].join(" ")}`], [/\|/g, " "], [/\s+/g, " "],
];

/** A formula as text, with `_` before subscripts and `^` before superscripts, for screen readers. */
const spoken = (text) => SPOKEN.reduce((words, [symbol, word]) => words.replaceAll(symbol, word), text).trim();

/** The same as elements: variables, which have one letter, are in italics. */
function typeset(text) {
  const variable = (word) => /^(?!Σ)\p{L}\p{M}*$/u.test(word);
  const words = (part) => part.split(/((?:\p{L}\p{M}*)+)/u).map((word) => (variable(word) ? h("i", {}, word) : word));
  return text.replaceAll("-", "−").split(/([_^][\p{L}\p{N}.]+)/u).flatMap((part) => {
    if (part.startsWith("_")) return [h("sub", {}, h("i", {}, part.slice(1)))];
    return part.startsWith("^") ? [h("sup", {}, ...words(part.slice(1)))] : words(part);
  });
}

/** Write the head of a panel: a sentence and a formula. */
export function head(section, sentence, formula = "") {
  const [words, equation] = section.querySelectorAll("header > p");
  words.textContent = sentence;
  write(equation, formula);
}

function write(equation, formula) {
  equation.hidden = !formula;
  equation.setAttribute("aria-label", spoken(formula));
  equation.replaceChildren(...typeset(formula));
}

/** Typeset the formulas of all heads, and keep those of two panels up to date. */
export function mount(who, routing) {
  for (const equation of document.querySelectorAll(".equation:not([aria-label])")) write(equation, equation.textContent);
  state.on(["model"], () => {
    const { dims, routing: own, style } = currentModel();
    who.querySelector("h2").textContent = style === "digit" ? "Which digit?" : "Which class?";
    head(who, own?.presence_is_length ? VECTOR : dims ? POSE : PLAIN, own?.presence);
    head(routing, own?.sentence ?? "This network routes nothing.", own?.coupling);
  });
}
