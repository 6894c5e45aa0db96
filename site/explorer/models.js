/* The models of the page: what each is, its tokenizer, its weights, its recorded runs. */
import {
  Gate,
  is_inside,
  kept_bytes,
  once,
  read_file,
  read_part,
  read_safetensors,
  text_of,
  unless_damaged,
  unpacked,
} from "./files.js";
import { Kernel, Packed, Stack } from "./kernel.js";
import { BLOCK_WEIGHTS, KVCache, Llama } from "./llama.js";
import { Tokenizer } from "./tokenizer.js";
import { recorded } from "./trace.js";

/** @typedef {import("./types.js").About} About */
/** @typedef {import("./types.js").Config} Config */
/** @typedef {import("./types.js").Run} Run */
/** @typedef {import("./types.js").Weights} Weights */

/** A model of the site, which a page loads once. */
export class Model {
  /** @param {About} about */
  constructor(about) {
    this.about = about;
    this.folder = `models/${about.key}`;
    this.bytes = about.parts.reduce((sum, { bytes }) => sum + bytes, 0);
    /** The model itself, once it is here. @type {Llama | undefined} */
    this.llama = undefined;
    /** Its settings. @type {() => Promise<Config>} */
    this.config = once(() =>
      read_file(`${this.folder}/params.json`, (bytes) => read_params(text_of(bytes))),
    );
    /** Its tokenizer. @type {() => Promise<Tokenizer>} */
    this.tokenizer = once(() => this.read_tokenizer());
    /** Fetch the model. @type {() => Promise<Llama>} */
    this.load = once(() => this.read());
    /** A closed one lets the download wait. */
    this.gate = new Gate();
    /** What is told how many bytes have come. @type {Set<(arrived: number) => void>} */
    this.listeners = new Set();
  }
  /** Whether the page carries the weights in itself. */
  get is_inside() {
    return is_inside(`${this.folder}/${this.about.parts[0]?.name}`);
  }
  /** Return how many bytes of the weights the browser has already. */
  kept_bytes() {
    return kept_bytes(this.folder, this.about.parts);
  }
  async read_tokenizer() {
    const path = `${this.folder}/tokenizer.json`;
    const [{ vocab_size }, spec] = await Promise.all([
      this.config(),
      read_file(path, (bytes) => JSON.parse(text_of(bytes))),
    ]);
    return unless_damaged(path, () => {
      const tokenizer = new Tokenizer(spec);
      const n = tokenizer.tokens.length;
      if (n !== vocab_size) throw new Error(`${n} tokens; params.json has another number`);
      return tokenizer;
    });
  }
  async read() {
    const progress = (/** @type {number} */ n) => this.listeners.forEach((listen) => listen(n));
    const config = await this.config();
    const tokenizer = await this.tokenizer();
    const {
      about: { parts, longest },
      folder,
    } = this;
    const is_packed = parts.length > 1;
    const kernel = is_packed ? await Kernel.open() : undefined;
    /** @type {Record<string, { shape: number[], w: any }>} */
    const found = {};
    let arrived = 0;
    let tied = "false";
    for (const part of parts) {
      const bytes = await read_part(folder, part, (n) => progress(arrived + n), this.gate);
      progress((arrived += part.bytes));
      const whole = kernel ? await unpacked(part.name, bytes) : bytes;
      unless_damaged(part.name, () => {
        const { tensors, about } = read_safetensors(whole);
        tied = about.tied ?? tied;
        Object.assign(found, kernel ? packed(tensors, kernel) : plain(tensors));
      });
    }
    return unless_damaged(parts[0].name, () => {
      const w = weights_of(stacked(found), config, tied === "true");
      const llama = new Llama(config, w, tokenizer, longest, kernel ? 8 : 32);
      if (!kernel) llama.forward(Array(5).fill(0), new KVCache(config, 5)); // compiles the loops
      check_logits(llama.forward([0], new KVCache(config, 1)));
      return llama;
    });
  }
}
/** Return a recorded run's trace.
 * @param {Model} model
 * @param {Run} run */
export async function read_run(model, { file }) {
  const config = await model.config();
  const path = `runs/${file}`;
  const whole = await unpacked(path, await read_file(path, (bytes) => bytes));
  return unless_damaged(path, () => recorded(config, read_safetensors(whole).tensors));
}
/** @param {Record<string, { shape: number[], data: any }>} tensors */
const plain = (tensors) =>
  Object.fromEntries(
    Object.entries(tensors).map(([name, { shape, data }]) => [name, { shape, w: data }]),
  );

/** Return the tensors of a file in groups: NAME.q with NAME.scale and NAME.least; others as they are.
 * @param {Record<string, { shape: number[], data: any }>} tensors
 * @param {Kernel} kernel */
