/* Files: fetched, kept, checked, and read. */

/** @typedef {import("./types.js").Part} Part */

/** An error whose message the page shows to the reader as it is. */
export class UserError extends Error {}
/** One that the reader mends: to try again is no help. */
export class PromptError extends UserError {}

// A page that carries everything in itself has its files in base64, by path, and no folder.
const INSIDE = globalThis.window?.llama_files;
const HERE = import.meta.url;
/** The site's folder, where its pages are; nothing in a page that carries everything in itself. */
export const ROOT = HERE.startsWith("data:") ? undefined : new URL("../../", HERE);
const FOLDER = ROOT && new URL("_static/", ROOT);
const KEPT = "llama, notebook by notebook"; // the name of the browser's cache

/** Return whether the page carries a file in itself. @param {string} path */
export const is_inside = (path) => INSIDE !== undefined && path in INSIDE;

/** @param {string} path */
const inside = (path) =>
  is_inside(path)
    ? Uint8Array.from(atob(/** @type {any} */ (INSIDE)[path]), (c) => c.charCodeAt(0))
    : undefined;

/** A reader's wish to wait: the download goes on when it is over. */
export class Gate {
  constructor() {
    this.is_closed = false;
    /** @type {(() => void)[]} */
    this.waiting = [];
  }
  close() {
    this.is_closed = true;
  }
  open() {
    this.is_closed = false;
    for (const go_on of this.waiting.splice(0)) go_on();
  }
  /** Wait while the gate is closed. */
  async pass() {
    if (this.is_closed) await new Promise((go_on) => this.waiting.push(() => go_on(undefined)));
  }
}

/** Return read(the bytes of a file of the site).
 * @template T
 * @param {string} path
 * @param {(bytes: Uint8Array) => T} read
 * @returns {Promise<T>} */
export async function read_file(path, read) {
  const bytes = inside(path) ?? (await fetch_bytes(path));
  return unless_damaged(path, () => read(bytes));
}

/** Return the bytes of a part of a model. Once fetched, the browser keeps it.
 * @param {string} folder
 * @param {Part} part
 * @param {(arrived: number) => void} progress
 * @param {Gate} [gate]
 * @returns {Promise<Uint8Array>} */
export async function read_part(folder, { name, bytes: size, sha256 }, progress, gate) {
  const path = `${folder}/${name}`;
  const key = key_of(path, sha256);
  const own = inside(path);
  if (own) return own;
  const is_whole = async (/** @type {Uint8Array} */ bytes) =>
    bytes.length === size && ((await digest(bytes)) ?? sha256) === sha256;
  const kept = await (await shelf())?.match(key);
  if (kept) {
    const bytes = new Uint8Array(await kept.arrayBuffer());
    if (await is_whole(bytes)) return bytes;
    await (await shelf())?.delete(key); // a disk or another program has changed it
  }
  const bytes = await fetch_bytes(path, progress, gate);
  if (!(await is_whole(bytes)))
    throw damaged(path, new Error(`${bytes.length} bytes; expected ${size} with ${sha256}`));
  try {
    await (await shelf())?.put(key, new Response(/** @type {any} */ (bytes)));
  } catch (error) {
    console.warn(`${path} is not kept:`, error); // no room, say: the model works all the same
  }
  return bytes;
}

/** Return how many bytes of some parts the browser has kept; forget those of other versions.
 * @param {string} folder
 * @param {Part[]} parts */
export async function kept_bytes(folder, parts) {
  const cache = FOLDER && (await shelf());
  if (!cache) return 0;
  const wanted = new Map(
    parts.map(({ name, sha256, bytes }) => [key_of(`${folder}/${name}`, sha256), bytes]),
  );
  let found = 0;
  for (const request of await cache.keys()) {
    found += wanted.get(request.url) ?? 0;
    const is_ours = request.url.startsWith(String(new URL(`${folder}/`, FOLDER)));
    if (is_ours && !wanted.has(request.url)) await cache.delete(request);
  }
  return found;
}
/** Return the address under which a file is kept: the same on each page of the site.
 * @param {string} path
 * @param {string} sha256 */
const key_of = (path, sha256) => (FOLDER ? String(new URL(`${path}?${sha256}`, FOLDER)) : path);

/** Return the browser's cache, which only a page of https or of this machine has. */
async function shelf() {
  try {
    return await globalThis.caches?.open(KEPT);
  } catch {
    return undefined; // a private window, say
  }
}

/** @param {Uint8Array} bytes */
async function digest(bytes) {
  const found = await globalThis.crypto?.subtle?.digest("SHA-256", /** @type {any} */ (bytes));
  return (
    found && Array.from(new Uint8Array(found), (b) => b.toString(16).padStart(2, "0")).join("")
  );
}

/**
 * @param {string} path
 * @param {(arrived: number, all: number) => void} [progress]
 * @param {Gate} [gate]
 * @returns {Promise<Uint8Array>} */
