/* What the reader chose: kept in this tab, and in the address, so that it can be shared. */
import { models } from "./made.js";

/** @typedef {import("./types.js").Settings} Settings */

/** What a page begins with. `next` are the ids that were drawn after the prompt; token -1 is the
 * last; a layer, a head or a base of -1 is the model's own.
 * @type {Settings} */
export const DEFAULTS = {
  model: models[0].key,
  prompt: models[0].prompts[0],
  special: false,
  next: "",
  station: "attention",
  layer: -1,
  head: -1,
  token: -1,
  pair: 1,
  side: "attention",
  shift: 0,
  theta: -1,
  bars: 10,
  temperature: 0.7,
  top_k: 0,
  top_p: 0.9,
  seed: 0,
  most: 120,
};
/** The smallest and largest value of a setting, and the step between two. */
export const RANGES = {
  shift: [0, 400, 1],
  theta: [2, 1e7, 0],
  bars: [3, 15, 1],
  temperature: [0, 3, 0.05],
  top_k: [0, 50, 1],
  top_p: [0.05, 1, 0.05],
  seed: [0, 2 ** 31 - 1, 1],
  most: [1, 500, 1],
};
/** The settings that choose the next token. */
export const SAMPLING = ["temperature", "top_k", "top_p", "seed"];
/** The settings that make a text another one. */
export const TEXT = ["model", "prompt", "special", "next"];
const KEY = "llama-explorer";

/** Return a storage of this tab, or nothing where a page may have none. */
function storage() {
  try {
    return window.sessionStorage;
  } catch {
    return undefined;
  }
}
/** Return what this tab had before; nothing if that is damaged. */
function kept_settings() {
  try {
    const found = { ...JSON.parse(storage()?.getItem(KEY) ?? "{}") };
    delete found.station; // each page begins with its own
    return found;
  } catch {
    return {};
  }
}
/** Return the settings: of the address, else those that this tab had before, else the page's own.
 * @param {Partial<Settings>} own
 * @returns {Settings} */
export function read_settings(own) {
  const given = Object.fromEntries(new URLSearchParams(location.search));
  const kept = kept_settings();
  // another text's continuation is none of this one's
  if (["model", "prompt"].some((name) => Object.hasOwn(given, name) && given[name] !== kept[name]))
    kept.next = "";
  /** @type {Record<string, any>} */
  const found = { ...DEFAULTS, ...own };
  for (const from of [kept, given])
    for (const [name, usual] of Object.entries(DEFAULTS)) {
      if (!Object.hasOwn(from, name)) continue;
      const value = from[name];
      if (typeof usual === "number") found[name] = Number.isFinite(+value) ? +value : found[name];
      else found[name] = typeof usual === "boolean" ? String(value) === "true" : String(value);
    }
  // a prompt in an address, of before there were two models, is of the first that is there
  if (!models.some(({ key }) => key === found.model)) found.model = DEFAULTS.model;
  return /** @type {Settings} */ (found);
}
/** Keep the settings in this tab. @param {Settings} settings */
export function keep_settings(settings) {
  try {
    storage()?.setItem(KEY, JSON.stringify({ ...settings, shift: 0 }));
  } catch {
    // full or forbidden: the page works without
  }
}
/** Return the settings that differ from a page's own, as an address's end.
 * @param {Settings} settings
 * @param {Partial<Settings>} own */
export function query_of(settings, own) {
  const usual = { ...DEFAULTS, ...own };
  const changed = Object.entries(settings).filter(
    ([name, value]) => value !== usual[/** @type {keyof Settings} */ (name)],
  );
  return changed.length ? `?${new URLSearchParams(/** @type {any} */ (changed))}` : "";
}
/** Replace values that no setting can have by the usual ones.
 * @param {Settings} settings
 * @param {import("./types.js").Config} config
 * @param {import("./types.js").About} about */
export function check_settings(settings, config, about) {
  /** @type {Record<string, any>} */
  const found = settings;
  const ranges = {
    layer: [-1, config.n_layers - 1, 1],
    head: [-1, config.n_heads - 1, 1],
    pair: [0, config.head_dim / 2 - 1, 1],
    token: [-1, about.longest - 1, 1],
    ...RANGES,
  };
  for (const [name, [least, most, step]] of Object.entries(ranges)) {
    const usual = /** @type {any} */ (DEFAULTS)[name];
    const value = found[name];
    const is_whole = step !== 1 || Number.isInteger(value);
    const is_right = value === usual || (value >= least && value <= most && is_whole);
    if (!is_right) found[name] = Math.min(usual, most);
  }
  if (settings.side !== "ffn") settings.side = "attention";
  const ids = settings.next.split(".");
  const is_id = (/** @type {string} */ id) => /^\d+$/.test(id) && +id < config.vocab_size;
  if (settings.next && !ids.every(is_id)) settings.next = "";
}
