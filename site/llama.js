/* A Llama in the page: the pocket's weights and tokenizer, run by the browser.

It is llamalib once more, with the same names. explorer.js shows what it computes. A page has one
model, which is fetched once.

Letters: T query positions, S key positions, D model dim, H query heads, KV key/value heads,
hd head dim, F hidden dim of the FFN, V vocabulary, L layers. A matrix is a Float32Array, row
after row: entry (t, i) of (T, D) is x[t * D + i]. Sums are float64, JavaScript's numbers. */
"use strict";
(() => {
// A page that carries its files in itself has them in base64, by name, in llama_files.
const FILES = window.llama_files ?? {};
const FOLDER = new URL("pocket/", document.currentScript.src || location.href);
const LONGEST = 512; // positions of a text in this page; the pocket was trained on 256
const LONGEST_TEXT = 10000; // characters that are encoded at once
class UserError extends Error {} // the page explains its message to the reader

// ---- tokenizer (notebook 01) ----
// JavaScript's \s is another set of spaces; without case, 's matches ſ (U+017F), too. Characters
// that are newer than a browser's Unicode may be split elsewhere; the pocket has no token of them.
const SPLIT_PATTERN = new RegExp([
  "'(?:[sSſ]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])",
  String.raw`[^\r\n\p{L}\p{N}]?\p{L}+`,
  String.raw`\p{N}{1,3}`,
  String.raw` ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*`,
  String.raw`\p{White_Space}*[\r\n]+`,
  String.raw`\p{White_Space}+(?!\P{White_Space})`,
  String.raw`\p{White_Space}+`,
].join("|"), "gu");
const RESERVED = Array.from({ length: 248 }, (_, i) => `<|reserved_special_token_${i}|>`);
const SPECIAL_TOKENS = [
  "<|begin_of_text|>", "<|end_of_text|>", ...RESERVED.slice(0, 2), "<|finetune_right_pad_id|>",
  RESERVED[2], "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>",
  "<|python_tag|>", ...RESERVED.slice(3)];
const SPECIAL_PATTERN = new RegExp(
  `(${SPECIAL_TOKENS.map((name) => name.replace(/\|/g, "\\|")).join("|")})`);
const utf8_of = (text) => new TextEncoder().encode(text);
/** Read tokenizer.model: lines of a token in base64, a space and its rank.
    Returns a Map from a token's bytes, as a string with one character each, to its rank. */
function read_ranks(text) {
  const ranks = new Map();
  for (const line of text.trimEnd().split("\n")) {
    const [token, rank] = line.split(" ");
    if (Number(rank) !== ranks.size) throw new Error(`${line} is not rank ${ranks.size}`);
    ranks.set(atob(token), ranks.size);
  }
  return ranks;
}
/** Llama 3's tokenizer: byte-level BPE. */
class Tokenizer {
  constructor(ranks) {
    const id = (name) => ranks.size + SPECIAL_TOKENS.indexOf(`<|${name}|>`);
    Object.assign(this, { ranks, bos_id: id("begin_of_text") });
    this.special_tokens = new Map(SPECIAL_TOKENS.map((name, i) => [name, ranks.size + i]));
    this.tokens = [...ranks.keys(), ...SPECIAL_TOKENS];
    this.stop_tokens = new Set([id("end_of_text"), id("eot_id"), id("eom_id")]);
  }
  /** Return the token ids of a text. Names of special tokens are plain text, unless `special`
      is true. Throws if UTF-8 cannot hold the text. */
  encode(text, { bos = false, special = false } = {}) {
    if (/\p{Surrogate}/u.test(text)) throw new UserError("The text has half of a character (a " +
      "lone surrogate), which has no UTF-8 bytes. Delete it.");
    const ids = bos ? [this.bos_id] : [];
    for (const part of special ? text.split(SPECIAL_PATTERN) : [text]) {
      const control = special ? this.special_tokens.get(part) : undefined;
      if (control !== undefined) ids.push(control);
      else for (const [piece] of part.matchAll(SPLIT_PATTERN))
        this.merge(Array.from(utf8_of(piece), (b) => String.fromCharCode(b)), ids);
    }
    return ids;
  }
  /** Append the ids of one pre-token, a list of its bytes: merge the pair of lowest rank, the
      first of equals, until no pair is a token. */
  merge(parts, ids) {
    const whole = this.ranks.get(parts.join(""));
    if (whole !== undefined) return void ids.push(whole);
    const rank_at = (i) => this.ranks.get(parts[i] + parts[i + 1]) ?? Infinity;
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
    for (const part of parts) ids.push(this.ranks.get(part));
  }
  decode_bytes(id) { return Uint8Array.from(this.tokens[id] ?? "", (c) => c.charCodeAt(0)); }
  /** Return a function from an id to its piece of text, "" until a character is complete. Called
      without an id, it returns what is left: half an emoji is U+FFFD. */
  decode_stream() {
    const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
    return (id) => utf8.decode(this.decode_bytes(id), { stream: id !== undefined });
  }
  decode(ids) { return [...ids, undefined].map(this.decode_stream()).join(""); }
}

// ---- the steps of the model (notebooks 02 to 07) ----
let scratch = new Float32Array(0), used = 0;
/** Return an array of n numbers from memory that each block uses again: new arrays pile up. */
function borrow(n) {
  if ((used += n) > scratch.length) scratch = new Float32Array(2 * used);
  return scratch.subarray(used - n, used);
}
/** Multiply x (T, n) by the transpose of w (m, n). Returns (T, m); m is a multiple of 4.
    Plainly, for each t and j: out[t * m + j] is the sum over i of x[t * n + i] * w[j * n + i].
    Here 8 sums, a to h, grow together, so that each number is loaded for several of them. */
function linear(x, w, T) {
  const n = x.length / T, m = w.length / n, out = borrow(T * m);
  if (m % 4) throw new RangeError(`w has ${m} rows; expected a multiple of 4`);
  let t = 0;
  for (; t + 4 <= T; t += 4) {
    const x0 = t * n, x1 = x0 + n, x2 = x1 + n, x3 = x2 + n;
    for (let j = 0; j < m; j += 2) {
      const w0 = j * n, w1 = w0 + n, o = t * m + j;
      let a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
      for (let i = 0; i < n; i++) {
        const p = w[w0 + i], q = w[w1 + i];
        a += x[x0 + i] * p; b += x[x1 + i] * p; c += x[x2 + i] * p; d += x[x3 + i] * p;
        e += x[x0 + i] * q; f += x[x1 + i] * q; g += x[x2 + i] * q; h += x[x3 + i] * q;
      }
      out[o] = a; out[o + m] = b; out[o + 2 * m] = c; out[o + 3 * m] = d;
      out[o + 1] = e; out[o + m + 1] = f; out[o + 2 * m + 1] = g; out[o + 3 * m + 1] = h;
    }
  }
  for (; t < T; t++) { // a single row, as in decoding, with four of w
    for (let j = 0, row = t * n; j < m; j += 4) {
      const w0 = j * n, w1 = w0 + n, w2 = w1 + n, w3 = w2 + n;
      let a = 0, b = 0, c = 0, d = 0;
      for (let i = 0; i < n; i++) {
        const p = x[row + i];
        a += p * w[w0 + i]; b += p * w[w1 + i]; c += p * w[w2 + i]; d += p * w[w3 + i];
      }
      out.set([a, b, c, d], t * m + j);
    }
  }
  return out;
}
/** Scale each row of x (T, D) to a root mean square of 1, then by weight (D). */
function rms_norm(x, weight, eps) {
  const D = weight.length, out = borrow(x.length);
  for (let row = 0; row < x.length; row += D) {
    let squares = 0;
    for (let i = 0; i < D; i++) squares += x[row + i] ** 2;
    const scale = 1 / Math.sqrt(squares / D + eps);
    for (let i = 0; i < D; i++) out[row + i] = x[row + i] * scale * weight[i];
  }
  return out;
}
/** Return radians per position of each pair (hd/2), float32. Low frequencies are scaled down, as
    Llama 3.1 and 3.2's configs say; by how much, as published. */
function rope_frequencies({ head_dim, rope_theta, use_scaled_rope, rope_scaling_factor, dim }) {
  const factor = use_scaled_rope ? rope_scaling_factor ?? (dim < 4096 ? 32 : 8) : 1;
  return Float32Array.from({ length: head_dim / 2 }, (_, k) => {
    const freq = rope_theta ** (-2 * k / head_dim), wavelength = 2 * Math.PI / freq;
    const blend = Math.min(1, Math.max(0, (8192 / wavelength - 1) / (4 - 1)));
    return (1 - blend) * freq / factor + blend * freq;
  });
}
/** Return cos and sin (end, hd/2, 2) of every position's angle by pair. */
function precompute_freqs_cis(freqs, end) {
  const out = new Float32Array(2 * end * freqs.length);
  for (let m = 0, i = 0; m < end; m++) {
    for (const freq of freqs) {
      out[i++] = Math.cos(Math.fround(m * freq));
      out[i++] = Math.sin(Math.fround(m * freq));
    }
  }
  return out;
}
const angles_of = (config) => precompute_freqs_cis(rope_frequencies(config), LONGEST);
/** Rotate the pairs of x (T, heads, hd) in place; row 0 is at position `start`. */
function apply_rotary_emb(x, freqs_cis, start, T, head_dim) {
  const width = x.length / T;
  for (let i = 0; i < x.length; i += 2) {
    const at = (start + Math.floor(i / width)) * head_dim + i % head_dim;
    const cos = freqs_cis[at], sin = freqs_cis[at + 1], a = x[i], b = x[i + 1];
    x[i] = a * cos - b * sin;
    x[i + 1] = a * sin + b * cos;
  }
}
/** Replace scores by their softmax. */
function softmax(scores) {
  const n = scores.length;
  let largest = -Infinity, sum = 0;
  for (let i = 0; i < n; i++) largest = Math.max(largest, scores[i]);
  for (let i = 0; i < n; i++) sum += scores[i] = Math.exp(scores[i] - largest);
  for (let i = 0; i < n; i++) scores[i] /= sum;
  return scores;
}
/** Average the values by each query's weights, softmax(QKᵀ / √hd). Returns (T, H·hd).
    xq (T, H, hd); xk, xv (S, KV, hd), of which query t sees the first start + t + 1.
    see(t, weights): called with each query's weights (H, S) and scores (H, S), if given. */
function attention(xq, xk, xv, start, T, { head_dim: hd, n_heads: H, n_kv_heads: KV }, see) {
  const out = borrow(T * H * hd).fill(0), root = Math.sqrt(hd), n_rep = H / KV;
  for (let t = 0; t < T; t++) {
    const S = start + t + 1; // the causal mask: later keys are not read
    const weights = new Float32Array(H * S);
    for (let h = 0; h < H; h++) {
      const query = (t * H + h) * hd, kv = Math.floor(h / n_rep) * hd;
      for (let s = 0, key = kv; s < S; s++, key += KV * hd) {
        let score = 0;
        for (let i = 0; i < hd; i++) score += xq[query + i] * xk[key + i];
        weights[h * S + s] = score / root;
      }
    }
    const scores = see && weights.slice();
    for (let h = 0; h < H; h++) {
      const query = (t * H + h) * hd, kv = Math.floor(h / n_rep) * hd;
      const row = softmax(weights.subarray(h * S, (h + 1) * S));
      for (let s = 0, value = kv; s < S; s++, value += KV * hd) {
        for (let i = 0; i < hd; i++) out[query + i] += row[s] * xv[value + i];
      }
    }
    see?.(t, weights, scores);
  }
  return out;
}
const silu = (x) => x / (1 + Math.exp(-x));
/** Compute SwiGLU of x (T, D): gate by w1, up by w3, down by w2.
    see(name, x): called with gate and up (T, F), if given. */
function feed_forward(x, w1, w2, w3, T, see) {
  const gate = linear(x, w1, T), up = linear(x, w3, T); // (T, F)
  see?.("gate", gate);
  see?.("up", up);
  for (let i = 0; i < gate.length; i++) gate[i] = silu(gate[i]) * up[i];
  return linear(gate, w2, T); // (T, D)
}
const add = (x, y) => { for (let i = 0; i < x.length; i++) x[i] += y[i]; };
/** Keys and values (S, KV·hd) of every layer, for the positions seen. */
class KVCache {
  constructor({ n_layers, n_kv_heads, head_dim }, max_seq_len = LONGEST) {
    const size = max_seq_len * n_kv_heads * head_dim;
    const empty = () => Array.from({ length: n_layers }, () => new Float32Array(size));
    Object.assign(this, { k: empty(), v: empty(), length: 0 });
  }
  update(layer, xk, xv, T) {
    this.k[layer].set(xk, this.length * xk.length / T);
    this.v[layer].set(xv, this.length * xv.length / T);
    return [this.k[layer], this.v[layer]];
  }
}
const BLOCK_WEIGHTS = ["attention_norm", "attention.wq", "attention.wk", "attention.wv",
  "attention.wo", "ffn_norm", "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"];
/** Throw if a text of n tokens is too long for this page. */
function check_length(n) {
  if (n > LONGEST) throw new UserError(`The text has ${n} tokens; this page holds at most ` +
    `${LONGEST}. Shorten it by ${n - LONGEST} tokens or more.`);
}
/** A Llama. w: each tensor, a Float32Array, by Meta's name. */
class Llama {
  constructor(config, w, tokenizer) {
    Object.assign(this, { config, w, tokenizer, freqs_cis: angles_of(config) });
  }
  /** Return an empty Trace of this model. */
  trace() { return new Trace(this.config, this.freqs_cis, this); }
  /** Run one block on the residual stream x (T, D), in place. see(name, x): called with what is
      computed on the way, one row a position; the arrays are used again afterwards. */
  transformer_block(x, layer, cache, T, see) {
    used = 0; // what the block before borrowed is free
    const { head_dim, norm_eps } = this.config, start = cache.length;
    const [norm1, wq, wk, wv, wo, norm2, w1, w2, w3] = BLOCK_WEIGHTS.map(
      (name) => this.w[`layers.${layer}.${name}.weight`]);
    see?.("x", x);
    let x_norm = rms_norm(x, norm1, norm_eps); // (T, D)
    see?.("attention_norm", x_norm);
    const xq = linear(x_norm, wq, T); // (T, H·hd)
    const xk = linear(x_norm, wk, T), xv = linear(x_norm, wv, T); // (T, KV·hd)
    see?.("q", xq);
    see?.("k", xk);
    see?.("v", xv);
    apply_rotary_emb(xq, this.freqs_cis, start, T, head_dim);
    apply_rotary_emb(xk, this.freqs_cis, start, T, head_dim);
    const [keys, values] = cache.update(layer, xk, xv, T); // (S, KV·hd)
    const heads = attention(xq, keys, values, start, T, this.config);
    add(x, linear(heads, wo, T));
    see?.("h", x);
    x_norm = rms_norm(x, norm2, norm_eps);
    see?.("ffn_norm", x_norm);
    add(x, feed_forward(x_norm, w1, w2, w3, T, see));
  }
  /** Run ids through the model and append them to the cache. see(name, x, layer): see
      transformer_block; also called with norm (T, D), the last norm's result.
      Returns the logits (V) of the token after the last. */
  forward(ids, cache, see) {
    const { dim: D, n_layers, norm_eps } = this.config, T = ids.length;
    const x = this.embed(ids);
    for (let l = 0; l < n_layers; l++)
      this.transformer_block(x, l, cache, T, see && ((name, x) => see(name, x, l)));
    see?.("x", x, n_layers);
    cache.length += T;
    const rows = see ? x : x.subarray((T - 1) * D); // without see, the last row is enough
    const last = rms_norm(rows, this.w["norm.weight"], norm_eps);
    see?.("norm", last, 0);
    return this.output(last.subarray(last.length - D)).slice();
  }
  /** Return the embeddings of ids (T, D). */
  embed(ids) {
    const { dim: D } = this.config, x = new Float32Array(ids.length * D);
    const embedding = this.w["tok_embeddings.weight"];
    ids.forEach((id, t) => x.set(embedding.subarray(id * D, (id + 1) * D), t * D));
    return x;
  }
  /** Return the logits (V) of a normalized vector (D). */
  output(x) { return linear(x, this.w["output.weight"] ?? this.w["tok_embeddings.weight"], 1); }
  /** Run a prompt in pieces, so that the page stays responsive. Returns the last logits (V), or
      nothing if goes_on() is false before a piece. see: as in forward. */
  async prefill(ids, cache, goes_on = () => true, see) {
    const V = this.config.vocab_size, is_id = (id) => Number.isInteger(id) && id >= 0 && id < V;
    if (!ids.length || !ids.every(is_id))
      throw new RangeError(`ids are [${ids}]; expected one or more whole numbers below ${V}`);
    check_length(cache.length + ids.length);
    let logits;
    for (let start = 0; start < ids.length; start += 32) {
      if (start) await tick();
      if (!goes_on()) return;
      logits = this.forward(ids.slice(start, start + 32), cache, see);
    }
    return logits;
  }
  /** Return the logits (V) of the token after ids, at least one id. */
  logits(ids, goes_on) { return this.prefill(ids, new KVCache(this.config), goes_on); }
  /** Continue a prompt, one id at a time. It ends before a stop token and at LONGEST positions.
      options: max_new_tokens, stop, temperature, top_k, top_p, seed or random, goes_on. */
  async * generate(ids, options = {}) {
    const { max_new_tokens = LONGEST, stop = this.tokenizer.stop_tokens, seed } = options;
    const cache = new KVCache(this.config), random = options.random ?? generator(seed);
    let logits = await this.prefill(ids, cache, options.goes_on);
    for (let n = 1; logits && n <= max_new_tokens; n++) {
      const id = pick(logits, random, options);
      if (stop.has(id)) return;
      yield id;
      await tick();
      if (cache.length === LONGEST) return;
      if (n < max_new_tokens) logits = this.forward([id], cache);
    }
  }
}
/** What a Llama computes on the way, for one text: row t of every activation, by name and layer.
    x, attention_norm, q, k, v, h, ffn_norm, gate and up are recorded; what follows from them is
    computed again when it is asked for. */
class Trace {
  constructor(config, freqs_cis, llama) {
    const layers = () => Array.from({ length: config.n_layers + 1 }, () => []);
    const rows = Object.fromEntries(RECORDED.map((name) => [name, layers()]));
    const cache = llama && new KVCache(config);
    Object.assign(this, { config, freqs_cis, llama, rows, cache, ids: [], seen: new Map() });
  }
  /** Make the trace that of ids; what it has of their beginning stays. Returns whether it is
      complete: not if goes_on() becomes false. */
  async follow(ids, goes_on) {
    check_length(ids.length);
    let same = 0;
    while (same < ids.length && ids[same] === this.ids[same]) same++;
    for (const layers of Object.values(this.rows)) for (const rows of layers)
      rows.length = Math.min(rows.length, same);
    this.ids = ids.slice(0, same);
    this.cache.length = same;
    this.seen.clear();
    const see = (name, x, layer) => this.keep(name, x, layer);
    if (same < ids.length && !await this.llama.prefill(ids.slice(same), this.cache, goes_on, see)) {
      this.ids.push(...ids.slice(same, this.cache.length));
      return false;
    }
    this.ids = ids.slice();
    return true;
  }
  /** Append the rows of x to what is recorded of a name and layer. */
  keep(name, x, layer) {
    const width = this.width(name), copy = x.slice();
    for (let i = 0; i < copy.length; i += width)
      this.rows[name][layer].push(copy.subarray(i, i + width));
  }
  width(name) {
    const { dim, n_heads, n_kv_heads, head_dim, hidden_dim } = this.config;
    return { q: n_heads * head_dim, k: n_kv_heads * head_dim, v: n_kv_heads * head_dim,
      gate: hidden_dim, up: hidden_dim }[name] ?? dim;
  }
  once(key, make) {
    if (!this.seen.has(key)) this.seen.set(key, make());
    return this.seen.get(key);
  }
  /** Return a recorded activation's row, or rotated queries (xq) and keys (xk). */
  row(name, layer, t) {
    if (name !== "xq" && name !== "xk") return this.rows[name][layer][t];
    const row = this.rows[name[1]][layer][t].slice();
    apply_rotary_emb(row, this.freqs_cis, t, 1, this.config.head_dim);
    return row;
  }
  /** Return one head's vector (hd) of a query, key or value; h counts query heads. */
  head(name, layer, h, t) {
    const { head_dim: hd, n_heads, n_kv_heads } = this.config;
    const at = name.endsWith("q") ? h : Math.floor(h / (n_heads / n_kv_heads));
    return this.row(name, layer, t).subarray(at * hd, (at + 1) * hd);
  }
  /** Return { weights, scores, heads }: by head and query, a layer's attention weights and scores
      over the keys that it may see; by query, what the heads give (H·hd). */
  attention(layer) {
    return this.once(`attention ${layer}`, () => {
      const { config } = this, T = this.ids.length, join = (name) => joined(
        this.ids.map((_, t) => this.row(name, layer, t)));
      const by_head = () => Array.from({ length: config.n_heads }, () => []);
      const found = { weights: by_head(), scores: by_head(), heads: [] };
      used = 0;
      const out = attention(join("xq"), join("xk"), join("v"), 0, T, config, (t, weights, scores) => {
        for (let h = 0; h < config.n_heads; h++) {
          found.weights[h].push(weights.subarray(h * (t + 1), (h + 1) * (t + 1)));
          found.scores[h].push(scores.subarray(h * (t + 1), (h + 1) * (t + 1)));
        }
      }).slice();
      const width = out.length / T;
      for (let t = 0; t < T; t++) found.heads.push(out.subarray(t * width, (t + 1) * width));
      return found;
    });
  }
  /** Return silu(gate) · up (F) of position t. */
  product(layer, t) {
    const up = this.row("up", layer, t);
    return this.row("gate", layer, t).map((x, i) => silu(x) * up[i]);
  }
  /** Return the logits (V) after position t, and what the model would say if layer were the last:
      the final norm and the output matrix, applied to x. Nothing if the weights are missing. */
  logits(t, layer = this.config.n_layers) {
    const key = `logits ${t} ${layer}`;
    if (!this.llama) return this.seen.get(key);
    return this.once(key, () => {
      used = 0;
      const x = this.row("x", layer, t), { w, config } = this.llama;
      return this.llama.output(rms_norm(x, w["norm.weight"], config.norm_eps)).slice();
    });
  }
}
const RECORDED = ["x", "attention_norm", "q", "k", "v", "h", "ffn_norm", "gate", "up", "norm"];
function joined(rows) {
  const out = new Float32Array(rows.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const row of rows) { out.set(row, at); at += row.length; }
  return out;
}
// lets the browser draw and handle clicks; a timer would wait 4 ms
const tick = () => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => resolve(port1.close());
  port2.postMessage(0);
});

