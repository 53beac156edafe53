/** One hue per class, the same in every panel. Names always stand beside colours: no two of ten hues differ for everyone. */

const FIRST = 25; // degrees: class 0 is red
const INK = [0.78, 0.14]; // lightness and chroma on the black ground of a picture

const gcd = (a, b) => (b === 0 ? a : gcd(b, a % b));

/** The hue of a class in degrees. Neighbours (3 and 4) are far apart on the circle. */
export function hue(klass, count) {
  let stride = Math.max(1, Math.round(0.3 * count));
  while (gcd(stride, count) > 1) stride += 1;
  return (FIRST + (360 / count) * ((klass * stride) % count)) % 360;
}

/** Give an element the hue of a class: CSS makes `--class` and `--class-text` of it (hues.css). */
export function dye(element, klass, count) {
  element.classList.add("hued");
  element.style.setProperty("--hue", hue(klass, count).toFixed(1));
  return element;
}

/** The ink of a class in a picture: [r, g, b]. */
export const inkOf = (klass, count) => fromOklch(...INK, hue(klass, count));

/** Oklch to sRGB bytes (Björn Ottosson's Oklab), clipped to what a screen can show. */
function fromOklch(lightness, chroma, degrees) {
  const [a, b] = [Math.cos, Math.sin].map((part) => chroma * part((degrees * Math.PI) / 180));
  const [l, m, s] = [
    lightness + 0.3963377774 * a + 0.2158037573 * b,
    lightness - 0.1055613458 * a - 0.0638541728 * b,
    lightness - 0.0894841775 * a - 1.291485548 * b,
  ].map((root) => root ** 3);
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((linear) => {
    const share = Math.min(1, Math.max(0, linear));
    return Math.round(255 * (share <= 0.0031308 ? 12.92 * share : 1.055 * share ** (1 / 2.4) - 0.055));
  });
}
