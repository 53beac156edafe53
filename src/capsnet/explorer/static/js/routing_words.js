/** What the routing did, in a sentence. */

import { digits } from "./trace.js";

const EVEN = 1.3; // couplings come as bytes: a difference of hardly more than one may be rounding

/**
 * What an iteration did for a class.
 *
 * @param {import("./trace.js").Trace} trace
 * @param {number} iteration 0-based  @param {number} klass  @param {string[]} classes
 */
export function narrate(trace, iteration, klass, classes) {
  const name = classes[klass];
  const [before, now] = [Math.max(0, iteration - 1), iteration].map((r) => trace.lengths[r][klass].toFixed(2));
  const count = (test) => {
    let number = 0;
    for (let child = 0; child < trace.I; child += 1) number += test(trace.coupling(iteration, child, klass));
    return number;
  };
  const verb = now === before ? "stays at" : now > before ? `grows from ${before} to` : `shrinks from ${before} to`;
  if (!trace.shared) {
    const against = count((coupling) => coupling < -trace.scale / 2); // nearer to zero may be rounding
    const first = iteration === 0 ? `The votes for “${name}” bring it to ${now}.` : `“${name}” ${verb} ${now}.`;
    return (
      `${first} A learned number is added to every coupling, so a child's couplings do not add up to one. ` +
      `The votes of ${against} of ${trace.I} children count against it, with couplings below zero.`
    );
  }
  if (iteration === 0) {
    const first = trace.even
      ? `At first every child gives each class the same, ${digits(trace.start)} of itself.`
      : `The children differ from the first on; an equal share is ${digits(trace.start)}.`;
    return `${first} The votes for “${name}” bring it to ${now}.`;
  }
  const { start } = trace;
  const [more, less] = [count((share) => share > 1.5 * start), count((share) => share < 0.67 * start)];
  const than = trace.even ? "than at first" : "than an equal share";
  return (
    `“${name}” ${verb} ${now}. Of ${trace.I} children ${more} give it far more of themselves ${than}, ` +
    `${less} far less.`
  );
}

/** Who gets what the children of a position, or the one of a type there, have to give. */
export function tellSpot(trace, iteration, { y, x, type }, { classes, receptive }) {
  const types = type === null ? [...Array(trace.T).keys()] : [type];
  const shares = classes.map((name, parent) => {
    const sum = types.reduce((total, each) => total + trace.coupling(iteration, trace.child(y, x, each), parent), 0);
    return { name, share: sum / types.length };
  });
  const [first, second = first] = shares.sort((a, b) => b.share - a.share);
  const even = first.share - second.share < EVEN * trace.scale;
  const who = type === null ? `its ${trace.T} children give on average` : `its child of type ${type + 1} gives`;
  const what = even
    ? `all classes about the same, ${digits(first.share)}`
    : `“${first.name}” ${digits(first.share)}, “${second.name}” ${digits(second.share)}`;
  const around = trace.H * trace.W === 1 ? "all or nearly all of the picture" : "a larger patch around here";
  const patch = receptive ? `${receptive.size} × ${receptive.size} pixels, outlined` : around;
  return `At row ${y + 1}, column ${x + 1}: ${who} ${what}. Each sees ${patch}.`;
}
