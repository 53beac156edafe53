/** What the routing did, in a sentence. */

import { h } from "./elements.js";
import { digits } from "./trace.js";

const EVEN = 1.3; // couplings are sent as bytes: a difference of hardly more than one may be rounding

/** The words of this panel, for those who come without the story. */
export const glossary = () => h("details", { class: "routing-details routing-glossary" },
  h("summary", {}, "What are children, parents, votes and couplings?"),
  h("p", {}, "A ", h("dfn", {}, "child"), " is a small capsule that sees one patch of the picture; the capsule of a class is a ",
    h("dfn", {}, "parent"), ". A child's ", h("dfn", {}, "vote"), " says what the parent would look like if the child were part " +
    "of it. Its ", h("dfn", {}, "coupling"), " is how much this vote counts. ", h("dfn", {}, "Routing"), " chooses the couplings, " +
    "mostly in some ", h("dfn", {}, "iterations"), ": votes that agree count more. The ", h("dfn", {}, "entropy"),
    " says how even the couplings are: 1 is even (undecided), 0 decided."));

/** What an iteration (0-based) did for a class. */
export function describeIteration(trace, routing, iteration, klass, name) {
  const [before, now] = [Math.max(0, iteration - 1), iteration].map((r) => trace.lengths[r][klass].toFixed(2));
  const couplings = Array.from({ length: trace.I }, (_, child) => trace.coupling(iteration, child, klass));
  const count = (test) => couplings.filter(test).length;
  const verb = now === before ? "stays at" : now > before ? `grows from ${before} to` : `shrinks from ${before} to`;
  const change = iteration === 0 ? `The votes for “${name}” bring it to ${now}.` : `“${name}” ${verb} ${now}.`;
  if (routing.normalised === "none") {
    const against = count((coupling) => coupling < -trace.scale / 2); // closer to zero may be rounding
    return (
      `${change} A learned number is added to every coupling, so a child's couplings do not add up to one. ` +
      `The votes of ${against} of ${trace.I} children count against it, with negative couplings.`
    );
  }
  const byParent = routing.normalised === "children";
  if (iteration === 0) {
    const first = trace.even
      ? `At first ${byParent ? "each class attends to every child" : "every child gives each class"} the same,`
      : "The children differ from the start; an equal share is";
    return `${first} ${digits(trace.start)}. ${change}`;
  }
  const { start } = trace;
  const [more, less] = [count((share) => share > 1.5 * start), count((share) => share < 0.67 * start)];
  const than = trace.even ? "than at first" : "than an equal share";
  return byParent
    ? `${change} It attends to ${more} of ${trace.I} children far more ${than}, to ${less} far less.`
    : `${change} Of ${trace.I} children ${more} give it far more of themselves ${than}, ${less} far less.`;
}

/** The couplings of the children of a position, or of the one of a type there. */
export function describeSpot(trace, iteration, { y, x, type }, { classes, receptive }) {
  const place = y * trace.W + x;
  const shares = classes.map((name, parent) => ({ name, share: trace.map(iteration, parent, type)[place] }));
  const [first, second = first] = shares.sort((a, b) => b.share - a.share);
  const even = first.share - second.share < EVEN * trace.scale;
  const children = type === null ? `its ${trace.T} children give on average` : `its child of type ${type + 1} gives`;
  const what = even
    ? `all classes about the same, ${digits(first.share)}`
    : `“${first.name}” ${digits(first.share)}, “${second.name}” ${digits(second.share)}`;
  const around = trace.H * trace.W === 1 ? "all or nearly all of the picture" : "a larger patch around this place";
  const whole = trace.H * trace.W === 1 && receptive?.start < 0; // larger than the picture
  const patch = receptive && !whole ? `${receptive.size} × ${receptive.size} pixels, outlined` : around;
  return `At row ${y + 1}, column ${x + 1}: ${children} ${what}. Each sees ${patch}.`;
}
