"use strict";
// Search, and calls of this server from its own page. What comes back is only ever shown as text.
const SHOWN_MAX = 100000;
const find = (id) => document.getElementById(id);
const articles = [...document.querySelectorAll("article")];

find("search").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const article of articles) {
    const text = article.dataset.words;
    article.hidden = !words.every((word) => text.includes(word));
    count += article.hidden ? 0 : 1;
  }
  for (const section of document.querySelectorAll("section")) {
    section.hidden = !section.querySelector("article:not([hidden])");
  }
  find("found").textContent = words.length ? count + " of " + articles.length : "";
});

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "/" && !typing) {
    event.preventDefault();
    find("search").focus();
  }
});

// What a form asks for: the parts of its path, its query, its headers and its body.
function request(form) {
  const query = new URLSearchParams();
  const headers = new Headers();
  let path = form.dataset.path;
  for (const field of form.querySelectorAll("input")) {
    const value = field.value;
    if (field.dataset.in === "path") {
      path = path.replace("{" + field.name + "}", encodeURIComponent(value));
    } else if (value !== "" && field.dataset.in === "query") {
      query.append(field.name, value);
    } else if (value !== "") {
      headers.set(field.name, value);
    }
  }
  const key = find("key").value;
  if (key) headers.set("authorization", "Bearer " + key);
  const body = form.querySelector("textarea");
  const sent = body && body.value !== "" ? body.value : undefined;
  if (sent !== undefined) headers.set("content-type", body.dataset.mime);
  const text = query.toString();
  return [path + (text && "?" + text), { method: form.dataset.method, headers, body: sent }];
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// Shows what comes as it comes, until it ends or is stopped.
async function call(form) {
  const shown = form.querySelector("pre");
  const button = form.querySelector("button");
  if (form.stop) {
    form.stop.abort();
    return;
  }
  form.stop = new AbortController();
  button.textContent = "Stop";
  const began = performance.now();
  let head = "";
  let text = "";
  try {
    const [url, options] = request(form);
    shown.textContent = options.method + " " + url + " …";
    const response = await fetch(url, { ...options, signal: form.stop.signal });
    head = response.status + " " + response.statusText + ", " + Math.round(performance.now() - began) + " ms\n";
    shown.textContent = head;
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || text.length > SHOWN_MAX) break;
      text += decoder.decode(value, { stream: true });
      shown.textContent = head + text.slice(0, SHOWN_MAX);
    }
    const more = text.length > SHOWN_MAX;
    if (more) form.stop.abort();
    shown.textContent = head + (more ? text.slice(0, SHOWN_MAX) + "\n[more is not shown]" : pretty(text));
  } catch (error) {
    shown.textContent = head + text + "\n[" + error.message + "]";
  }
  form.stop = null;
  button.textContent = "Send";
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  call(event.target);
});
