/* A Llama in the page: the pocket's weights and tokenizer, run by the browser.

The first half is llamalib once more, with the same names; the second half
fills each <section class="llama" data-part="…" data-prompt="…">, where the
part is tokens, rotation, attention, next, sampling or generate.

Letters: T query positions, S key positions, D model dim, H query heads,
KV key/value heads, hd head dim, F hidden dim of the FFN, V vocabulary,
L layers. A matrix is a Float32Array, row after row: entry (t, i) of (T, D) is
x[t * D + i]. Sums are taken in float64, which is JavaScript's number.

For scripts, `window.llama` has `load_tokenizer()` and `load()`, which return
promises of a Tokenizer and of a Llama, and `next_token_probs`.

One page holds one model. Nothing is fetched before a reader asks for it. */
"use strict";
(() => {

const FOLDER = new URL("pocket/", document.currentScript.src);
const LONGEST = 512; // positions of a text in this page; a cache for each
const LONGEST_TEXT = 10000; // characters that are encoded at once

// ---- tokenizer (notebook 01) ----

// JavaScript's \s is another set; case-insensitive, 's matches ſ (U+017F), too.
const SPLIT_PATTERN = new RegExp([
  "'(?:[sSſ]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])",
  String.raw`[^\r\n\p{L}\p{N}]?\p{L}+`,
  String.raw`\p{N}{1,3}`,
  String.raw` ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*`,
  String.raw`\p{White_Space}*[\r\n]+`,
  String.raw`\p{White_Space}+(?!\P{White_Space})`,
  String.raw`\p{White_Space}+`,
].join("|"), "gu");

const RESERVED = Array.from({ length: 248 },
  (_, i) => `<|reserved_special_token_${i}|>`);
const SPECIAL_TOKENS = [
  "<|begin_of_text|>", "<|end_of_text|>", ...RESERVED.slice(0, 2),
  "<|finetune_right_pad_id|>", RESERVED[2], "<|start_header_id|>",
  "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>",
  ...RESERVED.slice(3),
];

/** Read tokenizer.model: lines of a token in base64, a space and its rank.
    Returns a Map from bytes, one character each, to the rank. */
function read_ranks(text) {
  const ranks = new Map();
  for (const line of text.trimEnd().split("\n")) {
    const [token, rank] = line.split(" ");
    if (Number(rank) !== ranks.size) {
      throw damaged(`tokenizer.model, line ${ranks.size + 1}`);
    }
    ranks.set(atob(token), ranks.size);
  }
  return ranks;
}

/** Llama 3's tokenizer: byte-level BPE. */
class Tokenizer {
  constructor(ranks) {
    this.ranks = ranks;
    this.special_tokens = new Map(
      SPECIAL_TOKENS.map((name, i) => [name, ranks.size + i]));
    this.tokens = [...ranks.keys(), ...SPECIAL_TOKENS];
    const id = (name) => this.special_tokens.get(`<|${name}|>`);
    this.bos_id = id("begin_of_text");
    this.stop_tokens = new Set(
      [id("end_of_text"), id("eot_id"), id("eom_id")]);
  }

  /** Return the token ids of a text. Names of special tokens are plain text,
      unless `special` is true. Throws if UTF-8 cannot hold the text. */
  encode(text, { bos = false, special = false } = {}) {
    const half = text.search(/\p{Surrogate}/u);
    if (half >= 0) {
      throw new UserError(`Character ${half + 1} is half of a character ` +
        "(a lone surrogate), which has no UTF-8 bytes. Delete it.");
    }
    const ids = bos ? [this.bos_id] : [];
    const parts = special ? text.split(/(<\|[^|]+\|>)/) : [text];
    for (const part of parts) {
      const control = special ? this.special_tokens.get(part) : undefined;
      if (control !== undefined) ids.push(control);
      else for (const [piece] of part.matchAll(SPLIT_PATTERN)) {
        this.merge(binary(new TextEncoder().encode(piece)), ids);
      }
    }
    return ids;
  }

  /** Append the ids of one pre-token, bytes as a string: merge the pair of
      lowest rank, the first of equals, until no pair is a token. */
  merge(piece, ids) {
    const whole = this.ranks.get(piece);
    if (whole !== undefined) return void ids.push(whole);
    const parts = [...piece];
    const rank_at = (i) => this.ranks.get(parts[i] + parts[i + 1]) ?? Infinity;
    const pairs = parts.map((_, i) => rank_at(i));
    for (;;) {
      let first = 0;
      for (let i = 1; i < pairs.length; i++) {
        if (pairs[i] < pairs[first]) first = i;
      }
      if (pairs[first] === Infinity) break;
      parts.splice(first, 2, parts[first] + parts[first + 1]);
      pairs.splice(first, 1);
      pairs[first] = rank_at(first);
      if (first) pairs[first - 1] = rank_at(first - 1);
    }
    for (const part of parts) ids.push(this.ranks.get(part));
  }

  is_control(id) { return id >= this.ranks.size; }

  /** Return the bytes of a token; of an id without a token, none. */
  decode_bytes(id) {
    return Uint8Array.from(this.tokens[id] ?? "", (c) => c.charCodeAt(0));
  }

  /** Return the text of ids; half an emoji becomes U+FFFD. */
  decode(ids) { return [...this.decode_stream(ids)].join(""); }

  /** Yield a piece of text per token; a character when it is complete. */
  * decode_stream(ids) {
    const { push, end } = this.decoder();
    for (const id of ids) yield push(id);
    yield end();
  }

  decoder() {
    const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
    return {
      push: (id) => utf8.decode(this.decode_bytes(id), { stream: true }),
      end: () => utf8.decode(),
    };
  }
}

const binary = (bytes) => Array.from(bytes, (b) =>
  String.fromCharCode(b)).join("");

// ---- the steps of the model (notebooks 02 to 07) ----

/** Multiply x (T, n) by the transpose of w (m, n). Returns (T, m).
    Four rows of x share each number of w, and two of w each of x: reading
    numbers takes longer than multiplying them. */
function linear(x, w, T) {
  const n = x.length / T, m = w.length / n, out = new Float32Array(T * m);
  const blocked = m % 2 ? 0 : T - T % 4;
  for (let t = 0; t < blocked; t += 4) {
    const x0 = t * n, x1 = x0 + n, x2 = x1 + n, x3 = x2 + n;
    for (let j = 0; j < m; j += 2) {
      const u = j * n, v = u + n, o = t * m + j;
      let a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
      for (let i = 0; i < n; i++) {
        const p = w[u + i], q = w[v + i];
        a += x[x0 + i] * p; b += x[x1 + i] * p;
        c += x[x2 + i] * p; d += x[x3 + i] * p;
        e += x[x0 + i] * q; f += x[x1 + i] * q;
        g += x[x2 + i] * q; h += x[x3 + i] * q;
      }
      out[o] = a; out[o + m] = b; out[o + 2 * m] = c; out[o + 3 * m] = d;
      out[o + 1] = e; out[o + m + 1] = f;
      out[o + 2 * m + 1] = g; out[o + 3 * m + 1] = h;
    }
  }
  for (let t = blocked; t < T; t++) one_row(x, w, out, t, n, m);
  return out;
}

/** Write row t of x @ wᵀ, four numbers at once: decoding has only one row. */
function one_row(x, w, out, t, n, m) {
  const row = t * n;
  let j = 0;
  for (; j + 4 <= m; j += 4) {
    const w0 = j * n, w1 = w0 + n, w2 = w1 + n, w3 = w2 + n, o = t * m + j;
    let a = 0, b = 0, c = 0, d = 0;
    for (let i = 0; i < n; i++) {
      const v = x[row + i];
      a += v * w[w0 + i]; b += v * w[w1 + i];
      c += v * w[w2 + i]; d += v * w[w3 + i];
    }
    out[o] = a; out[o + 1] = b; out[o + 2] = c; out[o + 3] = d;
  }
  for (; j < m; j++) {
    let a = 0;
    for (let i = 0; i < n; i++) a += x[row + i] * w[j * n + i];
    out[t * m + j] = a;
  }
}

/** Scale each row of x (T, D) to a root mean square of 1, then by weight. */
function rms_norm(x, weight, eps) {
  const D = weight.length, out = new Float32Array(x.length);
  for (let row = 0; row < x.length; row += D) {
    let squares = 0;
    for (let i = 0; i < D; i++) squares += x[row + i] ** 2;
    const scale = 1 / Math.sqrt(squares / D + eps);
    for (let i = 0; i < D; i++) out[row + i] = x[row + i] * scale * weight[i];
  }
  return out;
}

/** Scale the low frequencies down, as Llama 3.1 and 3.2's configs say. */
function scale_frequency(freq, factor) {
  const wavelength = 2 * Math.PI / freq;
  const blend = Math.min(1, Math.max(0, (8192 / wavelength - 1) / (4 - 1)));
  return (1 - blend) * freq / factor + blend * freq;
}

/** Return radians per position of each pair (hd/2), rounded to float32. */
function rope_frequencies(config) {
  const { head_dim, rope_theta, use_scaled_rope, dim } = config;
  const factor = config.rope_scaling_factor ?? (dim < 4096 ? 32 : 8);
  return Float32Array.from({ length: head_dim / 2 }, (_, k) => {
    const freq = Math.fround(rope_theta ** (-2 * k / head_dim));
    return use_scaled_rope ? scale_frequency(freq, factor) : freq;
  });
}

/** Return cos and sin (end, hd/2, 2) of every position's angle by pair. */
function precompute_freqs_cis(freqs, end) {
  const out = new Float32Array(2 * end * freqs.length);
  for (let m = 0, i = 0; m < end; m++) {
    for (const freq of freqs) {
      const angle = Math.fround(m * freq);
      out[i++] = Math.cos(angle);
      out[i++] = Math.sin(angle);
    }
  }
  return out;
}

/** Rotate the pairs of x (T, heads, hd) in place; row 0 is at `start`. */
function apply_rotary_emb(x, freqs_cis, start, T, head_dim) {
  const width = x.length / T;
  for (let i = 0; i < x.length; i += 2) {
    const t = Math.floor(i / width);
    const at = (start + t) * head_dim + i % head_dim;
    const cos = freqs_cis[at], sin = freqs_cis[at + 1];
    const a = x[i], b = x[i + 1];
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

/** Average the values by each query's weights: softmax(QKᵀ / √hd).
    xq (T, H, hd); xk and xv (S, KV, hd), of which query t sees start + t + 1.
    see(h, t, weights): called with each row of weights. Returns (T, H·hd). */
function attention(xq, xk, xv, start, T, config, see) {
  const { head_dim: hd, n_heads: H, n_kv_heads: KV } = config;
  const out = new Float32Array(T * H * hd), root = Math.sqrt(hd);
  const weights = new Float32Array(start + T);
  for (let t = 0; t < T; t++) {
    const S = start + t + 1; // the causal mask: later keys are not read
    for (let h = 0; h < H; h++) {
      const query = (t * H + h) * hd, kv = Math.floor(h / (H / KV)) * hd;
      for (let s = 0; s < S; s++) {
        const key = s * KV * hd + kv;
        let score = 0;
        for (let i = 0; i < hd; i++) score += xq[query + i] * xk[key + i];
        weights[s] = score / root;
      }
      softmax(weights, S);
      for (let s = 0; s < S; s++) {
        const value = s * KV * hd + kv, weight = weights[s];
        for (let i = 0; i < hd; i++) out[query + i] += weight * xv[value + i];
      }
      see?.(h, t, weights.slice(0, S));
    }
  }
  return out;
}

/** Compute SwiGLU: gate by w1, up by w3, down by w2. x (T, D). */
function feed_forward(x, w1, w2, w3, T) {
  const gate = linear(x, w1, T), up = linear(x, w3, T); // (T, F)
  for (let i = 0; i < gate.length; i++) {
    gate[i] *= up[i] / (1 + Math.exp(-gate[i])); // silu(gate) · up
  }
  return linear(gate, w2, T); // (T, D)
}

const add = (x, y) => { for (let i = 0; i < x.length; i++) x[i] += y[i]; };

/** Keys and values (S, KV·hd) of every layer, for the positions seen. */
class KVCache {
  constructor(config, max_seq_len) {
    const width = config.n_kv_heads * config.head_dim;
    const empty = () => Array.from({ length: config.n_layers },
      () => new Float32Array(max_seq_len * width));
    Object.assign(this, { k: empty(), v: empty(), length: 0, width });
  }

  update(layer, xk, xv) {
    this.k[layer].set(xk, this.length * this.width);
    this.v[layer].set(xv, this.length * this.width);
    return [this.k[layer], this.v[layer]];
  }
}

/** A Llama; w: each tensor, a Float32Array, by Meta's name. */
class Llama {
  constructor(params, w, tokenizer) {
    const head_dim = params.head_width ?? params.dim / params.n_heads;
    this.config = { ...params, head_dim };
    this.w = w;
    this.tokenizer = tokenizer;
    this.freqs = rope_frequencies(this.config); // (hd/2)
    this.freqs_cis = precompute_freqs_cis(this.freqs, LONGEST);
  }

  new_cache(max_seq_len = LONGEST) {
    return new KVCache(this.config, max_seq_len);
  }

  /** Run one block on the residual stream x (T, D), in place.
      watch: may have query(layer, xq), called before the rotation, and
      weights(layer, head, t, row), called with the attention weights. */
  transformer_block(x, layer, cache, T, watch) {
    const { head_dim, norm_eps } = this.config, start = cache.length;
    const w = (name) => this.w[`layers.${layer}.${name}.weight`];
    let x_norm = rms_norm(x, w("attention_norm"), norm_eps); // (T, D)
    const xq = linear(x_norm, w("attention.wq"), T); // (T, H·hd)
    const xk = linear(x_norm, w("attention.wk"), T); // (T, KV·hd)
    const xv = linear(x_norm, w("attention.wv"), T); // (T, KV·hd)
    watch?.query?.(layer, xq);
    apply_rotary_emb(xq, this.freqs_cis, start, T, head_dim);
    apply_rotary_emb(xk, this.freqs_cis, start, T, head_dim);
    const see = watch?.weights?.bind(watch, layer);
    const [keys, values] = cache.update(layer, xk, xv); // (S, KV·hd)
    const mixed = attention(xq, keys, values, start, T, this.config, see);
    add(x, linear(mixed, w("attention.wo"), T));
    x_norm = rms_norm(x, w("ffn_norm"), norm_eps);
    add(x, feed_forward(x_norm, w("feed_forward.w1"),
      w("feed_forward.w2"), w("feed_forward.w3"), T));
  }

  /** Run ids through the model and append them to the cache.
      Returns the logits (V) of the token after the last. */
  forward(ids, cache, watch) {
    const { dim: D, n_layers, norm_eps } = this.config, T = ids.length;
    const embedding = this.w["tok_embeddings.weight"]; // (V, D)
    const x = new Float32Array(T * D);
    ids.forEach((id, t) =>
      x.set(embedding.subarray(id * D, (id + 1) * D), t * D));
    for (let layer = 0; layer < n_layers; layer++) {
      this.transformer_block(x, layer, cache, T, watch);
    }
    cache.length += T;
    const last = rms_norm(x.subarray((T - 1) * D), this.w["norm.weight"],
      norm_eps); // (1, D)
    return linear(last, this.w["output.weight"] ?? embedding, 1);
  }

  /** Run a prompt in pieces, so that the page stays responsive. */
  async prefill(ids, cache, watch) {
    if (ids.length > cache.k[0].length / cache.width) {
      throw new UserError(`The text has ${ids.length} tokens with ` +
        `<|begin_of_text|>; this page computes at most ${LONGEST}. Shorten ` +
        `it by ${ids.length - LONGEST} tokens or more.`);
    }
    let logits;
    for (let start = 0; start < ids.length; start += 32) {
      if (start) await tick();
      logits = this.forward(ids.slice(start, start + 32), cache, watch);
    }
    return logits;
  }

  /** Return the logits (V) of the token after ids. */
  async logits(ids) {
    return this.prefill(ids, this.new_cache(ids.length || 1));
  }

  /** Continue a prompt, one id at a time: prefill, then decode. It ends
      before a stop token, and at LONGEST positions.
      options: max_new_tokens, temperature, top_k, top_p, seed. */
  async * generate(ids, options = {}) {
    const { max_new_tokens = LONGEST, stop = this.tokenizer.stop_tokens }
      = options, cache = this.new_cache(), random = generator(options.seed);
    let logits = await this.prefill(ids, cache);
    for (let n = 0; n < max_new_tokens; n++) {
      const id = pick(logits, random, options);
      if (stop.has(id)) return;
      yield id;
      if (cache.length === LONGEST) return;
      if (n + 1 < max_new_tokens) logits = this.forward([id], cache);
      await tick();
    }
  }
}

/** Let the browser handle clicks and draw. A timer would wait 4 ms. */
function tick() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { port1.close(); resolve(); };
    port2.postMessage(0);
  });
}

// ---- sampling (notebook 08) ----

const argmax = (x) => x.reduce((best, v, i) => (v > x[best] ? i : best), 0);

/** Return the distribution (V) that the next token is sampled from: logits
    divided by the temperature, then cut by top-k, then by top-p. At
    temperature 0 the most likely token has probability 1. */
function next_token_probs(logits, temperature = 1, top_k = null, top_p = null) {
  check_sampling(temperature, top_k, top_p);
  if (temperature === 0) {
    const best = argmax(logits);
    return logits.map((_, i) => Number(i === best));
  }
  const scaled = logits.map((x) => x / temperature);
  if (top_k !== null) keep_top_k(scaled, top_k);
  if (top_p !== null && top_p < 1) keep_top_p(scaled, top_p);
  return softmax(scaled);
}

/** Set all but the k largest logits to -Infinity; ties with the k-th stay. */
function keep_top_k(logits, k) {
  const least = [...logits].sort((a, b) => b - a)[k - 1] ?? -Infinity;
  logits.forEach((x, i) => { if (x < least) logits[i] = -Infinity; });
}

/** Set logits outside the smallest set of probability p to -Infinity. */
function keep_top_p(logits, p) {
  const probs = softmax(logits.slice());
  let before = 0; // of more probable tokens
  for (const i of ranked(probs)) {
    if (before >= p) logits[i] = -Infinity;
    before += probs[i];
  }
}

/** Return the indices of x from the largest value to the smallest. */
function ranked(x) {
  return Array.from(x.keys()).sort((i, j) => x[j] - x[i]);
}

function check_sampling(temperature, top_k, top_p) {
  const rules = [
    ["temperature", temperature, temperature === 0 ||
      temperature >= 1e-20 && temperature <= 1e20, "0 (greedy) or more"],
    ["top-k", top_k, top_k === null || Number.isInteger(top_k) && top_k >= 1,
      "a whole number from 1"],
    ["top-p", top_p, top_p === null || top_p >= 1e-20 && top_p <= 1,
      "over 0, and at most 1"],
  ];
  for (const [name, value, ok, expected] of rules) {
    if (!ok) throw new UserError(`${name} is ${value}; expected ${expected}.`);
  }
}

/** Return the next token: the argmax at temperature 0, else a sample. */
function pick(logits, random, { temperature = 0, top_k = null,
  top_p = null } = {}) {
  const probs = next_token_probs(logits, temperature, top_k, top_p);
  if (temperature === 0) return argmax(probs);
  let rest = random(), id = 0;
  for (let i = 0; i < probs.length && rest >= 0; i++) {
    if (probs[i] > 0) id = i; // never a token that was cut off
    rest -= probs[i];
  }
  return id;
}

/** Return a generator of numbers from 0 to 1, the same for the same seed:
    a counter, whose bits are mixed by the last step of MurmurHash3. */
function generator(seed = Math.floor(Math.random() * 2 ** 31)) {
  let counter = seed >>> 0;
  return () => {
    counter = (counter + 0x9e3779b9) >>> 0;
    let x = counter;
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
    return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32;
  };
}

// ---- files ----

/** A mistake or misfortune that the page explains to its reader. */
class UserError extends Error {}

function damaged(what) {
  return new UserError(`${what} is damaged or incomplete. Reload the page; ` +
    "if that does not help, the site must be built again.");
}

const listeners = new Set(); // called with (bytes so far, all bytes or 0)

/** Fetch a file of the pocket Llama as bytes. */
async function fetch_bytes(name) {
  if (location.protocol === "file:") {
    throw new UserError("This page was opened as a file, and a browser does " +
      "not let such a page read the model's files. Run `python -m " +
      "http.server` in its folder, then open http://localhost:8000.");
  }
  const chunks = [];
  let size = 0, status = "gave no answer";
  try {
    const response = await fetch(new URL(name, FOLDER));
    status = `answered with status ${response.status}`;
    if (!response.ok) throw new Error(status);
    status = "stopped before the end";
    const packed = response.headers.has("Content-Encoding");
    const all = Number(packed || response.headers.get("Content-Length"));
    const reader = response.body.getReader();
    for (let part; !(part = await reader.read()).done;) {
      chunks.push(part.value);
      size += part.value.length;
      for (const listen of listeners) listen(size, packed ? 0 : all);
    }
  } catch {
    throw new UserError(`${name} could not be fetched: the server ${status}.` +
      " Check the connection, then press the button again.");
  }
  const bytes = new Uint8Array(size);
  for (let at = 0; chunks.length; at += chunks.shift().length) {
    bytes.set(chunks[0], at);
  }
  return bytes;
}

const fetch_text = async (name) =>
  new TextDecoder().decode(await fetch_bytes(name));

/** Return each tensor of a safetensors file, widened to float32, by name. */
function read_safetensors(bytes, file = "model.safetensors") {
  try {
    const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
    const start = 8 + length, w = {};
    const header = new TextDecoder().decode(bytes.subarray(8, start));
    for (const [name, entry] of Object.entries(JSON.parse(header))) {
      if (name === "__metadata__") continue;
      const { dtype, shape, data_offsets: [from, to] } = entry;
      const bits = new Uint16Array(bytes.buffer.slice(start + from,
        start + to));
      const size = shape.reduce((product, n) => product * n, 1);
      if (dtype !== "BF16" || bits.length !== size) throw damaged(file);
      w[name] = new Float32Array(size);
      const words = new Uint32Array(w[name].buffer);
      // bfloat16 is the upper half of float32
      for (let i = 0; i < size; i++) words[i] = bits[i] << 16;
    }
    return w;
  } catch {
    throw damaged(file);
  }
}

/** Run make() once; after an error, again at the next call. */
function once(make) {
  let made;
  return () => made ??= make().catch((error) => {
    made = undefined;
    throw error;
  });
}

const load_tokenizer = once(async () =>
  new Tokenizer(read_ranks(await fetch_text("tokenizer.model"))));

let loaded = false;
const load = once(async () => {
  const tokenizer = await load_tokenizer();
  const params = JSON.parse(await fetch_text("params.json"));
  const w = read_safetensors(await fetch_bytes("model.safetensors"));
  const llama = new Llama(params, w, tokenizer);
  llama.forward([tokenizer.bos_id], llama.new_cache(1)); // compiles the loops
  loaded = true;
  document.dispatchEvent(new Event("llama-loaded"));
  return llama;
});

// ---- the page: elements, colours, words ----

// The colours of the notebooks' pictures (llamalib/viz/base.py).
const COLOURS = {
  query: "#0072B2", key: "#D55E00", value: "#009E73", token: "#CC79A7",
  probability: "#E69F00", residual: "#56B4E9", other: "#999999",
};
const GROUPS = Object.values(COLOURS).slice(0, 6); // of heads that share KV
const AMOUNT = [[255, 255, 255], [158, 202, 225], [0, 114, 178], [8, 48, 107]];

/** Return the colour of an amount from 0 to 1. */
function amount(weight) {
  const at = Math.min(weight, 1) * (AMOUNT.length - 1);
  const low = Math.min(Math.floor(at), AMOUNT.length - 2);
  return AMOUNT[low].map((v, i) =>
    Math.round(v + (at - low) * (AMOUNT[low + 1][i] - v)));
}

/** Return a function that makes elements: name, attributes, children.
    Text is always a text node, so no text of a reader becomes markup. */
function maker(namespace) {
  return (tag, attributes = {}, ...children) => {
    const element = document.createElementNS(namespace, tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") Object.assign(element.style, value);
      else if (name.startsWith("on")) {
        element.addEventListener(name.slice(2), value);
      } else if (value !== false) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };
}
const html = maker("http://www.w3.org/1999/xhtml");
const svg = maker("http://www.w3.org/2000/svg");

/** Return a token's text as a label, with spaces and line ends visible. */
function visible(text) {
  let label = text.replace(/ /g, "␣").replace(/\n/g, "⏎")
    .replace(/^\p{M}/u, "◌$&") // an accent without its letter
    .replace(/[\p{C}\p{Z}]/gu, (c) =>
      `⟨${c.codePointAt(0).toString(16).toUpperCase()}⟩`);
  const letters = [...label];
  if (letters.length > 14) {
    label = `${letters.slice(0, 8).join("")}…${letters.slice(-5).join("")}`;
  }
  return label || "∅";
}

/** Return a rounded probability that reads neither 0 nor 1. */
function probability_text(p) {
  if (p === 0 || p === 1 || p >= 0.005 && p <= 0.995) return p.toFixed(2);
  if (p < 0.00005) return "<0.0001";
  return p > 0.99995 ? ">0.9999" : p.toFixed(4);
}

/** Return a cell with a probability and its bar. */
function bar_cell(p, colour) {
  const fill = html("span", { class: "llama-fill",
    style: { width: `${100 * p}%`, background: colour } });
  const track = html("span", { class: "llama-track" }, fill);
  return html("td", {}, html("div", { class: "llama-bar" },
    html("span", {}, probability_text(p)), track));
}

function table(caption, heads, rows) {
  const head = heads.map((text) => html("th", { scope: "col" }, text));
  return html("table", {}, html("caption", {}, caption),
    html("thead", {}, html("tr", {}, ...head)),
    html("tbody", {}, ...rows.map(([first, ...cells]) => html("tr", {},
      html("th", { scope: "row" }, first), ...cells.map((cell) =>
        (cell instanceof Element ? cell : html("td", {}, cell)))))));
}

// Controls: each returns [name, element to show, function of its value].
function labelled(name, label, input, ...more) {
  const box = html("label", { class: "llama-field" },
    html("span", {}, label), input);
  return [name, html("div", {}, box, ...more), input];
}

function text_field(label, value, rows) {
  const spell = { spellcheck: "false", autocomplete: "off" };
  const input = rows ? html("textarea", { rows, ...spell })
    : html("input", { type: "text", ...spell });
  input.value = value;
  return labelled("text", label, input);
}

function slider(name, label, value, min, max, step = 1) {
  const input = html("input", { type: "range", min, max, step, value });
  const shown = html("output", { "aria-hidden": "true" }, String(value));
  input.addEventListener("input", () => { shown.value = input.value; });
  const field = labelled(name, label, input);
  field[1].firstChild.append(shown);
  return field;
}

function number_field(name, label, value, min, max) {
  return labelled(name, label, html("input", { type: "number", min, max,
    step: 1, value, inputmode: "numeric" }));
}

function choice(name, label, options) {
  return labelled(name, label, html("select", {}, ...options.map((text, i) =>
    html("option", { value: i }, String(text)))));
}

const SAMPLING = () => [
  slider("top_k", "top-k (0: every token)", 0, 0, 50),
  slider("top_p", "top-p (1: off)", 0.9, 0.05, 1, 0.05),
  number_field("seed", "seed", 0, 0, 2 ** 31 - 1),
];

function value_of(input) {
  if (input.type === "checkbox") return input.checked;
  const is_text = input.type === "text" || input.localName === "textarea";
  return is_text ? input.value : Number(input.value);
}

// ---- a part of a page ----

/** A section: a form, a line for messages, and what `kind` draws. */
class Part {
  constructor(section, kind) {
    const prompt = section.dataset.prompt ?? "The capital of France is";
    Object.assign(this, { kind, inputs: {}, turn: 0, ready: false });
    this.button = html("button", { type: "submit" });
    this.buttons = html("div", { class: "llama-buttons" }, this.button);
    this.group = html("fieldset", {}, html("legend", {}, kind.title),
      this.buttons);
    this.form = html("form", {
      onsubmit: (event) => { event.preventDefault(); this.run(); },
      oninput: (event) => this.follow(event),
    }, this.group);
    this.progress = html("progress", { max: 1, "aria-label": "loaded" });
    this.progress.hidden = true;
    this.message = html("p", { class: "llama-message", role: "status" });
    this.out = html("div", { class: "llama-output" });
    this.add(text_field("text", prompt, kind.lines), ...kind.controls());
    kind.begin?.(this);
    section.replaceChildren(this.form, this.progress, this.message, this.out);
    this.name_button();
    document.addEventListener("llama-loaded", () => this.name_button());
  }

  /** Add controls above the buttons. */
  add(...controls) {
    for (const [name, element, input] of controls) {
      this.inputs[name] = input;
      this.buttons.before(element);
    }
  }

  get values() {
    return Object.fromEntries(Object.entries(this.inputs).map(
      ([name, input]) => [name, value_of(input)]));
  }

  get is_loaded() { return this.kind.tokenizer_only || loaded; }

  name_button() {
    this.button.textContent = this.is_loaded ? this.kind.action
      : "Load the pocket Llama (13 MB)";
  }

  /** Follow a control, once there is something to draw with. */
  follow({ target }) {
    if (!this.is_loaded || this.kind.only_on_request) return;
    const typed = target.type === "text" || target.localName === "textarea";
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), typed ? 200 : 0);
  }

  say(text, is_error = false) {
    this.message.textContent = text;
    this.message.classList.toggle("llama-error", is_error);
    this.out.hidden = is_error;
  }

  show(...elements) { this.out.replaceChildren(...elements); }

  /** Load what is missing, then draw; a newer run makes this one stale. */
  async run() {
    const turn = ++this.turn, is_current = () => turn === this.turn;
    try {
      check_text(this.values.text);
      const source = await this.source();
      if (!this.ready) this.kind.set_up?.(this, source);
      this.ready = true;
      if (!is_current()) return;
      const said = await this.kind.draw(this, source, this.values, is_current);
      if (is_current()) this.say(said);
    } catch (error) {
      const explained = error instanceof UserError;
      if (!explained) console.error(error);
      const sorry = `An error of the page itself: ${error.message}. Reload it.`;
      if (is_current()) this.say(explained ? error.message : sorry, true);
    }
  }

  /** Return the tokenizer or the Llama; show how much of it is loaded. */
  async source() {
    if (this.kind.tokenizer_only) return load_tokenizer();
    if (loaded) return load();
    const listen = (size, all) => {
      if (all) this.progress.value = size / all;
      else this.progress.removeAttribute("value");
    };
    this.say("Loading the pocket Llama …");
    this.progress.hidden = false;
    listeners.add(listen);
    try {
      return await load();
    } finally {
      listeners.delete(listen);
      this.progress.hidden = true;
    }
  }

  /** Return make(), or what it returned before, if the key is the same. */
  remember(key, make) {
    if (this.key !== key) Object.assign(this, { key: undefined, kept: make() });
    this.key = key;
    return this.kept;
  }

  /** Return the logits after the prompt; a slider changes them not. */
  logits(llama, text) {
    return this.remember(text, () =>
      llama.logits(llama.tokenizer.encode(text, { bos: true })));
  }
}

