/**
 * HTML of a sandbox, in a frame without any rights: no scripts, no forms, no origin, nothing that it may load. Its only
 * style is this page's own, which the bridge's policy names by its digest.
 */

import { h } from "../dom.js";

const POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'";
const LINE_HEIGHT = 24;
const HEIGHT = { least: 72, most: 480 };

let style;

async function styleSheet() {
  style ??= fetch("/console/frame.css").then((answer) => answer.text());
  return style;
}

/** The frame of an HTML result. */
export function frame(html) {
  const element = h("iframe.display", {
    sandbox: "",
    title: "HTML that the code displays",
    referrerpolicy: "no-referrer",
    height: heightOf(html),
  });
  styleSheet().then((css) => {
    const head = `<!doctype html><meta http-equiv="Content-Security-Policy" content="${POLICY}"><style>${css}</style>`;
    // What is in a frame like this can do nothing, and so nothing of it is taken out.
    element.srcdoc = head + html;
  });
  return element;
}

/** About as high as the HTML is; a frame without rights cannot be measured. */
function heightOf(html) {
  const lines = html.match(/<(tr|br|p|div|li|h[1-6]|hr)\b/gi)?.length ?? 0;
  const isLarge = /<(img|svg|canvas|iframe)\b/i.test(html);
  return isLarge ? HEIGHT.most : Math.min(HEIGHT.most, HEIGHT.least + lines * LINE_HEIGHT);
}
