/* The stations at both ends of the model: what each draws, and its controls.

A view draws an explorer's numbers: draw(e) returns parts, and a sentence that is said. */
import { check_box, number_field, sampling_controls } from "./controls.js";
import { count, html, length_of, megabytes, number, numbers, sum, with_commas } from "./dom.js";
import { colours, large } from "./made.js";
import { bar, strip, table } from "./pictures.js";
import { top } from "./sampling.js";
import { give_back, linear, row_of } from "./steps.js";
import { utf8_of } from "./tokenizer.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./types.js").Weight} Weight */
/** @typedef {import("./types.js").View} View */

export const SCALE = "orange: negative, blue: positive";

/** The lengths (L2) of a matrix's rows. @type {WeakMap<Weight, Float32Array>} */
const lengths = new WeakMap();
/** Return the length of each row of a matrix (m, n), or of a vector.
 * @param {Weight} w
 * @param {number[]} shape */
function lengths_of(w, shape) {
  const [m, n] = shape.length > 1 ? shape : [1, shape[0]];
  const found =
    lengths.get(w) ?? Float32Array.from({ length: m }, (_, j) => length_of(row_of(w, j, n)));
  lengths.set(w, found);
  return found;
}
/** Say that something is missing until the model is here, and offer to fetch it.
 * @param {Explorer} e
 * @param {string} what */
