/* What a Llama computes on the way, for one text. */
import { KVCache } from "./llama.js";
import { argmax, softmax, top } from "./sampling.js";
import {
  apply_rotary_emb,
  attention,
  give_back,
  precompute_freqs_cis,
  rms_norm,
  rope_frequencies,
  silu,
} from "./steps.js";

/** @typedef {import("./types.js").Config} Config */
/** @typedef {import("./types.js").Guess} Guess */
/** @typedef {import("./types.js").Weights} Weights */
/** @typedef {import("./llama.js").Llama} Llama */

/** What is kept of each position and layer; what follows from it is computed when it is asked for. */
const RECORDED = ["x", "q", "k", "v", "h", "gate", "up"];
/** Which part of the stream a norm reads. @type {Record<string, string>} */
const NORMS = { attention_norm: "x", ffn_norm: "h" };

/** Row t of every activation of a text, by name and layer: those of RECORDED, the norms' results
 * attention_norm and ffn_norm, and rotated queries and keys, xq and xk. */
export class Trace {
  /**
   * @param {Config} config
   * @param {Weights} w at least the norms' weights, by Meta's names
   * @param {Llama} [llama] which computes what is missing */
  constructor(config, w, llama) {
    this.config = config;
    this.w = w;
    this.llama = llama;
    const longest = llama?.longest ?? 64;
    this.freqs_cis = llama?.freqs_cis ?? precompute_freqs_cis(rope_frequencies(config), longest);
    this.cache = llama && new KVCache(config, longest);
    /** @type {Record<string, Float32Array[][]>} */
    this.rows = {};
    for (const name of RECORDED)
      this.rows[name] = Array.from({ length: config.n_layers + 1 }, () => []);
    /** @type {number[]} */
    this.ids = [];
    /** @type {Map<string, any>} */
    this.seen = new Map();
  }
  /** Make the trace that of ids; what it has of their beginning stays. Returns whether it is
   * complete: not if goes_on() becomes false.
   * @param {number[]} ids
   * @param {() => boolean} goes_on */
  async follow(ids, goes_on) {
    const { llama, cache } = this;
    if (!llama || !cache) throw new Error("a recorded run has one text");
    llama.check_length(ids.length);
    let same = 0;
    while (same < ids.length && ids[same] === this.ids[same]) same++;
    for (const layers of Object.values(this.rows))
      for (const rows of layers) rows.length = Math.min(rows.length, same);
    this.ids = ids.slice(0, same);
    cache.length = same;
    this.seen.clear();
    const see = this.keep.bind(this);
    if (same < ids.length && !(await llama.prefill(ids.slice(same), cache, goes_on, see))) {
      this.ids.push(...ids.slice(same, cache.length));
      return false;
    }
    this.ids = ids.slice();
    return true;
  }
  /** Append the rows of x to what is recorded of a name and layer.
   * @param {string} name
   * @param {Float32Array} x
   * @param {number} layer */
  keep(name, x, layer) {
    const width = this.width(name);
    const copy = x.slice();
    for (let i = 0; i < copy.length; i += width)
      this.rows[name][layer].push(copy.subarray(i, i + width));
  }
  /** Return how many numbers a row has. @param {string} name */
  width(name) {
    const { dim, n_heads, n_kv_heads, head_dim, hidden_dim } = this.config;
    const kv = n_kv_heads * head_dim;
    /** @type {Record<string, number>} */
    const widths = { q: n_heads * head_dim, k: kv, v: kv, gate: hidden_dim, up: hidden_dim };
    return widths[name] ?? dim;
  }
  /**
   * @template T
   * @param {string} key
   * @param {() => T} make
   * @returns {T} */
  once(key, make) {
    if (!this.seen.has(key)) this.seen.set(key, make());
    return this.seen.get(key);
  }
  /** Return an activation's row.
   * @param {string} name
   * @param {number} layer
   * @param {number} t
   * @returns {Float32Array} */
  row(name, layer, t) {
    if (name === "xq" || name === "xk") {
      const row = this.rows[name[1]][layer][t].slice();
      apply_rotary_emb(row, this.freqs_cis, t, 1, this.config.head_dim);
      return row;
    }
    if (!(name in NORMS)) return this.rows[name][layer][t];
    const x = this.rows[NORMS[name]][layer][t];
    const out = new Float32Array(x.length);
    const gamma = /** @type {Float32Array} */ (this.w[`layers.${layer}.${name}.weight`]);
    return rms_norm(x, gamma, this.config.norm_eps, out);
  }
  /** Return one head's vector (hd) of a query, key or value.
   * @param {string} name
   * @param {number} layer
   * @param {number} h counts query heads
   * @param {number} t */
  head(name, layer, h, t) {
    const { head_dim: hd, n_heads, n_kv_heads } = this.config;
    const at = name.endsWith("q") ? h : Math.floor(h / (n_heads / n_kv_heads));
    return this.row(name, layer, t).subarray(at * hd, (at + 1) * hd);
  }
  /** Return a layer's attention: by head and query, weights and scores over the keys that it may
   * see; by query, what the heads give (H·hd).
   * @param {number} layer
   * @returns {{ weights: Float32Array[][], scores: Float32Array[][], heads: Float32Array[] }} */
  attention(layer) {
    return this.once(`attention ${layer}`, () => {
      const { config } = this;
      const T = this.ids.length;
      const join = (/** @type {string} */ name) =>
        joined(this.ids.map((_, t) => this.row(name, layer, t)));
      /** @returns {Float32Array[][]} */
      const by_head = () => Array.from({ length: config.n_heads }, () => []);
      const weights = by_head();
      const scores = by_head();
      const heads = [];
      give_back();
      const out = attention(join("xq"), join("xk"), join("v"), 0, T, config, (t, all, before) => {
        for (let h = 0; h < config.n_heads; h++) {
          weights[h].push(all.subarray(h * (t + 1), (h + 1) * (t + 1)));
          scores[h].push(before.subarray(h * (t + 1), (h + 1) * (t + 1)));
        }
      }).slice();
      const width = out.length / T;
      for (let t = 0; t < T; t++) heads.push(out.subarray(t * width, (t + 1) * width));
      return { weights, scores, heads };
    });
  }
  /** Return silu(gate) · up (F) of position t.
   * @param {number} layer
   * @param {number} t */
  product(layer, t) {
    const up = this.row("up", layer, t);
    return this.row("gate", layer, t).map((x, i) => silu(x) * up[i]);
  }
  /** Return the logits (V) after position t.
   * @param {number} t
   * @returns {Float32Array} */
  logits(t) {
    return this.once(`logits ${t}`, () => {
      const { llama } = this;
      if (!llama) throw new Error(`no logits of position ${t} were recorded`);
      return llama.logits_of(this.row("x", this.config.n_layers, t), 1).slice();
    });
  }
  /** Return what the model would say after position t, if it stopped before layer 0, 1, … or after
   * the last: the logit lens.
   * @param {number} t
   * @returns {Guess[]} */
  lens(t) {
    return this.once(`lens ${t}`, () => {
      const {
        llama,
        config: { n_layers: L, vocab_size: V },
      } = this;
      if (!llama) throw new Error(`no lens of position ${t} was recorded`);
      const stream = joined(Array.from({ length: L + 1 }, (_, l) => this.row("x", l, t)));
      const all = llama.logits_of(stream, L + 1);
      const final = argmax(all.subarray(L * V));
      return Array.from({ length: L + 1 }, (_, l) =>
        guess(all.subarray(l * V, (l + 1) * V), final),
      );
    });
  }
}
/** Return what logits (V) say of the next token, and the rank of one id in them.
 * @param {Float32Array} logits
 * @param {number} id
 * @returns {Guess} */
