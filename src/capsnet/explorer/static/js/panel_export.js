/** Each panel to take along: a link to it, a PNG at double size, an SVG, and of what moves an animation. */

import { report, say } from "./api.js";
import { button, h, mayMove } from "./elements.js";
import { encodeGif } from "./gif.js";
import { encode, register } from "./link.js";
import { asPng, asSvg } from "./snapshot.js";
import { state } from "./state.js";

const DELAY = 80; // milliseconds per frame of an animation

const animations = new Map(); // by panel: a function that gives its frames

/** Let a panel offer an animation: `frames()` gives a list of ImageData, or a promise of it. */
export const animate = (id, frames) => animations.set(id, frames);

function save(id, ending, blob) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: `${state.get("model")}-${id}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

async function copyLink(id) {
  const address = `${location.origin}${location.pathname}#${await encode()}&panel=${id}`;
  await navigator.clipboard.writeText(address);
  say("The link to this panel is in the clipboard.");
}

async function saveAnimation(id) {
  say("Drawing the frames …");
  save(id, "gif", encodeGif(await animations.get(id)(), DELAY));
}

function tools(section) {
  const { id } = section;
  const make = (kind, text, action) => button(text, () => Promise.resolve(action()).catch(report),
    { class: "button small", "data-testid": `${id}-as-${kind}` });
  const name = section.querySelector("h2").textContent;
  const summary = h("summary", { "aria-label": `Save or link the panel ${name}` }, "Save");
  return h("details", { class: "panel-tools", "data-testid": `${id}-tools` }, summary, h("div", { class: "row" },
    ...(navigator.clipboard ? [make("link", "Copy link", () => copyLink(id))] : []),
    make("png", "PNG", async () => save(id, "png", await asPng(section))),
    make("svg", "SVG", () => save(id, "svg", new Blob([asSvg(section)], { type: "image/svg+xml" }))),
    ...(animations.has(id) ? [make("gif", "Animation (GIF)", () => saveAnimation(id))] : [])));
}

/** Add the tools to every panel that is there, and the whole page to the panel "Share". */
export function mount(place) {
  for (const section of place.querySelectorAll(".panel")) section.append(tools(section));
  const savePage = async () => save("page", "png", await asPng(document.body, 1));
  const page = button("Whole page (PNG)", () => savePage().catch(report), { "data-testid": "export-page" });
  place.querySelector("#share .row").append(page);
  register("panel", {
    encode: () => null, // the address bar is about the view, not about where one looks
    decode: (id) => {
      const section = [...place.children].find((each) => each.id === id);
      section?.scrollIntoView({ behavior: mayMove() ? "smooth" : "auto", block: "start" });
    },
  });
}
