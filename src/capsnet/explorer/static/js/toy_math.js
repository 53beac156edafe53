/**
 * Procedure 1 of "Dynamic Routing Between Capsules" (arXiv 1710.09829) for votes in the plane, and three relatives.
 *
 * Pure functions on nested arrays, the same as `capsnet.routing` line by line, so that the two can be compared.
 * Shape letters: I children, J parents, R iterations.
 */

/** What `route` can do; each is a routing of the package (`fixed-point` is `Dynamic(update="set")`). */
export const KINDS = ["dynamic", "fixed-point", "attention", "uniform"];

const zeros = (rows, columns) => Array.from({ length: rows }, () => new Array(columns).fill(0));

const dot = (a, b) => a[0] * b[0] + a[1] * b[1];

/** Eq. 1: a length in [0, 1), the direction kept. Written without a division by the length, so zero stays zero. */
export function squash([x, y]) {
  const length = Math.hypot(x, y);
  const factor = length / (1 + length * length);
  return [x * factor, y * factor];
}

/** The usual softmax; the largest logit is taken off first, so that nothing overflows. */
export function softmax(logits) {
  const largest = Math.max(...logits);
  const shares = logits.map((logit) => Math.exp(logit - largest));
  const total = shares.reduce((sum, share) => sum + share, 0);
  return shares.map((share) => share / total);
}

const transpose = (matrix) => matrix[0].map((_, column) => matrix.map((row) => row[column]));

/** Eq. 3, each child's softmax over its parents; attention turns it round: each parent's softmax over the children. */
function couple(logits, kind) {
  return kind === "attention" ? transpose(transpose(logits).map(softmax)) : logits.map(softmax);
}

/** Mean entropy of shares that sum to 1, over its greatest value: 1 is undecided, 0 is decided. */
function undecided(distributions) {
  const ways = distributions[0].length;
  if (ways < 2) return 0;
  const bits = (shares) => shares.reduce((sum, share) => sum - (share > 0 ? share * Math.log(share) : 0), 0);
  return distributions.reduce((sum, shares) => sum + bits(shares), 0) / (distributions.length * Math.log(ways));
}

/** Eq. 2 and Eq. 1: each parent's squashed sum of coupled votes. */
function gather(couplings, votes) {
  return votes[0].map((_, j) => {
    const sum = [0, 0];
    votes.forEach((row, i) => {
      sum[0] += couplings[i][j] * row[j][0];
      sum[1] += couplings[i][j] * row[j][1];
    });
    return squash(sum);
  });
}

/**
 * Route votes to parents and keep what happened in every iteration.
 *
 * The entropy is of what the softmax shares out: a child among its parents, under attention a parent among its
 * children. Uniform routing has no iterations, so that all its entries are alike.
 *
 * @param {number[][][]} votes [I][J][2], what child i predicts for parent j
 * @param {{iterations?: number, kind?: string}} options kind is one of `KINDS`
 * @returns {{couplings: number[][][], poses: number[][][], lengths: number[][], entropy: number[]}}
 *   couplings [R][I][J], poses [R][J][2], lengths [R][J], entropy [R]
 */
export function route(votes, { iterations = 3, kind = "dynamic" } = {}) {
  if (!KINDS.includes(kind)) throw new RangeError(`kind must be one of ${KINDS.join(", ")}, got ${kind}`);
  const trace = { couplings: [], poses: [], lengths: [], entropy: [] };
  let logits = zeros(votes.length, votes[0].length); // b_ij = 0: couplings are no weights, each picture starts anew
  for (let iteration = 0; iteration < iterations; iteration += 1) {
    const couplings = couple(logits, kind);
    const poses = gather(couplings, votes);
    trace.couplings.push(couplings);
    trace.poses.push(poses);
    trace.lengths.push(poses.map(([x, y]) => Math.hypot(x, y)));
    trace.entropy.push(undecided(kind === "attention" ? transpose(couplings) : couplings));
    if (kind === "uniform") continue;
    const kept = kind === "fixed-point" ? 0 : 1; // the fixed-point form sets similarities, it does not add them up
    logits = logits.map((row, i) => row.map((logit, j) => kept * logit + dot(votes[i][j], poses[j])));
  }
  return trace;
}
