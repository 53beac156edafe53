// Light or dark as the system says, or as chosen on the page. A plain script in the head, so that the page does not flash.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return localStorage.getItem("capsnet-theme");
    } catch {
      return null; // storage can be switched off
    }
  };
  const current = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const chosen = stored();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => button.setAttribute("aria-label", `Theme: ${current()}. Switch to the other one`);
    button.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      label();
      dispatchEvent(new Event("themechange")); // canvases that take their colours from CSS paint again
      try {
        localStorage.setItem("capsnet-theme", root.dataset.theme);
      } catch {
        // as above
      }
    });
    dark.addEventListener("change", () => {
      label();
      dispatchEvent(new Event("themechange"));
    });
    label();
  });
})();
