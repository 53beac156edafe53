/** Who answers the page's questions; the page itself says so (`data-backend` of <html>). */

const answers = import(document.documentElement.dataset.backend === "runtime" ? "./runtime.js" : "./server.js");

/** The answer to a question: its path ("/api/..."), with a body (an object, or a file's Blob) or without. */
export const ask = async (path, body) => (await answers).ask(path, body);