function missing(e, what) {
  if (!e.model.about.parts.length) return html("p", {}, `${what} not recorded.`);
  const onclick = () => e.choose_model(e.model);
  const size = megabytes(e.model.bytes);
  return html(
    "p",
    {},
    `${what} in the model itself: `,
    html("button", { type: "button", class: "llama-plain", onclick }, `fetch it (${size})`),
  );
}
/** @type {View} */
const weights = {
  choose: [],
  draw(e) {
    const tensors = e.tensors();
    const w = e.llama?.w;
    const size = (/** @type {number[]} */ shape) => shape.reduce((a, b) => a * b);
    const rows = tensors.map(({ name, shape, theirs }) => {
      const tensor = w?.[name];
      const n = shape[shape.length - 1];
      const rms = tensor && length_of(lengths_of(tensor, shape)) / Math.sqrt(size(shape));
      return [
        name,
        shape.map(with_commas).join(" × "),
        theirs.map(with_commas).join(" × "),
        with_commas(size(shape)),
        rms === undefined ? "…" : number(rms, 3),
        tensor ? strip(row_of(tensor, 0, n).subarray(0, 48), 48) : html("td", {}),
      ];
    });
    const block = (/** @type {"shape" | "theirs"} */ key) =>
      with_commas(sum(tensors.slice(2).map((it) => size(it[key]))));
    return {
      parts: [
        table(
          `Tensors outside the blocks, then those of layer ${e.layer}; ${SCALE}`,
          ["name", "shape here", "in the 1B", "numbers here", "RMS", "the first 48"],
          rows,
          -1,
          [3, 4, 5],
        ),
        !w && missing(e, "The last two columns are"),
      ],
      said: `A block has ${block("shape")} numbers here, ${block("theirs")} in the 1B.`,
    };
  },
};
/** @type {View} */
const tokens = {
  choose: ["token"],
  controls: (e) => [
    check_box(
      e,
      "special",
      `parse special tokens, such as ${e.tokenizer.tokens[[...e.tokenizer.stop_tokens].at(-1) ?? 0]}`,
    ),
  ],
  draw(e) {
    const { ids, tokenizer } = e;
    const most = 300;
    const { bos_id } = tokenizer;
    const text = tokenizer.decode(ids.filter((id) => id !== bos_id));
    const boxes = ids.slice(0, most).map((id, t) => {
      const is_special = tokenizer.special_ids.has(id);
      const look = [is_special && "llama-control", t === e.t && "llama-chosen"];
      return html(
        "li",
        { class: look.filter(Boolean).join(" ") },
        html("b", {}, e.label(t)),
        html("span", {}, id),
        html("span", {}, is_special ? "special" : e.hex(id)),
      );
    });
    const note = ids.length > most ? ` The first ${most} are shown.` : "";
    const first = bos_id === null ? "" : " with <|begin_of_text|>";
    return {
      parts: [
        html("ol", { class: "llama-tokens", "aria-label": "tokens" }, boxes),
        html(
          "p",
          {},
          "Each box: a token, its id, its bytes. ␣ is a space, ⏎ a line end. A token that is " +
            "only part of a character shows its bytes in hexadecimal.",
        ),
      ],
      said:
        `${count([...text].length, "character")}, ${count(utf8_of(text).length, "byte")}, ` +
        `${count(ids.length, "token")}${first}.${note}`,
    };
  },
};
/** @type {View} */
const embed = {
  choose: ["token"],
  draw(e) {
    const { dim: D, vocab_size: V } = e.config;
    const id = e.ids[e.t];
    const name = e.label(e.t);
    const [rows, at] = e.table_rows((t) => {
      const x = e.trace.row("x", 0, t);
      return [e.label(t), e.ids[t], strip(x), numbers(x, 3, 3), number(length_of(x))];
    });
    const parts = [
      table(
        `The embedding of each token; ${SCALE}`,
        ["token", "id", `its ${D} numbers`, "the first 3", "length"],
        rows,
        at,
        [3],
      ),
    ];
    const w = e.llama?.w["tok_embeddings.weight"];
    if (!w) {
      parts.push(missing(e, "The nearest tokens are"));
      return { parts, said: `“${name}” is row ${id} of the embedding matrix.` };
    }
    const x = e.trace.row("x", 0, e.t);
    const size = lengths_of(w, [V, D]);
    const own = length_of(x);
    give_back();
    const near = linear(x, w, 1).map((product, i) => product / size[i] / own || 0);
    near[id] = -1;
    const nearest = top(near, 6);
    const chance = e.model.about.nearest;
    parts.push(
      table(
        `The nearest tokens of “${name}”, and the nearest of ${with_commas(V)} random vectors`,
        ["token", "id", "cosine", "at random"],
        nearest.map((i, n) => [
          e.name(i),
          i,
          bar(near[i], number(near[i]), colours.token, 1),
          number(chance[n]),
        ]),
      ),
    );
    return { parts, said: `The token nearest to “${name}”: “${e.name(nearest[0])}”.` };
  },
};
/** @type {View} */
const text = {
  choose: [],
  controls: (e) => [number_field(e, "most", "new tokens, at most"), ...sampling_controls(e)],
  draw(e) {
    const {
      T,
      config: { n_layers: L, n_kv_heads: KV, head_dim: hd },
    } = e;
    const ours = 2 * L * KV * hd;
    const theirs = 2 * large.L * large.KV * large.hd;
    const kib = (/** @type {number} */ n) => `${with_commas(Math.round(n / 102.4) / 10)} KiB`;
    return {
      parts: [
        html(
          "p",
          { class: "llama-whole" },
          e.settings.prompt,
          html("b", {}, e.tokenizer.decode(e.added_ids)),
        ),
        html(
          "p",
          {},
          "“Next token” appends one token, “Generate” many. “Step by step” shows how one is computed.",
        ),
        table(
          "The KV cache of this many tokens, at 16 bits a number",
          ["", "numbers a token", "tokens", "size"],
          [
            ["here", with_commas(ours), T, kib(2 * ours * T)],
            ["the 1B", with_commas(theirs), T, kib(2 * theirs * T)],
          ],
        ),
      ],
      said: `${count(T, "token")}, of which the model wrote ${e.added_ids.length}.`,
    };
  },
};
/** @type {Record<string, View>} */
export const TEXT_VIEWS = { weights, tokens, embed, text };
