/* The steps of a Llama (notebooks 03 to 06), each a function of arrays.

Letters: T query positions, S key positions, D model dim, H query heads, KV key/value heads,
hd head dim, F hidden dim of the FFN, V vocabulary, L layers. A matrix is a Float32Array, row
after row: entry (t, i) of (T, D) is x[t * D + i]. Sums are float64, JavaScript's numbers; those
of kernel.js are float32. */
import { softmax } from "./sampling.js";

/** @typedef {import("./types.js").Config} Config */
/** @typedef {import("./types.js").Weight} Weight */

let scratch = new Float32Array(0);
let used = 0;
/** Give back all memory that was borrowed. */
export const give_back = () => void (used = 0);
/** Return an array of n numbers from memory that each block uses again: new arrays pile up.
 * @param {number} n */
function borrow(n) {
  if ((used += n) > scratch.length) scratch = new Float32Array(2 * used);
  return scratch.subarray(used - n, used);
}
/** Multiply x (T, n) by the transpose of w (m, n). Returns (T, m), which the next block overwrites.
 * @param {Float32Array} x
 * @param {Weight} w
 * @param {number} T */
export function linear(x, w, T) {
  const n = x.length / T;
  const m = w.length / n;
  const out = borrow(T * m);
  if (w instanceof Float32Array) multiply(x, w, out, n, m, T);
  else w.times(x, T, out);
  return out;
}
/** Plainly, for each t and j: out[t * m + j] is the sum over i of x[t * n + i] * w[j * n + i].
 * Here 8 sums, a to h, grow together, so that each number is loaded for several of them.
 * @param {Float32Array} x
 * @param {Float32Array} w
 * @param {Float32Array} out
 * @param {number} n
 * @param {number} m a multiple of 4
 * @param {number} T */
function multiply(x, w, out, n, m, T) {
  if (m % 4) throw new RangeError(`w has ${m} rows; expected a multiple of 4`);
  let t = 0;
  for (; t + 4 <= T; t += 4) {
    const x0 = t * n;
    const x1 = x0 + n;
    const x2 = x1 + n;
    const x3 = x2 + n;
    for (let j = 0; j < m; j += 2) {
      const w0 = j * n;
      const w1 = w0 + n;
      const o = t * m + j;
      let a = 0;
      let b = 0;
      let c = 0;
      let d = 0;
      let e = 0;
      let f = 0;
      let g = 0;
      let h = 0;
      for (let i = 0; i < n; i++) {
        const p = w[w0 + i];
        const q = w[w1 + i];
        a += x[x0 + i] * p;
        b += x[x1 + i] * p;
        c += x[x2 + i] * p;
        d += x[x3 + i] * p;
        e += x[x0 + i] * q;
        f += x[x1 + i] * q;
        g += x[x2 + i] * q;
        h += x[x3 + i] * q;
      }
      out[o] = a;
      out[o + m] = b;
      out[o + 2 * m] = c;
      out[o + 3 * m] = d;
      out[o + 1] = e;
      out[o + m + 1] = f;
      out[o + 2 * m + 1] = g;
      out[o + 3 * m + 1] = h;
    }
  }
  for (; t < T; t++) {
    // a single row, as in decoding, with four of w
    for (let j = 0, row = t * n; j < m; j += 4) {
      const w0 = j * n;
      const w1 = w0 + n;
      const w2 = w1 + n;
      const w3 = w2 + n;
      let a = 0;
      let b = 0;
      let c = 0;
      let d = 0;
      for (let i = 0; i < n; i++) {
        const p = x[row + i];
        a += p * w[w0 + i];
        b += p * w[w1 + i];
        c += p * w[w2 + i];
        d += p * w[w3 + i];
      }
      out.set([a, b, c, d], t * m + j);
    }
  }
}
/** Return row j of a matrix with n columns.
 * @param {Weight} w
 * @param {number} j
 * @param {number} n */
export const row_of = (w, j, n) =>
  w instanceof Float32Array ? w.subarray(j * n, (j + 1) * n) : w.row(j);

/** Scale each row of x (T, D) to a root mean square of 1, then by weight (D).
 * @param {Float32Array} x
 * @param {Float32Array} weight
 * @param {number} eps
 * @param {Float32Array} [out] where the result goes */
export function rms_norm(x, weight, eps, out = borrow(x.length)) {
  const D = weight.length;
  for (let row = 0; row < x.length; row += D) {
    let squares = 0;
    for (let i = 0; i < D; i++) squares += x[row + i] ** 2;
    const scale = 1 / Math.sqrt(squares / D + eps);
    for (let i = 0; i < D; i++) out[row + i] = x[row + i] * scale * weight[i];
  }
  return out;
}
/** Return radians per position of each pair (hd/2), float32. Low frequencies are scaled down, as
 * Llama 3.1 and 3.2's configs say; by how much, as published.
 * @param {Config} config */