function check_text(text) {
  if (!text) throw new UserError("The text is empty. Type a word or more.");
  if (text.length > LONGEST_TEXT) {
    throw new UserError(`The text has ${text.length.toLocaleString("en")} ` +
      `characters; this page takes at most ${LONGEST_TEXT.toLocaleString(
        "en")}. Shorten it.`);
  }
}

const MOST_SHOWN = 40; // tokens of a map, as in the notebooks

/** Run the start of a text, and return ids, labels and what `watch` saw. */
function watched(llama, text, watch) {
  const ids = llama.tokenizer.encode(text, { bos: true });
  const cut = ids.length > MOST_SHOWN;
  ids.length = Math.min(ids.length, MOST_SHOWN);
  llama.forward(ids, llama.new_cache(ids.length), watch);
  const labels = ids.map((id) => visible(llama.tokenizer.decode([id])));
  return { labels, note: cut ? ` The first ${MOST_SHOWN} tokens.` : "" };
}

function end_of(text) {
  return text.length < 60 ? `${text} …` : `… ${text.slice(-40)} …`;
}

const PARTS = {};

PARTS.tokens = {
  title: "Cut any text into tokens",
  action: "Show the tokens",
  tokenizer_only: true,
  lines: 3,
  controls: () => [labelled("special", "names of special tokens become " +
    "control tokens", html("input", { type: "checkbox" }))],
  draw(part, tokenizer, { text, special }) {
    const ids = tokenizer.encode(text, { special }), most = 300;
    const hex = (id) => Array.from(tokenizer.decode_bytes(id), (b) =>
      b.toString(16).padStart(2, "0")).join(" ");
    const boxes = ids.slice(0, most).map((id) => html("li",
      { class: tokenizer.is_control(id) ? "llama-control" : "" },
      html("b", {}, visible(tokenizer.decode([id]))),
      html("span", {}, String(id)),
      html("span", {}, tokenizer.is_control(id) ? "control" : hex(id))));
    const more = ids.length > most
      ? `… and ${ids.length - most} more tokens, not drawn.` : "";
    part.show(html("ol", { class: "llama-tokens", "aria-label": "tokens" },
      ...boxes), html("p", {}, more));
    const bytes = new TextEncoder().encode(text).length;
    return `${[...text].length} characters, ${bytes} bytes, ${ids.length} ` +
      "tokens. Each box: a token, its id, its bytes.";
  },
};

