/** Questions that the server answers: without a body a GET, a Blob or File as it is, anything else as JSON. */

import { reach } from "./connection.js";

export async function ask(path, body) {
  const bytes = body instanceof Blob;
  const headers = { "Content-Type": bytes ? "application/octet-stream" : "application/json" };
  const options = body && { method: "POST", headers, body: bytes ? body : JSON.stringify(body) };
  const response = await reach(path, options);
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Error(answer?.error ?? `The server refused this (${response.status}).`);
  return answer;
}
