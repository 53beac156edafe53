/** Which loaded network decides most in its routing: found by asking each once, about the picture that is shown. */

import { latest } from "./api.js";
import { framed } from "./network.js";
import { fits, toWire } from "./pixels.js";

const askTrace = latest();
const known = new Map(); // entropy after the last iteration, by name
const AHEAD = 0.1; // by how much another one must be more decided

/** Networks whose routing iterates over children that lie in the picture. */
const worthAsking = ({ grid, routing }) => grid && grid[0] * grid[1] > 1 && routing?.decides && routing.iterations > 1;

/** {model, entropy} of the network that decides most, or null if this one (with this entropy) is about as decided. */
export async function mostDecided(models, own, entropy, seen) {
  for (const model of models) {
    const picture = fits(seen, model) ? seen : framed(seen, model);
    if (model === own || known.has(model.name) || !worthAsking(model) || !picture) continue;
    const answer = await askTrace("/api/trace", { model: model.name, seen: toWire(picture) });
    if (answer) known.set(model.name, answer.entropy.at(-1));
  }
  const here = worthAsking(own) ? entropy : 1;
  const others = models.filter(({ name }) => name !== own.name && known.has(name));
  const [best] = others.sort((a, b) => known.get(a.name) - known.get(b.name));
  return best && known.get(best.name) < here - AHEAD ? { model: best, entropy: known.get(best.name) } : null;
}
