/** The drawing itself: white (or coloured) ink on black, smooth strokes, and the pictures to go back to. */

import { assign } from "./elements.js";
import { blank, nativeCanvas } from "./pixels.js";

export const SIDE = 448; // of the canvas: 16 times MNIST's 28
const SENT = 224; // of what is sent: what the network sees of it differs by less than a grey level on average
const PAST = 40; // pictures to go back to

/**
 * A canvas with a memory. `source` is the picture that was loaded and not drawn on since, or null; `below` is the drawing
 * that a pair of digits lies on, or null.
 */
export class Ink {
  constructor(canvas) {
    this.canvas = Object.assign(canvas, { width: SIDE, height: SIDE });
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.small = new OffscreenCanvas(SENT, SENT).getContext("2d", { willReadFrequently: true });
    this.small.imageSmoothingQuality = "high";
    this.pen = null; // while it is down: where it is, how wide, which colour
    Object.assign(this, { past: [], future: [] });
    this.clear();
  }

  /** Keep the picture as it is now, to come back to: before a stroke, a clear, another picture. */
  remember() {
    if (this.below) this.past.push(this.below);
    this.below = null;
    this.past.push(this.snapshot());
    this.past.splice(0, Math.max(0, this.past.length - PAST));
    this.future = [];
  }

  snapshot() {
    return { image: this.context.getImageData(0, 0, SIDE, SIDE), source: this.source };
  }

  put({ image, source }) {
    this.context.putImageData(image, 0, 0);
    this.source = source;
    this.below = null;
  }

  /** Back one picture (or forth again), which first of all takes away what lies on it. False if there is none. */
  step(forth = false) {
    const [from, to] = forth ? [this.future, this.past] : [this.past, this.future];
    if (!forth && this.uncover()) return true;
    if (!from.length) return false;
    this.uncover();
    to.push(this.snapshot());
    this.put(from.pop());
    return true;
  }

  /** What was below is on the canvas again. Gives it, or null if there is none. */
  uncover() {
    const { below } = this;
    if (below) this.put(below);
    return below;
  }

  clear() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, SIDE, SIDE);
    this.source = null;
    this.below = null;
  }

  /** A finished picture takes the canvas, in the middle of it; `source` is what to remember it by. */
  load(pixels, source, below = null) {
    this.clear();
    const scale = SIDE / Math.max(pixels.width, pixels.height);
    const [width, height] = [scale * pixels.width, scale * pixels.height];
    this.context.imageSmoothingQuality = "high";
    this.context.drawImage(nativeCanvas(pixels), (SIDE - width) / 2, (SIDE - height) / 2, width, height);
    Object.assign(this, { source, below });
  }

  /** Follow one pointer at a time: `down`, `move` and `up` get its events. */
  listen({ down, move, up }) {
    let pointer = null;
    const own = (callback) => (event) => event.pointerId === pointer && callback(event);
    const lift = own((event) => {
      pointer = null;
      up(event);
    });
    assign(this.canvas, {
      onpointerdown: (event) => {
        if (pointer !== null || (event.pointerType === "mouse" && event.button !== 0)) return;
        pointer = event.pointerId;
        this.canvas.setPointerCapture(pointer);
        down(event);
      },
      onpointermove: own(move), onpointerup: lift, onpointercancel: lift,
    });
  }

  /** Where a pointer is, in canvas pixels. */
  place({ clientX, clientY }) {
    const box = this.canvas.getBoundingClientRect();
    return { x: ((clientX - box.left) / box.width) * SIDE, y: ((clientY - box.top) / box.height) * SIDE };
  }

  /** Put the pen down at {x, y} in canvas pixels: a dot, which stays if the pen does not move. */
  begin(point, { width, erase, colour = "#fff" }) {
    this.source = null;
    this.pen = { last: point, middle: point, width, colour: erase ? "#000" : colour };
    this.context.fillStyle = this.pen.colour;
    this.context.beginPath();
    this.context.arc(point.x, point.y, width / 2, 0, 2 * Math.PI);
    this.context.fill();
  }

  /** Move it: the curve goes through the middles of the points, so it has no corners. */
  move(point, width = this.pen.width) {
    const { last } = this.pen;
    const middle = { x: (last.x + point.x) / 2, y: (last.y + point.y) / 2 };
    this.pen.width = width;
    this.line((path) => path.quadraticCurveTo(last.x, last.y, middle.x, middle.y));
    this.pen = { ...this.pen, last: point, middle };
  }

  end() {
    const { last } = this.pen;
    this.line((path) => path.lineTo(last.x, last.y));
    this.pen = null;
  }

  line(draw) {
    const { context, pen } = this;
    Object.assign(context, { strokeStyle: pen.colour, lineWidth: pen.width, lineCap: "round", lineJoin: "round" });
    context.beginPath();
    context.moveTo(pen.middle.x, pen.middle.y);
    draw(context);
    context.stroke();
  }

  /** The picture to send, with one channel or three. */
  pixels(channels) {
    this.small.drawImage(this.canvas, 0, 0, SENT, SENT);
    const { data } = this.small.getImageData(0, 0, SENT, SENT);
    const picture = blank(SENT, SENT, channels);
    for (let n = 0; n < SENT * SENT; n += 1) {
      for (let c = 0; c < channels; c += 1) picture.bytes[n * channels + c] = data[4 * n + c];
    }
    return picture;
  }
}
