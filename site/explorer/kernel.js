/* Matrices that are too large for float32, and the product with them, in WebAssembly. */
import { UserError } from "./files.js";

// kernel.wat as a program: `npm run kernel` writes this line.
const PROGRAM =
  "AGFzbQEAAAABIwRgBX9/f39/AGAEf39/fwBgA39/fwF9YAl/f39/f39/f38AAwUEAAECAwUDAQABBycEBm1lbW9yeQIAB3NwcmVhZDQAAAdzcHJlYWQ4AAEGbGluZWFyAAMK3QUErwIBBHsDQCAB/QkCACEFIAL9CQIAIQYgAP0ABAAhByAHQQ/9D/1OIQggAyAGIAUgCP2JAf2pAf37Af3mAf3kAf0LBAAgAyAGIAUgCP2JAf2qAf37Af3mAf3kAf0LBBAgAyAGIAUgCP2KAf2pAf37Af3mAf3kAf0LBCAgAyAGIAUgCP2KAf2qAf37Af3mAf3kAf0LBDAgB0EE/W0hCCADIAYgBSAI/YkB/akB/fsB/eYB/eQB/QsEQCADIAYgBSAI/YkB/aoB/fsB/eYB/eQB/QsEUCADIAYgBSAI/YoB/akB/fsB/eYB/eQB/QsEYCADIAYgBSAI/YoB/aoB/fsB/eYB/eQB/QsEcCAAQRBqIQAgAUEEaiEBIAJBBGohAiADQYABaiEDIARBAWsiBA0ACwtsAgF/AnsDQCAB/QkCACEFIABBIGohBANAIAD9AQMAIQYgAiAFIAb9pwH9+gH95gH9CwQAIAIgBSAG/agB/foB/eYB/QsEECACQSBqIQIgAEEIaiIAIARJDQALIAFBBGohASADQQFrIgMNAAsLqgECAX8EeyABIAJBAnRqIQMDQCAEIAD9AAQAIAH9AAQA/eYB/eQBIQQgBSAA/QAEECAB/QAEEP3mAf3kASEFIAYgAP0ABCAgAf0ABCD95gH95AEhBiAHIAD9AAQwIAH9AAQw/eYB/eQBIQcgAEHAAGohACABQcAAaiIBIANJDQALIAQgBf3kASAGIAf95AH95AEhBCAE/R8AIAT9HwGSIAT9HwIgBP0fA5KSC5ABAQR/IAJBBXYhCwNAIAYEQCAEIAxBEGxqIAUgDEEEbGogBiAMQQRsaiAHIAsQAAUgBCAMQSBsaiAFIAxBBGxqIAcgCxABC0EAIQoDQCAIQQQgCiADbCAJamxqIABBBCAKIAJsbGogByACEAI4AgAgCkEBaiIKIAFJDQALIAwgC2ohDCAJQQFqIgkgA0kNAAsL";
const PAGE = 65536; // bytes of a page of WebAssembly's memory
const GROUP = 32; // numbers that share a scale

/** The memory that holds a model's matrices, and the program that multiplies with them. */
export class Kernel {
  /** @param {WebAssembly.Instance} instance */
  constructor(instance) {
    const { memory, linear, spread4, spread8 } = /** @type {any} */ (instance.exports);
    /** @type {WebAssembly.Memory} */
    this.memory = memory;
    this.calls = { linear, spread4, spread8 };
    this.end = 64; // where free memory begins; address 0 means that there is nothing
  }
  static async open() {
    try {
      const program = Uint8Array.from(atob(PROGRAM), (c) => c.charCodeAt(0));
      return new Kernel((await WebAssembly.instantiate(program)).instance);
    } catch (error) {
      console.error(error);
      throw new UserError(
        "This browser has no WebAssembly of 2023 (SIMD), which this model needs. Update it.",
      );
    }
  }
  /** Make the memory hold n bytes more. Views of it that were made before are gone.
   * @param {number} n */
  reserve(n) {
    const missing = this.end + n - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / PAGE));
  }
  /** Copy an array into the memory, where it stays. Returns its address.
   * @param {Float32Array | Uint8Array | Int8Array} array */
  place(array) {
    const { buffer, byteOffset, byteLength } = array;
    const at = this.end;
    this.reserve(byteLength + 16);
    new Uint8Array(this.memory.buffer, at).set(new Uint8Array(buffer, byteOffset, byteLength));
    this.end += Math.ceil(byteLength / 16) * 16;
    return at;
  }
  /** Return n float32 numbers at an address, until the memory grows.
   * @param {number} at
   * @param {number} n */
  floats(at, n) {
    return new Float32Array(this.memory.buffer, at, n);
  }
}

