/** Planes of numbers, {height, width, data: Float32Array}: resampled as Pillow does, filtered as SciPy does. */

import { clip } from "./numbers.js";

export const plane = (height, width) => ({ height, width, data: new Float32Array(height * width) });

/** A plane of the same size, number by number. */
export function map({ height, width, data }, change) {
  const out = plane(height, width);
  for (let n = 0; n < data.length; n += 1) out.data[n] = change(data[n], n);
  return out;
}

export const clipped = (of) => map(of, (value) => clip(value, 0, 1));

/** [reach, weight at a distance], both in pixels of the coarser side. */
export const BOX = [0.5, (x) => Number(x > -0.5 && x <= 0.5)];
export const LINEAR = [1, (x) => Math.max(0, 1 - Math.abs(x))];
export const CUBIC = [2, (x) => {
  const far = Math.abs(x);
  if (far < 1) return (1.5 * far - 2.5) * far * far + 1;
  return far < 2 ? ((-0.5 * far + 2.5) * far - 4) * far + 2 : 0;
}];

/** For each of `size` new places: the first old one, and the weights of this one and of those that follow. */
function weightsOf(length, size, [reach, weight], start, end) {
  const scale = (end - start) / size;
  const stretch = Math.max(1, scale);
  return Array.from({ length: size }, (_, n) => {
    const centre = start + (n + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach * stretch + 0.5));
    const last = Math.min(length, Math.trunc(centre + reach * stretch + 0.5));
    const weights = Array.from({ length: last - first }, (_, k) => weight((k + first - centre + 0.5) / stretch));
    const sum = weights.reduce((total, each) => total + each, 0);
    return [first, weights.map((each) => each / sum)];
  });
}

/** Resized to [height, width]; `box` is [left, top, right, bottom] of what is taken. */
export function resize(from, [height, width], filter = LINEAR, box = [0, 0, from.width, from.height]) {
  const [left, top, right, bottom] = box;
  let out = from;
  if (width !== from.width || left !== 0 || right !== width) {
    const columns = weightsOf(from.width, width, filter, left, right);
    out = plane(from.height, width);
    for (let y = 0; y < from.height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        const [first, weights] = columns[x];
        let sum = 0;
        for (let k = 0; k < weights.length; k += 1) sum += weights[k] * from.data[y * from.width + first + k];
        out.data[y * width + x] = sum;
      }
    }
  }
  if (height === from.height && top === 0 && bottom === height) return out;
  const [rows, wide] = [weightsOf(from.height, height, filter, top, bottom), out];
  out = plane(height, width);
  for (let y = 0; y < height; y += 1) {
    const [first, weights] = rows[y];
    for (let x = 0; x < width; x += 1) {
      let sum = 0;
      for (let k = 0; k < weights.length; k += 1) sum += weights[k] * wide.data[(first + k) * width + x];
      out.data[y * width + x] = sum;
    }
  }
  return out;
}

const turned = ({ height, width, data }) => {
  const out = plane(width, height);
  for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) out.data[x * height + y] = data[y * width + x];
  return out;
};

/** A filter of rows applied to the columns, then to the rows. */
const bothWays = (filter) => (of, ...options) => filter(turned(filter(turned(of), ...options)), ...options);

const GAUSSIAN = [0, 1, 2, 3].map((x) => Math.exp(-0.5 * x * x));
const BELL = GAUSSIAN.map((value) => value / (2 * (GAUSSIAN[1] + GAUSSIAN[2] + GAUSSIAN[3]) + 1));

/** Gaussian of standard deviation 1, cut off at 3; the border's values continue outside. */
export function smoothed({ height, width, data }) {
  const [down, out] = [plane(height, width), plane(height, width)];
  for (let y = 0; y < height; y += 1) {
    const at = [-3, -2, -1, 0, 1, 2, 3].map((k) => clip(y + k, 0, height - 1) * width);
    for (let x = 0; x < width; x += 1) {
      down.data[y * width + x] = BELL[0] * data[at[3] + x] + BELL[1] * (data[at[2] + x] + data[at[4] + x]) +
        BELL[2] * (data[at[1] + x] + data[at[5] + x]) + BELL[3] * (data[at[0] + x] + data[at[6] + x]);
    }
  }
  const row = new Float32Array(width + 6);
  for (let y = 0; y < height; y += 1) {
    row.set(down.data.subarray(y * width, (y + 1) * width), 3);
    row.fill(row[3], 0, 3).fill(row[width + 2], width + 3);
    for (let x = 0; x < width; x += 1) {
      out.data[y * width + x] = BELL[0] * row[x + 3] + BELL[1] * (row[x + 2] + row[x + 4]) +
        BELL[2] * (row[x + 1] + row[x + 5]) + BELL[3] * (row[x] + row[x + 6]);
    }
  }
  return out;
}

/** The largest value within `reach` in each row: the places that may still become the largest wait in a queue. */
export function widest({ height, width, data }, reach) {
  const out = plane(height, width);
  const queue = new Int32Array(width);
  for (let y = 0; y < height; y += 1) {
    const row = data.subarray(y * width, (y + 1) * width);
    let [head, tail, next] = [0, 0, 0];
    for (let x = 0; x < width; x += 1) {
      for (; next < Math.min(width, x + reach + 1); next += 1) {
        while (tail > head && row[queue[tail - 1]] <= row[next]) tail -= 1;
        queue[tail] = next;
        tail += 1;
      }
      while (queue[head] < x - reach) head += 1;
      out.data[y * width + x] = row[queue[head]];
    }
  }
  return out;
}

/** The largest value in a square of that reach. */
export const dilated = bothWays(widest);

/** Dilation, then erosion: what is darker and narrower than the square is filled. */
export function closed(of, reach) {
  const below = map(dilated(of, reach), (value) => -value);
  return map(dilated(below, reach), (value) => -value);
}
