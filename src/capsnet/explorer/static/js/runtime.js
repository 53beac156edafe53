/**
 * Questions that networks in this browser answer, in workers, so that the page never waits: one for what follows a
 * moving slider, one for everything else.
 */

const QUICK = ["/api/decode", "/api/toy/route"];

const waiting = new Map(); // questions without an answer yet, by number
const workers = {};
let asked = 0;
let loaded = false; // the first picture is classified: until then a second worker would only compete with the first

function start(lane) {
  const worker = new Worker(new URL("./runtime/worker.js", import.meta.url), { type: "module", name: lane });
  worker.addEventListener("message", ({ data: { number, answer, error } }) => {
    const { path, resolve, reject } = waiting.get(number);
    waiting.delete(number);
    loaded ||= path === "/api/classify";
    if (error === undefined) resolve(answer);
    else reject(new Error(error));
  });
  worker.addEventListener("error", () => {
    for (const { reject } of waiting.values()) reject(new Error("The networks could not be loaded. Reload the page."));
    waiting.clear();
    delete workers[lane]; // the next question tries again
  });
  workers[lane] = worker;
}

export function ask(path, body) {
  const lane = loaded && QUICK.includes(path) ? "quick" : "slow";
  if (!workers[lane]) start(lane);
  const number = (asked += 1);
  return new Promise((resolve, reject) => {
    waiting.set(number, { path, resolve, reject });
    workers[lane].postMessage({ number, path, body });
  });
}

start("slow"); // while the page is still being built: the networks take longest to load
