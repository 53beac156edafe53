/**
 * The picture under a grid of the children's positions. The squares divide the picture evenly, so that they are easy to
 * hit. What the children of one see is a larger patch, and patches overlap: where it is known, it is outlined.
 */

import { h } from "./elements.js";
import { paint } from "./pixels.js";
import { rove } from "./rove.js";

export class Regions {
  /** `receptive` is what a child sees, in pixels per axis, if it is known; `onPoint` and `onPin` get {y, x} or null. */
  constructor(H, W, receptive, { onPoint, onPin }) {
    Object.assign(this, { H, W, receptive });
    this.canvas = h("canvas", { class: "regions-picture", role: "img" });
    this.cells = Array.from({ length: H * W }, (_, n) => {
      const place = { y: Math.floor(n / W), x: n % W };
      const cell = h("div", {
        role: "gridcell", class: "region", tabindex: n === 0 ? 0 : -1,
        "aria-label": `Row ${place.y + 1}, column ${place.x + 1}`,
        onpointerenter: () => onPoint(place), onfocus: () => onPin(place), onblur: () => onPin(null),
        onkeydown: ({ key }) => key === "Escape" && cell.blur(),
      });
      return cell;
    });
    const rows = Array.from({ length: H }, (_, y) =>
      h("div", { role: "row", class: "regions-row" }, ...this.cells.slice(y * W, (y + 1) * W)));
    const look = { class: "regions-grid", role: "grid", "aria-label": "Positions of the children" };
    const grid = h("div", { ...look, onpointerleave: () => onPoint(null) }, ...rows);
    rove(grid, ".region");
    this.patch = h("div", { class: "regions-patch", "data-testid": "receptive", hidden: true });
    this.element = h("div", { class: "regions", "data-testid": "regions" }, this.canvas, grid, this.patch);
  }

  picture(seen) {
    this.size = { y: seen.height, x: seen.width };
    paint(this.canvas, seen);
    this.canvas.setAttribute("aria-label", `What the network sees, ${seen.width} by ${seen.height}`);
  }

  light(spot) {
    this.cells.forEach((cell, n) => {
      cell.classList.toggle("lit", spot !== null && spot.y === Math.floor(n / this.W) && spot.x === n % this.W);
    });
    this.patch.hidden = !spot || !this.receptive;
    if (!this.patch.hidden) this.outline(spot);
  }

  /** Draw the patch that the children of a position see: its sides as shares of the picture's. */
  outline(spot) {
    const { size, stride, start } = this.receptive;
    const sides = { y: ["top", "height"], x: ["left", "width"] };
    for (const [axis, [from, long]] of Object.entries(sides)) {
      const first = Math.max(0, start + stride * spot[axis]);
      const last = Math.min(this.size[axis], start + stride * spot[axis] + size);
      this.patch.style[from] = `${(100 * first) / this.size[axis]}%`;
      this.patch.style[long] = `${(100 * (last - first)) / this.size[axis]}%`;
    }
  }
}
