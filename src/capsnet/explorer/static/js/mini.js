/** Narrow windows: what the network reads and draws stays in sight, whatever is scrolled. The panels say it in full. */

import { h } from "./elements.js";
import { dye } from "./hues.js";
import { PRESENT } from "./network.js";
import { isBlank, paint } from "./pixels.js";
import { currentModel, state } from "./state.js";

export function mount(before) {
  const [seen, drawn] = ["seen", "drawn"].map((id) => h("canvas", { "data-testid": `mini-${id}` }));
  const words = h("p", { "data-testid": "mini-words" });
  const arrow = h("span", {}, "→");
  before.before(h("div", { class: "mini", "aria-hidden": "true", "data-testid": "mini" }, seen, arrow, drawn, words));
  const update = () => {
    const [picture, answer, drawing] = ["seen", "answer", "picture"].map((key) => state.get(key));
    if (!picture) return;
    paint(seen, picture);
    const known = Boolean(drawing && answer);
    drawn.hidden = arrow.hidden = !known;
    if (known) paint(drawn, drawing);
    words.replaceChildren(...(isBlank(picture) ? ["nothing drawn yet"] : answer ? verdict(answer) : []));
  };
  state.on(["seen", "answer", "picture"], update);
}

function verdict({ lengths, order }) {
  const { classes } = currentModel();
  const [first, second] = order;
  const sure = lengths[first] >= PRESENT;
  const rest = second === undefined ? [] : [h("small", {}, `second: ${classes[second]} · ${lengths[second].toFixed(2)}`)];
  const name = dye(h("b", {}, classes[first]), first, classes.length);
  return [h("span", {}, sure ? "" : "closest: ", name, ` · ${lengths[first].toFixed(2)}`), ...rest];
}
