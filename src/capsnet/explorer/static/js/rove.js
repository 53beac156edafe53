/** Arrow keys within a group of controls that is one stop for the Tab key ("roving tabindex"). */

/**
 * Let the arrow keys, Home and End move the focus among the items of a container, which may come and go. Returns a
 * function that makes an item the group's Tab stop.
 */
export function rove(container, selector) {
  const stop = (item, { focus = false } = {}) => {
    for (const other of container.querySelectorAll(`${selector}[tabindex="0"]`)) other.tabIndex = -1;
    item.tabIndex = 0;
    if (focus) item.focus();
  };
  container.addEventListener("focusin", ({ target }) => {
    const item = target.closest(selector);
    if (item) stop(item);
  });
  container.addEventListener("keydown", (event) => {
    const items = [...container.querySelectorAll(selector)];
    const at = items.indexOf(event.target.closest(selector));
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const second = items.findIndex((item) => item.offsetTop > items[0].offsetTop + 2); // as the browser laid them out
    const row = second < 0 ? items.length : second;
    const to = {
      ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - row, ArrowDown: at + row, Home: 0, End: items.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault(); // an arrow moves the focus, not the page
    if (items[to]) stop(items[to], { focus: true });
  });
  return stop;
}
