/** Questions: one in flight per lane, and stale answers are ignored. `backend.js` knows who answers. */

import { ask } from "./backend.js";

/**
 * A function `call(path, body)` that keeps at most one request in flight. Without a body it is a GET.
 *
 * While one is in flight only the newest of those that wait is kept; the others resolve to null and are never sent.
 * An answer is ignored when a newer request is waiting, unless the lane is `live`: then every answer is used, so that a
 * picture follows a moving slider. `call.forget()` drops the request in flight.
 */
export function latest({ live = false } = {}) {
  let [busy, wanted, waiting] = [false, null, null]; // `wanted` is the request in flight until it is forgotten
  async function run() {
    busy = true;
    while (waiting) {
      const job = waiting;
      [wanted, waiting] = [job, null];
      try {
        const answer = await ask(job.path, job.body);
        job.resolve((waiting && !live) || wanted !== job ? null : answer);
      } catch (error) {
        if (waiting || wanted !== job) job.resolve(null); // errors of stale requests are ignored
        else job.reject(error);
      }
    }
    busy = false;
  }
  const call = (path, body) =>
    new Promise((resolve, reject) => {
      waiting?.resolve(null);
      waiting = { path, body, resolve, reject };
      if (!busy) run();
    });
  call.forget = () => {
    waiting?.resolve(null);
    [wanted, waiting] = [null, null];
  };
  return call;
}

/** The answer to a question without a body. */
export const get = (path) => ask(path);

/** The answer to a file's bytes (a Blob or File). */
export const postBytes = (path, bytes) => ask(path, bytes);

let quiet = null;

/** Write a sentence into the status line, for some seconds. */
export function say(text, kind = "note") {
  const line = document.getElementById("status");
  line.textContent = text;
  line.dataset.kind = kind;
  clearTimeout(quiet);
  quiet = setTimeout(() => { line.textContent = ""; }, kind === "error" ? 12000 : 4000);
}

/** Show what went wrong in the status line. Fits into `.catch(report)`. */
export const report = (error) => say(sentence(error), "error");

export const capitalised = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** What went wrong, as a sentence; the server's begin in lower case. */
export const sentence = (error) => capitalised(error instanceof Error ? error.message : String(error));
