/** Panel 8: the link, a picture, the numbers, and a Python snippet that gives the same ones. */

import { report, say } from "./api.js";
import { button, h } from "./elements.js";
import { asJson, asPicture } from "./export.js";
import { decode, encode, pack, turned } from "./link.js";
import { isBlank } from "./pixels.js";
import { snippet } from "./python.js";
import { currentModel, state } from "./state.js";

const WAIT = 200; // milliseconds of quiet before the address bar follows: browsers limit how often it may change

let code = null;
let timer = null;
let newest = 0;
let followed = null; // the network of the address bar

/** Fill the panel and keep the address bar up to date from now on. */
export function mount(section) {
  const make = (testid, text, action, kind = "button") =>
    button(text, () => action().catch(report), { class: kind, "data-testid": testid, disabled: true });
  const buttons = [
    make("copy-link", "Copy link", copyLink, "button primary"),
    make("copy-python", "Copy as Python", copyPython),
    make("export-png", "Picture (PNG)", async () => save("png", await asPicture())),
    make("export-json", "Numbers (JSON)", saveNumbers),
  ];
  code = h("code", {});
  section.querySelector(".body").append(
    h("div", { class: "row" }, ...buttons),
    h("details", { class: "snippet", "data-testid": "snippet" }, h("summary", {}, "The snippet"),
      h("pre", { tabindex: "0", role: "region", "aria-label": "Python snippet" }, code)),
  );
  state.on(["answer"], () => {
    for (const each of buttons) each.disabled = !state.get("answer");
  });
  state.on(null, () => {
    clearTimeout(timer);
    timer = setTimeout(() => follow().catch(report), WAIT);
  });
  addEventListener("hashchange", () => open().catch(report));
}

/** Apply the address bar's link. False if it holds no picture. */
export async function open() {
  const linked = location.hash.includes("=") && await decode(location.hash.slice(1));
  followed = state.get("model"); // Back and forth are no new step
  return linked;
}

async function follow() {
  const seen = state.get("seen");
  if (!seen || state.get("drawing") || !(state.get("answer") || isBlank(seen))) return;
  const number = (newest += 1);
  const [text, lines] = [await encode(), await python()];
  if (number !== newest) return;
  // the browser's Back leads to the network before; the story changes networks by itself
  const other = followed !== null && followed !== state.get("model") && state.get("story") === null;
  followed = state.get("model");
  history[other && location.hash !== `#${text}` ? "pushState" : "replaceState"](null, "", `#${text}`);
  code.textContent = lines;
}

async function python() {
  const [seen, klass] = [state.get("seen"), state.get("klass")];
  return snippet({ model: currentModel(), seen, packed: await pack(seen.bytes), klass, turned: turned() });
}

async function copyLink() {
  await follow();
  await copy(location.href);
  const whole = location.hash.includes("x=");
  say(whole ? "The link is in the clipboard." : "The link is in the clipboard, but the picture is too large for it.");
}

async function saveNumbers() {
  await follow(); // so that the link among them is up to date
  save("json", await asJson(location.href));
}

async function copyPython() {
  await copy(await python());
  say("The snippet is in the clipboard.");
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { class: "visually-hidden", "aria-hidden": "true" }); // not on localhost, and no TLS
  area.value = text;
  document.body.append(area);
  area.select();
  const worked = document.execCommand("copy");
  area.remove();
  if (!worked) throw new Error("The browser does not let this page write to the clipboard.");
  return undefined;
}

function save(ending, blob) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: `${state.get("model")}-view.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
