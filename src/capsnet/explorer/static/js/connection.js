/** Whether the server answers. While it does not: a bar, old answers dimmed, and tries until it is back. */

import { h } from "./elements.js";

const AGAIN = 1000; // milliseconds between two tries
const GONE = [502, 504]; // what a proxy says in place of a server that is gone
const WORDS = "Disconnected: the server does not answer. What you see may be old; your drawing is kept. Trying again …";

let back = null; // while the server is gone: a promise that it is back
let bar = null;

/** A fetch that waits for a server that is gone, and then asks again: nothing that was asked is lost. */
export async function reach(path, options) {
  for (;;) {
    const response = await fetch(path, options).catch(() => null);
    if (response && !GONE.includes(response.status)) return response;
    await wait();
  }
}

function wait() {
  back ??= retry().finally(() => {
    back = null;
    show(false);
  });
  return back;
}

async function retry() {
  show(true);
  for (let answered = false; !answered;) {
    await new Promise((resolve) => { setTimeout(resolve, AGAIN); });
    const response = await fetch("static/icon.svg", { cache: "no-store" }).catch(() => null);
    answered = Boolean(response && !GONE.includes(response.status));
  }
}

function show(gone) {
  bar ??= document.body.insertBefore(h("p", { class: "gone", role: "alert", "data-testid": "gone" }), document.body.firstChild);
  bar.textContent = gone ? WORDS : "";
  document.body.classList.toggle("is-gone", gone);
}