PARTS.next = {
  title: "The next token of any text",
  action: "Show the next tokens",
  controls: () => [slider("bars", "bars", 10, 3, 15)],
  async draw(part, llama, { text, bars }) {
    const probs = next_token_probs(await part.logits(llama, text));
    const rows = ranked(probs).slice(0, bars).map((id) => [
      visible(llama.tokenizer.decode([id])), String(id),
      bar_cell(probs[id], COLOURS.probability)]);
    part.show(table(end_of(text), ["next token", "id", "probability"], rows));
    return `The most likely next token: ${rows[0][0]}.`;
  },
};

PARTS.sampling = {
  title: "Sample the next token",
  action: "Show the distribution",
  controls: () => [slider("temperature", "temperature (0: greedy)", 0.7, 0, 3,
    0.05), ...SAMPLING()],
  begin(part) {
    part.buttons.append(html("button", { type: "button",
      onclick: () => { part.draws = 20; part.run(); } }, "Sample 20 tokens"));
  },
  async draw(part, llama, values) {
    const { text, temperature, top_k, top_p, seed } = values;
    const logits = await part.logits(llama, text);
    const settings = { temperature, top_k: top_k || null, top_p };
    const before = next_token_probs(logits);
    const after = next_token_probs(logits, ...Object.values(settings));
    const key = JSON.stringify(values); // a change begins the draws again
    if (key !== part.drawn?.key) {
      part.drawn = { key, random: generator(seed), counts: new Map(), all: 0 };
    }
    const { random, counts } = part.drawn;
    for (; part.draws > 0; part.draws--, part.drawn.all++) {
      const id = pick(logits, random, settings);
      counts.set(id, (counts.get(id) ?? 0) + 1);
    }
    const top = ranked(before).slice(0, 11);
    for (const id of counts.keys()) if (!top.includes(id)) top.push(id);
    const rest = (probs) => probs.reduce((sum, p, i) =>
      sum + (top.includes(i) ? 0 : p), 0);
    const row = (name, p, q, n) => [name, bar_cell(p, COLOURS.other),
      q ? bar_cell(q, COLOURS.probability) : "cut off", String(n)];
    const rows = top.map((id) => row(visible(llama.tokenizer.decode([id])),
      before[id], after[id], counts.get(id) ?? 0));
    rows.push(row("all others", rest(before), rest(after), 0));
    part.show(table(end_of(text), ["next token", "as it is",
      `T ${temperature}, k ${top_k || "off"}, p ${top_p}`, "drawn"], rows));
    const left = after.filter((p) => p > 0).length;
    return `${left} of ${after.length} tokens can be drawn; ` +
      `${part.drawn.all} drawn with seed ${seed}.`;
  },
};

