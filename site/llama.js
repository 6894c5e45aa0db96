/* A Llama in the page: the pocket's weights and tokenizer, run by the browser.

The first half is llamalib once more, with the same names. The second half fills each <section
class="llama" data-part="…" data-prompt="…">, where the part is tokens, rotation, attention,
next, sampling or generate. A page has one model, which is fetched when a reader first asks for it.

Letters: T query positions, S key positions, D model dim, H query heads, KV key/value heads,
hd head dim, F hidden dim of the FFN, V vocabulary, L layers. A matrix is a Float32Array, row
after row: entry (t, i) of (T, D) is x[t * D + i]. Sums are float64, JavaScript's numbers. */
"use strict";
(() => {
const FOLDER = new URL("pocket/", document.currentScript.src);
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
/** Replace the first n scores by their softmax. */
function softmax(scores, n = scores.length) {
  let largest = -Infinity, sum = 0;
  for (let i = 0; i < n; i++) largest = Math.max(largest, scores[i]);
  for (let i = 0; i < n; i++) sum += scores[i] = Math.exp(scores[i] - largest);
  for (let i = 0; i < n; i++) scores[i] /= sum;
  return scores;
}
/** Average the values by each query's weights, softmax(QKᵀ / √hd). Returns (T, H·hd).
    xq (T, H, hd); xk, xv (S, KV, hd), of which query t sees the first start + t + 1.
    see(h, t, weights): called with each row of weights, if given. */
function attention(xq, xk, xv, start, T, { head_dim: hd, n_heads: H, n_kv_heads: KV }, see) {
  const out = borrow(T * H * hd).fill(0), root = Math.sqrt(hd), n_rep = H / KV;
  const weights = new Float32Array(start + T);
  for (let t = 0; t < T; t++) {
    const S = start + t + 1; // the causal mask: later keys are not read
    for (let h = 0; h < H; h++) {
      const query = (t * H + h) * hd, kv = Math.floor(h / n_rep) * hd;
      for (let s = 0, key = kv; s < S; s++, key += KV * hd) {
        let score = 0;
        for (let i = 0; i < hd; i++) score += xq[query + i] * xk[key + i];
        weights[s] = score / root;
      }
      softmax(weights, S);
      for (let s = 0, value = kv; s < S; s++, value += KV * hd) {
        for (let i = 0; i < hd; i++) out[query + i] += weights[s] * xv[value + i];
      }
      see?.(h, t, weights.slice(0, S));
    }
  }
  return out;
}
/** Compute SwiGLU of x (T, D): gate by w1, up by w3, down by w2. */
function feed_forward(x, w1, w2, w3, T) {
  const gate = linear(x, w1, T), up = linear(x, w3, T); // (T, F)
  for (let i = 0; i < gate.length; i++) gate[i] *= up[i] / (1 + Math.exp(-gate[i])); // silu
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
/** A Llama. w: each tensor, a Float32Array, by Meta's name. */
class Llama {
  constructor(params, w, tokenizer) {
    const head_dim = params.head_width ?? params.dim / params.n_heads;
    Object.assign(this, { config: { ...params, head_dim }, w, tokenizer });
    this.freqs_cis = precompute_freqs_cis(rope_frequencies(this.config), LONGEST);
  }
  /** Run one block on the residual stream x (T, D), in place. watch: may have query(layer, xq),
      called before the rotation, and weights(layer, head, t, row), with attention weights. */
  transformer_block(x, layer, cache, T, watch) {
    used = 0; // what the block before borrowed is free
    const { head_dim, norm_eps } = this.config, start = cache.length;
    const [norm1, wq, wk, wv, wo, norm2, w1, w2, w3] = BLOCK_WEIGHTS.map(
      (name) => this.w[`layers.${layer}.${name}.weight`]);
    let x_norm = rms_norm(x, norm1, norm_eps); // (T, D)
    const xq = linear(x_norm, wq, T); // (T, H·hd)
    const xk = linear(x_norm, wk, T), xv = linear(x_norm, wv, T); // (T, KV·hd)
    watch?.query?.(layer, xq);
    apply_rotary_emb(xq, this.freqs_cis, start, T, head_dim);
    apply_rotary_emb(xk, this.freqs_cis, start, T, head_dim);
    const [keys, values] = cache.update(layer, xk, xv, T); // (S, KV·hd)
    const see = watch?.weights?.bind(watch, layer);
    add(x, linear(attention(xq, keys, values, start, T, this.config, see), wo, T));
    x_norm = rms_norm(x, norm2, norm_eps);
    add(x, feed_forward(x_norm, w1, w2, w3, T));
  }
  /** Run ids through the model and append them to the cache.
      Returns the logits (V) of the token after the last. */
  forward(ids, cache, watch) {
    const { dim: D, n_layers, norm_eps } = this.config, T = ids.length;
    const embedding = this.w["tok_embeddings.weight"], x = new Float32Array(T * D);
    ids.forEach((id, t) => x.set(embedding.subarray(id * D, (id + 1) * D), t * D));
    for (let l = 0; l < n_layers; l++) this.transformer_block(x, l, cache, T, watch);
    cache.length += T;
    const last = rms_norm(x.subarray((T - 1) * D), this.w["norm.weight"], norm_eps); // (1, D)
    return linear(last, this.w["output.weight"] ?? embedding, 1).slice();
  }
  /** Run a prompt in pieces, so that the page stays responsive. Returns the last logits (V), or
      nothing if goes_on() is false before a piece. */
  async prefill(ids, cache, goes_on = () => true) {
    const V = this.config.vocab_size, is_id = (id) => Number.isInteger(id) && id >= 0 && id < V;
    if (!ids.length || !ids.every(is_id))
      throw new RangeError(`ids are [${ids}]; expected one or more whole numbers below ${V}`);
    const extra = ids.length - LONGEST;
    if (extra > 0) throw new UserError(`The text has ${ids.length} tokens; this page holds at ` +
      `most ${LONGEST}. Shorten it by ${extra} tokens or more.`);
    let logits;
    for (let start = 0; start < ids.length; start += 32) {
      if (start) await tick();
      if (!goes_on()) return;
      logits = this.forward(ids.slice(start, start + 32), cache);
    }
    return logits;
  }
  /** Return the logits (V) of the token after ids, at least one id. */
  logits(ids, goes_on) { return this.prefill(ids, new KVCache(this.config), goes_on); }
  /** Continue a prompt, one id at a time. It ends before a stop token and at LONGEST positions.
      options: max_new_tokens, stop, temperature, top_k, top_p, seed, goes_on. */
  async * generate(ids, options = {}) {
    const { max_new_tokens = LONGEST, stop = this.tokenizer.stop_tokens, seed } = options;
    const cache = new KVCache(this.config), random = generator(seed);
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
// lets the browser draw and handle clicks; a timer would wait 4 ms
const tick = () => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => resolve(port1.close());
  port2.postMessage(0);
});

// ---- sampling (notebook 08) ----
const argmax = (x) => x.reduce((best, v, i) => (v > x[best] ? i : best), 0);
const ranked = (x) => Array.from(x.keys()).sort((i, j) => x[j] - x[i]); // largest first
/** Return logits (V) divided by the temperature T, then cut by top-k, then by top-p; null skips
    a step. What is cut off is -Infinity: at temperature 0, all but the most likely token. */
function cut_logits(logits, T = 1, k = null, p = null) {
  for (const [name, value, ok, expected] of [
    ["temperature", T, T === 0 || T >= 1e-20 && T <= 1e20, "0 (greedy) or a positive number"],
    ["top-k", k, k === null || Number.isInteger(k) && k >= 1, "a whole number from 1"],
    ["top-p", p, p === null || p >= 1e-20 && p <= 1, "over 0, and at most 1"],
  ]) if (!ok) throw new UserError(`${name} is ${value}; expected ${expected}.`);
  const best = argmax(logits);
  if (T === 0) return Float32Array.from(logits, (_, i) => (i === best ? 0 : -Infinity));
  const scaled = Float32Array.from(logits, (x) => x / T);
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
/** Fetch a file of the pocket Llama, and return read(its bytes). */
async function fetch_and_read(name, read) {
  if (location.protocol === "file:") throw new UserError("A page opened as a file cannot read " +
    "the model. In its folder, run `python -m http.server`, then open http://localhost:8000.");
  let bytes, problem = "gave no answer";
  try {
    // never the browser's copy without asking: files of two versions do not fit together
    const response = await fetch(new URL(name, FOLDER), { cache: "no-cache" });
    problem = `answered with status ${response.status}`;
    if (!response.ok) throw new Error(problem);
    problem = "stopped before the end";
    bytes = new Uint8Array(await response.arrayBuffer());
  } catch {
    throw new UserError(`${name} could not be fetched: the server ${problem}. Check the ` +
      "connection, then press the button again.");
  }
  return unless_damaged(name, () => read(bytes));
}
const text_of = (bytes) => new TextDecoder().decode(bytes);
/** Return the tensors of a safetensors file by name, widened from bfloat16 to float32. */
function read_safetensors(bytes) {
  // The header's length has 8 bytes; the lower 4 hold any that is under 4 GB.
  const start = 8 + new DataView(bytes.buffer).getUint32(0, true), w = {};
  const header = JSON.parse(text_of(bytes.subarray(8, start)));
  delete header.__metadata__;
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(header)) {
    const bits = new Uint16Array(bytes.buffer, start + from, (to - from) / 2);
    const size = shape.reduce((product, n) => product * n, 1);
    if (dtype !== "BF16" || bits.length !== size) throw new Error(`${name} is ${dtype}`);
    w[name] = new Float32Array(size);
    const words = new Uint32Array(w[name].buffer);
    for (let i = 0; i < size; i++) words[i] = bits[i] << 16; // the upper half of a float32
  }
  return w;
}
/** Return a function that runs make() once; after an error, again at the next call. */
const once = (make, made) => () =>
  made ??= make().catch((error) => { made = undefined; throw error; });
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
  const params = await fetch_and_read("params.json", (bytes) => JSON.parse(text_of(bytes)));
  return fetch_and_read("tokenizer.model", (bytes) => {
    const tokenizer = new Tokenizer(read_ranks(text_of(bytes))), n = tokenizer.tokens.length;
    if (n !== params.vocab_size) throw new Error(`${n} tokens; params.json has another number`);
    return Object.assign(tokenizer, { params });
  });
});
let loaded = false;
const parts = []; // of this page
const load = once(async () => {
  const tokenizer = await load_tokenizer();
  const w = await fetch_and_read("model.safetensors", read_safetensors);
  const llama = unless_damaged("The pocket Llama", () => {
    const llama = new Llama(tokenizer.params, w, tokenizer);
    llama.forward(Array(5).fill(tokenizer.bos_id), new KVCache(llama.config, 5)); // compiles loops
    return llama;
  });
  loaded = true;
  for (const part of parts) part.name_buttons();
  return llama;
});

// ---- the page: elements, colours, controls ----
// The colours of the notebooks' pictures (lessons/theme.py).
const COLOURS = { query: "#0072B2", key: "#D55E00", value: "#009E73", token: "#CC79A7",
  probability: "#E69F00", residual: "#56B4E9", other: "#999999" };
const GROUPS = Object.values(COLOURS).slice(0, 6); // of query heads that share a KV head
const AMOUNT = [[255, 255, 255], [158, 202, 225], [0, 114, 178], [8, 48, 107]];
/** Return the colour of a weight from 0 to 1, as red, green and blue. */
function amount(weight) {
  const at = Math.min(weight, 1) * (AMOUNT.length - 1);
  const low = Math.min(Math.floor(at), AMOUNT.length - 2);
  return AMOUNT[low].map((v, i) => Math.round(v + (at - low) * (AMOUNT[low + 1][i] - v)));
}
/** Return a function that makes elements: name, attributes, children. A string becomes a text
    node, so that no text of a reader is ever markup. */
function maker(namespace) {
  return (tag, attributes = {}, ...children) => {
    const element = document.createElementNS(namespace, tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") Object.assign(element.style, value);
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== undefined));
    return element;
  };
}
const html = maker("http://www.w3.org/1999/xhtml"), svg = maker("http://www.w3.org/2000/svg");
/** Return a token's text as a label, with spaces and line ends visible. */
function visible(text) {
  const shown = text.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/^\p{M}/u, "◌$&")
    .replace(/[\p{C}\p{Z}]/gu, (c) => `⟨${c.codePointAt(0).toString(16).toUpperCase()}⟩`);
  const all = [...shown], long = all.length > 17; // <|begin_of_text|> fits
  return (long ? [...all.slice(0, 10), "…", ...all.slice(-6)].join("") : shown) || "∅";
}
const with_commas = (n) => n.toLocaleString("en");
const count = (n, noun) => `${with_commas(n)} ${noun}${n === 1 ? "" : "s"}`;
/** Return a rounded probability that does not read 0, nor 1 unless it is. */
function probability_text(p) {
  if (p === 1 || p >= 0.005 && p <= 0.995) return p.toFixed(2);
  return p < 0.0001 ? "<0.0001" : p > 0.9999 ? ">0.9999" : p.toFixed(4);
}
/** Return a table's cell with a probability and its bar, of full width at `longest`. */
function bar_cell(p, background, longest = 1) {
  const style = { width: `${100 * p / longest}%`, background };
  const fill = html("span", { class: "llama-fill", style });
  return html("td", {}, html("div", { class: "llama-bar" },
    html("span", {}, probability_text(p)), html("span", { class: "llama-track" }, fill)));
}
function table(caption, heads, rows) {
  const cell = (it) => (it instanceof Element ? it : html("td", {}, it));
  return html("table", {}, html("caption", {}, caption),
    html("thead", {}, html("tr", {}, ...heads.map((it) => html("th", { scope: "col" }, it)))),
    html("tbody", {}, ...rows.map(([first, ...rest]) =>
      html("tr", {}, html("th", { scope: "row" }, first), ...rest.map(cell)))));
}
// A control is a label around an input, which has a name.
const control = (name, label, tag, attributes = {}, ...children) => html("label",
  { class: "llama-field" }, html("span", {}, label), html(tag, { name, ...attributes },
    ...children));
