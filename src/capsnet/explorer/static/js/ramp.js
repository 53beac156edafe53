/** A colour scale from the page's own colours, and a canvas of the right resolution to use it on. */

const STEPS = 256;

/** What a CSS colour, `var` and `color-mix` included, is within an element, as a string that a canvas takes. */
export function colourOf(element, colour) {
  const probe = document.createElement("span");
  probe.style.color = colour;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

const ramps = new Map(); // by their ends: another class changes neither, another theme both

/**
 * The scale between the custom properties --map-low and --map-high of an element, as a function from 0..1 to a CSS
 * colour. Its steps are even in OKLab, so that equal differences look equally different, in light and dark.
 */
export function ramp(element) {
  const ends = ["--map-low", "--map-high"].map((end) => colourOf(element, `var(${end})`));
  if (!ramps.has(String(ends))) ramps.set(String(ends), mixtures(element, ends));
  const colours = ramps.get(String(ends));
  return (share) => colours[Math.round((STEPS - 1) * Math.min(1, Math.max(0, share)))];
}

/** All steps between two colours: the browser mixes them at once, since each look at a style takes as long as all. */
function mixtures(element, [low, high]) {
  const probes = Array.from({ length: STEPS }, (_, step) => {
    const probe = document.createElement("span");
    probe.style.color = `color-mix(in oklab, ${low}, ${high} ${(100 * step) / (STEPS - 1)}%)`;
    return probe;
  });
  const place = document.createElement("span");
  place.append(...probes);
  element.append(place);
  const colours = probes.map((probe) => getComputedStyle(probe).color);
  place.remove();
  return colours;
}

/** Size a canvas to its place on the page in device pixels; drawing stays in CSS pixels. */
export function fit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
