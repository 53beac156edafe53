/** Looking into a routing: couplings of each iteration, and the votes for a parent, as the server describes them. */

import { round, toBase64 } from "./numbers.js";

/** A tensor {values, shape} as nested arrays. */
export function rows({ values, shape }) {
  if (shape.length <= 1) return Array.from(values);
  const size = values.length / shape[0];
  return Array.from({ length: shape[0] }, (_, n) =>
    rows({ values: values.subarray(n * size, (n + 1) * size), shape: shape.slice(1) }));
}

/** The first iterations only. */
export function firstSteps(steps, count) {
  return Object.fromEntries(Object.entries(steps).map(([name, { values, shape }]) => {
    const kept = Math.min(count ?? shape[0], shape[0]);
    return [name, { values: values.subarray(0, (values.length / shape[0]) * kept), shape: [kept, ...shape.slice(1)] }];
  }));
}

/**
 * How undecided the couplings of each iteration are, from 0 to 1: the mean entropy of a child's couplings, or of a
 * parent's where couplings are normalised over the children. Of couplings with a learned prior: that of the softmax.
 */
export function entropies({ couplings, logits }, normalised) {
  const [R, I, J] = couplings.shape;
  const [source, outer, inner] = [normalised === "none" ? logits : couplings, normalised === "children" ? J : I,
    normalised === "children" ? I : J];
  return Array.from({ length: R }, (_, r) => {
    let total = 0;
    for (let o = 0; o < outer; o += 1) {
      const shares = Array.from({ length: inner }, (_, n) =>
        source.values[r * I * J + (normalised === "children" ? n * J + o : o * J + n)]);
      total += entropy(normalised === "none" ? softmax(shares) : shares) / Math.log(Math.max(2, inner));
    }
    return Math.min(1, Math.max(0, total / outer));
  });
}

function softmax(logits) {
  const most = Math.max(...logits);
  return logits.map((logit) => Math.exp(logit - most));
}

function entropy(shares) {
  const sum = Math.max(shares.reduce((total, share) => total + share, 0), 1e-30);
  return shares.reduce((total, share) => total - (share > 0 ? (share / sum) * Math.log(share / sum) : 0), 0);
}

/** Byte b of the couplings means offset + scale * b / 255; `start` is an equal share, null where there is none. */
function scaleOf({ values, shape: [, I, J] }, normalised) {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)];
  if (normalised === "children") return { offset: 0, scale: Math.max(most, 1e-12), start: 1 / I };
  if (normalised === "parents") return { offset: 0, scale: 1, start: 1 / J };
  const offset = Math.min(0, least);
  return { offset, scale: most - offset, start: null };
}

/** The answer about a routing's steps; with a class, the votes for it. */
export function describeTrace(steps, normalised, klass) {
  const { couplings, activations, votes } = steps;
  const scale = scaleOf(couplings, normalised);
  const bytes = Uint8Array.from(couplings.values, (value) => {
    const share = Math.fround(Math.fround(value - scale.offset) / Math.max(scale.scale, 1e-12));
    return Math.min(255, Math.max(0, round(Math.fround(share * 255))));
  });
  return {
    iterations: couplings.shape[0], couplings: toBase64(bytes), ...scale, entropy: entropies(steps, normalised),
    lengths: rows(activations), votes: klass === null ? null : describeVotes(steps, votes, klass),
    ...describeContributions(steps),
  };
}

/** What each child brings to each parent, along the parent, c (u_hat . v) / |v|: n means contribution * n / 32767. */
function describeContributions({ couplings: { values: couplings, shape: [R, I, J] }, steps, votes }) {
  const D = votes.shape[2];
  const brought = new Float32Array(R * I * J);
  for (let r = 0; r < R; r += 1) {
    for (let j = 0; j < J; j += 1) {
      const pose = steps.values.subarray((r * J + j) * D, (r * J + j + 1) * D);
      const length = Math.max(Math.hypot(...pose), 1e-12);
      for (let i = 0; i < I; i += 1) {
        let along = 0;
        for (let d = 0; d < D; d += 1) along += votes.values[(i * J + j) * D + d] * pose[d];
        const n = (r * I + i) * J + j;
        brought[n] = (couplings[n] * along) / length;
      }
    }
  }
  const size = Math.max(brought.reduce((most, value) => Math.max(most, Math.abs(value)), 0), 1e-12);
  const packed = Int16Array.from(brought, (value) => round(value * (32767 / size)));
  return { contributions: toBase64(new Uint8Array(packed.buffer)), contribution: size };
}

