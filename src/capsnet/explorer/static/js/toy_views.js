/** What the toy shows: a plane for each parent, whose votes can be dragged, and a bar for each child. */

import { assign, h, svg } from "./elements.js";
import { CHILDREN, PARENTS } from "./toy_scene.js";

const REACH = 1.46; // half the side of a plane: the farthest vote and its number fit
const DOT = 0.085;
const ASIDE = 0.16;
const STEP = 0.05;
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/** Where the number of a vote stands beside its dot: away from the other votes, most from the nearest. */
function aside([x, y], others) {
  const [right, up] = others.reduce(([dx, dy], [otherX, otherY]) => {
    const far = Math.max(0.05, Math.hypot(x - otherX, y - otherY)) ** 3;
    return [dx + (x - otherX) / far, dy + (y - otherY) / far];
  }, [1e-6, 1e-6]);
  const length = Math.hypot(right, up);
  return { x: (ASIDE * right) / length, y: (-ASIDE * up) / length };
}

/** One parent's plane: its circle of length 1, its votes, its arrow. Drawn once, then moved. */
export class Plane {
  constructor(j, toy) {
    this.j = j;
    this.rays = CHILDREN.map(() => svg("line", { class: "toy-ray" }));
    this.dots = CHILDREN.map((i) => this.dot(i, toy));
    this.shaft = svg("line", { class: "toy-shaft", x1: 0, y1: 0 });
    this.head = svg("path", { class: "toy-head", d: "M0 0L-1 .6V-.6Z" });
    this.picture = svg("svg",
      { class: "toy-plane", role: "group", viewBox: `${-REACH} ${-REACH} ${2 * REACH} ${2 * REACH}` },
      svg("circle", { class: "toy-unit", r: 1 }),
      svg("path", { class: "toy-origin", d: "M-.06 0H.06M0-.06V.06" }),
      ...this.rays, this.shaft, this.head, ...this.dots.map((dot) => dot.group));
    this.length = h("output", { class: "toy-length" });
    this.bar = h("span", { class: "toy-bar-fill" });
    const bar = h("span", { class: "toy-bar", "aria-hidden": "true" }, this.bar);
    const caption = h("figcaption", {}, h("span", {}, `Parent ${PARENTS[j]}`), bar, this.length);
    this.element = h("figure", { class: `toy-parent parent-${j}` }, this.picture, caption);
  }

  dot(i, toy) {
    const fill = svg("circle", { class: "toy-fill" });
    const number = svg("text", { class: "toy-number", "aria-hidden": "true" }, String(i + 1));
    const group = svg("g",
      { class: "toy-vote", tabindex: 0, role: "button", "aria-roledescription": "vote that can be moved" },
      svg("circle", { class: "toy-target", r: 0.16 }), svg("circle", { class: "toy-ring", r: DOT }), fill, number);
    group.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // drag, do not scroll
    const [enter, leave] = [() => toy.look(i), () => toy.look(null)];
    assign(group, {
      onpointerenter: enter, onpointerleave: leave, onfocus: enter, onblur: leave,
      onpointerdown: (event) => {
        group.setPointerCapture(event.pointerId);
        group.focus({ preventScroll: true });
        event.preventDefault();
      },
      onpointermove: (event) => {
        if (group.hasPointerCapture(event.pointerId)) toy.move(i, this.j, this.where(event));
      },
      onkeydown: (event) => {
        const move = MOVES[event.key];
        if (!move) return;
        event.preventDefault();
        const step = event.shiftKey ? 5 * STEP : STEP;
        toy.move(i, this.j, toy.votes[i][this.j].map((value, axis) => value + step * move[axis]));
      },
    });
    return { group, fill, number };
  }

  /** Where a pointer is in the plane; its y axis points up, the screen's down. */
  where(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.picture.getScreenCTM().inverse());
    return [point.x, -point.y];
  }

  draw(votes, couplings, [x, y], presence) {
    const length = Math.hypot(x, y);
    votes.forEach((row, i) => {
      const [voteX, voteY] = row[this.j];
      const coupling = couplings[i][this.j];
      const place = `x ${voteX.toFixed(2)}, y ${voteY.toFixed(2)}, coupling ${coupling.toFixed(2)}`;
      assign(this.dots[i].group, {
        transform: `translate(${voteX} ${-voteY})`,
        "aria-label": `Child ${i + 1}'s vote for parent ${PARENTS[this.j]}: ${place}. Arrow keys move it.`,
      });
      assign(this.dots[i].number, aside(row[this.j], votes.filter((_, other) => other !== i).map((other) => other[this.j])));
      this.dots[i].fill.setAttribute("r", DOT * Math.sqrt(Math.min(1, Math.max(0, coupling))));
      assign(this.rays[i], { x1: voteX, y1: -voteY, x2: x, y2: -y, "stroke-width": 0.08 * Math.min(1, Math.abs(coupling)) });
    });
    const head = Math.min(0.13, length); // a short parent has a short head
    const shaft = length > 0 ? 1 - head / length : 0;
    assign(this.shaft, { x2: shaft * x, y2: -shaft * y });
    const angle = (180 / Math.PI) * Math.atan2(-y, x);
    assign(this.head, { transform: `translate(${x} ${-y}) rotate(${angle}) scale(${head})` });
    this.length.textContent = presence.toFixed(2);
    this.bar.style.width = `${100 * Math.min(1, presence)}%`;
    this.picture.setAttribute("aria-label", `Plane of parent ${PARENTS[this.j]}, presence ${presence.toFixed(2)}`);
  }

  look(child) {
    this.dots.forEach(({ group }, i) => group.classList.toggle("hot", i === child));
    this.rays.forEach((ray, i) => ray.classList.toggle("hot", i === child));
  }
}

/** Each child as one bar, divided among the parents. Shares of a parent's attention need not fill it. */
export class Shares {
  constructor(toy) {
    this.rows = CHILDREN.map((i) => {
      const parts = PARENTS.map((_, j) => h("span", { class: `share parent-${j}` }));
      const bar = h("span", { class: "share-bar", role: "img" }, ...parts);
      const look = { onpointerenter: () => toy.look(i), onpointerleave: () => toy.look(null) };
      const row = h("li", look, h("span", { "aria-hidden": "true" }, String(i + 1)), bar);
      return { row, bar, parts };
    });
    this.title = h("h3", {});
    this.element = h("div", {}, this.title, h("ol", { class: "toy-shares" }, ...this.rows.map(({ row }) => row)));
  }

  name({ normalised }) {
    this.title.textContent =
      normalised === "children" ? "Each child's part of the parents' attention" : "How each child divides itself";
  }

  draw(couplings, scale) {
    this.rows.forEach(({ bar, parts }, i) => {
      parts.forEach((part, j) => (part.style.width = `${Math.min(100, Math.max(0, 100 * scale * couplings[i][j]))}%`));
      const words = couplings[i].map((coupling, j) => `${PARENTS[j]} ${coupling.toFixed(2)}`).join(", ");
      bar.setAttribute("aria-label", `Child ${i + 1}: ${words}`);
    });
  }

  look(child) {
    this.rows.forEach(({ row }, i) => row.classList.toggle("hot", i === child));
  }
}
