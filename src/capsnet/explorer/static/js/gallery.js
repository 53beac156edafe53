/** The gallery under the canvas: test pictures that are hard, misread, or of one class. */

import { get, latest, report } from "./api.js";
import { button, h } from "./elements.js";
import { show, startRequest } from "./network.js";
import { frame, fromWire, paint } from "./pixels.js";
import { rove } from "./rove.js";
import { currentModel, state } from "./state.js";

const [browse, fetchDigit] = [latest(), latest()];
const address = (what, query = {}) => `/api/${what}?${new URLSearchParams({ model: state.get("model"), ...query })}`;

const names = new WeakMap(); // descriptions of pictures that were put on the canvas; undo may bring them back
const ALL = ["any", "All", "Test pictures. Point at one to see what is in it."];
const KINDS = [
  ["hard", "Hard", "Correct, but barely. Point at one to see what it is."],
  ["wrong", "Misread", "Misread, the most confident mistakes first. Point at one to see what it is."],
];

let view = { kind: "hard", page: 0 };
let parts = null;

/** Build the gallery; it is filled when the model is known. */
export function mount(place) {
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Which test pictures" });
  const items = h("div", { class: "items", role: "toolbar", "aria-label": "Test pictures" });
  const panel = h("div", { role: "tabpanel", id: "gallery-items", "aria-label": "Test pictures" }, items);
  const page = (step, text, label) =>
    button(text, () => turn(view.kind, view.page + step), { class: "button small", "aria-label": label });
  const [before, after] = [page(-1, "‹", "Previous page"), page(1, "›", "Next page")];
  const captionLine = h("p", { class: "note caption", "data-testid": "gallery-caption" });
  const [stopTab, stopItem] = [rove(tabs, "button"), rove(items, "button")];
  parts = { place, tabs, items, captionLine, before, after, stopTab, stopItem };
  place.append(h("div", { class: "gallery", "data-testid": "gallery" },
    h("div", { class: "gallery-head" }, tabs, h("div", { class: "pager" }, before, after)), panel, captionLine));
  state.on(["model"], meet);
  state.on(["seen"], () => caption(null));
}

/** A picture for the first visit: clear enough to be read at a glance, or null if there is no gallery. */
export async function firstExample() {
  const model = currentModel();
  if (!model.gallery) return null;
  const kind = model.multi ? "any" : Math.min(7, model.classes.length - 1); // a seven, where the classes are digits
  try {
    const { items } = await get(address("gallery", { kind, page: 0 }));
    return fromWire((await get(address(`digit/${items[0].index}`))).seen);
  } catch {
    return null; // the canvas shows an invitation instead
  }
}

async function meet() {
  const { gallery, classes, multi } = currentModel();
  parts.place.hidden = !gallery;
  if (!gallery) return;
  const kinds = [...(multi ? [ALL] : KINDS), ...classes.map((name, k) => [String(k), name])]; // pairs are not rated
  parts.tabs.replaceChildren(...kinds.map(([kind, text]) =>
    button(text, () => turn(kind, 0), {
      class: null, role: "tab", "data-kind": kind, tabindex: "-1", "aria-controls": "gallery-items",
    })));
  const count = await turn(kinds[0][0], 0);
  if (count === 0) await turn("0", 0); // not measured: show a class instead
}

/** Show a page of a kind. Gives the number of its items, or null after an error. */
async function turn(kind, page) {
  view = { kind, page };
  for (const tab of parts.tabs.children) {
    tab.setAttribute("aria-selected", tab.dataset.kind === kind);
    if (tab.dataset.kind === kind) parts.stopTab(tab);
  }
  const model = currentModel();
  const answer = await browse(address("gallery", view)).catch(report);
  if (!answer || model.name !== state.get("model")) return null;
  fill(answer, model);
  return answer.items.length;
}

function fill({ items, sprite, pages }, model) {
  parts.before.disabled = view.page <= 0;
  parts.after.disabled = view.page >= pages - 1;
  if (!items.length) {
    parts.items.replaceChildren(h("p", { class: "note" }, "There are none."));
    parts.captionLine.textContent = "";
    return;
  }
  caption(null);
  const row = fromWire(sprite);
  parts.items.replaceChildren(...items.map((item, n) => {
    const canvas = h("canvas", { "aria-hidden": "true" });
    paint(canvas, frame(row, n, row.width / items.length));
    const words = describe(item, model.classes);
    return h("button", {
      type: "button", class: "item", "data-testid": "gallery-item", "aria-label": words, title: words, tabindex: "-1",
      onclick: () => pick(item.index, words),
      onpointerenter: () => caption(words), onpointerleave: () => caption(null),
      onfocus: () => caption(words), onblur: () => caption(null),
    }, canvas);
  }));
  parts.stopItem(parts.items.firstElementChild);
}

/** "a 5, read as 3", "a circle and a square"; `seen_as` is null for a picture that is recognised. */
function describe({ labels, seen_as: seenAs }, classes) {
  const article = (name) => (/^([aeiou]|8|1[18]$)/i.test(name) ? "an" : "a");
  const objects = labels.map((k) => `${article(classes[k])} ${classes[k]}`).join(" and ");
  return seenAs === null ? objects : `${objects}, read as ${classes[seenAs]}`;
}

/** Describe an item, else the picture on the canvas, else the tab. */
function caption(words) {
  const known = names.get(state.get("seen"));
  const about = [ALL, ...KINDS].find(([kind]) => kind === view.kind)?.[2] ?? "";
  parts.captionLine.textContent = words ? `This is ${words}.` : known ? `On the canvas: ${known}.` : about;
}

async function pick(index, words) {
  const current = startRequest();
  const answer = await fetchDigit(address(`digit/${index}`)).catch(report);
  if (!answer || !current()) return;
  const seen = fromWire(answer.seen);
  names.set(seen, words);
  show(seen, "gallery", { pairMode: false });
}
