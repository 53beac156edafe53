/** Pictures from outside: a file, the clipboard, or dropped on the page. */

import { postBytes, report } from "./api.js";
import { button, h } from "./elements.js";
import { show, startRequest } from "./network.js";
import { fromWire } from "./pixels.js";
import { state } from "./state.js";

const LIMIT = 10e6; // the server's too; checked first, so that a large file is not sent in vain

let chosen = () => {};

/** Send a picture file; the server prepares it as `capsnet predict` does. */
export async function upload(file) {
  const current = startRequest(); // a slow upload must not replace a later picture
  if (file.size > LIMIT) {
    report(`This file has ${Math.ceil(file.size / 1e6)} MB, at most 10 MB can be read.`);
    return;
  }
  const query = new URLSearchParams({ model: state.get("model"), centre: state.get("centre") });
  const answer = await postBytes(`/api/upload?${query}`, file).catch(report);
  if (!answer || !current()) return;
  chosen(file);
  show(fromWire(answer.seen), "upload", { pairMode: false });
}

/** Put the button into its place and listen to paste and drop. `onchosen(file)` is called after an upload. */
export function mount(place, onchosen) {
  chosen = onchosen;
  const input = h("input", {
    type: "file", accept: "image/*", class: "visually-hidden", tabindex: "-1", "aria-hidden": "true",
    "data-testid": "upload",
    onchange: () => {
      if (input.files[0]) upload(input.files[0]);
      input.value = ""; // the same file can be chosen again
    },
  });
  place.append(input, button("Open a picture", () => input.click()));
  document.addEventListener("paste", ({ clipboardData }) => take(clipboardData.files));
  listenToDrop(document.getElementById("dropzone"));
}

function take(files) {
  const file = [...files].find(({ type }) => type.startsWith("image/"));
  if (file) upload(file);
  else if (files.length) report("That is not a picture.");
}

function listenToDrop(zone) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault(); // otherwise the browser opens the file
    zone.hidden = false;
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) zone.hidden = true;
  });
  document.addEventListener("drop", (event) => {
    zone.hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    take(event.dataTransfer.files);
  });
}
