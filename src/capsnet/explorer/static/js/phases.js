/** The ink in the colours of its phases, for networks whose pixels have some: what shares a colour is one object to them. */

import { figure, h } from "./elements.js";
import { blank, fromWire, isBlank, paint } from "./pixels.js";
import { currentModel, state } from "./state.js";

const WORDS = [
  "Colour is phase. Ink of one colour is in phase: the network takes it for one object.",
  "Which colour an object has means nothing; what counts is which pixels share it. Where objects cross, or where the " +
  "network fails, colours mix. Black: no ink. Pale: a phase outside of the circle of colours.",
];

export function mount(section) {
  const [seen, phases] = [figure("phases-seen", "The picture"), figure("phases", "The same ink, coloured by phase")];
  section.hidden = true;
  section.querySelector(".body").append(
    h("div", { class: "phases" }, seen.figure, phases.figure, h("div", {}, ...WORDS.map((words) => h("p", {}, words)))));
  state.on(["model"], () => { section.hidden = true; });
  state.on(["seen", "answer"], () => {
    const [picture, answer] = [state.get("seen"), state.get("answer")];
    if (answer) section.hidden = !answer.phases;
    if (section.hidden || !picture) return;
    paint(seen.canvas, picture);
    if (answer) {
      paint(phases.canvas, fromWire(answer.phases));
      phases.canvas.setAttribute("aria-label", `The phases of ${currentModel().title} as colours: one colour, one object`);
    } else if (isBlank(picture)) {
      paint(phases.canvas, blank(picture.width, picture.height));
    }
  });
}
