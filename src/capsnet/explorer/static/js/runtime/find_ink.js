/** The ink in a picture of a digit: 1 on the stroke and 0 elsewhere. `capsnet/data/_ink.py` says why it does so. */

import { findCloseUp } from "./close_up.js";
import { choose } from "./components.js";
import { BOX, CUBIC, clipped, closed, dilated, map, plane, resize, smoothed } from "./filters.js";
import { dot, leastSquares } from "./least_squares.js";
import { clip, descending, median, quantile, round } from "./numbers.js";

const WORK = 384;
const FAINTEST = 0.08;
const SMALLEST = 40;
const AGREE = 0.9;
const LEAST = 0.2;
const PART = [1.0, 1.55];
const BINS = 1000; // of contrasts

/** From planes of one or three colours, at working size or that of close-ups. null if there is no digit. */
export function findInk(planes) {
  const pixels = planes.map(toWorkingSize);
  const border = borderPaper(pixels);
  let found = isTwoTone(pixels, border) ? searchBoth(pixels, border, false) : { score: 0 };
  if (found.score > 0 && !isBorderMixed(pixels, border)) return found.ink;
  const close = findCloseUp(pixels);
  const photo = found.score <= 0;
  if (photo) found = searchBoth(pixels, fitPaper(pixels), true);
  if (found.score > 0 && (!close?.clear || agree(pixels, found.ink, close.ink, photo))) return found.ink;
  return close?.ink ?? null;
}

/** Whether the border has more than paper: then the paper may be taken for ink. */
function isBorderMixed(pixels, papers) {
  return pixels.some(({ height, width, data }, c) => {
    const far = (n) => Math.abs(data[n] - papers[c].data[0]) > 0.1;
    for (let x = 0; x < width; x += 1) if (far(x) || far((height - 1) * width + x)) return true;
    for (let y = 0; y < height; y += 1) if (far(y * width) || far(y * width + width - 1)) return true;
    return false;
  });
}

/** Whether ink is less than a tenth of the picture high and wide. */
function isSpeck({ height, width, data }) {
  let [top, bottom, left, right] = [height, -1, width, -1];
  data.forEach((value, n) => {
    if (value <= 0.5) return;
    const [y, x] = [Math.floor(n / width), n % width];
    [top, bottom, left, right] = [Math.min(top, y), Math.max(bottom, y), Math.min(left, x), Math.max(right, x)];
  });
  return bottom < 0 || Math.max(bottom - top, right - left) < 0.1 * Math.max(height, width);
}

/** Whether ink has most of a close-up's, or in a photo so little that the close-up found no digit. */
function agree(pixels, ink, close, photo) {
  const size = [close.height, close.width];
  const small = resize(ink, size, BOX);
  let [common, all] = [0, 0];
  close.data.forEach((value, n) => {
    common += Math.min(value, small.data[n]);
    all += value;
  });
  if (common >= AGREE * all || !photo || common >= LEAST * all || isSpeck(ink)) return common >= AGREE * all;
  const mean = map(pixels[0], (_, n) => pixels.reduce((sum, { data }) => sum + data[n], 0) / pixels.length);
  const grey = resize(mean, size, BOX);
  const ratio = darkness(grey, small) / (darkness(grey, close) || Infinity);
  return !(ratio >= PART[0] && ratio < PART[1]);
}

/** How much darker ink is than the rest of the picture; negative if it is lighter, 0 if nothing is ink. */
function darkness(grey, ink) {
  const stroke = grey.data.filter((_, n) => ink.data[n] > 0.5);
  const paper = grey.data.filter((_, n) => ink.data[n] < 0.05);
  return stroke.length && paper.length ? median(paper) - median(stroke) : 0;
}

function toWorkingSize(of) {
  const factor = WORK / Math.max(of.height, of.width);
  const size = [Math.max(8, round(of.height * factor)), Math.max(8, round(of.width * factor))];
  return clipped(resize(of, size, factor > 1 ? CUBIC : BOX));
}

/** Dark ink, or light ink, whichever scores higher. */
function searchBoth(pixels, papers, local) {
  const [dark, light] = [false, true].map((inverted) => search(flattened(pixels, papers, inverted), local));
  return dark.score >= light.score ? dark : light;
}

