/** A part of the page as a picture: a copy of its elements with the page's styles in an SVG, and that on a canvas. */

const SVG = "http://www.w3.org/2000/svg";
const HTML = "http://www.w3.org/1999/xhtml";
const LARGEST = 16000; // pixels of a canvas's side that browsers draw

/** All rules of the page's own style sheets, imported ones included. */
function styles(sheets = document.styleSheets) {
  return [...sheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) =>
    (rule instanceof CSSImportRule ? styles([rule.styleSheet]) : rule.cssText)).join("\n");
}

/** What cloning leaves out: canvases become images, controls keep their values. */
function freeze(original, copy) {
  const [from, to] = [original, copy].map((root) => [...root.querySelectorAll("canvas, input, select")]);
  from.forEach((element, n) => {
    if (element.matches("canvas")) to[n].replaceWith(picture(element, to[n]));
    else if (element.matches("select")) {
      [...to[n].options].forEach((option, k) => option.toggleAttribute("selected", k === element.selectedIndex));
    } else {
      to[n].setAttribute("value", element.value);
      to[n].toggleAttribute("checked", element.checked);
    }
  });
}

const set = (element, attributes) => {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
};

function picture(canvas, copy) {
  const image = document.createElement("img");
  for (const { name, value } of copy.attributes) if (name !== "style") image.setAttribute(name, value);
  image.style.cssText = copy.style.cssText; // as an attribute the page's policy refuses it
  if (canvas.width && canvas.height) image.src = canvas.toDataURL();
  const { width, height } = canvas.getBoundingClientRect();
  const { imageRendering, borderRadius } = getComputedStyle(canvas); // rules for "canvas" do not hold for an image
  const size = { width: `${width}px`, height: `${height}px` };
  Object.assign(image.style, { ...size, display: "block", imageRendering, borderRadius });
  return image;
}

/** An element as the text of an SVG file, in its present size and theme. */
export function asSvg(element) {
  const { width, height } = element.getBoundingClientRect();
  const copy = element.cloneNode(true);
  freeze(element, copy);
  for (const part of copy.querySelectorAll(".panel-tools, script")) part.remove();
  const root = document.createElementNS(SVG, "svg");
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const theme = document.documentElement.dataset.theme ?? system;
  set(root, { width, height, viewBox: `0 0 ${width} ${height}`, "data-theme": theme });
  const place = document.createElementNS(SVG, "foreignObject");
  set(place, { width: "100%", height: "100%" });
  const [style, body] = ["style", "body"].map((tag) => document.createElementNS(HTML, tag));
  const { fontFamily, fontSize, lineHeight } = getComputedStyle(document.body); // cssText loses `font: … var(…)`
  const own = `body { font-family: ${fontFamily}; font-size: ${fontSize}; line-height: ${lineHeight}; }`;
  style.textContent = `${styles()}\n${own}\n.panel { box-shadow: none !important; }`;
  Object.assign(copy.style, { width: `${width}px`, height: `${height}px`, margin: 0 });
  body.append(copy);
  place.append(style, body);
  root.append(place);
  return new XMLSerializer().serializeToString(root);
}

/** An element as a PNG, `scale` times as large as on the page. */
export async function asPng(element, scale = 2) {
  const { width, height } = element.getBoundingClientRect();
  const factor = Math.min(scale, LARGEST / width, LARGEST / height);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(asSvg(element))}`;
  await image.decode();
  const canvas = new OffscreenCanvas(Math.round(width * factor), Math.round(height * factor));
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type: "image/png" });
}
