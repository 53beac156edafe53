/** Animated GIFs [GIF89a], with the 256 most frequent colours of all frames: enough for dots, lines and bars. */

const COLOURS = 256;
const CODE_SIZE = 8;
const SAMPLED = 3; // every third frame is counted

/** Colours in steps of 8: where a pixel of a frame is counted. */
const binOf = (data, at) => ((data[at] >> 3) << 10) | ((data[at + 1] >> 3) << 5) | (data[at + 2] >> 3);

/** The most frequent colours, each the mean of its bin, as 3 * 256 bytes. */
function palette(frames) {
  const [counts, sums] = [new Uint32Array(32768), new Float64Array(3 * 32768)];
  for (let f = 0; f < frames.length; f += SAMPLED) {
    const { data } = frames[f];
    for (let at = 0; at < data.length; at += 4) {
      const bin = binOf(data, at);
      counts[bin] += 1;
      for (let c = 0; c < 3; c += 1) sums[3 * bin + c] += data[at + c];
    }
  }
  const bins = [...counts.keys()].filter((bin) => counts[bin]).sort((a, b) => counts[b] - counts[a]).slice(0, COLOURS);
  const colours = new Uint8Array(3 * COLOURS);
  bins.forEach((bin, n) => colours.set([0, 1, 2].map((c) => Math.round(sums[3 * bin + c] / counts[bin])), 3 * n));
  return colours;
}

/** A function that finds the nearest colour of the palette for each pixel of a frame; each bin is looked up once. */
function quantiser(colours) {
  const known = new Int16Array(32768).fill(-1);
  const nearest = (data, at) => {
    let [best, least] = [0, Infinity];
    for (let n = 0; n < COLOURS; n += 1) {
      const far = [0, 1, 2].reduce((sum, c) => sum + (data[at + c] - colours[3 * n + c]) ** 2, 0);
      if (far < least) [best, least] = [n, far];
    }
    return best;
  };
  return ({ data, width, height }) => Uint8Array.from({ length: width * height }, (_, n) => {
    const bin = binOf(data, 4 * n);
    if (known[bin] < 0) known[bin] = nearest(data, 4 * n);
    return known[bin];
  });
}

/** LZW as GIF has it: codes of growing size, packed from the lowest bit on, in blocks of up to 255 bytes. */
function compress(pixels, out) {
  const [clear, end] = [1 << CODE_SIZE, (1 << CODE_SIZE) + 1];
  let [size, next, bits, count, block] = [CODE_SIZE + 1, end + 1, 0, 0, []];
  let table = new Map();
  const flush = () => { out.push(block.length, ...block); block = []; };
  const emit = (code) => {
    bits |= code << count;
    count += size;
    for (; count >= 8; count -= 8, bits >>>= 8) {
      block.push(bits & 255);
      if (block.length === 255) flush();
    }
  };
  out.push(CODE_SIZE);
  emit(clear);
  let prefix = pixels[0];
  for (let n = 1; n < pixels.length; n += 1) {
    const key = prefix * 256 + pixels[n];
    if (table.has(key)) {
      prefix = table.get(key);
      continue;
    }
    emit(prefix);
    if (next < 4096) {
      table.set(key, next);
      if (next === 1 << size) size += 1;
      next += 1;
    } else {
      emit(clear);
      [table, size, next] = [new Map(), CODE_SIZE + 1, end + 1];
    }
    prefix = pixels[n];
  }
  emit(prefix);
  emit(end);
  if (count > 0) block.push(bits & 255);
  if (block.length) flush();
  out.push(0);
}

const short = (value) => [value & 255, value >> 8];
const text = (letters) => [...letters].map((letter) => letter.charCodeAt(0));

/** A looping GIF of `frames` (ImageData of one size), each shown for `delay` milliseconds. */
export function encodeGif(frames, delay) {
  const [{ width, height }] = frames;
  const colours = palette(frames);
  const indices = quantiser(colours);
  const parts = [Uint8Array.from([...text("GIF89a"), ...short(width), ...short(height), 0xf7, 0, 0]), colours,
    Uint8Array.from([0x21, 0xff, 11, ...text("NETSCAPE2.0"), 3, 1, 0, 0, 0])];
  for (const frame of frames) {
    const control = [0x21, 0xf9, 4, 0, ...short(Math.round(delay / 10)), 0, 0];
    const out = [...control, 0x2c, 0, 0, 0, 0, ...short(width), ...short(height), 0];
    compress(indices(frame), out);
    parts.push(Uint8Array.from(out));
  }
  return new Blob([...parts, Uint8Array.of(0x3b)], { type: "image/gif" });
}
