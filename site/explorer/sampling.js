/* From logits to a token (notebook 08). */
import { PromptError } from "./files.js";

/** @typedef {import("./types.js").Sampling} Sampling */

/** Replace scores by their softmax, and return them.
 * @param {Float32Array} scores */
export function softmax(scores) {
  const n = scores.length;
  let largest = -Infinity;
  let sum = 0;
  for (let i = 0; i < n; i++) largest = Math.max(largest, scores[i]);
  for (let i = 0; i < n; i++) sum += scores[i] = Math.exp(scores[i] - largest);
  for (let i = 0; i < n; i++) scores[i] /= sum;
  return scores;
}
/** @param {ArrayLike<number>} x */
export function argmax(x) {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best]) best = i;
  return best;
}
/** Return the indices of the n largest numbers, the largest first; of equals the first.
 * @param {ArrayLike<number>} x
 * @param {number} n */
export function top(x, n) {
  /** @type {number[]} */
  const found = [];
  for (let i = 0; i < x.length; i++) {
    if (found.length === n && !(x[i] > x[found[n - 1]])) continue;
    let at = found.length;
    while (at && x[i] > x[found[at - 1]]) at--;
    found.splice(at, 0, i);
    if (found.length > n) found.pop();
  }
  return found;
}
/** Return all indices, the largest number first.
 * @param {ArrayLike<number>} x */
export const ranked = (x) => Array.from(x, (_, i) => i).sort((i, j) => x[j] - x[i]);

/** Throw unless the settings of sampling are in range.
 * @param {number} temperature
 * @param {number | null} k
 * @param {number | null} p */
function check_sampling(temperature, k, p) {
  const is_warm = temperature >= 1e-20 && temperature <= 1e20;
  /** @type {[string, number | null, boolean, string][]} */
  const checks = [
    ["temperature", temperature, temperature === 0 || is_warm, "0 (greedy) or a positive number"],
    ["top-k", k, k === null || (Number.isInteger(k) && k >= 1), "a whole number from 1"],
    ["top-p", p, p === null || (p >= 1e-20 && p <= 1), "over 0, and at most 1"],
  ];
  for (const [name, value, is_right, expected] of checks)
    if (!is_right) throw new PromptError(`${name} is ${value}; expected ${expected}.`);
}
/** Return logits (V) divided by the temperature, then cut by top-k, then by top-p; null skips a
 * step. What is cut off is -Infinity: at temperature 0, all but the most likely token.
 * @param {Float32Array} logits
 * @param {number} temperature
 * @param {number | null} k
 * @param {number | null} p */
export function cut_logits(logits, temperature = 1, k = null, p = null) {
  check_sampling(temperature, k, p);
  if (temperature === 0) {
    const greedy = new Float32Array(logits.length).fill(-Infinity);
    greedy[argmax(logits)] = 0;
    return greedy;
  }
  const scaled = logits.map((x) => x / temperature);
  if (k !== null) {
    const least = scaled.slice().sort()[Math.max(0, scaled.length - k)];
    scaled.forEach((x, i) => {
      if (x < least) scaled[i] = -Infinity;
    }); // ties with the k-th stay
  }
  if (p !== null && p < 1) {
    const probs = softmax(scaled.slice());
    const kept = new Set(nucleus(probs, p));
    scaled.forEach((_, i) => {
      if (!kept.has(i)) scaled[i] = -Infinity;
    });
  }
  return scaled;
}
/** Return the smallest set of the most likely tokens whose probabilities sum to p or more.
 * @param {Float32Array} probs
 * @param {number} p */
function nucleus(probs, p) {
  // the first few are mostly enough, and found faster than an order of all
  for (const order of [() => top(probs, 100), () => ranked(probs)]) {
    const ids = order();
    let sum = 0;
    for (const [n, id] of ids.entries()) {
      sum += probs[id];
      if (sum >= p) return ids.slice(0, n + 1);
    }
  }
  return ranked(probs); // rounding: their sum is just below p
}
/** Return the distribution (V) that the next token is sampled from; see cut_logits.
 * @param {Float32Array} logits
 * @param {number} [temperature]
 * @param {number | null} [k]
 * @param {number | null} [p] */
export const next_token_probs = (logits, temperature, k, p) =>
  softmax(cut_logits(logits, temperature, k, p));

/** Return the next token: the argmax at temperature 0, else a sample.
 * @param {Float32Array} logits
 * @param {() => number} random
 * @param {Sampling} how */
export function pick(logits, random, { temperature = 0, top_k = null, top_p = null }) {
  const probs = next_token_probs(logits, temperature, top_k, top_p);
  let rest = random();
  let id = 0;
  for (let i = 0; i < probs.length && rest >= 0; i++) {
    if (probs[i] > 0) id = i; // never a token that was cut off
    rest -= probs[i];
  }
  return id;
}
/** Return a generator of numbers from 0 to 1, the same for the same seed, if it is a number: a
 * counter whose bits are mixed by the last step of MurmurHash3.
 * @param {number} [seed] */
export function generator(seed = -1) {
  let counter = (seed >= 0 ? seed : Math.random() * 2 ** 32) >>> 0;
  return () => {
    counter = (counter + 0x9e3779b9) >>> 0;
    const y = Math.imul(counter ^ (counter >>> 16), 0x85ebca6b);
    const x = Math.imul(y ^ (y >>> 13), 0xc2b2ae35);
    return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32;
  };
}