function slider(name, label, value, min, max, step = 1) {
  const field = control(name, label, "input", { type: "range", min, max, step, value });
  const shown = html("output", { "aria-hidden": "true" }, value); // a range says its value
  field.control.addEventListener("input", () => { shown.value = field.control.value; });
  field.append(shown);
  return field;
}
const number_field = (name, label, value, min, max) => control(name, label, "input",
  { type: "number", min, max, value, required: value === "" ? undefined : "" });
const choice = (name, label, n) => control(name, label, "select", {},
  ...Array.from({ length: n }, (_, value) => html("option", { value }, value)));
const sampling_controls = (temperature, ...seed) => [
  slider("temperature", "temperature (0: greedy)", temperature, 0, 3, 0.05),
  slider("top_k", "top-k (0: every token)", 0, 0, 50),
  slider("top_p", "top-p (1: off)", 0.9, 0.05, 1, 0.05),
  number_field("seed", ...seed, 0, 2 ** 31 - 1),
];

// ---- a part of a page ----
/** A section of a page: a form, a line for messages, and what its kind draws. */
class Part {
  constructor(section, kind) {
    Object.assign(this, { section, kind, inputs: {}, turn: 0, more: 0, is_running: false,
      button: html("button", { type: "submit" }), about: html("p", { class: "llama-about" }) });
    this.buttons = html("div", { class: "llama-buttons" }, this.button);
    const group = html("fieldset", {}, html("legend", {}, kind.title), this.buttons);
    const form = html("form", { novalidate: "", oninput: (event) => this.follow(event.target),
      onsubmit: (event) => { event.preventDefault(); this.run(); } }, group);
    this.message = html("p", { class: "llama-message", role: "status" });
    this.out = html("div", { class: "llama-output" });
    const field = { spellcheck: "false", type: "text", rows: kind.lines };
    this.add(control("text", "text", kind.lines ? "textarea" : "input", field),
      ...kind.controls?.() ?? []);
    this.inputs.text.value = section.dataset.prompt ?? "The capital of France is";
    const press = () => { if (this.second.ariaDisabled !== "true") kind.press(this); };
    this.second = html("button", { type: "button", onclick: press }, kind.second);
    if (kind.second) this.buttons.append(this.second);
    section.replaceChildren(form, this.message, this.out, this.about);
    this.name_buttons();
  }
  /** Add controls above the buttons. */
  add(...controls) {
    for (const { control } of controls) this.inputs[control.name] = control;
    this.buttons.before(...controls);
  }
  get values() {
    const value = (it) => (it.type === "checkbox" ? it.checked // an empty number is NaN
      : it.matches("textarea, [type=text]") ? it.value : it.valueAsNumber ?? Number(it.value));
    return Object.fromEntries(Object.entries(this.inputs).map(([name, it]) => [name, value(it)]));
  }
  get is_loaded() { return this.kind.tokenizer_only || loaded; }
  name_buttons() {
    this.button.textContent = this.is_loaded ? this.kind.action : "Load the pocket Llama (13 MB)";
    const is_usable = this.kind.only_on_request ? this.is_running : this.is_loaded;
    this.second.setAttribute("aria-disabled", !is_usable);
  }
  /** Draw again after a change, once the model is loaded. */
  follow(input) {
    this.more = 0; // draws of the old settings that were not made yet
    if (!this.is_running) this.say(""); // it is of the old settings
    if (!this.is_loaded || this.kind.only_on_request) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), input === this.inputs.text ? 200 : 0);
  }
  /** Show a message. A screen reader also says the words in `aloud`. */
  say(text, aloud = "", is_error = false) {
    this.message.replaceChildren(text, html("span", { class: "llama-aloud" }, aloud));
    this.message.classList.toggle("llama-error", is_error);
    this.out.hidden = is_error;
  }
  show(...elements) { this.out.replaceChildren(...elements); }
  /** Throw if a control has a value that it does not take. */
  check() {
    const size = [...this.inputs.text.value].length;
    if (!size) throw new UserError("The text is empty. Type a word or more.");
    if (size > LONGEST_TEXT) throw new UserError(`The text has ${size} characters; this page ` +
      `takes at most ${LONGEST_TEXT}. Shorten it.`);
    for (const it of Object.values(this.inputs)) if (!it.validity.valid) throw new UserError(
      `${it.closest("label").innerText}: expected a whole number from ${it.min} to ${it.max}.`);
  }
  /** Load what is missing, then draw. A newer run makes this one stale. */
  async run() {
    const turn = ++this.turn;
    const is_current = () => turn === this.turn && this.section.isConnected;
    this.is_running = true;
    this.is_stopped = false;
    this.name_buttons();
    try {
      this.check();
      if (!this.is_loaded) this.say("Loading the pocket Llama …");
      const source = await (this.kind.tokenizer_only ? load_tokenizer() : load());
      this.set_up ??= this.kind.set_up?.(this, source) ?? true;
      this.about.textContent = about(source);
      if (!is_current()) return;
      const [said, aloud] = await this.kind.draw(this, source, this.values, is_current) ?? [];
      if (said && is_current()) this.say(said, aloud);
    } catch (error) {
      const sorry = error instanceof UserError ? "" : "The page has an error; reload it. ";
      if (sorry) console.error(error);
      if (!is_current()) return;
      this.more = 0;
      this.say(sorry + error.message, "", true);
    } finally {
      this.is_running = turn !== this.turn && this.is_running;
      this.name_buttons();
    }
  }
  /** Return make(), or what it returned before if the key is the same. */
  remember(key, make) {
    if (this.key !== key) Object.assign(this, { key: undefined, kept: make() });
    this.key = key;
    return this.kept;
  }
  /** Return the logits (V) after the text, which a slider does not change; nothing if the text
      has changed, or the part has gone, before they are computed. */
  async logits(llama, text) {
    const goes_on = () => this.inputs.text.value === text && this.section.isConnected;
    const found = await this.remember(text, () =>
      llama.logits(llama.tokenizer.encode(text, { bos: true }), goes_on));
    if (!found && this.key === text) this.key = undefined;
    return found;
  }
  /** Run the first 40 tokens; return their labels, a note and what is in `seen`. */
  watch(llama, text, watch, seen) {
    const ids = llama.tokenizer.encode(text, { bos: true }), most = 40; // as in the notebooks
    const note = ids.length > most ? ` Only the first ${most} tokens.` : "";
    ids.length = Math.min(ids.length, most);
    llama.forward(ids, new KVCache(llama.config, ids.length), watch);
    return { labels: ids.map((id) => visible(llama.tokenizer.decode([id]))), note, ...seen };
  }
}
/** Say which model this is, and how large Llama 3.2-1B is. */
function about({ config, w, params }) {
  const V = with_commas((params ?? config).vocab_size);
  if (params) return `Pocket Llama: ${V} tokens. Llama 3.2-1B: 128,256.`;
  const size = Object.values(w).reduce((sum, { length }) => sum + length, 0);
  const shape = (P, L, H, V) => `${P} parameters, ${L} layers, ${H} heads, ${V} tokens. `;
  return `Pocket Llama: ${shape(with_commas(size), config.n_layers, config.n_heads, V)}Llama ` +
    `3.2-1B: ${shape("1,235,814,400", 16, 32, "128,256")}A text starts with <|begin_of_text|>.`;
}
const end_of = (t) => (t.length < 60 ? t : `… ${t.slice(-40)}`).replace(/ $/, "␣") + " …";

