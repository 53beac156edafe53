/** A worker that answers the page's questions with the networks beside the page. */

import { answer } from "./questions.js";
import { json, wake, warm } from "./sessions.js";

// one after another, as they come: a network that computes takes the whole worker anyway
let last = Promise.resolve();

addEventListener("message", ({ data: { number, path, body } }) => {
  last = last.then(async () => {
    try {
      postMessage({ number, answer: await answer(path, body) });
    } catch (error) {
      postMessage({ number, error: error.message });
    }
  });
});

wake();
// the first picture is classified as soon as it is there
if (name === "slow") json("networks.json").then(({ models: [first] }) => warm(first.network), () => {});
