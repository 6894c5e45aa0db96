/* The shapes of what the modules hand to each other, for `npm run types`; no page reads this. */
import type { Explorer } from "./explorer.js";
import type { Packed, Stack } from "./kernel.js";

declare global {
  interface Window {
    /** The files of a page that carries everything in itself: base64, by path. */
    llama_files?: Record<string, string>;
    /** For scripts, such as the tests': what the page runs. */
    llama?: Record<string, any>;
  }
  interface Navigator {
    connection?: { saveData?: boolean; type?: string };
  }
}

/** The settings of a Llama, by the names of Meta's params.json. */
export interface Config {
  dim: number;
  n_layers: number;
  n_heads: number;
  n_kv_heads: number;
  vocab_size: number;
  norm_eps: number;
  rope_theta: number;
  use_scaled_rope?: boolean;
  rope_scaling_factor?: number;
  head_dim: number;
  hidden_dim: number;
}
/** A matrix or a vector: numbers as they are, or rounded in groups. */
export type Weight = Float32Array | Packed | Stack;
/** Each tensor by Meta's name. */
export type Weights = Record<string, Weight>;
/** What is called with the arrays that a forward pass computes. */
export type See = (name: string, x: Float32Array, layer: number) => void;
/** How a next token is chosen. */
export interface Sampling {
  temperature?: number;
  top_k?: number | null;
  top_p?: number | null;
}
/** What the model would say if a layer were its last. */
export interface Guess {
  /** The three most likely next tokens. */
  top: { id: number; p: number }[];
  /** The place, from 1, of the token that the whole model finds most likely. */
  rank: number;
}
/** A file of a model: how large, and its SHA-256 in hexadecimal. */
export interface Part {
  name: string;
  bytes: number;
  sha256: string;
}
/** A model that a page can run, as made.js describes it. */
export interface About {
  key: string;
  name: string;
  /** What it can do, in a sentence. */
  knows: string;
  prompts: string[];
  /** The layer and the query head that a page shows first. */
  layer: number;
  head: number;
  parts: Part[];
  /** The largest cosines of a random vector with V others. */
  nearest: number[];
  /** On its numbers. */
  note: string;
  /** The most tokens of a text. */
  longest: number;
}
/** A recorded run: one prompt, all numbers. */
export interface Run {
  model: string;
  prompt: string;
  file: string;
  bytes: number;
}
/** What the reader chose; see settings.js. */
export interface Settings {
  model: string;
  prompt: string;
  special: boolean;
  next: string;
  station: string;
  layer: number;
  head: number;
  token: number;
  pair: number;
  side: string;
  shift: number;
  theta: number;
  bars: number;
  temperature: number;
  top_k: number;
  top_p: number;
  seed: number;
  most: number;
}
/** A station: what it lets choose, its controls, and what it draws. */
export interface View {
  choose: ("head" | "token")[];
  controls?: (e: Explorer) => HTMLElement[];
  draw: (e: Explorer) => { parts: (Node | false)[]; said: string };
}
/** Tokens that were drawn at one position: how often each came. */
export interface Drawn {
  key: string;
  random: () => number;
  counts: Record<number, number>;
  all: number;
}
