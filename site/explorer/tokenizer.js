/* Byte-level BPE: text to ids and back (notebook 01). */
import { PromptError } from "./files.js";

// JavaScript's \s is another set of spaces; without case, 's matches ſ (U+017F), too. Characters
// that are newer than a browser's Unicode may be split elsewhere.
const SPACE = String.raw`\p{White_Space}`;
/** How a text is split into pieces that are never merged with each other, by the tokenizer's kind. */
const PATTERNS = {
  "Llama 3": [
    "'(?:[sSſ]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])",
    String.raw`[^\r\n\p{L}\p{N}]?\p{L}+`,
    String.raw`\p{N}{1,3}`,
    String.raw` ?[^${SPACE}\p{L}\p{N}]+[\r\n]*`,
    String.raw`${SPACE}*[\r\n]+`,
    String.raw`${SPACE}+(?!\P{White_Space})`,
    String.raw`${SPACE}+`,
  ],
  SmolLM2: [
    "'(?:[sdmt]|ll|ve|re)",
    String.raw` ?\p{L}+`,
    String.raw`\p{N}`,
    String.raw` ?[^${SPACE}\p{L}\p{N}]+`,
    String.raw`${SPACE}+(?=\p{N})`,
    String.raw`${SPACE}+(?!\P{White_Space})`,
    String.raw`${SPACE}+`,
  ],
};

/** What the page's tokenizer.json has.
 * @typedef {object} Spec
 * @property {keyof typeof PATTERNS} kind
 * @property {(string | null)[]} tokens by id, a token's bytes with one character each; null where
 *   a special token is
 * @property {Record<string, number>} special_tokens id by name
 * @property {number | null} bos the id that begins a text, if one does
 * @property {number[]} stop the ids that end a text */

/** @param {string} text */
export const utf8_of = (text) => new TextEncoder().encode(text);

/** A byte-level BPE tokenizer. */
export class Tokenizer {
  /** @param {Spec} spec */
  constructor({ kind, tokens, special_tokens, bos, stop }) {
    /** A token's id, which is its rank. @type {Map<string, number>} */
    this.ranks = new Map();
    tokens.forEach((token, id) => token !== null && this.ranks.set(token, id));
    this.pattern = new RegExp(PATTERNS[kind].join("|"), "gu");
    this.special_tokens = new Map(Object.entries(special_tokens));
    this.special_ids = new Set(this.special_tokens.values());
    const names = [...this.special_tokens.keys()].map((name) => name.replace(/\|/g, "\\|"));
    this.special_pattern = new RegExp(`(${names.join("|")})`);
    this.bos_id = bos;
    this.stop_tokens = new Set(stop);
    /** The bytes of each id, special ones too. */
    this.tokens = tokens.slice();
    for (const [name, id] of this.special_tokens) this.tokens[id] = name;
  }
  /** Return the token ids of a text, after the id that begins a text if `bos`. Names of special
   * tokens are plain text, unless `special`. Throws if UTF-8 cannot hold the text.
   * @param {string} text */
  encode(text, { bos = false, special = false } = {}) {
    if (/\p{Surrogate}/u.test(text))
      throw new PromptError(
        "The text has half of a character (a lone surrogate), which has no UTF-8 bytes. Delete it.",
      );
    const ids = bos && this.bos_id !== null ? [this.bos_id] : [];
    for (const part of special ? text.split(this.special_pattern) : [text]) {
      const control = special ? this.special_tokens.get(part) : undefined;
      if (control !== undefined) ids.push(control);
      else
        for (const [piece] of part.matchAll(this.pattern))
          this.merge(
            Array.from(utf8_of(piece), (b) => String.fromCharCode(b)),
            ids,
          );
    }
    return ids;
  }
  /** Append the ids of one piece, a list of its bytes: merge the pair of lowest rank, the first of
   * equals, until no pair is a token.
   * @param {string[]} parts
   * @param {number[]} ids */
  merge(parts, ids) {
    const whole = this.ranks.get(parts.join(""));
    if (whole !== undefined) return void ids.push(whole);
    // the last part has no pair (and " undefined" is a token)
    const rank_at = (/** @type {number} */ i) =>
      i + 1 < parts.length ? (this.ranks.get(parts[i] + parts[i + 1]) ?? Infinity) : Infinity;
    const pairs = parts.map((_, i) => rank_at(i));
    for (;;) {
      let first = 0;
      for (let i = 1; i < pairs.length; i++) if (pairs[i] < pairs[first]) first = i;
      if (pairs[first] === Infinity) break;
      parts.splice(first, 2, parts[first] + parts[first + 1]);
      pairs.splice(first, 1);
      pairs[first] = rank_at(first);
      if (first) pairs[first - 1] = rank_at(first - 1);
    }
    for (const part of parts) ids.push(/** @type {number} */ (this.ranks.get(part)));
  }
  /** @param {number} id */
  decode_bytes(id) {
    return Uint8Array.from(this.tokens[id] ?? "", (c) => c.charCodeAt(0));
  }
  /** Return a function from an id to its piece of text, "" until a character is complete. Called
   * without an id, it returns what is left: half an emoji is U+FFFD.
   * @returns {(id?: number) => string} */
  decode_stream() {
    const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
    return (id) =>
      id === undefined ? utf8.decode() : utf8.decode(this.decode_bytes(id), { stream: true });
  }
  /** @param {number[]} ids */
  decode(ids) {
    const next = this.decode_stream();
    return [...ids.map((id) => next(id)), next()].join("");
  }
}
