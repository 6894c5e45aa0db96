/* Elements, and numbers and tokens as text. */

/** What an element can have: texts, elements, lists of them; nothing, if there is nothing.
 * @typedef {any} Child */

/** Return a function that makes elements: name, attributes, children. A string becomes a text
 * node, so that no text of a reader is ever markup. A function is an event's handler, `style` an
 * object.
 * @param {string} namespace */
const maker =
  (namespace) =>
  /**
   * @param {string} tag
   * @param {Record<string, any>} attributes
   * @param {Child[]} children
   * @returns {any} */
  (tag, attributes = {}, ...children) => {
    const element = /** @type {any} */ (document.createElementNS(namespace, tag));
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") Object.assign(element.style, value);
      else if (typeof value === "function") element.addEventListener(name.slice(2), value);
      else if (value !== undefined && value !== false) element.setAttribute(name, value);
    }
    const all = children.flat(Infinity);
    element.append(...all.filter((it) => it !== undefined && it !== null && it !== false));
    return element;
  };
export const html = maker("http://www.w3.org/1999/xhtml");
export const svg = maker("http://www.w3.org/2000/svg");
/** Return trusted markup of made.js as elements. @param {string} text */
export const markup = (text) => document.createRange().createContextualFragment(text);

/** Replace what an element shows. A part with the focus gives it to the part with the same name.
 * @param {HTMLElement} element
 * @param {string} name an attribute that names the parts, as in data-tile
 * @param {Child[]} children */
export function replace(element, name, children) {
  const active = document.activeElement;
  const focused = active && element.contains(active) ? active.getAttribute(name) : null;
  element.replaceChildren(.../** @type {Node[]} */ (children.flat(Infinity).filter(Boolean)));
  if (focused === null) return;
  const heir = element.querySelector(`[${name}="${CSS.escape(focused)}"]`);
  /** @type {HTMLElement | null} */ (heir)?.focus({ preventScroll: true });
}

const is_calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
/** Scroll until an element is in sight. @param {Element} element */
export const reveal = (element) =>
  element.scrollIntoView({ block: "start", behavior: is_calm() ? "auto" : "smooth" });

// ---- tokens as labels ----
/** Return a token's text as a label, with spaces and line ends visible. @param {string} text */
export function visible(text) {
  const code = (/** @type {string} */ c) => Number(c.codePointAt(0)).toString(16).toUpperCase();
  const shown = text
    .replace(/ /g, "␣")
    .replace(/\n/g, "⏎")
    .replace(/^\p{M}/u, "◌$&")
    .replace(/[\p{C}\p{Z}]/gu, (c) => `⟨U+${code(c)}⟩`);
  const all = [...shown];
  const is_long = all.length > 17; // <|begin_of_text|> fits
  return (is_long ? [...all.slice(0, 10), "…", ...all.slice(-6)].join("") : shown) || "∅";
}
/** Return a label's beginning.
 * @param {string} label
 * @param {number} most */
export function short(label, most) {
  const all = [...label];
  return all.length > most ? `${all.slice(0, Math.max(1, most - 1)).join("")}…` : label;
}

// ---- numbers as text ----
/** Return a number with a comma before each three digits. @param {number} n */
export function with_commas(n) {
  const [whole, ...rest] = String(n).split(".");
  return [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...rest].join(".");
}
/**
 * @param {number} n
 * @param {string} noun */
export const count = (n, noun) => `${with_commas(n)} ${noun}${n === 1 ? "" : "s"}`;
/** Return a rounded number, with a minus sign that is as wide as a plus.
 * @param {number} x
 * @param {number} digits after the point; fewer of a number from 100 on */
export function number(x, digits = 2) {
  const size = Math.abs(x);
  const kept = size < 99.995 ? digits : size < 999.95 ? Math.min(digits, 1) : 0;
  const text = kept || size < 999.5 ? x.toFixed(kept) : with_commas(Math.round(x));
  return text.replace("-", "−");
}
/**
 * @param {Float32Array} x
 * @param {number} n
 * @param {number} digits */
export const numbers = (x, n = 4, digits = 2) =>
  Array.from(x.slice(0, n), (v) => number(v, digits)).join(", ");
/** Return a rounded probability that does not read 0, nor 1 unless it is. @param {number} p */
export function probability(p) {
  if (p === 0 || p === 1 || (p >= 0.005 && p <= 0.995)) return p.toFixed(2);
  return p < 0.0001 ? "<0.0001" : p > 0.9999 ? ">0.9999" : p.toFixed(4);
}
/** @param {number} p */
export function percent(p) {
  if (p > 0 && p < 0.005) return "<1 %";
  return p > 0.995 && p < 1 ? ">99 %" : `${Math.round(100 * p)} %`;
}
/** @param {number} bytes */
export const megabytes = (bytes) => `${Math.round(bytes / 1e6)} MB`;

// ---- vectors ----
/** @param {Iterable<number>} x */
export function sum(x) {
  let all = 0;
  for (const v of x) all += v;
  return all;
}
/**
 * @param {Float32Array} x
 * @param {Float32Array} y */
export const dot = (x, y) => x.reduce((all, v, i) => all + v * y[i], 0);
/** @param {Float32Array} x */
export const length_of = (x) => Math.sqrt(dot(x, x));
/** @param {Float32Array} x */
export const rms_of = (x) => length_of(x) / Math.sqrt(x.length);
/**
 * @param {Float32Array} x
 * @param {Float32Array} y */
export const cosine = (x, y) => dot(x, y) / length_of(x) / length_of(y);
/**
 * @param {Float32Array} x
 * @param {Float32Array} y */
export const minus = (x, y) => x.map((v, i) => v - y[i]);
