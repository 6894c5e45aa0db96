/* Controls: a label around an input that has a setting's name. */
import { html, with_commas } from "./dom.js";
import { DEFAULTS, RANGES } from "./settings.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */

/**
 * @param {Explorer} e
 * @param {string} name
 * @param {string} label
 * @param {string} tag
 * @param {Record<string, any>} attributes
 * @param {import("./dom.js").Child[]} children */
function control(e, name, label, tag, attributes = {}, ...children) {
  const is_number = typeof (/** @type {any} */ (DEFAULTS)[name]) === "number";
  const [least, most] = /** @type {any} */ (RANGES)[name] ?? [0, Infinity];
  const oninput = (/** @type {any} */ { target: it }) => {
    if (it.type === "checkbox") return e.set({ [name]: it.checked });
    if (!is_number) return e.set({ [name]: it.value });
    const value = Number(it.value || NaN);
    if (value >= least && value <= most && it.validity.valid) return e.set({ [name]: value });
    return e.say(`${label}: expected a number from ${least} to ${with_commas(most)}.`, true);
  };
  return html(
    "label",
    { class: "llama-field" },
    html("span", {}, label),
    html(tag, { name, oninput, ...attributes }, ...children),
  );
}
/**
 * @param {Explorer} e
 * @param {keyof typeof RANGES} name
 * @param {string} label */
export function slider(e, name, label) {
  const [min, max, step] = RANGES[name];
  const field = control(e, name, label, "input", { type: "range", min, max, step });
  field.append(html("output", { "aria-hidden": "true" })); // a range says its value
  return field;
}
/**
 * @param {Explorer} e
 * @param {keyof typeof RANGES} name
 * @param {string} label */
export const number_field = (e, name, label) =>
  control(e, name, label, "input", { type: "number", min: RANGES[name][0], max: RANGES[name][1] });
/**
 * @param {Explorer} e
 * @param {string} name
 * @param {string} label
 * @param {[string | number, string | number][]} options */
export const choice = (e, name, label, options) =>
  control(
    e,
    name,
    label,
    "select",
    {},
    options.map(([value, text]) => html("option", { value }, text)),
  );
/**
 * @param {Explorer} e
 * @param {string} name
 * @param {string} label */
export const check_box = (e, name, label) => control(e, name, label, "input", { type: "checkbox" });
/** @param {Explorer} e */
export const sampling_controls = (e) => [
  slider(e, "temperature", "temperature τ (0: greedy)"),
  slider(e, "top_k", "top-k (0: every token)"),
  slider(e, "top_p", "top-p (1: off)"),
  number_field(e, "seed", "seed of the draws"),
];
/** A slider of a setting that depends on the model, from 0 to most.
 * @param {Explorer} e
 * @param {string} name
 * @param {string} label
 * @param {number} most */
export function range(e, name, label, most) {
  const field = control(e, name, label, "input", { type: "range", min: 0, max: most, step: 1 });
  field.append(html("output", { "aria-hidden": "true" }));
  return field;
}