async function fetch_bytes(path, progress, gate) {
  let problem = "gave no answer";
  try {
    // never the browser's copy without asking: files of two versions do not fit together
    const response = await fetch(new URL(path, FOLDER), { cache: "no-cache" });
    problem = `answered with status ${response.status}`;
    if (!response.ok || !response.body) throw new Error(problem);
    problem = "stopped before the end";
    const reader = response.body.getReader();
    const parts = [];
    const all = Number(response.headers.get("Content-Length"));
    let arrived = 0;
    for (let part; !(part = await reader.read()).done;) {
      parts.push(part.value);
      progress?.((arrived += part.value.length), all);
      await gate?.pass();
    }
    return new Uint8Array(await new Blob(parts).arrayBuffer());
  } catch {
    const name = path.split("/").at(-1);
    throw new UserError(
      `${name} could not be fetched: the server ${problem}. Check the connection, then press “Try again”.`,
    );
  }
}

/** Return make(). If that fails, a file is not whole: the console has the cause.
 * @template T
 * @param {string} path
 * @param {() => T} make
 * @returns {T} */
export function unless_damaged(path, make) {
  try {
    return make();
  } catch (error) {
    throw damaged(path, error);
  }
}
/**
 * @param {string} path
 * @param {unknown} cause */
function damaged(path, cause) {
  console.error(cause);
  return new UserError(`${path.split("/").at(-1)} is damaged or incomplete. Press “Try again”.`);
}

/** Return what gzip packed.
 * @param {string} path of the file, for an error
 * @param {Uint8Array} bytes */
export async function unpacked(path, bytes) {
  try {
    const stream = new Blob([/** @type {any} */ (bytes)]).stream();
    const whole = new Response(stream.pipeThrough(new DecompressionStream("gzip")));
    return new Uint8Array(await whole.arrayBuffer());
  } catch (error) {
    throw damaged(path, error);
  }
}
/** @param {Uint8Array} bytes */
export const text_of = (bytes) => new TextDecoder().decode(bytes);

const WIDTHS = { BF16: 2, F16: 2, F32: 4, I32: 4, U8: 1, I8: 1 };
/** Return the tensors of a safetensors file by name, of 16 bits as float32.
 * @param {Uint8Array} bytes
 * @returns {{ tensors: Record<string, { shape: number[], data: any }>, about: Record<string, string> }} */
export function read_safetensors(bytes) {
  // The header's length has 8 bytes; the lower 4 hold any that is under 4 GB.
  const start = 8 + new DataView(bytes.buffer).getUint32(0, true);
  const { __metadata__: about = {}, ...header } = JSON.parse(text_of(bytes.subarray(8, start)));
  /** @type {Record<string, any>} */
  const tensors = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    const size = shape.reduce((/** @type {number} */ all, /** @type {number} */ n) => all * n, 1);
    const [from, to] = data_offsets;
    const width = WIDTHS[/** @type {keyof WIDTHS} */ (dtype)];
    if (size * width !== to - from)
      throw new Error(`${name}: ${dtype}, ${shape}, ${to - from} bytes`);
    const own = bytes.buffer.slice(start + from, start + to); // begins at a multiple of 4
    if (own.byteLength !== to - from) throw new Error(`${name} is cut off`);
    tensors[name] = { shape, data: ARRAYS[/** @type {keyof WIDTHS} */ (dtype)](own) };
  }
  return { tensors, about };
}
/** @type {Record<keyof WIDTHS, (own: ArrayBuffer | SharedArrayBuffer) => ArrayLike<number>>} */
const ARRAYS = {
  BF16: (own) => looked_up(new Uint16Array(own), brains()),
  F16: (own) => looked_up(new Uint16Array(own), halves()),
  F32: (own) => new Float32Array(own),
  I32: (own) => new Int32Array(own),
  U8: (own) => new Uint8Array(own),
  I8: (own) => new Int8Array(own),
};
/**
 * @param {Uint16Array} bits
 * @param {Float32Array} table */
function looked_up(bits, table) {
  const out = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) out[i] = table[bits[i]];
  return out;
}
/** Return the number that each 16 bits are in bfloat16: the upper half of a float32. */
const brains = kept(
  () => new Float32Array(Uint32Array.from({ length: 65536 }, (_, i) => i << 16).buffer),
);
/** Return the number that each 16 bits are in float16: a sign, 5 bits of exponent, 10 of fraction. */
const halves = kept(() =>
  Float32Array.from({ length: 65536 }, (_, bits) => {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = (bits & 1023) / 1024;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return exponent ? sign * (1 + fraction) * 2 ** (exponent - 15) : sign * fraction * 2 ** -14;
  }),
);
/** Return a function that makes a thing at its first call.
 * @template T
 * @param {() => T} make */
function kept(make) {
  /** @type {T | undefined} */
  let made;
  return () => (made ??= make());
}

/** Return a function that runs make() once; after an error, again at the next call.
 * @template {any[]} A
 * @template T
 * @param {(...given: A) => Promise<T>} make
 * @returns {(...given: A) => Promise<T>} */
export function once(make) {
  /** @type {Promise<T> | undefined} */
  let made;
  return (...given) =>
    (made ??= make(...given).catch((error) => {
      made = undefined;
      throw error;
    }));
}
