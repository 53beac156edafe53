/** The two directions in which vectors differ most: power iteration, which is enough for a handful of short vectors. */

const ROUNDS = 60;

const dot = (a, b) => a.reduce((sum, value, n) => sum + value * b[n], 0);

/** {mean, axes: [a, b], deviations: [s, t]}: unit vectors with a fixed sign, so that a picture does not flip. */
export function principal(vectors) {
  const D = vectors[0].length;
  const meanOf = (d) => vectors.reduce((sum, vector) => sum + vector[d], 0) / vectors.length;
  const mean = Array.from({ length: D }, (_, d) => meanOf(d));
  const away = vectors.map((vector) => mean.map((middle, d) => vector[d] - middle));
  const axes = [];
  const deviations = [];
  for (let k = 0; k < Math.min(2, D); k += 1) {
    let axis = Array.from({ length: D }, (_, d) => Math.cos(1 + 7 * d + k)); // any start that is not orthogonal
    for (let round = 0; round < ROUNDS; round += 1) {
      const pulled = new Array(D).fill(0);
      for (const vector of away) {
        const share = dot(vector, axis);
        for (let d = 0; d < D; d += 1) pulled[d] += share * vector[d];
      }
      for (const other of axes) {
        const share = dot(pulled, other);
        for (let d = 0; d < D; d += 1) pulled[d] -= share * other[d];
      }
      const length = Math.hypot(...pulled);
      if (length < 1e-12) break;
      axis = pulled.map((value) => value / length);
    }
    const largest = axis.reduce((best, value) => (Math.abs(value) > Math.abs(best) ? value : best), 0);
    axes.push(largest < 0 ? axis.map((value) => -value) : axis);
    deviations.push(Math.sqrt(away.reduce((sum, vector) => sum + dot(vector, axis) ** 2, 0) / away.length));
  }
  while (axes.length < 2) { axes.push(new Array(D).fill(0)); deviations.push(0); }
  return { mean, axes, deviations };
}

/** Where a vector lies in that plane. */
export function project({ mean, axes }, vector) {
  const away = mean.map((middle, d) => vector[d] - middle);
  return axes.map((axis) => dot(axis, away));
}