// ---- sampling (notebook 08) ----
const argmax = (x) => x.reduce((best, v, i) => (v > x[best] ? i : best), 0);
const ranked = (x) => Array.from(x.keys()).sort((i, j) => x[j] - x[i]); // largest first
/** Return logits (V) divided by the temperature, then cut by top-k, then by top-p; null skips a
    step. What is cut off is -Infinity: at temperature 0, all but the most likely token. */
function cut_logits(logits, temperature = 1, k = null, p = null) {
  for (const [name, value, ok, expected] of [
    ["temperature", temperature, temperature === 0 || temperature >= 1e-20 && temperature <= 1e20,
      "0 (greedy) or a positive number"],
    ["top-k", k, k === null || Number.isInteger(k) && k >= 1, "a whole number from 1"],
    ["top-p", p, p === null || p >= 1e-20 && p <= 1, "over 0, and at most 1"],
  ]) if (!ok) throw new UserError(`${name} is ${value}; expected ${expected}.`);
  const best = argmax(logits);
  if (temperature === 0) return Float32Array.from(logits, (_, i) => (i === best ? 0 : -Infinity));
  const scaled = Float32Array.from(logits, (x) => x / temperature);
  if (k !== null) { // ties with the k-th are kept
    const least = scaled.slice().sort()[Math.max(0, scaled.length - k)];
    scaled.forEach((x, i) => { if (x < least) scaled[i] = -Infinity; });
  }
  if (p !== null && p < 1) { // the smallest set of probability p is kept
    const probs = softmax(scaled.slice());
    let before = 0; // of more probable tokens
    for (const i of ranked(probs)) {
      if (before >= p) scaled[i] = -Infinity;
      before += probs[i];
    }
  }
  return scaled;
}
/** Return the distribution (V) that the next token is sampled from; see cut_logits. */
const next_token_probs = (...given) => softmax(cut_logits(...given));
/** Return the next token: the argmax at temperature 0, else a sample. */
function pick(logits, random, { temperature = 0, top_k = null, top_p = null }) {
  const probs = next_token_probs(logits, temperature, top_k, top_p);
  let rest = random(), id = 0;
  for (let i = 0; i < probs.length && rest >= 0; i++) {
    if (probs[i] > 0) id = i; // never a token that was cut off
    rest -= probs[i];
  }
  return id;
}
/** Return a generator of numbers from 0 to 1, the same for the same seed, if it is a number: a
    counter whose bits are mixed by the last step of MurmurHash3. */
