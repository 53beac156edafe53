/**
 * A single-hue colour scale from the page's own colours, and a canvas of the right resolution to use it on.
 *
 * The steps are even in OKLab, so that equal differences of coupling look equally different, in light and dark: the
 * scale always starts near the surface and moves away from it.
 */

const STEPS = 256;

/** sRGB bytes -> OKLab (Ottosson 2020). */
function toLab(rgb) {
  const [r, g, b] = rgb.map((byte) => {
    const c = byte / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function toRgb([L, a, b]) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((c) => {
    const inside = Math.min(1, Math.max(0, c));
    return Math.round(255 * (inside <= 0.0031308 ? 12.92 * inside : 1.055 * inside ** (1 / 2.4) - 0.055));
  });
}

/** The bytes of whatever the style sheet says, `color-mix` included: a canvas of one pixel knows them all. */
function bytesOf(element, property) {
  const probe = document.createElement("span");
  probe.style.color = `var(${property})`;
  element.append(probe);
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  pixel.fillStyle = getComputedStyle(probe).color;
  probe.remove();
  pixel.fillRect(0, 0, 1, 1);
  return [...pixel.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

/**
 * The scale between the custom properties --map-low and --map-high of an element.
 *
 * @returns {(share: number) => string} 0..1 -> a CSS colour
 */
export function ramp(element) {
  const [low, high] = ["--map-low", "--map-high"].map((property) => toLab(bytesOf(element, property)));
  const colours = Array.from({ length: STEPS }, (_, step) => {
    const t = step / (STEPS - 1);
    return `rgb(${toRgb(low.map((value, axis) => value + t * (high[axis] - value))).join(" ")})`;
  });
  return (share) => colours[Math.round((STEPS - 1) * Math.min(1, Math.max(0, share)))];
}

/** A colour of the style sheet as a string that a canvas takes. */
export const colourOf = (element, property) => `rgb(${bytesOf(element, property).join(" ")})`;

/** Call back when the page changes between light and dark, by the system or by its own switch (theme.js). */
export const onTheme = (callback) => addEventListener("themechange", () => callback());

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
