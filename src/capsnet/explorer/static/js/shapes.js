/** Houses, boats and faces, drawn as the data set `shapes` draws them: by signed distances. */

const LEG = 0.22; // height of the hull; bow and stern are right-angled, so that legs of this length continue it
const CORNER = 0.26 + LEG / 3;
const DIAGONAL = LEG * Math.SQRT2;

/** Each part in the frame of its whole (its size is 1): name, kind, filled, x, y, angle, width, height / width. */
export const ARRANGEMENTS = {
  house: [
    ["walls", "rectangle", false, 0, 0.23, 0, 0.78, 0.46 / 0.78],
    ["roof", "triangle", false, 0, -0.155, 0, 1, 0.46],
    ["door", "rectangle", true, -0.15, 0.27, 0, 0.17, 0.26 / 0.17],
    ["window", "rectangle", true, 0.16, 0.2, 0, 0.17, 0.85],
  ],
  boat: [
    ["hull", "rectangle", true, 0, 0.37, 0, 0.52, LEG / 0.52],
    ["bow", "triangle", true, CORNER, 0.26 + LEG / 3, -Math.PI / 4, DIAGONAL, 0.5],
    ["stern", "triangle", true, -CORNER, 0.26 + LEG / 3, Math.PI / 4, DIAGONAL, 0.5],
    ["mast", "rectangle", true, -0.06, -0.12, 0, 0.07, 0.76 / 0.07],
    ["sail", "triangle", false, 0.21, -0.06, 0, 0.44, 0.6 / 0.44],
  ],
  face: [
    ["head", "ellipse", false, 0, 0, 0, 0.84, 1 / 0.84],
    ["left eye", "ellipse", true, -0.17, -0.14, 0, 0.14, 1.3],
    ["right eye", "ellipse", true, 0.17, -0.14, 0, 0.14, 1.3],
    ["nose", "triangle", true, 0, 0.05, 0, 0.14, 1.4],
    ["mouth", "half", true, 0, 0.27, 0, 0.4, 0.4],
  ],
};

const SHARE = 0.58; // of the picture's side: the size of a whole

/** The parts of a whole in the middle of a picture, in pixels with centres at whole numbers. */
export function assemble(whole, side) {
  const [middle, size] = [(side - 1) / 2, SHARE * side];
  return ARRANGEMENTS[whole].map(([name, kind, filled, x, y, angle, width, aspect]) =>
    ({ name, kind, filled, x: middle + size * x, y: middle + size * y, angle, width: size * width, aspect }));
}

/** To first order, f / |grad f|: exact on the outline, which is where anti-aliasing looks. */
function ellipse(across, down, a, b) {
  const [u, v] = [(across / a) ** 2, (down / b) ** 2];
  const radius = Math.sqrt(u + v);
  const slope = Math.sqrt(u / a ** 2 + v / b ** 2);
  return slope < 1e-6 ? -Math.min(a, b) : (radius * (radius - 1)) / slope;
}

/** Signed distance of a pixel to the outline of a part, negative inside. */
function distance({ kind, x, y, angle, width, aspect }, column, row) {
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const across = cos * (column - x) + sin * (row - y);
  const down = -sin * (column - x) + cos * (row - y);
  const [a, height] = [width / 2, width * aspect];
  if (kind === "rectangle") return Math.max(Math.abs(across) - a, Math.abs(down) - height / 2);
  if (kind === "triangle") {
    const slant = Math.hypot(height, a);
    const sides = Math.abs(across) * (height / slant) - (down + (height * 2) / 3) * (a / slant);
    return Math.max(sides, down - height / 3);
  }
  if (kind === "ellipse") return ellipse(across, down, a, height / 2);
  const lower = down + (height * 4) / (3 * Math.PI);
  return Math.max(ellipse(across, lower, a, height), -lower);
}

/** The ink of a part at a pixel, 0 to 1: outlined parts have a stroke inside of their outline. */
function inkAt(part, column, row, side) {
  const half = part.filled ? 2 * side : side / 56;
  return Math.min(1, Math.max(0, 0.5 - (Math.abs(distance(part, column, row) + half) - half)));
}

/** All parts as one picture. */
export function drawParts(parts, side) {
  const bytes = new Uint8Array(side * side);
  for (let n = 0; n < bytes.length; n += 1) {
    const ink = parts.reduce((most, part) => Math.max(most, inkAt(part, n % side, Math.floor(n / side), side)), 0);
    bytes[n] = Math.round(255 * ink);
  }
  return { width: side, height: side, channels: 1, bytes };
}

/** The part that lies under a point, the smallest first, or else the nearest one within reach; -1 if there is none. */
export function partAt(parts, column, row, reach = 2.5) {
  const under = parts.map((part, n) => ({ n, far: distance(part, column, row), size: part.width ** 2 * part.aspect }));
  const [hit] = under.filter(({ far }) => far <= reach).sort((a, b) => (a.far > 0) - (b.far > 0) || a.size - b.size);
  return hit?.n ?? -1;
}
