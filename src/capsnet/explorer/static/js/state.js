/**
 * One store for the whole page: panels read it, set it, and listen to changes. They share nothing else.
 *
 * Keys
 *   models     the server's list of models            model       the name of the chosen one
 *   routings   every registered routing, described
 *   seen       the picture the network gets, exactly  seenFrom    draw | gallery | upload | pair | link
 *   penDown    a stroke is being drawn
 *   drawing    the same, until its last picture is answered too: heavy panels (sweep, trace, compare) wait for that
 *   centre     MNIST-style centring of what is drawn
 *   answer     the latest answer of /api/classify, of this model and this picture, or null
 *   klass      the selected capsule; follows the longest one until a person chooses
 *   chosen     a person chose it
 *   pose       the selected capsule's slider values (Float64Array), null for a network without capsules
 *   picture    what the selected capsule draws with these values, or null
 *   effects    how much of the ink each number of the selected capsule changes (effects.js), or null
 *   iteration  the step of the routing view, 0-based; null stands for the last
 *   runs       how many iterations the routing view runs; null for the network's own number
 *   entropy    of the couplings in each iteration of the routing view, or null
 *   story      the step of the guided story, 0-based; null while it is not told
 *   route      the routing that the routing view runs instead of the network's own, or null
 *   toy        the toy's scene as text for the link, null while it is as it was at first (toy.js)
 *   oscillators  their settings as text for the link, null while they are as at first (oscillators.js)
 *   scene      the same of scene.js
 *   pair       the two digits of pair.js               pairMode    they are what all panels see
 *   measured   how often ranges that the server measured later were added to the descriptions of models
 *   compare    the columns of compare.js; none stands for its defaults
 */

const values = {
  models: [], routings: [], model: null, seen: null, seenFrom: null, penDown: false, drawing: false, centre: true,
  answer: null, klass: null, chosen: false, pose: null, picture: null, effects: null, iteration: null, runs: null,
  route: null, entropy: null, story: null, toy: null, oscillators: null, scene: null, pair: null, pairMode: false,
  measured: 0, compare: [],
};
const listeners = [];
let changed = new Set();
let notifying = false;

/** Call the listeners until nothing changes any more. A set() by a listener waits until all have been called. */
function notify() {
  if (notifying) return;
  notifying = true;
  while (changed.size) {
    const keysChanged = changed;
    changed = new Set();
    for (const { keys, callback } of listeners) {
      if (keys && !keys.some((key) => keysChanged.has(key))) continue;
      try {
        callback();
      } catch (error) {
        console.error(error); // one broken panel must not stop the others
      }
    }
  }
  notifying = false;
}

export const state = {
  get: (key) => values[key],

  /** Change some keys; the listeners of any of them are called once. */
  set(changes) {
    for (const [key, value] of Object.entries(changes)) {
      if (Object.is(values[key], value)) continue;
      values[key] = value;
      changed.add(key);
    }
    notify();
  },

  /** Call back after a change of any of these keys (null: of any), but not now. */
  on(keys, callback) {
    listeners.push({ keys, callback });
  },
};

/** The chosen model's description as /api/models gives it, or null before it is known. */
export const currentModel = () => values.models.find(({ name }) => name === values.model) ?? null;

/** What a routing declares: a network's own, or (by another name) a registered one. undefined where nothing is routed. */
export function routingOf(model, name) {
  return name && name !== model?.routing?.name ? values.routings.find((each) => each.name === name) : model?.routing;
}
