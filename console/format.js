/** Figures, times and names as a person reads them. Pure. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count) {
  if (count === undefined || count === null) return "–";
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function percent(value) {
  if (value === undefined || value === null) return "–";
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

export function count(value) {
  return value === undefined || value === null ? "–" : value.toLocaleString("en");
}

/** A length of time in its two largest units. */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  const parts = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const first = parts.findIndex(([size]) => seconds >= size);
  const [size, name] = parts[first];
  const rest = parts[first + 1];
  const whole = Math.floor(seconds / size);
  const left = rest ? Math.floor((seconds % size) / rest[0]) : 0;
  return left > 0 ? `${whole} ${name} ${left} ${rest[1]}` : `${whole} ${name}`;
}

export function ago(ms, now = Date.now()) {
  const passed = now - ms;
  if (passed < 5000) return "just now";
  if (passed < 60000) return `${Math.floor(passed / 1000)} s ago`;
  return `${duration(passed).split(" ").slice(0, 2).join(" ")} ago`;
}

export function until(ms, now = Date.now()) {
  return ms <= now ? "now" : `in ${duration(ms - now)}`;
}

export function clock(ms) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function date(ms) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}`;
}

/** A point in time, as exactly as matters beside a span of so many milliseconds. */
export function moment(ms, spanMs) {
  if (spanMs < 2 * 3600000) return clock(ms);
  const text = date(ms).slice(0, -3);
  return spanMs < 2 * 86400000 ? text.slice(11) : text.slice(5);
}

/** Why a program ended, in a few words. */
export function exit(exit) {
  if (exit === undefined || exit === null) return "";
  const cause = exit.cause ?? exit;
  switch (cause.type) {
    case "exited":
      return `exit ${cause.code}`;
    case "signaled":
      return `signal ${cause.signal}`;
    case "killed":
      return `killed by ${cause.by}`;
    case "timeout":
      return `timeout after ${duration(cause.limit_ms)}`;
    case "out_of_memory":
      return "out of memory";
    case "sandbox_stopping":
      return "sandbox stopped";
    case "spawn_failed":
      return `could not start: ${cause.subject}`;
    default:
      return String(cause.type);
  }
}

/** The bytes of `text` or `base64`. */
export function contentBytes(content) {
  if (content.text !== undefined) return new TextEncoder().encode(content.text);
  return fromBase64(content.base64 ?? "");
}

export function contentText(content) {
  return content.text ?? new TextDecoder().decode(contentBytes(content));
}

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

export function toBase64(data) {
  let text = "";
  for (const byte of data) text += String.fromCharCode(byte);
  return btoa(text);
}

/** Text of a terminal without its escape sequences and control characters. */
export function plain(text) {
  return text
    .replace(/\x1b\[[0-?]*[ -/]*[@-~]/g, "")
    .replace(/\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)/g, "")
    .replace(/\x1b[ -/]*[0-~]/g, "")
    .replace(/\r+\n/g, "\n")
    .replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "");
}
