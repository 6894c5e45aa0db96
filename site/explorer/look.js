/* What an explorer looks at: a text's numbers, a layer, a head, a token, and their names. */
import { count, minus, visible, with_commas } from "./dom.js";
import { large } from "./made.js";
import { tensor_shapes } from "./models.js";
import { GROUPS } from "./pictures.js";

/** @typedef {import("./types.js").Settings} Settings */
/** @typedef {import("./types.js").Config} Config */
/** @typedef {import("./models.js").Model} Model */
/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */
/** @typedef {import("./trace.js").Trace} Trace */

/** The settings of Llama 3.2-1B. */
export const LARGE = /** @type {Config} */ ({
  dim: large.D,
  n_layers: large.L,
  n_heads: large.H,
  n_kv_heads: large.KV,
  vocab_size: large.V,
  head_dim: large.hd,
  hidden_dim: large.F,
});
const unset = /** @type {any} */ (undefined);

/** Say how large a tied Llama is. @param {Config} config */
export function sizes_of(config) {
  const { n_layers, n_heads, n_kv_heads, vocab_size } = config;
  const parameters = [...tensor_shapes(config, true)].reduce(
    (sum, [, shape]) => sum + shape.reduce((a, b) => a * b),
    0,
  );
  return (
    `${with_commas(parameters)} parameters, ${n_layers} layers, ${n_heads} query heads, ` +
    `${n_kv_heads} KV heads, a vocabulary of ${with_commas(vocab_size)} tokens`
  );
}

/** What the stations read of an explorer. */
export class Look {
  /**
   * @param {HTMLElement} section
   * @param {Settings} settings
   * @param {Model} model */
  constructor(section, settings, model) {
    this.section = section;
    this.settings = settings;
    /** The model whose numbers are shown. */
    this.model = model;
    // these come with its files
    /** @type {Config} */
    this.config = unset;
    /** @type {Tokenizer} */
    this.tokenizer = unset;
    /** @type {Trace} */
    this.trace = unset;
  }
  get is_narrow() {
    return this.section.clientWidth < 480;
  }
  get llama() {
    return this.trace.llama;
  }
  /** The ids whose numbers are shown. */
  get ids() {
    return this.trace.ids;
  }
  get T() {
    return this.ids.length;
  }
  /** The ids that were drawn after the prompt. */
  get added_ids() {
    return this.settings.next ? this.settings.next.split(".").map(Number) : [];
  }
  /** The ids of the whole text. */
  get text_ids() {
    const { prompt, special } = this.settings;
    return [...this.tokenizer.encode(prompt, { bos: true, special }), ...this.added_ids];
  }
  /** The position that is looked at. */
  get t() {
    const { token } = this.settings;
    return token < 0 || token >= this.T ? this.T - 1 : token;
  }
  get layer() {
    return this.value_of("layer");
  }
  get head() {
    return this.value_of("head");
  }
  get theta() {
    return this.value_of("theta");
  }
  /** Return a setting's value; of -1 what the model has. @param {string} name @returns {any} */
  value_of(name) {
    const value = this.settings[/** @type {keyof Settings} */ (name)];
    const { about } = this.model;
    const usual = { layer: about.layer, head: about.head, theta: this.config.rope_theta };
    return value === -1 && name in usual ? usual[/** @type {keyof usual} */ (name)] : value;
  }
  get n_rep() {
    return this.config.n_heads / this.config.n_kv_heads;
  }
  group_colour(head = this.head) {
    return GROUPS[Math.floor(head / this.n_rep) % GROUPS.length];
  }
  /** @param {number} t */
  label(t) {
    return this.name(this.ids[t]);
  }
  /** Return the text of ids, without the token that begins a text. @param {number[]} ids */
  text_of(ids) {
    return this.tokenizer.decode(ids.filter((id) => id !== this.tokenizer.bos_id));
  }
  /** Return a token's label in quotes, and which it is, if the text has it twice. @param {number} t */
  named(t) {
    const is_twice = this.ids.filter((id) => id === this.ids[t]).length > 1;
    return `“${this.label(t)}”${is_twice ? ` (position ${t})` : ""}`;
  }
  /** Return a token's label; of a token that is no whole character, its bytes. @param {number} id */
  name(id) {
    const text = this.tokenizer.decode([id]);
    return text.includes("\ufffd") ? `⟨bytes ${this.hex(id)}⟩` : visible(text);
  }
  /** @param {number} id */
  hex(id) {
    return Array.from(this.tokenizer.decode_bytes(id), (byte) =>
      byte.toString(16).padStart(2, "0"),
    ).join(" ");
  }
  weights(head = this.head, layer = this.layer) {
    return this.trace.attention(layer).weights[head];
  }
  /** Return what a sub-layer adds to the stream at a position (D).
   * @param {string} side
   * @param {number} t */
  added(side, t, layer = this.layer) {
    const x = this.trace.row("x", layer, t);
    const h = this.trace.row("h", layer, t);
    return side === "attention" ? minus(h, x) : minus(this.trace.row("x", layer + 1, t), h);
  }
  /** Return the positions that are drawn: all, or the first and the last of a long text. @param {number} most */
  positions(most) {
    const all = Array.from({ length: this.T }, (_, t) => t);
    if (all.length <= most) return all;
    const first = this.t < all.length - most + 2 && this.t && most < 40 ? [0, this.t] : [0];
    return [...first, ...all.slice(first.length - most)];
  }
  get shown() {
    return this.positions(40);
  }
  /** Return a mark if positions before the i-th that is shown are not. @param {number} i */
  gap(i) {
    return i && this.shown[i] > this.shown[i - 1] + 1 ? "⋯ " : "";
  }
  /** Return a row of a table for each position that is shown, up to a last one, and where the chosen
   * position's is. A row in the gap says how many are not shown.
   * @param {(t: number) => any[]} row_of
   * @param {number} last
   * @param {any[]} more
   * @returns {[any[][], number]} */
  table_rows(row_of, last = Infinity, more = []) {
    const shown = this.shown.filter((t) => t <= last);
    const gap = (shown[1] ?? 1) - 1;
    const rows = shown.map(row_of);
    const at = shown.indexOf(this.t) + (gap > 0 && this.t > 0 ? 1 : 0);
    if (gap > 0) rows.splice(1, 0, [`⋯ ${count(gap, "token")} not shown`, ...more]);
    return [rows, at];
  }
  /** Return the tensors outside the blocks, then those of the shown layer, with the 1B's shapes. */
  tensors() {
    const there = Object.fromEntries(tensor_shapes(LARGE, true));
    return [...tensor_shapes(this.config, true)]
      .filter(([name]) => !name.startsWith("layers.") || name.startsWith(`layers.${this.layer}.`))
      .map(([name, shape]) => ({
        name,
        shape,
        theirs: there[name.replace(/^layers\.\d+/, "layers.0")],
      }));
  }
}
