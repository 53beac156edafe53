/** What the routing did, in a sentence. */

const EVEN = 0.005; // couplings come as bytes: a smaller difference may be rounding

/**
 * What an iteration did for a class.
 *
 * @param {import("./trace.js").Trace} trace
 * @param {number} iteration 0-based  @param {number} klass  @param {string[]} classes
 */
export function narrate(trace, iteration, klass, classes) {
  const name = classes[klass];
  const [before, now] = [Math.max(0, iteration - 1), iteration].map((r) => trace.lengths[r][klass].toFixed(2));
  if (iteration === 0) {
    return (
      `At first every child gives each class the same, ${trace.start.toFixed(2)} of itself. ` +
      `The votes for “${name}” add up to a length of ${now}.`
    );
  }
  const count = (test) => {
    let number = 0;
    for (let child = 0; child < trace.I; child += 1) {
      number += test(trace.coupling(iteration, child, klass) / trace.start);
    }
    return number;
  };
  const [more, less] = [count((times) => times > 1.5), count((times) => times < 0.67)];
  const verb = now === before ? "stays at" : now > before ? `grows from ${before} to` : `shrinks from ${before} to`;
  return (
    `“${name}” ${verb} ${now}. Of ${trace.I} children ${more} give it far more of themselves than at first, ` +
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
  const even = first.share - second.share < EVEN;
  const who = type === null ? `its ${trace.T} children give on average` : `its child of type ${type + 1} gives`;
  const what = even
    ? `all classes about the same, ${first.share.toFixed(2)}`
    : `“${first.name}” ${first.share.toFixed(2)}, “${second.name}” ${second.share.toFixed(2)}`;
  const patch = receptive ? `${receptive.size} × ${receptive.size} pixels, outlined` : "a larger patch around here";
  return `At row ${y + 1}, column ${x + 1}: ${who} ${what}. Each sees ${patch}.`;
}
