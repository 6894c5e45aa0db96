/* A Llama in the page (notebooks 07 and 09): llamalib once more, with the same names. The letters
of shapes: see steps.js. */
import { PromptError } from "./files.js";
import { generator, pick } from "./sampling.js";
import {
  apply_rotary_emb,
  attention,
  feed_forward,
  give_back,
  linear,
  precompute_freqs_cis,
  rms_norm,
  rope_frequencies,
  row_of,
} from "./steps.js";

/** @typedef {import("./types.js").Config} Config */
/** @typedef {import("./types.js").Weights} Weights */
/** @typedef {import("./types.js").See} See */
/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */

/**
 * @param {Float32Array} x
 * @param {Float32Array} y */
function add(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
}
/** Keys and values (S, KV·hd) of every layer, for the positions seen. */
export class KVCache {
  /**
   * @param {Config} config
   * @param {number} max_seq_len */
  constructor({ n_layers, n_kv_heads, head_dim }, max_seq_len) {
    const size = max_seq_len * n_kv_heads * head_dim;
    const empty = () => Array.from({ length: n_layers }, () => new Float32Array(size));
    this.k = empty();
    this.v = empty();
    this.length = 0;
  }
  /**
   * @param {number} layer
   * @param {Float32Array} xk
   * @param {Float32Array} xv
   * @param {number} T */
  update(layer, xk, xv, T) {
    this.k[layer].set(xk, (this.length * xk.length) / T);
    this.v[layer].set(xv, (this.length * xv.length) / T);
    return [this.k[layer], this.v[layer]];
  }
}
export const BLOCK_WEIGHTS = [
  "attention_norm",
  "attention.wq",
  "attention.wk",
  "attention.wv",
  "attention.wo",
  "ffn_norm",
  "feed_forward.w1",
  "feed_forward.w2",
  "feed_forward.w3",
];