/** A matrix (m, n), rounded to 4 or 8 bits in groups of 32 numbers of a row. */
export class Packed {
  /**
   * @param {Kernel} kernel
   * @param {[number, number]} shape
   * @param {{ q: Uint8Array | Int8Array, scale: Float32Array, least?: Float32Array }} numbers
   *   least is absent if there are 8 bits */
  constructor(kernel, [m, n], { q, scale, least }) {
    const groups = (m * n) / GROUP;
    const bytes = least ? groups * (GROUP / 2) : groups * GROUP;
    const is_right = n % GROUP === 0 && q.length === bytes && scale.length === groups;
    if (!is_right || (least && least.length !== groups))
      throw new Error(`(${m}, ${n}): ${q.length} bytes, ${scale.length} scales, ${least?.length}`);
    this.kernel = kernel;
    this.shape = [m, n];
    this.length = m * n;
    this.q = kernel.place(q);
    this.scale = kernel.place(scale);
    this.least = least ? kernel.place(least) : 0;
  }
  /** Multiply x (T, n) by the transpose of this matrix, into out (T, m).
   * @param {Float32Array} x
   * @param {number} T
   * @param {Float32Array} out */
  times(x, T, out) {
    const {
      kernel,
      shape: [m, n],
    } = this;
    const at = kernel.end;
    const row = at + 4 * x.length;
    const y = row + 4 * n;
    kernel.reserve(4 * (x.length + n + T * m));
    kernel.floats(at, x.length).set(x);
    kernel.calls.linear(at, T, n, m, this.q, this.scale, this.least, row, y);
    out.set(kernel.floats(y, T * m));
  }
  /** Return row j (n).
   * @param {number} j */
  row(j) {
    const {
      kernel,
      shape: [, n],
      q,
      scale,
      least,
    } = this;
    const groups = n / GROUP;
    const at = j * groups;
    kernel.reserve(4 * n);
    if (least)
      kernel.calls.spread4(q + 16 * at, scale + 4 * at, least + 4 * at, kernel.end, groups);
    else kernel.calls.spread8(q + 32 * at, scale + 4 * at, kernel.end, groups);
    return kernel.floats(kernel.end, n).slice();
  }
}

/** A matrix whose rows are in several packed ones, one after the other: a file holds only a part. */
export class Stack {
  /** @param {Packed[]} pieces */
  constructor(pieces) {
    this.pieces = pieces;
    this.shape = [pieces.reduce((sum, { shape: [m] }) => sum + m, 0), pieces[0].shape[1]];
    this.length = this.shape[0] * this.shape[1];
  }
  /** Multiply x (T, n) by the transpose of this matrix, into out (T, m).
   * @param {Float32Array} x
   * @param {number} T
   * @param {Float32Array} out */
  times(x, T, out) {
    const [m] = this.shape;
    let from = 0;
    for (const piece of this.pieces) {
      const [rows] = piece.shape;
      const y = new Float32Array(T * rows);
      piece.times(x, T, y);
      for (let t = 0; t < T; t++) out.set(y.subarray(t * rows, (t + 1) * rows), t * m + from);
      from += rows;
    }
  }
  /** Return row j (n).
   * @param {number} j */
  row(j) {
    let from = 0;
    for (const piece of this.pieces) {
      if (j < from + piece.shape[0]) return piece.row(j - from);
      from += piece.shape[0];
    }
    throw new RangeError(`row ${j} of ${this.shape[0]}`);
  }
}