function generator(seed) {
  let counter = (seed >= 0 ? seed : Math.random() * 2 ** 32) >>> 0;
  return () => {
    counter = (counter + 0x9e3779b9) >>> 0;
    const y = Math.imul(counter ^ (counter >>> 16), 0x85ebca6b);
    const x = Math.imul(y ^ (y >>> 13), 0xc2b2ae35);
    return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32;
  };
}

// ---- files ----
/** Fetch a file of the pocket Llama, and return read(its bytes).
    progress(bytes, of): called while it arrives, if given. */
async function fetch_and_read(name, read, progress) {
  const bytes = name in FILES ? Uint8Array.from(atob(FILES[name]), (c) => c.charCodeAt(0))
    : await fetch_bytes(name, progress);
  return unless_damaged(name, () => read(bytes));
}
async function fetch_bytes(name, progress) {
  if (location.protocol === "file:") throw new UserError("A page opened as a file cannot read " +
    "the model. In its folder, run `python -m http.server --bind 127.0.0.1`, then open http://localhost:8000.");
  let problem = "gave no answer";
  try {
    // never the browser's copy without asking: files of two versions do not fit together
    const response = await fetch(new URL(name, FOLDER), { cache: "no-cache" });
    problem = `answered with status ${response.status}`;
    if (!response.ok) throw new Error(problem);
    problem = "stopped before the end";
    const reader = response.body.getReader(), parts = [];
    let arrived = 0;
    for (let part; !(part = await reader.read()).done;) {
      parts.push(part.value);
      progress?.(arrived += part.value.length, Number(response.headers.get("Content-Length")));
    }
    return new Uint8Array(await new Blob(parts).arrayBuffer());
  } catch {
    throw new UserError(`${name} could not be fetched: the server ${problem}. Check the ` +
      "connection, then press “Try again”.");
  }
}
const text_of = (bytes) => new TextDecoder().decode(bytes);
const product = (numbers) => numbers.reduce((all, n) => all * n, 1);
/** Return the tensors of a safetensors file by name, as float32: { shape, data }. */
function read_safetensors(bytes) {
  // The header's length has 8 bytes; the lower 4 hold any that is under 4 GB.
  const start = 8 + new DataView(bytes.buffer).getUint32(0, true), found = {};
  const { __metadata__: about, ...header } = JSON.parse(text_of(bytes.subarray(8, start)));
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(header)) {
    const size = product(shape), width = { BF16: 2, F32: 4, I32: 4 }[dtype];
    if (size * width !== to - from) throw new Error(`${name}: ${dtype}, ${shape}, ${to - from} bytes`);
    const own = bytes.buffer.slice(start + from, start + to); // begins at a multiple of 4
    if (own.byteLength !== to - from) throw new Error(`${name} is cut off`);
    if (dtype === "BF16") found[name] = { shape, data: widened(new Uint16Array(own)) };
    else found[name] = { shape, data: new (dtype === "F32" ? Float32Array : Int32Array)(own) };
  }
  return { tensors: found, about };
}
/** Return bfloat16 numbers as float32: they are its upper halves. */
function widened(bits) {
  const words = new Uint32Array(bits.length);
  for (let i = 0; i < bits.length; i++) words[i] = bits[i] << 16;
  return new Float32Array(words.buffer);
}
/** Return params.json with what follows from it. Throws if a value cannot be one of a Llama. */
function read_params(text) {
  const params = JSON.parse(text), { dim, n_heads, ffn_dim_multiplier, multiple_of } = params;
  const head_dim = params.head_width ?? dim / n_heads;
  const hidden = Math.trunc((ffn_dim_multiplier ?? 1) * Math.trunc(8 * dim / 3));
  const hidden_dim = multiple_of * Math.ceil(hidden / multiple_of);
  const found = { ...params, head_dim, hidden_dim };
  const whole = ["dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "head_dim", "hidden_dim"];
  for (const name of whole) if (!(Number.isInteger(found[name]) && found[name] > 0))
    throw new Error(`${name} is ${found[name]}`);
  const { norm_eps, rope_theta, rope_scaling_factor: factor = 1, use_scaled_rope = false } = params;
  for (const [name, value] of Object.entries({ norm_eps, rope_theta, factor: factor ?? 1 }))
    if (!(typeof value === "number" && value > 0 && value < 1e30)) throw new Error(`${name} is ${value}`);
  if (typeof use_scaled_rope !== "boolean") throw new Error(`use_scaled_rope is ${use_scaled_rope}`);
  if (head_dim % 2 || n_heads % params.n_kv_heads) throw new Error("the heads do not fit");
  return found;
}
/** Return the shape of every tensor that params.json asks for, by Meta's name, a layer at a time. */
function * tensor_shapes({ dim: D, n_layers, n_heads: H, n_kv_heads: KV, vocab_size: V,
  head_dim: hd, hidden_dim: F }, tied) {
  yield ["tok_embeddings.weight", [V, D]];
  if (!tied) yield ["output.weight", [V, D]];
  yield ["norm.weight", [D]];
  const shapes = [[D], [H * hd, D], [KV * hd, D], [KV * hd, D], [D, H * hd], [D], [F, D], [D, F], [F, D]];
  for (let l = 0; l < n_layers; l++)
    for (const [i, name] of BLOCK_WEIGHTS.entries()) yield [`layers.${l}.${name}.weight`, shapes[i]];
}
/** Return the weights (a Float32Array by name) of a file that fits params. */
function read_weights(bytes, params) {
  const { tensors, about } = read_safetensors(bytes), w = {};
  for (const [name, shape] of tensor_shapes(params, about?.tied === "true")) {
    const found = tensors[name]?.shape;
    if (String(found) !== String(shape)) throw new Error(`${name}: ${found}; expected ${shape}`);
    w[name] = tensors[name].data;
  }
  const extra = Object.keys(tensors).filter((name) => !(name in w));
  if (extra.length) throw new Error(`not a tensor of this Llama: ${extra}`);
  return w;
}
/** Return a function that runs make() once; after an error, again at the next call. */
const once = (make, made) => (...given) =>
  made ??= make(...given).catch((error) => { made = undefined; throw error; });
/** Return make(). If that fails, a file is not whole: the console has the cause. */
function unless_damaged(name, make) {
  try {
    return make();
  } catch (error) {
    console.error(error);
    throw new UserError(`${name} is damaged or incomplete. Reload the page.`);
  }
}
const load_tokenizer = once(async () => {
  const params = await fetch_and_read("params.json", (bytes) => read_params(text_of(bytes)));
  return fetch_and_read("tokenizer.model", (bytes) => {
    const tokenizer = new Tokenizer(read_ranks(text_of(bytes))), n = tokenizer.tokens.length;
    if (n !== params.vocab_size) throw new Error(`${n} tokens; params.json has another number`);
    return Object.assign(tokenizer, { params });
  });
});
/** Load the model; progress(bytes, of) is called while its 13 MB arrive. */
const load = once(async (progress) => {
  const tokenizer = await load_tokenizer(), { params } = tokenizer;
  const read = (bytes) => {
    const llama = new Llama(params, read_weights(bytes, params), tokenizer);
    llama.forward(Array(5).fill(tokenizer.bos_id), new KVCache(llama.config, 5)); // compiles loops
    return llama;
  };
  return fetch_and_read("model.safetensors", read, progress);
});
/** Return the trace of an example, which was recorded when the site was built. */
async function load_example(n) {
  const { params } = await load_tokenizer();
  return fetch_and_read(`example-${n}.safetensors`, (bytes) => {
    const { tensors } = read_safetensors(bytes), trace = new Trace(params, angles_of(params));
    trace.ids = Array.from(tensors.ids.data);
    const V = params.vocab_size, read = (name, layer) => tensors[`${name}.${layer}`];
    for (const name of RECORDED) for (let l = 0; l <= params.n_layers; l++)
      if (read(name, l)) trace.keep(name, read(name, l).data, l);
    trace.ids.forEach((_, t) => trace.seen.set(`logits ${t} ${params.n_layers}`,
      tensors.logits.data.subarray(t * V, (t + 1) * V)));
    trace.said = (layer, t) => [0, 1, 2].map((i) => ["ids", "probs"].map((name) =>
      tensors[`lens.${name}`].data[(layer * trace.ids.length + t) * 3 + i]));
    return trace;
  });
}
window.llama = { load_tokenizer, load, load_example, next_token_probs, cut_logits, pick, generator,
  softmax, ranked, silu, rms_norm, rope_frequencies, precompute_freqs_cis, apply_rotary_emb,
  tensor_shapes, Trace,  KVCache, UserError, LONGEST, LONGEST_TEXT, tick, utf8_of };
})();
