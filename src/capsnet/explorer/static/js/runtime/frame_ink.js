/** Ink framed as MNIST does, at eight times the resolution of the result: see `capsnet/data/_frame.py`. */

import { BOX as AVERAGE, clipped, map, plane, resize, widest } from "./filters.js";
import { clip, round } from "./numbers.js";

const FINE = 8;
export const BOX = 20 / 28;
const STROKE = [1.6, 3.8];

export function frameInk(ink, height, width) {
  const crop = cropped(ink);
  const box = [BOX * height * FINE, BOX * width * FINE];
  let fine = fitted(crop, box, 0);
  const unit = (FINE * Math.min(height, width)) / 28;
  const measured = strokeWidth(fine);
  const radius = (clip(measured, STROKE[0] * unit, STROKE[1] * unit) - measured) / 2;
  if (Math.abs(radius) >= 0.5) {
    fine = cropped(grown(fitted(crop, box, Math.max(radius, 0)), radius));
    if (radius < 0) fine = fitted(fine, box, 0);
  }
  return placed(fine, height, width);
}

/** Where there is ink. */
function cropped(ink) {
  const { height, width, data } = ink;
  let [top, left, bottom, right] = [height, width, -1, -1];
  for (let n = 0; n < data.length; n += 1) {
    if (data[n] <= 0.5) continue;
    const x = n % width;
    bottom = Math.floor(n / width); // rows come in order
    top = Math.min(top, bottom);
    left = Math.min(left, x);
    right = Math.max(right, x);
  }
  return bottom < 0 ? ink : part(ink, top, left, bottom - top + 1, right - left + 1);
}

/** A part of a plane; outside of it there is nothing. */
function part({ height, width, data }, top, left, high, wide) {
  const out = plane(high, wide);
  for (let y = Math.max(0, -top); y < Math.min(high, height - top); y += 1) {
    for (let x = Math.max(0, -left); x < Math.min(wide, width - left); x += 1) {
      out.data[y * wide + x] = data[(y + top) * width + x + left];
    }
  }
  return out;
}

/** Scaled to fit the box less a margin, into which the stroke can grow. */
function fitted(crop, box, margin) {
  const pad = Math.max(0, Math.ceil(margin));
  const factor = Math.min((box[0] - 2 * margin) / crop.height, (box[1] - 2 * margin) / crop.width);
  const size = [Math.max(1, round(crop.height * factor)), Math.max(1, round(crop.width * factor))];
  return part(clipped(resize(crop, size)), -pad, -pad, size[0] + 2 * pad, size[1] + 2 * pad);
}

/** Twice the area over the length of the outline. */
function strokeWidth({ height, width, data }) {
  const at = (y, x) => (y < 0 || x < 0 || y >= height || x >= width ? 0 : data[y * width + x]);
  let [area, outline] = [0, 0];
  for (let y = -1; y < height; y += 1) {
    for (let x = -1; x < width; x += 1) {
      const [a, b, c, d] = [at(y, x), at(y, x + 1), at(y + 1, x), at(y + 1, x + 1)];
      outline += Math.sqrt((b - a + d - c) ** 2 + (c + d - a - b) ** 2) / 2;
      area += a;
    }
  }
  return (2 * area) / Math.max(outline, 1e-9);
}

/** Strokes widened by a disc of that radius, or thinned if it is negative. */
function grown(ink, radius) {
  const inverse = (of) => map(of, (value) => 1 - value);
  if (radius < 0) return inverse(grown(inverse(ink), -radius));
  const { height, width } = ink;
  const out = map(ink, (value) => value);
  const reach = Math.trunc(radius);
  for (let dy = -reach; dy <= reach; dy += 1) {
    const wide = widest(ink, Math.trunc(Math.sqrt(radius ** 2 - dy ** 2)));
    for (let y = Math.max(0, -dy); y < Math.min(height, height - dy); y += 1) {
      for (let x = 0; x < width; x += 1) {
        out.data[y * width + x] = Math.max(out.data[y * width + x], wide.data[(y + dy) * width + x]);
      }
    }
  }
  return out;
}

/** On a fine frame with the centre of mass in the middle, then averaged down, with peak 1. */
function placed(fine, height, width) {
  const [high, wide] = [height * FINE, width * FINE];
  let [mass, down, right] = [0, 0, 0];
  fine.data.forEach((value, n) => {
    mass += value;
    down += value * (Math.floor(n / fine.width) + 0.5);
    right += value * ((n % fine.width) + 0.5);
  });
  const offset = (moment, whole, own) =>
    clip(round(whole / 2 + FINE / 2 - moment / Math.max(mass, 1e-6)), 0, whole - own);
  const [top, left] = [offset(down, high, fine.height), offset(right, wide, fine.width)];
  const small = resize(part(fine, -top, -left, high, wide), [height, width], AVERAGE);
  const peak = Math.max(small.data.reduce((most, value) => Math.max(most, value), 0), 1e-6);
  return map(small, (value) => clip(value / peak, 0, 1));
}
