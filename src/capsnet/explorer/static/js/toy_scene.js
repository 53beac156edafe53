/** The toy's votes: the scene it starts with, new ones by chance, and their form in the address bar. */

export const PARENTS = ["A", "B", "C"];
const LIMIT = 1.25; // how far out a vote may be dragged

/** Children 1 to 4 agree about A, 5 to 8 about B; no two agree about C. [I][J][2] */
const START = [
  [[0.6, 0.85], [-0.11, -0.64], [0.81, 0.19]],
  [[0.82, 0.73], [0.38, -0.42], [-0.4, 0.02]],
  [[0.62, 0.68], [0.31, 0.88], [0.69, -0.5]],
  [[0.46, 0.77], [0.53, 0.02], [-0.24, 0.38]],
  [[0.5, -0.42], [-0.88, 0.63], [0.23, -0.46]],
  [[-0.94, -0.12], [-0.75, 0.42], [0.1, 0.76]],
  [[-0.78, -0.21], [-1.05, 0.3], [-0.24, -0.43]],
  [[-0.86, 0.26], [-0.65, 0.63], [0.44, 0.67]],
  [[0.02, -0.9], [0.21, -0.51], [-0.28, -0.3]],
];

export const CHILDREN = START.map((_, i) => i);

/** Votes live on a grid of hundredths inside the limit, so that a link brings back exactly the same ones. */
export const snap = (value) => Math.round(100 * Math.min(LIMIT, Math.max(-LIMIT, value))) / 100;

const each = (make) => START.map((row, i) => row.map((_, j) => make(i, j).map(snap)));

export const start = () => each((i, j) => START[i][j]);

/** Votes scattered by chance: some always agree, and routing finds them. */
export function shuffled(random = Math.random) {
  return each(() => {
    const [radius, angle] = [0.3 + 0.85 * random(), 2 * Math.PI * random()];
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  });
}

/** One character pair per coordinate: hundredths from -1.25 to 1.25 in base 36. */
export function pack(votes) {
  const code = (value) => Math.round(100 * (value + LIMIT)).toString(36).padStart(2, "0");
  return votes.flat(2).map(code).join("");
}

/** Undo `pack`; null for anything that is not a full scene. */
export function unpack(text) {
  const numbers = (text.match(/../g) ?? []).map((pair) => parseInt(pair, 36) / 100 - LIMIT);
  if (numbers.length !== START.flat(2).length || !numbers.every(Number.isFinite)) return null;
  return each((i, j) => numbers.slice(2 * (i * PARENTS.length + j)).slice(0, 2));
}