/** Each colour's median along the border, as a plane. */
function borderPaper(pixels) {
  return pixels.map(({ height, width, data }) => {
    const border = [];
    for (let x = 0; x < width; x += 1) border.push(data[x], data[(height - 1) * width + x]);
    for (let y = 0; y < height; y += 1) border.push(data[y * width], data[y * width + width - 1]);
    const paper = plane(height, width);
    paper.data.fill(median(border));
    return paper;
  });
}

function isTwoTone(pixels, papers) {
  const distance = new Float32Array(pixels[0].data.length);
  pixels.forEach(({ data }, c) => {
    const paper = papers[c].data;
    for (let n = 0; n < data.length; n += 1) distance[n] = Math.max(distance[n], Math.abs(data[n] - paper[n]));
  });
  const far = quantile(distance, 0.99);
  let [near, full] = [0, 0];
  for (const value of distance) {
    if (value < 0.04) near += 1;
    if (value > 0.7 * far) full += 1;
  }
  [near, full] = [near / distance.length, full / distance.length];
  return far > 0.3 && near > 0.36 && near + full > 0.6;
}

/** How bright each pixel is in comparison with the paper: 1, and less on dark ink, or, inverted, on light ink. */
function flattened(pixels, papers, inverted) {
  const out = plane(pixels[0].height, pixels[0].width);
  out.data.fill(Infinity);
  pixels.forEach(({ data }, c) => {
    const paper = papers[c].data;
    for (let n = 0; n < data.length; n += 1) {
      const darker = inverted ? data[n] - paper[n] : paper[n] - data[n];
      out.data[n] = Math.min(out.data[n], 1 - darker / Math.max(inverted ? 1 - paper[n] : paper[n], 0.3));
    }
  });
  return out;
}

function search(flat, local) {
  const { contrast: raw, noise } = strokeContrast(flat, local);
  if (!raw.data.some((value) => value > FAINTEST)) return { score: 0 };
  const contrast = withoutRules(raw);
  const floor = Math.max(FAINTEST, 5 * noise);
  let found = digitMask(contrast, Math.max(floor, 0.3 * centrePeak(contrast)));
  if (found.score > 0) found = digitMask(contrast, Math.max(floor, 0.4 * levelOf(contrast, found.mask)));
  if (found.score <= 0 || count(found.mask) > 0.5 * flat.data.length) return { score: 0 };
  const [level, near] = [levelOf(contrast, found.mask), dilated(found.mask, 2)];
  const ink = map(contrast, (value, n) => clip((value - 0.25 * level) / (0.5 * level), 0, 1) * near.data[n]);
  return { score: found.score, ink };
}

/** The pixels of a mask. */
function count({ data }) {
  let sum = 0;
  for (const value of data) sum += value;
  return sum;
}

const levelOf = (contrast, mask) => quantile(contrast.data.filter((_, n) => mask.data[n] > 0), 0.8);

/** How much darker than the paper and, if `local`, than its surroundings each pixel is, and the noise of that. */
function strokeContrast(flat, local) {
  const smooth = smoothed(flat);
  const middle = 1 - median(smooth.data); // of how much darker
  const contrast = map(smooth, (value) => clip(1 - value - Math.min(middle, 0.05), 0, 1));
  if (!local) return { contrast, noise: 0 };
  const below = smooth.data.filter((value) => 1 - value < middle).map((value) => middle - (1 - value));
  const noise = below.length ? 1.4826 * median(below) : 0;
  const filled = closed(smooth, round(0.16 * Math.min(flat.height, flat.width)));
  const surround = map(filled, (value, n) => (Math.max(value, 0.05) - smooth.data[n]) / Math.max(value, 0.05));
  const least = Math.min(median(surround.data), 3 * noise);
  return { contrast: map(contrast, (value, n) => clip(surround.data[n] - least, 0, value)), noise };
}

/** Without the lines of ruled paper: what four fifths of a column or row share, where it is faint. */
function withoutRules(contrast) {
  const { height, width } = contrast;
  const peak = centrePeak(contrast);
  const rule = (values) => {
    const value = quantile(values, 0.2);
    return value < 0.5 * peak ? value : 0;
  };
  const column = new Float32Array(height);
  const columns = Array.from({ length: width }, (_, x) => {
    for (let y = 0; y < height; y += 1) column[y] = contrast.data[y * width + x];
    return rule(column);
  });
  const without = map(contrast, (value, n) => clip(value - columns[n % width], 0, 1));
  for (let y = 0; y < height; y += 1) {
    const row = without.data.subarray(y * width, (y + 1) * width);
    const value = rule(row);
    if (value > 0) for (let x = 0; x < width; x += 1) row[x] = clip(row[x] - value, 0, 1);
  }
  return without;
}

