/** Requests to the server: one in flight per name, and stale responses are ignored. */

const lanes = new Map();

/**
 * A function `call(path, body)` that keeps at most one request of this name in flight. Without a body it is a GET.
 *
 * While one is in flight only the newest of those that wait is kept; the others resolve to null and are never sent.
 * An answer is ignored when a newer request is waiting, unless the lane is `live`: then every answer is used, so that a
 * picture follows a moving slider.
 *
 * @param {string} name
 * @param {{live?: boolean}} [options]
 * @returns {((path: string, body?: object) => Promise<object|null>) & {forget: () => void}} `forget()` drops the
 *   request in flight
 */
export function latest(name, { live = false } = {}) {
  if (!lanes.has(name)) lanes.set(name, { busy: false, current: null, waiting: null, forgotten: null });
  const lane = lanes.get(name);
  const call = (path, body) =>
    new Promise((resolve, reject) => {
      lane.waiting?.resolve(null);
      lane.waiting = { path, body, live, resolve, reject };
      if (!lane.busy) run(lane);
    });
  call.forget = () => {
    lane.waiting?.resolve(null);
    lane.waiting = null;
    lane.forgotten = lane.current;
  };
  return call;
}

async function run(lane) {
  lane.busy = true;
  while (lane.waiting) {
    const job = lane.waiting;
    lane.waiting = null;
    lane.current = job;
    try {
      const answer = await (job.body === undefined ? get(job.path) : post(job.path, job.body));
      job.resolve((lane.waiting && !job.live) || lane.forgotten === job ? null : answer);
    } catch (error) {
      if (lane.waiting || lane.forgotten === job) job.resolve(null); // errors of stale requests are ignored
      else job.reject(error);
    }
  }
  lane.current = null;
  lane.busy = false;
}

/** The JSON answer to a GET of "/api/...". */
export function get(path) {
  return ask(path, {});
}

/** The JSON answer to a POST of a JSON body. */
function post(path, body) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** The JSON answer to a POST of raw bytes (a Blob or File). */
export function postBytes(path, bytes) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: bytes });
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is `capsnet explore` still running?");
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Error(answer?.error ?? `The server refused this (${response.status}).`);
  return answer;
}

let quiet = null;

/** Say something in the status line; it goes away by itself. */
export function say(sentence, { kind = "note" } = {}) {
  const line = document.getElementById("status");
  line.textContent = sentence;
  line.dataset.kind = kind;
  clearTimeout(quiet);
  quiet = setTimeout(() => { line.textContent = ""; }, kind === "error" ? 12000 : 4000);
}

/** Show what went wrong in the status line. Fits into `.catch(report)`. */
export function report(error) {
  say(sentence(error), { kind: "error" });
}

export const capitalised = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** What went wrong, as a sentence; the server's begin in lower case. */
export function sentence(error) {
  return capitalised(error instanceof Error ? error.message : String(error));
}
