/** The page that `host-bridge replay --export html` writes: one recording, which is in the page, and its player. */

import { h } from "./dom.js";
import { Player, bytesOf } from "./player.js";

const recording = JSON.parse(document.getElementById("recording").textContent);
const marks = [];
const steps = [];
for (const step of recording.steps) {
  const text = step.note ?? step.mark;
  if (text !== undefined) marks.push({ at: step.at, kind: "other", text, failed: step.failed });
  else if (step.output === undefined) steps.push(step);
  else steps.push({ at: step.at, bytes: bytesOf(step.output) });
}
const { title, columns, rows } = recording;
const player = new Player({ title, tracks: [{ title, columns, rows, steps }], marks });
document.querySelector("main").append(
  h("h1", recording.title),
  h("p.player-about", new Date(recording.started_at_ms).toISOString(), " ", h("code", recording.command)),
  player.element,
);
