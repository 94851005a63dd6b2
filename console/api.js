/**
 * Calls of the bridge's HTTP API, the only thing that this page does. The key is in the session's storage and in
 * headers, never in an address. The newest calls are kept so that they can be shown as curl.
 */

const KEY = "burrow.key";
const CALLS_MAX = 60;
const BODY_SHOWN_MAX = 2000;

/** A refusal of the bridge, or no answer at all. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.message ?? `the bridge answered ${status}`);
    this.status = status;
    this.code = problem.code ?? "unreachable";
    this.hint = problem.hint;
    this.details = problem.details;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  remove: () => sessionStorage.removeItem(KEY),
};

/** Hears of each call (`call`), and of an answer that asks for a key (`unauthorized`). */
export const events = new EventTarget();
export const calls = [];

/** A path of parts that may hold anything, and a query of which what is undefined is left out. */
export function address(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) {
      if (one !== undefined && one !== null && one !== "") search.append(name, String(one));
    }
  }
  const text = Array.isArray(path) ? `/${path.map((part) => encodeURIComponent(part)).join("/")}` : path;
  const asked = search.toString();
  return asked === "" ? text : `${text}?${asked}`;
}

/** What is below one sandbox. */
export function sandboxPath(which, ...rest) {
  return ["v1", "sandboxes", which.namespace, which.name, ...rest];
}

/** Calls, and returns the answer whatever it is, unless it is a refusal. */
export async function request(method, path, { query, body, json, headers = {}, signal } = {}) {
  const target = address(path, query);
  const sent = { ...headers };
  if (key.get() !== "") sent.authorization = `Bearer ${key.get()}`;
  if (json !== undefined) sent["content-type"] = "application/json";
  const payload = json === undefined ? body : JSON.stringify(json);
  const record = remember({ method, target, headers, json, hasBody: body !== undefined });
  const begun = performance.now();
  let answer;
  try {
    answer = await fetch(target, {
      method,
      headers: sent,
      body: payload,
      signal,
      credentials: "omit",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    finish(record, 0, begun);
    throw new Refusal(0, { message: "the bridge does not answer", hint: "is it still running?" });
  }
  finish(record, answer.status, begun);
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

async function refusal(answer) {
  const problem = await answer.json().catch(() => ({}));
  if (answer.status === 401) events.dispatchEvent(new Event("unauthorized"));
  return new Refusal(answer.status, problem);
}

/** Calls, and returns the JSON of the answer; nothing if there is none. */
export async function call(method, path, options) {
  const answer = await request(method, path, options);
  return answer.status === 204 ? undefined : answer.json();
}

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, json, signal) => call("POST", path, { json, signal });
export const remove = (path, query) => call("DELETE", path, { query });

/** All pages of a list. */
export async function all(path, query, field, signal) {
  const found = [];
  let after;
  do {
    const page = await get(path, { ...query, limit: 1000, after }, signal);
    found.push(...page[field]);
    after = page.next;
  } while (after !== undefined);
  return found;
}

/** Calls, and gives each line of the answer to `each` as it comes. */
export async function lines(method, path, { each, ...options }) {
  const headers = { accept: "application/x-ndjson" };
  const answer = await request(method, path, { ...options, headers });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    for (const line of whole) if (line !== "") each(JSON.parse(line));
  }
  if (rest !== "") each(JSON.parse(rest));
}

/** A WebSocket of the API. A browser can send a key with one only as a subprotocol. */
export function socket(path, query) {
  const target = address(path, query);
  const url = new URL(target, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const protocols = ["burrow.v1"];
  if (key.get() !== "") protocols.push(`bearer.${key.get()}`);
  const opened = new WebSocket(url, protocols);
  opened.binaryType = "arraybuffer";
  const record = remember({ method: "GET", target, headers: {}, isSocket: true });
  const begun = performance.now();
  opened.addEventListener("open", () => finish(record, 101, begun));
  return opened;
}

/** Ends a WebSocket, also one that is not open yet: browsers take an end before that for a fault. */
export function hangUp(opened) {
  if (opened.readyState === WebSocket.CONNECTING) opened.addEventListener("open", () => opened.close());
  else opened.close();
}

/**
 * Follows a stream of JSON over a WebSocket until `signal` ends, again after each cut. `query` is asked for the
 * place where it is to go on; `each` returns true at the stream's end.
 */
export function follow(path, query, each, signal, state = () => {}) {
  let pause = 250;
  const open = () => {
    if (signal.aborted) return;
    const stream = socket(path, query());
    let isOver = false;
    const close = () => hangUp(stream);
    signal.addEventListener("abort", close, { once: true });
    stream.onopen = () => state("live");
    stream.onmessage = (message) => {
      if (signal.aborted) return;
      pause = 250;
      if (each(JSON.parse(message.data)) === true) isOver = true;
    };
    stream.onclose = (event) => {
      signal.removeEventListener("abort", close);
      if (signal.aborted) return;
      if (isOver || event.code === 1000) return state("over");
      state("cut");
      setTimeout(open, pause);
      pause = Math.min(pause * 2, 8000);
    };
  };
  open();
}

function remember(entry) {
  const same = calls.findIndex(
    (one) => one.method === entry.method && place(one) === place(entry) && entry.json === undefined,
  );
  const times = same >= 0 ? calls.splice(same, 1)[0].times + 1 : 1;
  const record = { ...entry, times, at: Date.now(), status: undefined, ms: undefined };
  calls.unshift(record);
  calls.length = Math.min(calls.length, CALLS_MAX);
  events.dispatchEvent(new Event("call"));
  return record;
}

function place(entry) {
  return entry.target.split("?")[0];
}

function finish(record, status, begun) {
  record.status = status;
  record.ms = performance.now() - begun;
  events.dispatchEvent(new Event("call"));
}

/** A call as a line for a shell, with the key as a variable. */
export function asCurl(entry, origin, hasKey) {
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const words = ["curl"];
  if (entry.isSocket) words.push("-N", "--max-time 60");
  if (entry.method !== "GET" && !(entry.method === "POST" && entry.json !== undefined)) {
    words.push("-X", entry.method);
  }
  words.push(quote(origin + entry.target));
  if (hasKey) words.push('-H "Authorization: Bearer $BURROW_KEY"');
  const headers = entry.isSocket ? { accept: "application/x-ndjson" } : entry.headers;
  for (const [name, value] of Object.entries(headers)) words.push("-H", quote(`${name}: ${value}`));
  if (entry.json !== undefined) {
    const body = JSON.stringify(entry.json);
    const shown = body.length > BODY_SHOWN_MAX ? `${body.slice(0, BODY_SHOWN_MAX)}…` : body;
    words.push("-H 'Content-Type: application/json'", "-d", quote(shown));
  } else if (entry.hasBody) {
    words.push("--data-binary @FILE");
  }
  return words.join(" ");
}