PARTS.generate = {
  title: "Continue a text",
  action: "Continue the text",
  only_on_request: true,
  lines: 2,
  controls: () => [number_field("tokens", "new tokens, at most", 120, 1,
    LONGEST), slider("temperature", "temperature (0: greedy)", 0, 0, 2, 0.1),
  ...SAMPLING()],
  begin(part) {
    part.stop = html("button", { type: "button", "aria-disabled": "true",
      onclick: () => { part.stopped = true; } }, "Stop");
    part.buttons.append(part.stop);
  },
  async draw(part, llama, values, is_current) {
    const { text, tokens, temperature, top_k, top_p, seed } = values;
    const ids = llama.tokenizer.encode(text, { bos: true });
    const options = { max_new_tokens: tokens, temperature, seed, top_p,
      top_k: top_k || null };
    const new_text = html("span"), { push, end } = llama.tokenizer.decoder();
    part.stopped = false;
    part.stop.setAttribute("aria-disabled", "false");
    part.say("The text is growing …");
    const start = performance.now();
    let n = 0, first = 0;
    try {
      for await (const id of llama.generate(ids, options)) {
        if (part.stopped || !is_current()) break;
        if (!n++) {
          first = performance.now() - start;
          part.show(html("p", { class: "llama-text", role: "group",
            "aria-label": "the text" }, html("span",
            { class: "llama-prompt" }, text), new_text));
        }
        new_text.append(push(id));
      }
    } finally {
      if (is_current()) part.stop.setAttribute("aria-disabled", "true");
    }
    new_text.append(end());
    if (!n) part.show();
    const seconds = (performance.now() - start - first) / 1000;
    const speed = n > 1 ? `, then ${Math.round((n - 1) / seconds)} a second`
      : "";
    const why = part.stopped ? "you stopped it" : n === tokens
      ? "the limit that you set" : ids.length + n > LONGEST
        ? `the page keeps ${LONGEST} positions` : "the model ended the text";
    return `End: ${why}. ${n} new tokens, the first after ` +
      `${Math.round(first)} ms${speed}.`;
  },
};