// ---- the six parts: draw returns [a message], nothing if it is stale ----
const tokens = {
  title: "Cut any text into tokens", action: "Show the tokens", tokenizer_only: true, lines: 3,
  controls: () => [control("special", "a special token's name becomes that token", "input",
    { type: "checkbox" })],
  draw(part, tokenizer, { text, special }) {
    const ids = tokenizer.encode(text, { special }), most = 300;
    const pair = (byte) => byte.toString(16).padStart(2, "0");
    const hex = (id) => Array.from(tokenizer.decode_bytes(id), pair).join(" ");
    const boxes = ids.slice(0, most).map((id) => {
      const control = id >= tokenizer.ranks.size;
      return html("li", { class: control ? "llama-control" : "" },
        html("b", {}, visible(tokenizer.decode([id]))), html("span", {}, id),
        html("span", {}, control ? "special" : hex(id)));
    });
    part.show(html("ol", { class: "llama-tokens", "aria-label": "tokens" }, ...boxes));
    const note = ids.length > most ? ` The first ${most} are shown.` : "";
    return [`${count([...text].length, "character")}, ${count(utf8_of(text).length, "byte")}, ` +
      `${count(ids.length, "token")}.${note} ` +
      "Each box: a token, its id, its bytes. ␣ is a space, ⏎ a line end, ⟨9⟩ the code U+0009."];
  },
};
const next = {
  title: "The next token of any text", action: "Show the next tokens",
  controls: () => [slider("bars", "bars", 10, 3, 15)],
  async draw(part, llama, { text, bars }) {
    const logits = await part.logits(llama, text);
    if (!logits) return;
    const probs = next_token_probs(logits);
    const rows = ranked(probs).slice(0, bars).map((id) => [
      visible(llama.tokenizer.decode([id])), id, bar_cell(probs[id], COLOURS.probability)]);
    part.show(table(end_of(text), ["next token", "id", "probability"], rows));
    return [`The most likely next token: “${rows[0][0]}”.`];
  },
};
const sampling = {
  title: "Sample the next token", action: "Show the distribution",
  controls: () => sampling_controls(0.7, "seed", 0),
  second: "Sample 20 tokens",
  press(part) { part.more += 20; part.run(); },
  async draw(part, llama, values) {
    const { text, temperature, top_k: k, top_p, seed } = values, top_k = k || null;
    const logits = await part.logits(llama, text);
    if (!logits) return;
    const before = next_token_probs(logits), cut = cut_logits(logits, temperature, top_k, top_p);
    const after = softmax(cut.slice()), key = JSON.stringify(values);
    // another setting begins the draws again
    if (key !== part.drawn?.key) part.drawn = { key, random: generator(seed), counts: {}, all: 0 };
    const { random, counts } = part.drawn;
    for (; part.more > 0; part.more--, part.drawn.all++) {
      const id = pick(logits, random, { temperature, top_k, top_p });
      counts[id] = (counts[id] ?? 0) + 1;
    }
    const top = new Set([...ranked(before).slice(0, 11), ...Object.keys(counts).map(Number)]);
    const others = Array.from(after.keys()).filter((i) => !top.has(i));
    const rows = Array.from(top, (i) => [visible(llama.tokenizer.decode([i])), [i]]);
    rows.push([`${with_commas(others.length)} others`, others]);
    const sum = (x, ids) => ids.reduce((total, i) => total + x[i], 0);
    const longest = Math.max(...rows.flatMap(([, ids]) => [sum(before, ids), sum(after, ids)]));
    const settings = `τ ${temperature}, k ${k || "off"}, p ${top_p}`;
    part.show(table(`${end_of(text)} Grey: cut off.`, ["next token", "as it is", settings,
      "drawn"], rows.map(([name, ids]) => {
        const is_kept = ids.some((i) => cut[i] > -Infinity);
        const colour = is_kept ? COLOURS.probability : COLOURS.other;
        return [name, bar_cell(sum(before, ids), colour, longest),
          is_kept ? bar_cell(sum(after, ids), colour, longest) : "cut off",
          ids.reduce((n, i) => n + (counts[i] ?? 0), 0)];
      })));
    const nats = after.reduce((total, p) => total - (p && p * Math.log(p)), 0);
    return [`${with_commas(cut.filter((x) => x > -Infinity).length)} of ` +
      `${count(cut.length, "token")} can be drawn; entropy ${nats.toFixed(2)} nats. ` +
      `Drawn so far: ${part.drawn.all}, with seed ${seed}.`];
  },
};
const generate = {
  title: "Continue a text", action: "Continue the text", only_on_request: true, lines: 2,
  controls: () => [number_field("most", "new tokens, at most", 120, 1, LONGEST),
    ...sampling_controls(0, "seed (empty: another each time)", "")],
  second: "Stop",
  press(part) { part.is_stopped = true; part.say("Stopped."); },
  async draw(part, llama, { text, most, top_k, ...options }, is_current) {
    const ids = llama.tokenizer.encode(text, { bos: true }), added = html("span");
    const decode_next = llama.tokenizer.decode_stream(), start = performance.now();
    const goes_on = () => is_current() && !part.is_stopped;
    if (goes_on()) part.say("The text is growing …");
    part.show(html("p", { class: "llama-text" },
      html("span", { class: "llama-prompt" }, text), added));
    let n = 0, first = 0;
    const how = { max_new_tokens: most, top_k: top_k || null, goes_on, ...options };
    for await (const id of llama.generate(ids, how)) {
      if (!goes_on()) break;
      if (!n++) first = performance.now() - start;
      added.append(decode_next(id));
    }
    added.append(decode_next());
    const speed = Math.round(1000 * (n - 1) / (performance.now() - start - first));
    const why = part.is_stopped ? "you stopped it" : n === most ? "the limit that you set"
      : ids.length + n > LONGEST ? `the page keeps ${LONGEST} positions` : "the model ended it";
    return [`End of the text: ${why}. ${count(n, "new token")}` + (n > 1 ? `, the first after ` +
      `${Math.round(first)} ms, then ${speed} a second in this browser.` : "."),
    added.textContent];
  },
};
const attention_part = {
  title: "Attention maps of any text", action: "Show the maps",
  set_up(part, { config: { n_layers: L, n_heads: H, n_kv_heads: KV } }) {
    part.thumbs = [];
    const thumb = (layer, h) => {
      const group = Math.floor(h / (H / KV)), borderColor = GROUPS[group % GROUPS.length];
      const map = html("canvas", { style: { borderColor } });
      const input = html("input", { type: "radio", name: "head",
        "aria-label": `layer ${layer}, head ${h}, KV head ${group}` });
      // a head with a pattern, which notebook 05 describes
      input.checked = layer === Math.min(5, L - 1) && h === Math.min(6, H - 1);
      part.thumbs.push({ layer, h, group, map, input });
      return html("label", {}, input, map);
    };
    const rows = Array.from({ length: L }, (_, layer) => html("div", {}, html("span", {},
      `layer ${layer}`), ...Array.from({ length: H }, (_, h) => thumb(layer, h))));
    const onkeydown = (event) => { // up and down: a layer; the browser's own steps are heads
      const step = { ArrowDown: H, ArrowUp: -H }[event.key];
      if (!step) return;
      event.preventDefault();
      const to = part.thumbs[part.thumbs.findIndex(({ input }) => input.checked) + step]?.input;
      to?.focus();
      to?.click();
    };
    // below the map: on a phone, one sees both
    part.out.after(html("form", { onkeydown, oninput: () => part.follow() }, html("fieldset",
      { class: "llama-heads" }, html("legend", {}, "Choose a head. A row is a layer, with heads " +
      `0 to ${H - 1}; heads with frames of one colour share a KV head.`), ...rows)));
  },
  draw(part, llama, { text }) {
    const { n_layers: L, n_heads: H, n_kv_heads: KV } = llama.config, n_rep = H / KV;
    const { maps, labels, note } = part.remember(text, () => {
      const maps = Array.from({ length: L * H }, () => []); // of T rows each
      const weights = (layer, h, t, row) => { maps[layer * H + h][t] = row; };
      return part.watch(llama, text, { weights }, { maps });
    });
    part.thumbs.forEach(({ map }, i) => draw_thumb(map, maps[i]));
    const at = part.thumbs.findIndex(({ input }) => input.checked);
    const { layer, h, group } = part.thumbs[at], room = part.message.clientWidth;
    const width = Math.max(280, Math.min(room, 640)); // a hidden part has no room
    const name = `layer ${layer}, head ${h} · KV head ${group}, shared by heads ` +
      `${group * n_rep} to ${group * n_rep + n_rep - 1}`;
    const rows = maps[at].map((row, t) => [labels[t], ranked(row).slice(0, 3).filter(
      (s) => row[s] >= 0.005).map((s) => `${labels[s]} ${row[s].toFixed(2)}`).join(", ")]);
    part.show(large_map(maps[at], labels, GROUPS[group % GROUPS.length], width, name),
      html("p", {}, "down: query; across: key; grey: hidden by the mask; weight: 0 ",
        html("span", { class: "llama-scale" }), " 1"),
      html("details", { open: part.out.querySelector("details[open]") ? "" : undefined },
        html("summary", {}, "The largest weights in words"),
        table(name, ["query", "looks most at these keys"], rows)));
    return [`Shown: ${name}.${note}`];
  },
};
/** Draw T rows of weights, a pixel each; what the mask hides stays empty. */
function draw_thumb(map, rows) {
  const T = map.width = map.height = rows.length;
  const context = map.getContext("2d"), image = context.createImageData(T, T);
  rows.forEach((row, t) => row.forEach((weight, s) =>
    image.data.set([...amount(weight), 255], 4 * (t * T + s))));
  context.putImageData(image, 0, 0);
}
/** Return one head's map, with queries down and keys across. */
function large_map(rows, labels, stroke, width, name) {
  const T = rows.length, margin = 124, cell = Math.min((width - margin - 6) / T, 46);
  const side = cell * T, every = Math.ceil(14 / cell); // every n-th label
  const square = { x: margin, y: 4, width: side, height: side };
  const parts = [svg("rect", { ...square, class: "llama-hidden" })];
  const write = (words, attributes) => parts.push(svg("text", attributes, words));
  rows.forEach((row, t) => row.forEach((weight, s) => {
    const x = margin + s * cell, y = 4 + t * cell, fill = `rgb(${amount(weight)})`;
    parts.push(svg("rect", { x, y, width: cell, height: cell, fill }));
    if (cell >= 34) write(weight.toFixed(2), { x: x + cell / 2, y: y + cell / 2 + 4,
      "text-anchor": "middle", class: weight > 0.65 ? "llama-white" : "llama-black" });
  }));
  labels.forEach((label, i) => {
    const at = (i + 0.5) * cell;
    if (i % every) return;
    write(label, { x: margin - 6, y: at + 8, "text-anchor": "end" });
    write(label, { "text-anchor": "end",
      transform: `translate(${margin + at + 4} ${side + 16}) rotate(-60)` });
  });
  return svg("svg", { class: "llama-map", viewBox: `0 0 ${width} ${side + 128}`, width,
    role: "img", "aria-label": `Attention weights of ${name}. Below they are in words.` },
  ...parts, svg("rect", { ...square, fill: "none", stroke, "stroke-width": 3 }));
}
const rotation = {
  title: "Rotate a query", action: "Show the query",
  set_up(part, { config: { n_layers, n_heads, head_dim, rope_theta } }) {
    part.add(choice("layer", "layer", n_layers), choice("head", "head", n_heads),
      choice("token", "token", 0), choice("pair", "pair k", head_dim / 2),
      slider("position", "position m", 0, 0, LONGEST - 1),
      number_field("rope_theta", "base θ", rope_theta, 2, 1e7));
    part.inputs.pair.value = 1;
  },
  draw(part, llama, { text }) {
    const { n_heads: H, head_dim: hd } = llama.config, { inputs } = part;
    const { queries, labels, note } = part.remember(text, () => {
      const queries = [], query = (layer, xq) => { queries[layer] = xq.slice(); };
      const found = part.watch(llama, text, { query }, { queries });
      inputs.token.replaceChildren(...found.labels.map((label, value) =>
        html("option", { value }, `${value}: ${label}`)));
      inputs.token.value = Math.min(part.token ?? Infinity, found.labels.length - 1);
      return found;
    });
    const { layer, head, token, pair, rope_theta } = part.values;
    if (token !== part.token) inputs.position.value = part.token = token; // where it is
    inputs.position.dispatchEvent(new Event("input")); // which shows the number
    const at = (token * H + head) * hd + 2 * pair, m = part.values.position;
    const before = queries[layer].slice(at, at + 2), after = before.slice();
    const freq = rope_frequencies({ ...llama.config, rope_theta })[pair], angle = m * freq;
    const full = Math.floor(angle / 2 / Math.PI);
    apply_rotary_emb(after, precompute_freqs_cis([freq], m + 1), m, 1, 2);
    const degrees = `${(180 / Math.PI * angle - 360 * full).toFixed(1)}°`;
    const numbers = (pair) => `(${Array.from(pair, (v) => v.toFixed(3)).join(", ")})`;
    part.show(plane(before, angle), table("The same in numbers", ["what", "value"], [
      ["query", `${labels[token]}, layer ${layer}, head ${head}`],
      [`pair ${pair} before`, numbers(before)],
      ["m · Θₖ, scaled", `${m} · ${freq.toPrecision(4)} = ${angle.toFixed(4)} radians`],
      ["that is", `${count(full, "full rotation")} and ${degrees}`],
      [`pair ${pair} after`, numbers(after)],
      ["length of both", Math.hypot(...before).toFixed(3)],
      ["one full rotation", `${with_commas(Math.round(20 * Math.PI / freq) / 10)} positions`],
    ]));
    return [`At position ${m}, pair ${pair} is rotated by ${degrees}.${note}`];
  },
};
/** Return a plane with a pair before and after its rotation, as directions. */
function plane([a, b], angle) {
  const start = Math.atan2(b, a), axis = "llama-axis";
  const at = (turn, r) => [r * Math.cos(turn), -r * Math.sin(turn)];
  const arrow = (turn, colour, label, label_at) => {
    const [x, y] = at(turn, 90), [u, v] = at(turn, label_at);
    const points = [at(turn, 100), at(turn + 0.09, 86), at(turn - 0.09, 86)].join(" ");
    return [svg("line", { x2: x, y2: y, stroke: colour, "stroke-width": 4 }),
      svg("polygon", { points, fill: colour }),
      svg("text", { x: u, y: v + 4, "text-anchor": "middle" }, label)];
  };
  const sweep = angle % (2 * Math.PI), large = Number(sweep > Math.PI);
  const arc = `M ${at(start, 40)} A 40 40 0 ${large} 0 ${at(start + sweep, 40)}`;
  return svg("svg", { class: "llama-plane", viewBox: "-190 -160 380 350", role: "img",
    "aria-label": "A pair as an arrow in a plane, before and after its rotation." },
  svg("circle", { r: 100, fill: "none", class: axis }),
  svg("line", { x1: -130, x2: 130, class: axis }), svg("line", { y1: -130, y2: 130, class: axis }),
  svg("path", { d: arc, fill: "none", stroke: "currentColor", "stroke-width": 2 }),
  ...arrow(start, COLOURS.other, "before", 128),
  ...arrow(start + angle, COLOURS.query, "after", Math.cos(angle) > 0.8 ? 166 : 124),
  svg("text", { y: 182, "text-anchor": "middle" }, "directions only; the table has the length"));
}

// ---- start ----
const PARTS = { tokens, rotation, attention: attention_part, next, sampling, generate };
for (const section of document.querySelectorAll("section.llama")) {
  const kind = PARTS[section.dataset.part];
  if (kind) parts.push(new Part(section, kind));
  else section.replaceChildren(`There is no part named ${section.dataset.part}.`);
}
// For scripts: promises of a Tokenizer (encode, decode) and of a Llama (logits, generate).
window.llama = { load_tokenizer, load, next_token_probs };
})();
