/** The page that `host-bridge replay --export html` writes: one recording, which is in the page, and its player. */

import { h } from "./dom.js";
import { Player, bytesOf } from "./player.js";

const recording = JSON.parse(document.getElementById("recording").textContent);
const steps = recording.steps.map((step) =>
  step.output === undefined ? step : { at: step.at, bytes: bytesOf(step.output) },
);
const player = new Player({ ...recording, steps });
document.querySelector("main").append(
  h("h1", recording.title),
  h("p.player-about", new Date(recording.started_at_ms).toISOString(), " ", h("code", recording.command)),
  player.element,
);
