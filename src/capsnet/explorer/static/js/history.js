/**
 * One history for all panels: Ctrl+Z takes back the last change, whichever panel it was made in. A panel records a change
 * with two functions that take it back and make it again.
 */

const MOST = 200; // changes that are kept
const PAUSE = 1000; // milliseconds: a slider that moves on is one change

let past = [];
let future = [];

/**
 * Record a change that was just made. `panel` is whose it is; with a `key`, a change of the same key that follows at once
 * belongs to the one before, and only how to make it again is replaced. Gives the change, for `drop`.
 */
export function record(panel, { undo, redo, key = null }) {
  const [now, last] = [performance.now(), past.at(-1)];
  future = [];
  if (key !== null && last?.panel === panel && last.key === key && now - last.time < PAUSE) {
    return Object.assign(last, { redo, time: now });
  }
  const change = { panel, undo, redo, key, time: now };
  past.push(change);
  past.splice(0, Math.max(0, past.length - MOST));
  return change;
}

/** Forget one change: it was taken back in another way. */
export function drop(change) {
  [past, future] = [past, future].map((changes) => changes.filter((other) => other !== change));
}

/** Take back the last change (or make it again); of one panel, if it is named. False if there is none. */
export function step(forth = false, panel = null) {
  const [from, to] = forth ? [future, past] : [past, future];
  const at = from.findLastIndex((change) => panel === null || change.panel === panel);
  if (at < 0) return false;
  const [change] = from.splice(at, 1);
  change.key = null; // what follows is a change of its own
  to.push(change);
  (forth ? change.redo : change.undo)();
  return true;
}

/** Forget a panel's changes: what they belonged to is gone. */
export function forget(panel) {
  [past, future] = [past, future].map((changes) => changes.filter((change) => change.panel !== panel));
}

const WRITES = "input[type=number], input[type=text], textarea"; // these undo for themselves

/**
 * Listen to Ctrl+Z, Ctrl+Shift+Z and Ctrl+Y. `ready` ends a stroke that is being drawn by keys, and is false while a
 * pointer draws one.
 */
export function listen(ready) {
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    if (!(event.ctrlKey || event.metaKey) || event.altKey || !["z", "y"].includes(key)) return;
    if (event.target.matches(WRITES)) return;
    event.preventDefault();
    if (ready()) step(key === "y" || event.shiftKey);
  });
}
