/**
 * Elements of tags, attributes and text. Whatever comes from a sandbox becomes a text node or an attribute's
 * value here, and never markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: `h("a.link", { href, onclick }, "text", child)`. Children that are null or false are left out.
 */
export function h(name, ...rest) {
  const [tag, ...classes] = name.split(".");
  return fill(document.createElement(tag), classes, rest);
}

/** The same for drawings. */
export function svg(name, ...rest) {
  const [tag, ...classes] = name.split(".");
  return fill(document.createElementNS(SVG, tag), classes, rest);
}

function fill(element, classes, rest) {
  if (classes.length > 0) element.classList.add(...classes);
  const hasAttributes =
    rest[0] !== null && typeof rest[0] === "object" && !(rest[0] instanceof Node) && !Array.isArray(rest[0]);
  if (hasAttributes) put(element, rest.shift());
  append(element, rest);
  return element;
}

function put(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Gives an element other children. */
export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Sets a text, if it is another: selections and screen readers are left alone otherwise. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A link to a page of the web, or only its text if it leads elsewhere. */
export function webLink(url, text = url) {
  const isWeb = /^https?:\/\//i.test(url);
  if (!isWeb) return h("span", text);
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, text);
}