/** A Llama. */
export class Llama {
  /**
   * @param {Config} config
   * @param {Weights} w each tensor by Meta's name
   * @param {Tokenizer} tokenizer
   * @param {number} longest the most positions of a text
   * @param {number} piece the positions that are computed before the page may draw */
  constructor(config, w, tokenizer, longest, piece = 32) {
    this.config = config;
    this.w = w;
    this.tokenizer = tokenizer;
    this.longest = longest;
    this.piece = piece;
    this.freqs_cis = precompute_freqs_cis(rope_frequencies(config), longest);
  }
  /** Return a norm's weight. @param {string} name */
  gamma(name) {
    return /** @type {Float32Array} */ (this.w[name]);
  }
  /** Run one block on the residual stream x (T, D), in place.
   * @param {Float32Array} x
   * @param {number} layer
   * @param {KVCache} cache
   * @param {number} T
   * @param {See} [see] called with what is computed on the way, one row a position; the arrays are
   *   used again afterwards */
  transformer_block(x, layer, cache, T, see) {
    give_back(); // what the block before borrowed is free
    const { head_dim, norm_eps } = this.config;
    const start = cache.length;
    const [norm1, wq, wk, wv, wo, norm2, w1, w2, w3] = BLOCK_WEIGHTS.map(
      (name) => this.w[`layers.${layer}.${name}.weight`],
    );
    see?.("x", x, layer);
    let x_norm = rms_norm(x, /** @type {Float32Array} */ (norm1), norm_eps); // (T, D)
    const xq = linear(x_norm, wq, T); // (T, H·hd)
    const xk = linear(x_norm, wk, T);
    const xv = linear(x_norm, wv, T); // (T, KV·hd)
    see?.("q", xq, layer);
    see?.("k", xk, layer);
    see?.("v", xv, layer);
    apply_rotary_emb(xq, this.freqs_cis, start, T, head_dim);
    apply_rotary_emb(xk, this.freqs_cis, start, T, head_dim);
    const [keys, values] = cache.update(layer, xk, xv, T); // (S, KV·hd)
    const heads = attention(xq, keys, values, start, T, this.config);
    add(x, linear(heads, wo, T));
    see?.("h", x, layer);
    x_norm = rms_norm(x, /** @type {Float32Array} */ (norm2), norm_eps);
    add(x, feed_forward(x_norm, w1, w2, w3, T, see && ((name, x) => see(name, x, layer))));
  }
  /** Run ids through the model and append them to the cache.
   * Returns the logits (V) of the token after the last.
   * @param {number[]} ids
   * @param {KVCache} cache
   * @param {See} [see] as in transformer_block */
  forward(ids, cache, see) {
    const { dim: D, n_layers, norm_eps } = this.config;
    const T = ids.length;
    const x = this.embed(ids);
    for (let l = 0; l < n_layers; l++) this.transformer_block(x, l, cache, T, see);
    see?.("x", x, n_layers);
    cache.length += T;
    give_back();
    return this.output(
      rms_norm(x.subarray((T - 1) * D), this.gamma("norm.weight"), norm_eps),
    ).slice();
  }
  /** Return the embeddings of ids (T, D). @param {number[]} ids */
  embed(ids) {
    const { dim: D } = this.config;
    const x = new Float32Array(ids.length * D);
    ids.forEach((id, t) => x.set(row_of(this.w["tok_embeddings.weight"], id, D), t * D));
    return x;
  }
  /** Return the logits (T, V) of normalized vectors (T, D).
   * @param {Float32Array} x
   * @param {number} T */
  output(x, T = 1) {
    return linear(x, this.w["output.weight"] ?? this.w["tok_embeddings.weight"], T);
  }
  /** Return the logits (T, V) of vectors of the stream (T, D), as if they left the last layer.
   * @param {Float32Array} x
   * @param {number} T */
  logits_of(x, T) {
    give_back();
    return this.output(rms_norm(x, this.gamma("norm.weight"), this.config.norm_eps), T);
  }
  /** Throw if a text of n tokens is too long for this page. @param {number} n */
  check_length(n) {
    const { longest } = this;
    if (n > longest)
      throw new PromptError(
        `The text has ${n} tokens; this page holds at most ${longest}. ` +
          `Shorten it by ${n - longest} tokens or more.`,
      );
  }
  /** Run a prompt in pieces, so that the page stays responsive. Returns the last logits (V), or
   * nothing if goes_on() is false before a piece.
   * @param {number[]} ids
   * @param {KVCache} cache
   * @param {() => boolean} [goes_on]
   * @param {See} [see] as in transformer_block */
  async prefill(ids, cache, goes_on = () => true, see) {
    const V = this.config.vocab_size;
    if (!ids.length || !ids.every((id) => Number.isInteger(id) && id >= 0 && id < V))
      throw new RangeError(`ids are [${ids}]; expected one or more whole numbers below ${V}`);
    this.check_length(cache.length + ids.length);
    let logits;
    for (let start = 0; start < ids.length; start += this.piece) {
      if (start) await tick();
      if (!goes_on()) return undefined;
      logits = this.forward(ids.slice(start, start + this.piece), cache, see);
    }
    return logits;
  }
  /** Return the logits (V) of the token after ids, at least one id.
   * @param {number[]} ids
   * @param {() => boolean} [goes_on] */
  logits(ids, goes_on) {
    return this.prefill(ids, new KVCache(this.config, this.longest), goes_on);
  }
  /** Continue a prompt, one id at a time. It ends before a stop token and where the page ends.
   * @param {number[]} ids
   * @param {import("./types.js").Sampling & { max_new_tokens?: number, stop?: Set<number>,
   *   seed?: number, random?: () => number, goes_on?: () => boolean }} options */
  async *generate(ids, options = {}) {
    const { max_new_tokens = this.longest, stop = this.tokenizer.stop_tokens, seed } = options;
    const cache = new KVCache(this.config, this.longest);
    const random = options.random ?? generator(seed);
    let logits = await this.prefill(ids, cache, options.goes_on);
    for (let n = 1; logits && n <= max_new_tokens; n++) {
      const id = pick(logits, random, options);
      if (stop.has(id)) return;
      yield id;
      await tick();
      if (cache.length === this.longest) return;
      if (n < max_new_tokens) logits = this.forward([id], cache);
    }
  }
}
/** Let the browser draw and handle clicks; a timer would wait 4 ms. */
export const tick = () =>
  new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => resolve(port1.close());
    port2.postMessage(0);
  });
