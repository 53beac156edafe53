/**
 * The story: six steps through the panels, one in the light at a time, for a first visit and for a lecture. Next and back
 * by button, arrow keys or a presenter's Page keys; F fills the screen, Escape ends it. `state.story` is the step, 0-based, or null.
 */

import { report } from "./api.js";
import { button, h, mayMove } from "./elements.js";
import { register } from "./link.js";
import { Scramble } from "./scramble.js";
import { currentModel, state } from "./state.js";
import { STEPS, prepare, teacher } from "./story_steps.js";

const SETTLES = 2500; // milliseconds in which panels above may still change their height: another network answers
const NEXT = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 };
const KEEPS_KEYS = "input, select, textarea, canvas, [role=grid] *, [role=toolbar] *, [role=tablist] *, .toy-vote";

class Story {
  constructor(main, opener) {
    Object.assign(this, { main, opener, own: null, token: null, scramble: new Scramble(main) });
    this.count = h("p", { class: "story-count" });
    this.title = h("h2", { class: "story-title" });
    this.words = h("p", { class: "story-words" });
    this.live = h("p", { class: "story-live", "data-testid": "story-live" });
    const make = (id, text, onclick, kind = "button") => button(text, onclick, { class: kind, "data-testid": `story-${id}` });
    this.back = make("back", "Back", () => this.go(-1));
    this.next = make("next", "Next", () => this.go(1), "button primary");
    this.act = make("act", "Show me", () => this.perform());
    this.full = make("full", "Full screen", () => this.toggleFull());
    this.full.title = "F";
    this.full.hidden = !document.fullscreenEnabled;
    const end = make("end", "End", () => this.end());
    const spoken = h("div", { class: "story-text", "aria-live": "polite", "aria-atomic": "true" },
      this.count, this.title, this.words, this.live);
    this.card = h("section", { class: "story", "aria-label": "The story", "data-testid": "story", hidden: true },
      h("div", { class: "story-progress", "aria-hidden": "true" }), spoken,
      h("div", { class: "row story-buttons" },
        this.back, this.next, this.act, h("span", { class: "story-gap" }), this.full, end));
    main.before(this.card);
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("fullscreenchange", () => {
      this.full.textContent = document.fullscreenElement ? "Leave full screen" : "Full screen";
    });
    state.on(["story"], () => this.enter().catch(report));
    state.on(["entropy", "model", "answer"], () => this.tell());
    new ResizeObserver(() => this.settle()).observe(main);
  }

  /** The steps that the loaded networks can show. */
  steps() {
    return STEPS.filter(({ needs, network }) => needs(this.own ?? currentModel()) || (network?.() && needs(network())));
  }

  start(at = 0) {
    if (!currentModel()) return;
    this.own ??= teacher();
    state.set({ story: Math.min(this.steps().length - 1, Math.max(0, at)), pairMode: false });
    this.next.focus({ preventScroll: true });
  }

  go(by) {
    const to = state.get("story") + by;
    if (to >= this.steps().length) this.end();
    else if (to >= 0) state.set({ story: to });
  }

  end() {
    if (state.get("story") === null) return;
    if (document.fullscreenElement) document.exitFullscreen();
    state.set({ story: null });
    this.opener.focus({ preventScroll: true });
  }

  async enter() {
    const at = state.get("story");
    this.token = Symbol("step"); // what the last step began ends
    this.card.hidden = at === null;
    document.body.classList.toggle("storying", at !== null);
    const step = at === null ? null : this.steps()[at];
    if (this.own) prepare(step ?? {}, this.own); // with the end, the network of step five goes too
    if (at === null) this.own = null;
    this.light(step?.panels ?? null);
    if (!step) return;
    const total = this.steps().length;
    this.count.textContent = `${at + 1} of ${total}`;
    this.card.style.setProperty("--done", (at + 1) / total);
    this.title.textContent = step.title;
    this.back.disabled = at === 0;
    this.next.textContent = at === total - 1 ? "Explore freely" : "Next";
    this.act.hidden = !step.act;
    this.tell();
    this.words.parentElement.scrollTop = 0;
    if (!this.main.contains(document.activeElement)) this.next.focus({ preventScroll: true });
    this.entered = performance.now();
    this.reveal(step);
    if (step.panels?.includes("scramble")) await this.showScramble();
  }

  async showScramble() {
    const { token } = this;
    this.live.textContent = "Asking the networks …";
    const words = await this.scramble.show();
    if (token === this.token) this.live.textContent = words;
  }

  /** Write the words of the step; those made of numbers follow them. */
  tell() {
    const step = state.get("story") === null ? null : this.steps()[state.get("story")];
    if (!step || !currentModel()) return;
    this.words.replaceChildren(...step.words());
    if (!step.panels?.includes("scramble")) this.live.textContent = step.live?.() ?? "";
  }

  /** Only these panels can be used; null stands for all. The focus must not stay in the dark. */
  light(ids) {
    for (const section of this.main.querySelectorAll(":scope > .panel")) {
      const lit = ids === null || ids.includes(section.id);
      if (!lit && section.contains(document.activeElement)) this.next.focus({ preventScroll: true });
      section.inert = !lit;
      section.classList.toggle("lit", lit && ids !== null);
    }
    this.scramble.section.hidden = !ids?.includes("scramble");
  }

  reveal({ panels }, behavior = mayMove() ? "smooth" : "auto") {
    const place = panels ? document.getElementById(panels[0]) : document.body;
    place.scrollIntoView({ behavior, block: "start" });
  }

  /** The panel in the light stays where it is while others grow or shrink. */
  settle() {
    if (state.get("story") === null || performance.now() - this.entered > SETTLES) return;
    this.reveal(this.steps()[state.get("story")]);
  }

  perform() {
    const token = (this.token = Symbol("act"));
    const step = this.steps()[state.get("story")];
    step.act(() => token === this.token)?.catch?.(report);
  }

  toggleFull() {
    if (document.fullscreenElement) document.exitFullscreen();
    else document.documentElement.requestFullscreen().catch(report);
  }

  key(event) {
    if (state.get("story") === null || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches(KEEPS_KEYS)) return;
    if (event.key === "Escape") this.end();
    if (event.key === "f" && !this.full.hidden) this.toggleFull();
    if (!(event.key in NEXT)) return;
    event.preventDefault();
    this.go(NEXT[event.key]);
  }
}

/** Build the story; it starts by the button, by `#story`, or by a link with `story=N`. Gives a function that starts it. */
export function mount(main) {
  const opener = document.getElementById("story-start");
  const story = new Story(main, opener);
  opener.addEventListener("click", () => story.start());
  register("story", {
    encode: () => (state.get("story") === null ? null : String(state.get("story") + 1)),
    decode: (text) => {
      if (/^[1-9]$/.test(text ?? "")) story.start(Number(text) - 1);
      else state.set({ story: null });
    },
  });
  const byName = () => {
    const [asked, number = "1"] = /^#story$|^#.*\bstory=([1-9])\b/.exec(location.hash) ?? [];
    if (asked && state.get("story") === null) story.start(Number(number) - 1);
  };
  addEventListener("hashchange", byName);
  return byName;
}
