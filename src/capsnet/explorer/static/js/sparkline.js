/** A row of numbers between 0 and 1, one per iteration, as a small line with the present one marked. */

import { assign, h, svg } from "./elements.js";

const [WIDTH, HEIGHT, PAD] = [160, 44, 7];

/** The lower end of the scale: 0, unless the line would be flat up there at 1; trained networks hardly move. */
function floorOf(values) {
  const least = Math.min(...values);
  return least < 0.7 ? 0 : Math.floor(500 * (least - 0.001)) / 500;
}

/** The entropy of the couplings, iteration by iteration; `draw(values, at)` marks one of them, or none at -1. */
export function sparkline() {
  const line = svg("polyline", { class: "spark-line", fill: "none" });
  const dots = svg("g");
  const edge = (y) => svg("line", { class: "spark-edge", x1: 0, x2: WIDTH, y1: y, y2: y });
  const box = { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" };
  const picture = svg("svg", box, edge(PAD), edge(HEIGHT - PAD), line, dots);
  const number = h("output", { class: "spark-number" });
  const bottom = h("span", {});
  const scale = h("span", { class: "spark-scale", "aria-hidden": "true" }, h("span", {}, "1 undecided"), bottom);
  const name = h("span", { class: "name" }, "Entropy");
  const element = h("div", { class: "row entropy", "data-testid": "entropy" }, name, number, picture, scale);

  function draw(values, at) {
    const floor = floorOf(values);
    const digits = floor === 0 ? 2 : 3;
    const x = (n) => (values.length < 2 ? WIDTH / 2 : PAD + (n * (WIDTH - 2 * PAD)) / (values.length - 1));
    const y = (value) => PAD + ((1 - value) / (1 - floor)) * (HEIGHT - 2 * PAD);
    line.setAttribute("points", values.map((value, n) => `${x(n)},${y(value)}`).join(" "));
    dots.replaceChildren(
      ...values.map((value, n) =>
        svg("circle", { cx: x(n), cy: y(value), r: n === at ? 5 : 2.5, class: n === at ? "spark-now" : "spark-dot" }),
      ),
    );
    bottom.textContent = floor === 0 ? "0 decided" : floor.toFixed(digits);
    number.textContent = at < 0 ? "–" : values[at].toFixed(digits);
    const words = values.map((value) => value.toFixed(digits)).join(", ");
    assign(picture, { "aria-label": `Entropy of the couplings by iteration, 1 undecided, 0 decided: ${words}` });
  }

  return { element, draw };
}
