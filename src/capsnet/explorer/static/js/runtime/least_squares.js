/** Pictures fitted by a few terms. */

export const dot = (a, b) => a.reduce((sum, value, k) => sum + value * b[k], 0);

/** Weighted least squares: the normal equations by Gaussian elimination. */
export function leastSquares(terms, weight, values) {
  const K = terms[0].length;
  const rows = Array.from({ length: K }, (_, a) => {
    const row = new Float64Array(K + 1);
    terms.forEach((term, n) => {
      for (let b = 0; b < K; b += 1) row[b] += weight[n] * term[a] * term[b];
      row[K] += weight[n] * term[a] * values[n];
    });
    row[a] += 1e-9;
    return row;
  });
  for (let p = 0; p < K; p += 1) {
    const best = rows.reduce((most, row, n) => (n > p && Math.abs(row[p]) > Math.abs(rows[most][p]) ? n : most), p);
    [rows[p], rows[best]] = [rows[best], rows[p]];
    rows.forEach((row, n) => {
      const factor = n === p ? 0 : row[p] / rows[p][p];
      if (factor) for (let k = p; k <= K; k += 1) row[k] -= factor * rows[p][k];
    });
  }
  return rows.map((row, n) => row[K] / row[n]);
}

/** The fit of values by the terms at each pixel, or the part of it by those that are `drawn`. */
export function fitted(terms, values, drawn = terms[0].map((_, k) => k)) {
  const fit = leastSquares(terms, new Float64Array(values.length).fill(1), values);
  return Float64Array.from(terms, (term) => drawn.reduce((sum, k) => sum + fit[k] * term[k], 0));
}
