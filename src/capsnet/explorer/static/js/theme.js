// Light or dark as the system says, or as chosen on the page. A plain script in the head, so that the page does not flash.
// `remembered(key)` reads what this browser keeps for the page, `remembered(key, value)` writes it; null without storage.
globalThis.remembered = (key, value) => {
  try {
    return value === undefined ? localStorage.getItem(key) : localStorage.setItem(key, value);
  } catch {
    return null; // storage can be switched off
  }
};

(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const chosen = remembered("capsnet-theme");
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const changed = () => {
      button.setAttribute("aria-label", `Theme: ${current()}. Switch to the other one`);
      dispatchEvent(new Event("themechange")); // canvases that take their colours from CSS paint again
    };
    button.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      remembered("capsnet-theme", root.dataset.theme);
      changed();
    });
    dark.addEventListener("change", changed);
    changed();
  });
})();