export function rope_frequencies({
  head_dim,
  rope_theta,
  use_scaled_rope,
  rope_scaling_factor,
  dim,
}) {
  const factor = use_scaled_rope ? (rope_scaling_factor ?? (dim < 4096 ? 32 : 8)) : 1;
  return Float32Array.from({ length: head_dim / 2 }, (_, k) => {
    const freq = rope_theta ** ((-2 * k) / head_dim);
    const wavelength = (2 * Math.PI) / freq;
    const blend = Math.min(1, Math.max(0, (8192 / wavelength - 1) / (4 - 1)));
    return ((1 - blend) * freq) / factor + blend * freq;
  });
}
/** Return cos and sin (end, hd/2, 2) of every position's angle by pair.
 * @param {Float32Array} freqs
 * @param {number} end */
export function precompute_freqs_cis(freqs, end) {
  const out = new Float32Array(2 * end * freqs.length);
  for (let m = 0, i = 0; m < end; m++) {
    for (const freq of freqs) {
      out[i++] = Math.cos(Math.fround(m * freq));
      out[i++] = Math.sin(Math.fround(m * freq));
    }
  }
  return out;
}
/** Rotate the pairs of x (T, heads, hd) in place; row 0 is at position `start`.
 * @param {Float32Array} x
 * @param {Float32Array} freqs_cis
 * @param {number} start
 * @param {number} T
 * @param {number} head_dim */
export function apply_rotary_emb(x, freqs_cis, start, T, head_dim) {
  const width = x.length / T;
  for (let i = 0; i < x.length; i += 2) {
    const at = (start + Math.floor(i / width)) * head_dim + (i % head_dim);
    const cos = freqs_cis[at];
    const sin = freqs_cis[at + 1];
    const a = x[i];
    const b = x[i + 1];
    x[i] = a * cos - b * sin;
    x[i + 1] = a * sin + b * cos;
  }
}
/** Average the values by each query's weights, softmax(QKᵀ / √hd). Returns (T, H·hd).
 * @param {Float32Array} xq (T, H, hd)
 * @param {Float32Array} xk (S, KV, hd), of which query t sees the first start + t + 1
 * @param {Float32Array} xv (S, KV, hd)
 * @param {number} start
 * @param {number} T
 * @param {Config} config
 * @param {(t: number, weights: Float32Array, scores: Float32Array) => void} [see] called with each
 *   query's weights (H, S) and scores (H, S) */
export function attention(xq, xk, xv, start, T, config, see) {
  const { head_dim: hd, n_heads: H, n_kv_heads: KV } = config;
  const n_rep = H / KV;
  const out = borrow(T * H * hd).fill(0);
  const root = Math.sqrt(hd);
  for (let t = 0; t < T; t++) {
    const S = start + t + 1; // the causal mask: later keys are not read
    const weights = new Float32Array(H * S);
    for (let h = 0; h < H; h++) {
      const query = (t * H + h) * hd;
      const kv = Math.floor(h / n_rep) * hd;
      for (let s = 0, key = kv; s < S; s++, key += KV * hd) {
        let score = 0;
        for (let i = 0; i < hd; i++) score += xq[query + i] * xk[key + i];
        weights[h * S + s] = score / root;
      }
    }
    const scores = see ? weights.slice() : weights;
    for (let h = 0; h < H; h++) {
      const query = (t * H + h) * hd;
      const kv = Math.floor(h / n_rep) * hd;
      const row = softmax(weights.subarray(h * S, (h + 1) * S));
      for (let s = 0, value = kv; s < S; s++, value += KV * hd) {
        for (let i = 0; i < hd; i++) out[query + i] += row[s] * xv[value + i];
      }
    }
    see?.(t, weights, scores);
  }
  return out;
}
/** @param {number} x */
export const silu = (x) => x / (1 + Math.exp(-x));

/** Compute SwiGLU of x (T, D): gate by w1, up by w3, down by w2.
 * @param {Float32Array} x
 * @param {Weight} w1
 * @param {Weight} w2
 * @param {Weight} w3
 * @param {number} T
 * @param {(name: string, x: Float32Array) => void} [see] called with gate and up (T, F) */
export function feed_forward(x, w1, w2, w3, T, see) {
  const gate = linear(x, w1, T);
  const up = linear(x, w3, T); // (T, F)
  see?.("gate", gate);
  see?.("up", up);
  for (let i = 0; i < gate.length; i++) gate[i] = silu(gate[i]) * up[i];
  return linear(gate, w2, T); // (T, D)
}