function packed(tensors, kernel) {
  /** @type {Record<string, { shape: number[], w: any }>} */
  const found = {};
  for (const [name, { shape, data }] of Object.entries(tensors)) {
    const [, stem, end] = /** @type {string[]} */ (name.match(/^(.*?)(\.q|\.scale|\.least)?$/));
    if (!end) found[name] = { shape, w: data };
    if (end !== ".q") continue;
    const [scale, least] = [".scale", ".least"].map((it) => tensors[stem + it]?.data);
    const n = least ? 2 * shape[1] : shape[1]; // two numbers of 4 bits are a byte
    found[stem] = {
      shape: [shape[0], n],
      w: new Packed(kernel, [shape[0], n], { q: data, scale, least }),
    };
  }
  return found;
}
/** Return the tensors, NAME/0, NAME/1 … as one.
 * @param {Record<string, { shape: number[], w: any }>} found */
function stacked(found) {
  const { ...whole } = found;
  for (const name of Object.keys(found)) {
    const stem = name.replace(/\/0$/, "");
    if (stem === name) continue;
    const pieces = [];
    for (let i = 0; whole[`${stem}/${i}`]; i++) {
      pieces.push(whole[`${stem}/${i}`].w);
      delete whole[`${stem}/${i}`];
    }
    const w = new Stack(pieces);
    whole[stem] = { shape: w.shape, w };
  }
  return whole;
}
/** Return the weights by name, of shapes that fit the settings.
 * @param {Record<string, { shape: number[], w: any }>} found
 * @param {Config} config
 * @param {boolean} tied
 * @returns {Weights} */
function weights_of(found, config, tied) {
  /** @type {Weights} */
  const w = {};
  for (const [name, shape] of tensor_shapes(config, tied)) {
    const there = found[name]?.shape;
    if (String(there) !== String(shape)) throw new Error(`${name}: ${there}; expected ${shape}`);
    w[name] = found[name].w;
  }
  const extra = Object.keys(found).filter((name) => !(name in w));
  if (extra.length) throw new Error(`not a tensor of this Llama: ${extra}`);
  return w;
}
/** Throw if weights give logits that are no numbers. @param {Float32Array} logits */
function check_logits(logits) {
  if (!logits.every(Number.isFinite))
    throw new Error("the weights give logits that are no numbers");
}
/** Return params.json with what follows from it. Throws if a value cannot be one of a Llama.
 * @param {string} text
 * @returns {Config} */
function read_params(text) {
  const params = JSON.parse(text);
  const { dim, n_heads, ffn_dim_multiplier, multiple_of } = params;
  const head_dim = params.head_width ?? dim / n_heads;
  const hidden = Math.trunc((ffn_dim_multiplier ?? 1) * Math.trunc((8 * dim) / 3));
  const hidden_dim = multiple_of * Math.ceil(hidden / multiple_of);
  const found = { ...params, head_dim, hidden_dim };
  const whole = [
    "dim",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "vocab_size",
    "head_dim",
    "hidden_dim",
  ];
  for (const name of whole)
    if (!(Number.isInteger(found[name]) && found[name] > 0))
      throw new Error(`${name} is ${found[name]}`);
  const { norm_eps, rope_theta, rope_scaling_factor: factor, use_scaled_rope = false } = params;
  for (const [name, value] of Object.entries({ norm_eps, rope_theta, factor: factor ?? 1 }))
    if (!(typeof value === "number" && value > 0 && value < 1e30))
      throw new Error(`${name} is ${value}`);
  if (typeof use_scaled_rope !== "boolean")
    throw new Error(`use_scaled_rope is ${use_scaled_rope}`);
  if (head_dim % 2 || n_heads % params.n_kv_heads) throw new Error("the heads do not fit");
  return found;
}
/** Return the shape of every tensor that the settings ask for, by Meta's name, a layer at a time.
 * @param {Config} config
 * @param {boolean} tied
 * @returns {Generator<[string, number[]]>} */
export function* tensor_shapes(config, tied) {
  const {
    dim: D,
    n_layers,
    n_heads: H,
    n_kv_heads: KV,
    vocab_size: V,
    head_dim: hd,
    hidden_dim: F,
  } = config;
  yield ["tok_embeddings.weight", [V, D]];
  if (!tied) yield ["output.weight", [V, D]];
  yield ["norm.weight", [D]];
  const shapes = [
    [D],
    [H * hd, D],
    [KV * hd, D],
    [KV * hd, D],
    [D, H * hd],
    [D],
    [F, D],
    [D, F],
    [F, D],
  ];
  for (let l = 0; l < n_layers; l++)
    for (const [i, name] of BLOCK_WEIGHTS.entries())
      yield [`layers.${l}.${name}.weight`, shapes[i]];
}
