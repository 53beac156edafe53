/** Numbers as Python rounds, sorts and sums them. */

/** To the nearest whole number, halves to the even one. */
export function round(value) {
  const down = Math.floor(value);
  const apart = value - down;
  return apart < 0.5 || (apart === 0.5 && down % 2 === 0) ? down : down + 1;
}

export const clip = (value, low, high) => Math.min(high, Math.max(low, value));

/** A value in [0, 1] as a byte, by way of single precision, as the server computes. */
export const toByte = (value) => clip(round(Math.fround(value * 255)), 0, 255);

/** The k-th smallest value, 0-based. */
export function nth(values, k) {
  // most pixels are paper, as the first one: often that is the answer
  const [guess, { length }] = [values[0], values];
  let [below, equal] = [0, 0];
  for (let n = 0; n < length; n += 1) {
    if (values[n] < guess) below += 1;
    else if (values[n] === guess) equal += 1;
  }
  if (k >= below && k < below + equal) return guess;
  const [lower, kept] = [k < below, new Float64Array(k < below ? below : length - below - equal)];
  for (let n = 0, m = 0; n < length; n += 1) {
    if (lower ? values[n] < guess : values[n] > guess) {
      kept[m] = values[n];
      m += 1;
    }
  }
  return select(kept, lower ? k : k - below - equal);
}

/** The k-th smallest value, by partition [Hoare]. It reorders the values. */
function select(values, k) {
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    const pivot = values[(low + high) >> 1];
    let [left, right] = [low, high];
    while (left <= right) {
      while (values[left] < pivot) left += 1;
      while (values[right] > pivot) right -= 1;
      if (left > right) break;
      const swapped = values[left];
      values[left] = values[right];
      values[right] = swapped;
      left += 1;
      right -= 1;
    }
    if (k <= right) high = right;
    else if (k >= left) low = left;
    else break;
  }
  return values[k];
}

/** The quantile of values, between two of them where it falls there. */
export function quantile(values, share) {
  const place = share * (values.length - 1);
  const k = Math.floor(place);
  const below = nth(values, k);
  if (place === k) return below;
  const above = nth(values, k + 1);
  return below + (above - below) * (place - k);
}

export const median = (values) => quantile(values, 0.5);

/** Indices of values, largest first; equal ones stay in order. */
export const descending = (values) => Array.from(values, (_, n) => n).sort((a, b) => values[b] - values[a]);

/** Bytes as base64. */
export function toBase64(bytes) {
  let text = "";
  for (let n = 0; n < bytes.length; n += 8192) text += String.fromCharCode(...bytes.subarray(n, n + 8192));
  return btoa(text);
}