function guess(logits, id) {
  let rank = 1;
  for (const x of logits) if (x > logits[id]) rank++;
  const probs = softmax(logits.slice());
  return { top: top(probs, 3).map((id) => ({ id, p: probs[id] })), rank };
}
/** @param {Float32Array[]} rows */
function joined(rows) {
  const out = new Float32Array(rows.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const row of rows) {
    out.set(row, at);
    at += row.length;
  }
  return out;
}
/** Return the trace that a file has, which was recorded when the site was built.
 * @param {Config} config
 * @param {Record<string, { shape: number[], data: any }>} tensors */
export function recorded(config, tensors) {
  /** @type {Weights} */
  const norms = {};
  for (const [name, { data }] of Object.entries(tensors))
    if (name.endsWith(".weight")) norms[name] = data;
  const trace = new Trace(config, norms);
  const { n_layers: L, vocab_size: V } = config;
  trace.ids = Array.from(tensors.ids.data);
  for (const name of RECORDED)
    for (let l = 0; l <= L; l++)
      if (tensors[`${name}.${l}`]) trace.keep(name, tensors[`${name}.${l}`].data, l);
  const [ids, probs, ranks] = ["ids", "probs", "ranks"].map((name) => tensors[`lens.${name}`].data);
  const T = trace.ids.length;
  for (let t = 0; t < T; t++) {
    trace.seen.set(`logits ${t}`, tensors.logits.data.subarray(t * V, (t + 1) * V));
    const lens = Array.from({ length: L + 1 }, (_, l) => {
      const at = l * T + t;
      const three = [0, 1, 2].map((i) => 3 * at + i);
      return { top: three.map((i) => ({ id: ids[i], p: probs[i] })), rank: ranks[at] };
    });
    trace.seen.set(`lens ${t}`, lens);
  }
  return trace;
}