PARTS.attention = {
  title: "Attention maps of any text",
  action: "Show the maps",
  controls: () => [],
  set_up(part, { config: { n_layers: L, n_heads: H, n_kv_heads: KV } }) {
    part.thumbs = [];
    const name = `llama-head-${Math.random()}`; // of this part's radio buttons
    const head = (layer, h) => {
      const group = Math.floor(h / (H / KV)), map = html("canvas",
        { style: { borderColor: GROUPS[group % GROUPS.length] } });
      const input = html("input", { type: "radio", name,
        "aria-label": `layer ${layer}, head ${h}, KV head ${group}` });
      input.checked = !part.thumbs.length;
      part.thumbs.push({ layer, h, group, map, input });
      return html("label", {}, input, map);
    };
    const rows = Array.from({ length: L }, (_, layer) => html("div", {},
      html("span", {}, `layer ${layer}`), ...Array.from({ length: H },
        (_, h) => head(layer, h))));
    part.buttons.before(html("fieldset", { class: "llama-heads" },
      html("legend", {}, `Choose a head. A row is a layer, with heads 0 to ${
        H - 1}; heads with frames of one colour share a KV head.`), ...rows));
  },
  draw(part, llama, { text }) {
    const { n_layers: L, n_heads: H, n_kv_heads: KV } = llama.config;
    const { maps, labels, note } = part.remember(text, () => {
      const maps = Array.from({ length: L * H }, () => []);
      return { maps, ...watched(llama, text, { weights: (layer, h, t, row) => {
        maps[layer * H + h][t] = row;
      } }) };
    });
    part.thumbs.forEach(({ map }, i) => draw_thumb(map, maps[i]));
    const at = part.thumbs.findIndex(({ input }) => input.checked);
    const { layer, h, group } = part.thumbs[at], n = H / KV;
    const name = `layer ${layer}, head ${h} · KV head ${group}, shared by ` +
      `heads ${group * n} to ${group * n + n - 1}`;
    const rows = maps[at].map((row, t) => [labels[t], ranked(row).slice(0, 3)
      .map((s) => `${labels[s]} ${row[s].toFixed(2)}`).join(", ")]);
    const width = Math.min(part.out.clientWidth || 600, 640);
    part.show(html("p", { class: "llama-title" }, name),
      large_map(maps[at], labels, GROUPS[group % GROUPS.length], width, name),
      html("details", {}, html("summary", {}, "the largest weights in words"),
        table(name, ["query", "looks most at these keys"], rows)));
    return `Shown: ${name}.${note}`;
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
function large_map(rows, labels, frame, width, name) {
  const T = rows.length, margin = 108, size = width - margin - 6;
  const cell = Math.min(size / T, 46), side = cell * T;
  const every = Math.ceil(14 / cell); // so that labels do not touch
  const parts = [];
  rows.forEach((row, t) => row.forEach((weight, s) => {
    const x = margin + s * cell, y = 4 + t * cell, fill = amount(weight);
    parts.push(svg("rect", { x, y, width: cell, height: cell,
      fill: `rgb(${fill})` }));
    if (cell < 34) return;
    parts.push(svg("text", { x: x + cell / 2, y: y + cell / 2 + 4,
      "text-anchor": "middle", fill: weight > 0.55 ? "#fff" : "#000" },
    weight.toFixed(2)));
  }));
  labels.forEach((label, i) => {
    if (i % every) return;
    const at = (i + 0.5) * cell, low = side + 16;
    parts.push(svg("text", { x: margin - 6, y: at + 8, "text-anchor": "end" },
      label), svg("text", { "text-anchor": "end", transform:
        `translate(${margin + at + 4} ${low}) rotate(-60)` }, label));
  });
  parts.push(svg("rect", { x: margin, y: 4, width: side, height: side,
    fill: "none", stroke: frame, "stroke-width": 3 }));
  parts.push(svg("text", { x: margin + side, y: side + 110,
    "text-anchor": "end" }, "across: key; down: query; darker: more weight"));
  return svg("svg", { class: "llama-map", role: "img",
    viewBox: `0 0 ${width} ${side + 116}`, width, "aria-label":
      `Attention weights of ${name}. In words: see the list below.` },
  ...parts);
}

PARTS.rotation = {
  title: "Rotate a query",
  action: "Show the query",
  controls: () => [],
  set_up(part, { config: { n_layers: L, n_heads: H, head_dim } }) {
    part.add(choice("layer", "layer", [...Array(L).keys()]),
      choice("head", "head", [...Array(H).keys()]),
      choice("token", "token", []),
      choice("pair", "pair k", [...Array(head_dim / 2).keys()]),
      slider("position", "position m", 0, 0, 512));
    part.inputs.pair.value = Math.min(1, head_dim / 2 - 1);
  },
  draw(part, llama, { text }) {
    const { n_heads: H, head_dim: hd } = llama.config, { inputs } = part;
    const { queries, labels, note } = part.remember(text, () => {
      const queries = [];
      const query = (layer, xq) => { queries[layer] = xq.slice(); };
      const seen = watched(llama, text, { query });
      inputs.token.replaceChildren(...seen.labels.map((label, t) =>
        html("option", { value: t }, `${t}: ${label}`)));
      const last = seen.labels.length - 1;
      inputs.token.value = last;
      set_slider(inputs.position, last);
      return { queries, ...seen };
    });
    const { layer, head, token, pair, position } = part.values;
    if (token !== part.token) set_slider(inputs.position, part.token = token);
    const at = (token * H + head) * hd + 2 * pair, m = part.values.position;
    const [a, b] = queries[layer].slice(at, at + 2), freq = llama.freqs[pair];
    const angle = m * freq, cos = Math.cos(angle), sin = Math.sin(angle);
    const after = [a * cos - b * sin, a * sin + b * cos];
    const full = Math.floor(angle / (2 * Math.PI));
    const degrees = (angle / Math.PI * 180 - 360 * full).toFixed(1);
    const point = (pair) => `(${pair.map((v) => v.toFixed(3)).join(", ")})`;
    const words = [
      ["query of", `${labels[token]}, layer ${layer}, head ${head}`],
      ["pair k before", `numbers ${2 * pair} and ${2 * pair + 1}: ${
        point([a, b])}`],
      ["angle m · Θₖ", `${m} · ${freq.toPrecision(4)} = ${angle.toFixed(4)} ` +
        `radians: ${full} full rotations and ${degrees}°`],
      ["pair k after", `${point(after)}, length ${Math.hypot(a, b).toFixed(3)
        } as before`],
      ["a full rotation", `takes ${(2 * Math.PI / freq).toFixed(1)} positions`],
    ];
    part.show(plane([a, b], angle), table("What is drawn, in numbers",
      ["what", "value"], words));
    return `At position ${m} the pair is rotated by ${degrees}°.${note}`;
  },
};

function set_slider(input, value) {
  input.value = value;
  input.dispatchEvent(new Event("input")); // shows the number; no bubbles
}

/** Return a plane with a pair before and after a rotation by `angle`. */
function plane([a, b], angle) {
  const start = Math.atan2(b, a), radius = 100, name = "Two arrows of one " +
    "length in a plane: the pair before and after its rotation.";
  const at = (turn, r) => [r * Math.cos(turn), -r * Math.sin(turn)];
  const sweep = angle % (2 * Math.PI);
  const arrow = (turn, colour, label, out) => {
    const [x, y] = at(turn, radius), [u, v] = at(turn, out);
    const tip = [[turn, radius], [turn + 0.09, 86], [turn - 0.09, 86]];
    return [svg("line", { x1: 0, y1: 0, x2: 0.9 * x, y2: 0.9 * y,
      stroke: colour, "stroke-width": 4 }),
    svg("polygon", { points: tip.map((p) => at(...p)).join(" "),
      fill: colour }),
    svg("text", { x: u, y: v + 4, "text-anchor": "middle" }, label)];
  };
  const line = { class: "llama-axis" }, [x, y] = at(start, 40);
  const [u, v] = at(start + sweep, 40), large = Number(sweep > Math.PI);
  return svg("svg", { class: "llama-plane", viewBox: "-160 -150 320 300",
    role: "img", "aria-label": name },
  svg("circle", { r: radius, fill: "none", ...line }),
  svg("line", { x1: -130, x2: 130, ...line }),
  svg("line", { y1: -130, y2: 130, ...line }),
  svg("path", { d: `M ${x} ${y} A 40 40 0 ${large} 0 ${u} ${v}`,
    fill: "none", stroke: "currentColor", "stroke-width": 2 }),
  ...arrow(start, COLOURS.other, "before", 116),
  ...arrow(start + angle, COLOURS.query, "after", 132));
}

// ---- start ----

const NEEDED = ["fetch", "TextDecoder", "TextEncoder", "MessageChannel",
  "BigInt", "ReadableStream"];

function start() {
  const missing = NEEDED.filter((name) => !(name in window));
  for (const section of document.querySelectorAll("section.llama")) {
    const kind = PARTS[section.dataset.part];
    if (kind && !missing.length) new Part(section, kind);
    else section.replaceChildren(html("p", { class: "llama-message " +
      "llama-error", role: "status" }, kind ? "This part needs a newer " +
      `browser: this one has no ${missing.join(", no ")}. Take Chrome, Edge, ` +
      "Firefox or Safari of 2022 or later."
      : `There is no part named ${section.dataset.part}.`));
  }
}

window.llama = { load_tokenizer, load, next_token_probs };
start();
})();
