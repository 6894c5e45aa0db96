/* The walk: one token's way through the model, a step at a time, and what each step says. */
import { count, probability, with_commas } from "./dom.js";
import { station_of } from "./map.js";
import { top } from "./sampling.js";
import { append, draw_token, is_ready } from "./writing.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** A step: the tile and the layer that it shows, and what is said.
 * @typedef {{ tile: string, said: string, layer: number }} Step */

/** Return the steps of the next token.
 * @param {Explorer} e
 * @returns {Step[]} */
function steps_of(e) {
  const {
    trace,
    tokenizer,
    config: { n_layers: L, dim: D, n_heads: H, n_kv_heads: KV, hidden_dim: F, vocab_size: V },
  } = e;
  const last = e.T - 1;
  const name = `“${e.label(last)}”`;
  const lens = trace.lens(last);
  /** @type {Step[]} */
  const steps = [];
  const add = (/** @type {string} */ tile, /** @type {string} */ said, layer = 0) =>
    steps.push({ tile, said, layer });
  const best = (/** @type {number} */ layer) => {
    const [{ id, p }] = lens[layer].top;
    return `“${e.name(id)}” (${probability(p)})`;
  };
  const answer = `“${e.name(lens[L].top[0].id)}”`;
  const rank = (/** @type {number} */ layer) => with_commas(lens[layer].rank);
  const tokens = e.ids.filter((id) => id !== tokenizer.bos_id).length;
  const first = tokenizer.bos_id === null ? "" : ", after <|begin_of_text|>";
  const row = trace.attention(0).weights[e.head][last];
  const [most] = top(row, 1);
  const [neuron] = top(trace.product(0, last).map(Math.abs), 1);
  const stops = layers_of(lens.map((it) => it.rank));
  add("tokens", `The text is cut into ${count(tokens, "token")} with an id each${first}.`);
  add(
    "embed",
    `Each id selects its row of a table: the ${D} numbers that training found for ${name}.`,
  );
  add("norm 1", `Layer 0 of ${L}. RMSNorm gives each token's numbers the same size.`);
  add(
    "qkv",
    `What a token looks for, what it offers, what it hands over: ${H} queries, ${KV} keys, ${KV} values.`,
  );
  add(
    "rope",
    "RoPE rotates queries and keys by their position: so the order of the tokens counts.",
  );
  add(
    "attention",
    `Queries meet earlier keys. In head ${e.head}, ${name} gives “${e.label(most)}” the largest weight, ` +
      `${probability(row[most])}.`,
  );
  add(
    "values",
    `Each head adds up the values by these weights: what ${name} takes from other tokens.`,
  );
  add("plus 1", "A matrix (wo) joins the heads. The result is added to the token's own numbers.");
  add("norm 2", "RMSNorm again, before the second half of the layer.");
  add(
    "swiglu",
    `Each token alone: ${with_commas(F)} neurons look for patterns. The strongest here: neuron ${neuron}.`,
  );
  add(
    "plus 2",
    `This is added, too. If the model ended here, it would say ${best(1)}; ${answer} has rank ${rank(1)}.`,
  );
  for (const l of stops) {
    const why =
      l === stops[0] && stops.length < L - 1 ? " (The walk stops where ranks change most.)" : "";
    add(
      "block",
      `Layer ${l}: the same with other weights. It would say ${best(l + 1)}; ${answer} has rank ${rank(l + 1)}.${why}`,
      l,
    );
  }
  add(
    "stream",
    `Through ${L} layers, the rank of ${answer} went from ${rank(0)} to ${rank(L)}. The model uses only the end.`,
    L - 1,
  );
  add(
    "logits",
    `A score for each of ${with_commas(V)} tokens. The most likely: ${best(L)}.`,
    L - 1,
  );
  return steps;
}
/** Return the layers after the first where a walk stops: all, or of many those where most happens.
 * @param {number[]} ranks before layer 0, 1, …, and after the last */
function layers_of(ranks) {
  const all = ranks.slice(2).map((_, i) => i + 1);
  if (all.length <= 6) return all;
  const change = (/** @type {number} */ l) => Math.abs(Math.log(ranks[l + 1] / ranks[l]));
  const largest = all
    .slice(0, -1)
    .sort((a, b) => change(b) - change(a))
    .slice(0, 4);
  return [...largest.sort((a, b) => a - b), all[all.length - 1]];
}

/** A walk that has begun. */
export class Walk {
  /** @param {Explorer} e */
  constructor(e) {
    const { id, how, stops } = draw_token(e);
    const label = `“${e.name(id)}”`;
    const layer = e.config.n_layers - 1;
    this.steps = steps_of(e);
    this.steps.push({ tile: "sample", layer, said: `The next token: ${label}, ${how}.` });
    const end = stops ? "is a stop token: the text ends." : "is appended. Then all begins again.";
    this.steps.push({ tile: "text", layer, said: `${label} ${end}` });
    this.drawn = id;
    this.at = -1; // before the first step
    this.id = stops ? undefined : id;
    this.is_aside = false; // the reader looks at something else
    const { station, side, token, layer: before } = e.settings; // which the walk changes
    /** @type {Partial<import("./types.js").Settings>} */
    this.before = { layer: before, station, side, token };
  }
  get step() {
    return this.steps[this.at];
  }
  get said() {
    return `${this.at + 1} of ${this.steps.length}. ${this.step.said}`;
  }
}

/** Begin the walk through the model, or go a step further.
 * @param {Explorer} e
 * @param {number} by -1: a step back */
export async function go(e, by = 1) {
  if (e.is_writing || !(await is_ready(e, () => go(e)))) return;
  const walk = (e.walk ??= new Walk(e));
  walk.at = Math.max(0, walk.at + by);
  if (walk.at === walk.steps.length) {
    end_walk(e);
    append(e, draw_token(e));
    return;
  }
  walk.is_aside = false;
  Object.assign(e.settings, { layer: walk.step.layer, token: -1 }, station_of(walk.step.tile));
  e.draw();
  e.map.querySelector(".llama-now")?.scrollIntoView({ block: "nearest" });
}
/** End the walk; what it changed is as it was before. @param {Explorer} e */
export function end_walk(e) {
  Object.assign(e.settings, e.walk?.before);
  e.walk = undefined;
}
