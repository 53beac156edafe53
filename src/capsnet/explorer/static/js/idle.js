/** Nothing is drawn: panels that show an answer are greyed, and say what they wait for. */

import { h } from "./elements.js";
import { isBlank } from "./pixels.js";
import { state } from "./state.js";

const NEED_PICTURE = ["knobs", "sweep", "compare"]; // the others say it for themselves, or show something else
const WORDS = "Draw something first.";

export function mount() {
  const panels = NEED_PICTURE.map((id) => document.getElementById(id));
  const notes = panels.map((panel) => {
    const note = h("p", { class: "note idle-note", hidden: true }, WORDS);
    panel.querySelector(".body").before(note);
    return note;
  });
  state.on(["seen"], () => {
    const idle = Boolean(state.get("seen") && isBlank(state.get("seen")));
    panels.forEach((panel, n) => {
      panel.classList.toggle("is-idle", idle);
      panel.querySelector(".body").inert = idle;
      notes[n].hidden = !idle;
    });
  });
}
