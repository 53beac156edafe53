/** Questions that the server answers: without a body a GET, a Blob or File as it is, anything else as JSON. */
export async function ask(path, body) {
  const bytes = body instanceof Blob;
  const headers = { "Content-Type": bytes ? "application/octet-stream" : "application/json" };
  const options = body && { method: "POST", headers, body: bytes ? body : JSON.stringify(body) };
  const response = await fetch(path, options).catch(() => {
    throw new Error("The server does not answer. Is `capsnet explore` still running?");
  });
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Error(answer?.error ?? `The server refused this (${response.status}).`);
  return answer;
}
