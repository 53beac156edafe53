/** What the heads of two panels say about the network on stage: what its capsules are, and how they are routed. */

import { h } from "./elements.js";
import { currentModel, state } from "./state.js";

const italic = (name) => h("i", {}, name);
const sub = (name, index) => [italic(name), h("sub", {}, italic(index))];
const fraction = (above, below) => h("span", { class: "fraction" }, h("span", {}, ...above), h("span", {}, ...below));
const norm = () => ["‖", ...sub("s", "j"), "‖"];
const direction = () => fraction(sub("s", "j"), norm());
const sum = (index) => h("span", {}, "Σ", h("sub", {}, italic(index)));
const vote = (child) => [italic("û"), h("sub", {}, italic("j"), "|", italic(child))];

/** ‖s‖^p / (1 + ‖s‖^p) */
function saturating(power) {
  const raised = () => [...norm(), power === "2" ? "²" : h("sup", {}, power)];
  return fraction(raised(), ["1 + ", ...raised()]);
}

const VECTOR = "A capsule is a vector; its length says how sure the network is that its class is there.";
const POSE = "A capsule is a pose and, apart from it, how sure the network is that its class is there.";
const SQUASHED = "v j is s j, squashed to a length below one";

/** [sentence, what is said instead of the formula, the formula] by what makes a capsule active. */
const CAPSULES = {
  paper: () => [VECTOR, SQUASHED, [...sub("v", "j"), " = ", saturating("2"), direction()]],
  power: (power) => [VECTOR, SQUASHED, [...sub("v", "j"), " = ", saturating(power), direction()]],
  exp: () => [VECTOR, SQUASHED, [
    ...sub("v", "j"), " = (1 − ", italic("e"), h("sup", {}, "−", ...norm()), ") ", direction(),
  ]],
  unit: () => [POSE, "a j grows with the length of s j and stays below one", [...sub("a", "j"), " = ", saturating("2")]],
  "em-diagonal": () => [POSE, "a j is near one where describing the votes costs less than beta a", [
    ...sub("a", "j"), " = σ(", italic("λ"), "(", ...sub("β", "a"), " − ", sum("h"), " cost",
    h("sub", {}, italic("jh")), "))",
  ]],
  "em-full": () => [POSE, "a j is pi j, the share of the votes that capsule j explains", [
    ...sub("a", "j"), " = ", ...sub("π", "j"),
  ]],
};

/** [what is said instead of the formula, the formula] by the name of the routing. */
const COUPLINGS = {
  dynamic: () => ["c i j is exp b i j over the sum over k of exp b i k", [
    ...sub("c", "ij"), " = ", fraction(["exp ", ...sub("b", "ij")], [sum("k"), " exp ", ...sub("b", "ik")]),
  ]],
  attention: () => ["c i j is exp b i j over the sum over k of exp b k j", [
    ...sub("c", "ij"), " = ", fraction(["exp ", ...sub("b", "ij")], [sum("k"), " exp ", ...sub("b", "kj")]),
  ]],
  em: () => ["c i j is a j p i j over the sum over k of a k p i k", [
    ...sub("c", "ij"), " = ",
    fraction([...sub("a", "j"), " ", ...sub("p", "ij")], [sum("k"), " ", ...sub("a", "k"), " ", ...sub("p", "ik")]),
  ]],
  kmeans: () => ["c i j is a softmax over j of minus the distance of vote i from v j over t", [
    ...sub("c", "ij"), " = softmax", h("sub", {}, italic("j")), "(−", italic("d"), "(", ...vote("i"), ", ",
    ...sub("v", "j"), ") / ", italic("t"), ")",
  ]],
  "self-attention": () => ["c i j is a softmax over j of how much vote i agrees with all votes, plus b i j", [
    ...sub("c", "ij"), " = softmax", h("sub", {}, italic("j")), "(", sum("k"), " ", ...vote("i"), " · ", ...vote("k"),
    " / √", italic("D"), ") + ", ...sub("b", "ij"),
  ]],
  uniform: () => ["c i j is one over the number of classes", [
    ...sub("c", "ij"), " = ", fraction(["1"], [italic("J")]),
  ]],
};

const AGREE = "Each child sends its vote to the parents that agree with it.";
const ROUTES = {
  uniform: "Each child gives every parent the same.",
  attention: "Each parent listens to the votes that agree with it.",
};

/** Write a head. A network that no formula is known of gets none. */
function head(section, sentence, said = "", formula = []) {
  const [words, equation] = section.querySelectorAll("header > p");
  words.textContent = sentence;
  equation.hidden = formula.length === 0;
  equation.setAttribute("aria-label", said);
  equation.replaceChildren(...formula);
}

/** Keep both heads true. */
export function mount(who, routing) {
  state.on(["model"], () => {
    const { dims, routing: own } = currentModel();
    const [kind, power] = own?.activation?.split(":") ?? [];
    const unknown = [dims ? POSE : "How sure the network is that each class is there."];
    head(who, ...(CAPSULES[kind]?.(power) ?? unknown));
    head(routing, ROUTES[own?.name] ?? AGREE, ...(COUPLINGS[own?.name]?.() ?? []));
  });
}
