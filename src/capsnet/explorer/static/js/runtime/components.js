/** Which connected components of a mask are the digit: see `capsnet/data/_components.py`. */

import { map } from "./filters.js";

/** A number for each pixel, 0 outside of the mask, counted from 1: parts are connected by sides and corners. */
export function label({ height, width, data }) {
  const labels = new Int32Array(data.length);
  const stack = [];
  let count = 0;
  for (let start = 0; start < data.length; start += 1) {
    if (!data[start] || labels[start]) continue;
    count += 1;
    labels[start] = count;
    stack.push(start);
    while (stack.length) {
      const at = stack.pop();
      const row = Math.floor(at / width);
      const column = at % width;
      for (let y = Math.max(0, row - 1); y <= Math.min(height - 1, row + 1); y += 1) {
        for (let x = Math.max(0, column - 1); x <= Math.min(width - 1, column + 1); x += 1) {
          const n = y * width + x;
          if (!data[n] || labels[n]) continue;
          labels[n] = count;
          stack.push(n);
        }
      }
    }
  }
  return { labels, count };
}

/** Keep the heaviest part near the middle, and the parts beside it that are large enough to be strokes; if the digit fills
 * the `whole` picture, also those on the border. */
export function choose(mask, ink, whole = false) {
  const { height, width } = mask;
  const { labels, count } = label(mask);
  const parts = Array.from({ length: count }, () =>
    ({ mass: 0, central: 0, edge: 0, top: height, left: width, bottom: 0, right: 0 }));
  for (let n = 0; n < labels.length; n += 1) {
    if (!labels[n]) continue;
    const part = parts[labels[n] - 1];
    const y = Math.floor(n / width);
    const x = n % width;
    const away = ((y + 0.5) / height - 0.5) ** 2 + ((x + 0.5) / width - 0.5) ** 2;
    part.mass += ink.data[n];
    part.central += ink.data[n] * Math.exp((-0.5 * away) / 0.3 ** 2);
    part.edge += Number(y === 0 || x === 0 || y === height - 1 || x === width - 1);
    part.top = Math.min(part.top, y);
    part.left = Math.min(part.left, x);
    part.bottom = Math.max(part.bottom, y + 1);
    part.right = Math.max(part.right, x + 1);
  }
  const scored = (part) => score(part, height, width, whole);
  if (!count) return { score: 0, digit: mask };
  const main = parts.reduce((best, part) => (scored(part) > scored(best) ? part : best));
  const reach = 0.25 * Math.max(main.bottom - main.top, main.right - main.left);
  const kept = parts.map((part) => {
    const [high, wide] = [[part.top - main.bottom, main.top - part.bottom], [part.left - main.right, main.left - part.right]];
    const gap = Math.max(...high, ...wide);
    return part === main || (gap <= reach && part.mass >= 0.04 * main.mass && (whole ? scored(part) > 0 : part.edge === 0));
  });
  const digit = map(mask, (_, n) => Number(labels[n] > 0 && kept[labels[n] - 1]));
  return { score: scored(main), digit };
}

function score({ central, edge, top, left, bottom, right }, height, width, whole) {
  const outline = 2 * (bottom - top + right - left);
  if (edge > (whole ? 0.45 : 0.4) * outline) return 0;
  if (whole) return central;
  return central * (edge > 0.2 * Math.min(height, width) ? 0.05 : edge > 0 ? 0.6 : 1);
}
