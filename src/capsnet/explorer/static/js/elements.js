/** Making elements without a library: one function for HTML, one for SVG. */

/** Set attributes and, by names like `onclick`, listeners. */
export function assign(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
}

function fill(element, attributes, children) {
  assign(element, attributes);
  element.append(...children);
  return element;
}

/** `h("button", {class: "button", onclick: step}, "Step")`: an HTML element with attributes, listeners, children. */
export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

export function button(text, onclick, attributes = {}) {
  return h("button", { type: "button", class: "button", onclick, ...attributes }, text);
}

/** The same for SVG. */
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** A canvas with a caption, which is its label too until there is a better one. */
export function figure(testid, title, attributes = {}) {
  const canvas = h("canvas", { role: "img", "data-testid": testid, "aria-label": title });
  const caption = h("figcaption", {}, title);
  return { canvas, caption, figure: h("figure", attributes, canvas, caption) };
}

/** A labelled `<select>`; `options` are [value, text] pairs. */
export function choice(label, options, attributes = {}) {
  const select = h("select", attributes);
  offer(select, options);
  return { label: h("label", { class: "choice" }, h("span", {}, label), select), select };
}

/** Replace the options of a select and keep the chosen value if it is still among them. */
export function offer(select, options) {
  const { value } = select;
  select.replaceChildren(...options.map(([key, text]) => h("option", { value: key }, text)));
  if (options.some(([key]) => String(key) === value)) select.value = value;
}

/** Call `draw(share)` with shares that go smoothly from 0 to 1, or at once to 1. Returns a function that stops it. */
export function tween(milliseconds, draw) {
  const begin = performance.now();
  let frame = 0;
  if (!milliseconds || !mayMove()) {
    draw(1);
    return () => {};
  }
  const tick = (time) => {
    const t = Math.min(1, Math.max(0, (time - begin) / milliseconds));
    draw(t * t * (3 - 2 * t));
    if (t < 1) frame = requestAnimationFrame(tick);
  };
  frame = requestAnimationFrame(tick);
  return () => cancelAnimationFrame(frame);
}

/** A number with some decimals, without the sign of a zero. */
export const fixed = (value, places) => value.toFixed(places).replace(/^-(0(\.0*)?)$/, "$1");

/** Whether motion is allowed; asked each time, because the setting can change. */
export const mayMove = () => matchMedia("(prefers-reduced-motion: no-preference)").matches;