/** The votes for one parent in the plane of their first two principal components, and the parent's path in it. */
function describeVotes({ couplings, steps }, { values, shape: [I, J, D] }, klass) {
  const cloud = Array.from({ length: I }, (_, i) => values.subarray((i * J + klass) * D, (i * J + klass + 1) * D));
  const last = (couplings.shape[0] - 1) * I * J;
  const weights = cloud.map((vote, i) => Math.abs(couplings.values[last + i * J + klass]) * Math.hypot(...vote));
  const { centre, axes, explained } = plane(cloud, weights);
  const project = (point) => axes.map((axis) => axis.reduce((sum, part, d) => sum + part * (point[d] - centre[d]), 0));
  const points = Float32Array.from(cloud.flatMap(project));
  return {
    points: toBase64(new Uint8Array(points.buffer)), parents: rows(steps).map((poses) => project(poses[klass])),
    origin: project(new Array(D).fill(0)), explained,
  };
}

/** The plane of the two largest weighted principal components. The axes' signs are fixed. */
function plane(points, weights) {
  const D = points[0].length;
  const total = Math.max(weights.reduce((sum, weight) => sum + weight, 0), 1e-12);
  const mean = (d) => points.reduce((sum, point, n) => sum + weights[n] * point[d], 0) / total;
  const centre = Array.from({ length: D }, (_, d) => mean(d));
  const covariance = Array.from({ length: D }, () => new Float64Array(D));
  points.forEach((point, n) => {
    for (let a = 0; a < D; a += 1) {
      for (let b = 0; b < D; b += 1) {
        covariance[a][b] += (weights[n] * (point[a] - centre[a]) * (point[b] - centre[b])) / total;
      }
    }
  });
  const { values, vectors } = eigen(covariance);
  const order = Array.from(values, (_, n) => n).sort((a, b) => values[b] - values[a]);
  const axes = [0, 1].map((n) => (n < D ? fixSign(vectors.map((row) => row[order[n]])) : new Array(D).fill(0)));
  const spread = Math.max(values.reduce((sum, value) => sum + value, 0), 1e-12);
  const two = order.slice(0, 2).reduce((sum, n) => sum + values[n], 0);
  return { centre, axes, explained: Math.min(1, Math.max(0, two / spread)) };
}

function fixSign(axis) {
  const largest = axis.reduce((best, part) => (Math.abs(part) > Math.abs(best) ? part : best), 0);
  return largest < 0 ? axis.map((part) => -part) : axis;
}

/** Eigenvalues and eigenvectors (as columns) of a symmetric matrix, by Jacobi's rotations. */
function eigen(matrix) {
  const D = matrix.length;
  const a = matrix.map((row) => Float64Array.from(row));
  const vectors = a.map((_, n) => Float64Array.from({ length: D }, (_, m) => Number(n === m)));
  for (let round = 0; round < 60; round += 1) {
    let off = 0;
    for (let p = 0; p < D; p += 1) for (let q = p + 1; q < D; q += 1) off += a[p][q] ** 2;
    if (off < 1e-30) break;
    for (let p = 0; p < D; p += 1) for (let q = p + 1; q < D; q += 1) rotate(a, vectors, p, q);
  }
  return { values: a.map((row, n) => row[n]), vectors };
}

function rotate(a, vectors, p, q) {
  if (Math.abs(a[p][q]) < 1e-300) return;
  const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
  const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
  const c = 1 / Math.sqrt(t * t + 1);
  const s = t * c;
  const turn = (rowP, rowQ, k) => { // two numbers in a rotated frame
    const [x, y] = [rowP[k[0]], rowQ[k[1]]];
    [rowP[k[0]], rowQ[k[1]]] = [c * x - s * y, s * x + c * y];
  };
  for (let k = 0; k < a.length; k += 1) turn(a[k], a[k], [p, q]);
  for (let k = 0; k < a.length; k += 1) turn(a[p], a[q], [k, k]);
  for (const row of vectors) turn(row, row, [p, q]);
}