const weights = new Map();

/** A weight for each pixel that favours the middle of the picture, and their sum. */
function centreWeights(height, width) {
  const key = `${height} ${width}`;
  if (!weights.has(key)) {
    const at = (n, length) => (length > 1 ? -1 + (2 * n) / (length - 1) : -1);
    const data = Float64Array.from({ length: height * width }, (_, n) =>
      Math.exp((-0.5 * (at(n % width, width) ** 2 + at(Math.floor(n / width), height) ** 2)) / 0.64));
    weights.set(key, { data, sum: data.reduce((total, value) => total + value, 0) });
  }
  return weights.get(key);
}

/** The contrast of the darkest strokes. */
function centrePeak({ height, width, data }) {
  const { data: centre, sum } = centreWeights(height, width);
  // the heaviest first, bin by bin: only the bin in which the share is reached has to be sorted
  const [bins, scale] = [new Float64Array(BINS + 1), BINS];
  for (let n = 0; n < data.length; n += 1) if (data[n] > FAINTEST) bins[(data[n] * scale) | 0] += centre[n];
  let [bin, total] = [BINS, 0];
  while (bin >= 0 && total + bins[bin] < 0.005 * sum) {
    total += bins[bin];
    bin -= 1;
  }
  if (bin < 0) return 0;
  const inside = [];
  for (let n = 0; n < data.length; n += 1) if (data[n] > FAINTEST && ((data[n] * scale) | 0) === bin) inside.push(n);
  inside.sort((a, b) => data[b] - data[a]);
  return data[inside.find((n) => (total += centre[n]) >= 0.005 * sum) ?? inside.at(-1)];
}

function digitMask(contrast, threshold) {
  const mask = map(contrast, (value) => Number(value > threshold));
  if (count(mask) < SMALLEST) return { score: 0, mask };
  const { score, digit } = choose(mask, contrast);
  return { score: count(digit) >= SMALLEST ? score : 0, mask: digit };
}

/** Brightness as a quadratic in (x, y) per colour, fitted robustly: the paper. */
function fitPaper(pixels) {
  const [{ height, width }] = pixels;
  const size = [Math.max(8, Math.floor(height / 6)), Math.max(8, Math.floor(width / 6))];
  const small = pixels.map((each) => resize(each, size, BOX).data);
  const [terms, { data: centre }] = [termsOf(...size), centreWeights(...size)];
  const grey = Float64Array.from(small[0], (_, n) => small.reduce((sum, each) => sum + each[n], 0) / small.length);
  const middle = weightedMedian(grey, centre);
  let weight = centre.map((value, n) => value * Math.exp(-0.5 * ((grey[n] - middle) / 0.15) ** 2));
  let fits = null;
  for (let turn = 0; turn < 12; turn += 1) {
    fits = small.map((values) => leastSquares(terms, weight, values));
    const mean = fits[0].map((_, k) => fits.reduce((sum, fit) => sum + fit[k], 0) / fits.length);
    const error = grey.map((value, n) => value - dot(terms[n], mean));
    const spread = Math.max(0.01, 1.4826 * weightedMedian(error.map(Math.abs), centre));
    weight = centre.map((value, n) => value * Math.max(0, 1 - (error[n] / (4 * spread)) ** 2) ** 2 + 1e-9);
  }
  const full = termsOf(height, width);
  return fits.map((fit) => map(plane(height, width), (_, n) => clip(dot(full[n], fit), 0, 1)));
}

/** The monomials up to degree 2 on [-1, 1]^2 at each pixel. */
function termsOf(height, width) {
  return Array.from({ length: height * width }, (_, n) => {
    const [x, y] = [-1 + (2 * (n % width)) / (width - 1), -1 + (2 * Math.floor(n / width)) / (height - 1)];
    return [1, x, y, x * x, x * y, y * y];
  });
}

function weightedMedian(values, weight) {
  const order = descending(values).reverse();
  const half = weight.reduce((sum, value) => sum + value, 0) / 2;
  let total = 0;
  return values[order.find((n) => (total += weight[n]) >= half) ?? order.at(-1)];
}
