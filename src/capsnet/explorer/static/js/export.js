/** What the page shows as files: one composed picture, and all the numbers. */

import { hue } from "./hues.js";
import { turned } from "./link.js";
import { difference, nativeCanvas, toWire } from "./pixels.js";
import { currentModel, state } from "./state.js";
import { strip } from "./sweep.js";

const [INK, MUTED, LINE] = ["#14171c", "#59616d", "#dde1e6"];

/** The view as a PNG, always dark ink on white: it goes into papers and mails. */
export async function asPicture() {
  const sheet = strip();
  const canvas = new OffscreenCanvas(sheet ? 1240 : 720, 800);
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  const write = (text, x, y, { size = 15, colour = INK, weight = 400, align = "left" } = {}) => {
    Object.assign(context, { font: `${weight} ${size}px system-ui, sans-serif`, fillStyle: colour, textAlign: align });
    context.fillText(text, x, y);
  };
  const model = currentModel();
  write("capsnet explorer", 40, 58, { size: 24, weight: 600 });
  write(model.title, 40, 84, { colour: MUTED });
  drawPictures(context, write);
  drawBars(context, write, model);
  if (sheet) {
    const name = model.classes[state.get("klass")];
    write(`capsule “${name}”: each row moves one number, −0.25 … +0.25`, 790, 58, { colour: MUTED });
    const scale = Math.min(410 / sheet.width, 690 / sheet.height);
    context.imageSmoothingEnabled = scale < 1;
    context.drawImage(sheet, 790, 74, sheet.width * scale, sheet.height * scale);
    const row = (sheet.height * scale) / model.dims;
    for (let d = 0; d < model.dims; d += 1) {
      write(String(d + 1), 780, 74 + (d + 0.6) * row, { size: 13, colour: MUTED, align: "right" });
    }
  }
  return canvas.convertToBlob({ type: "image/png" });
}

function drawPictures(context, write) {
  const [seen, picture] = [state.get("seen"), state.get("picture")];
  const shown = [["input", seen]];
  if (picture) shown.push(["reconstruction", picture], ["difference", difference(picture, seen)]);
  context.imageSmoothingEnabled = false;
  shown.forEach(([name, pixels], n) => {
    const scale = 196 / Math.max(pixels.width, pixels.height);
    context.drawImage(nativeCanvas(pixels), 40 + n * 224, 112, pixels.width * scale, pixels.height * scale);
    write(name, 40 + n * 224, 330, { colour: MUTED });
  });
}

function drawBars(context, write, { classes, margins }) {
  const { lengths } = state.get("answer");
  const [left, width, top] = [150, 450, 380];
  const height = Math.min(38, 390 / classes.length);
  classes.forEach((name, k) => {
    const y = top + k * height;
    write(name, left - 12, y + height * 0.62, { align: "right", weight: k === state.get("klass") ? 700 : 400 });
    context.fillStyle = LINE;
    context.fillRect(left, y + height * 0.2, width, height * 0.6);
    context.fillStyle = `oklch(0.56 0.15 ${hue(k, classes.length)})`; // as in hues.css
    context.fillRect(left, y + height * 0.2, width * lengths[k], height * 0.6);
    write(lengths[k].toFixed(3), left + width + 12, y + height * 0.62);
  });
  context.fillStyle = INK;
  for (const mark of margins ? [margins.absent, margins.present] : []) {
    context.fillRect(left + width * mark, top, 1, height * classes.length);
    write(String(mark), left + width * mark, top - 6, { size: 12, colour: MUTED, align: "center" });
  }
}

export async function asJson(link) {
  const model = currentModel();
  const keys = ["answer", "seen", "klass", "pose", "picture"];
  const [answer, seen, klass, pose, picture] = keys.map((key) => state.get(key));
  const numbers = {
    model: { name: model.name, parameters: model.parameters, routing: model.routing, classes: model.classes },
    seen: toWire(seen),
    lengths: Object.fromEntries(model.classes.map((name, k) => [name, answer.lengths[k]])),
    order: answer.order.map((k) => model.classes[k]),
    poses: answer.poses,
    capsule: { class: model.classes[klass], pose: pose && Array.from(pose), turned: Object.fromEntries(turned()) },
    reconstruction: picture && toWire(picture),
    link,
  };
  return new Blob([`${JSON.stringify(numbers, null, 2)}\n`], { type: "application/json" });
}
