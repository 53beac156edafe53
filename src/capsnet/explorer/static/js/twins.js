/** Networks to compare with: one without capsules that reads the same classes, and pairs of one size. */

const EQUAL = 1.5; // networks are of the same size if one has at most that many times the other's parameters

/** The same classes, in pictures of one or of two of them. */
const alike = (a, b) => a.classes.join() === b.classes.join() && a.multi === b.multi;
const ratio = (a, b) => Math.max(a.parameters / b.parameters, b.parameters / a.parameters);

/** The network without capsules that reads the same classes and is nearest in size, or null. */
export function twinOf(model, models) {
  const plain = models.filter((other) => !other.dims && !other.routing && alike(model, other));
  return plain.sort((a, b) => ratio(model, a) - ratio(model, b))[0] ?? null;
}

/** A capsule network of the same classes that has a twin of its own size: the fair comparison. */
export function fairPair(model, models) {
  const fair = (other) => {
    const twin = other.dims && alike(other, model) && twinOf(other, models);
    return twin && ratio(other, twin) < EQUAL;
  };
  return fair(model) ? null : models.find(fair) ?? null;
}
