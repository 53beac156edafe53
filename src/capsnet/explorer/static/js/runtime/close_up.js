/** The ink of a digit that fills its picture up to the borders. `capsnet/data/_closeup.py` says why it does so. */

import { choose, label } from "./components.js";
import { BOX, dilated, map, plane, resize, smoothed } from "./filters.js";
import { fitted } from "./least_squares.js";
import { clip, quantile, round } from "./numbers.js";

const SMALL = 128;
const TURNS = 4;
const FAINTEST = 0.08;
const CLEAR = 2.8;
const STRONG = 0.15;
const SOFT = 2.4;
const LIGHT = 0.9;
const MOST = 0.5;
const FULL = 0.75;
const WIDE = 0.8;
const REACH = 0.5;
const BINS = 128;

/** From planes of one or three colours; null if this is no such picture. */
export function findCloseUp(planes) {
  const spreads = planes.map(({ data }) => variance(data));
  const chosen = planes[spreads.indexOf(Math.max(...spreads))];
  const factor = Math.min(1, SMALL / Math.max(chosen.height, chosen.width));
  const size = [Math.max(8, round(chosen.height * factor)), Math.max(8, round(chosen.width * factor))];
  const tones = twoTones(smoothed(resize(chosen, size, BOX)));
  if (!tones) return null;
  const dark = tones.mask;
  const isDark = likelyInk(dark) >= likelyInk(map(dark, (value) => 1 - value));
  const flat = isDark ? tones.flat : map(tones.flat, (value) => 1 - value);
  const inked = (n) => (dark.data[n] > 0) === isDark;
  const paper = quantile(flat.data.filter((_, n) => !inked(n)), 0.6);
  const contrast = map(flat, (value) => clip(paper - value, 0, 1));
  const first = quantile(contrast.data.filter((_, n) => inked(n)), 0.8);
  const { score, digit } = choose(map(contrast, (value) => Number(value > 0.4 * first)), contrast, true);
  if (score <= 0 || !isPlausible(digit)) return null;
  const [level, near] = [quantile(contrast.data.filter((_, n) => digit.data[n] > 0), 0.8), dilated(digit, 1)];
  const ink = map(contrast, (value, n) => clip((value - 0.25 * level) / (0.5 * level), 0, 1) * near.data[n]);
  return { ink, clear: tones.clear };
}

/** The picture without its plane of light, and where it is dark; null if it has not two tones. */
function twoTones(values) {
  const { height, width, data } = values;
  const at = (n) => [-1 + (2 * (n % width)) / (width - 1), -1 + (2 * Math.floor(n / width)) / (height - 1)];
  const places = Array.from(data, (_, n) => at(n));
  const spread = variance(data);
  const bent = fitted(places.map(([x, y]) => [1, x, y, x * x, x * y, y * y]), data);
  if (spread < 1e-6 || 1 - variance(data.map((value, n) => value - bent[n])) / spread > LIGHT) return null;
  let flat = Float64Array.from(data);
  let dark = below(flat);
  for (let turn = 0; turn < TURNS; turn += 1) {
    const light = fitted(places.map(([x, y], n) => [1, x, y, dark[n]]), data, [1, 2]);
    flat = Float64Array.from(data, (value, n) => value - light[n]);
    dark = below(flat);
  }
  const mean = (of) => flat.reduce((sum, value, n) => sum + (dark[n] === of ? value : 0), 0) /
    dark.reduce((sum, value) => sum + (value === of), 0);
  const [light, deep] = [mean(0), mean(1)];
  const within = Math.sqrt(flat.reduce((sum, value, n) => sum + (value - (dark[n] ? deep : light)) ** 2, 0) / flat.length);
  const apart = light - deep;
  if (apart < FAINTEST || apart / Math.max(within, 1e-6) < (apart > STRONG ? SOFT : CLEAR)) return null;
  const toPlane = (numbers) => map(plane(height, width), (_, n) => numbers[n]);
  return { flat: toPlane(flat), mask: toPlane(dark), clear: apart / Math.max(within, 1e-6) >= CLEAR };
}

/** 1 where a value is below Otsu's threshold. */
function below(values) {
  const threshold = otsu(values);
  return values.map((value) => Number(value < threshold));
}

function otsu(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const width = Math.max(high - low, 1e-6) / BINS;
  const counts = new Float64Array(BINS);
  for (const value of values) counts[Math.min(BINS - 1, Math.floor((value - low) / width))] += 1;
  const middle = (k) => low + (k + 0.5) * width;
  const whole = counts.reduce((sum, count, k) => sum + count * middle(k), 0);
  let [count, total, best, edge] = [0, 0, -1, low + width];
  for (let k = 0; k < BINS - 1; k += 1) {
    count += counts[k];
    total += counts[k] * middle(k);
    const above = values.length - count;
    const between = count * above * (total / Math.max(count, 1) - (whole - total) / Math.max(above, 1)) ** 2;
    if (between > best) [best, edge] = [between, low + (k + 1) * width];
  }
  return edge;
}

/** Ink leaves most of the border to the paper, and most of it is one piece. */
function likelyInk(mask) {
  const { height, width, data } = mask;
  const { labels, count } = label(mask);
  if (!count) return 0;
  const sizes = new Float64Array(count);
  for (const each of labels) if (each) sizes[each - 1] += 1;
  let ring = 0;
  for (let x = 0; x < width; x += 1) ring += data[x] + data[(height - 1) * width + x];
  for (let y = 0; y < height; y += 1) ring += data[y * width] + data[y * width + width - 1];
  return ((1 - ring / (2 * (height + width))) * Math.max(...sizes)) / sizes.reduce((sum, size) => sum + size, 0);
}

/** Large enough for a close-up, and not a sheet of paper on a table. */
function isPlausible({ height, width, data }) {
  let [top, left, bottom, right, area] = [height, width, 0, 0, 0];
  data.forEach((value, n) => {
    if (!value) return;
    const [y, x] = [Math.floor(n / width), n % width];
    [top, left, bottom, right] = [Math.min(top, y), Math.min(left, x), Math.max(bottom, y + 1), Math.max(right, x + 1)];
    area += 1;
  });
  const [longer, shorter] = [Math.max(bottom - top, right - left), Math.min(bottom - top, right - left)];
  if (longer < REACH * Math.max(height, width)) return false;
  if (longer > 2.5 * shorter) return true;
  const fills = bottom - top >= WIDE * height && right - left >= WIDE * width && area < 0.8 * longer * shorter;
  return area / data.length <= (fills ? FULL : MOST);
}

function variance(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
}
