/* The stations of a block, and the stream through all blocks; see views_text.js. */
import { choice } from "./controls.js";
import {
  cosine,
  length_of,
  number,
  numbers,
  probability,
  rms_of,
  sum,
  with_commas,
} from "./dom.js";
import { colours } from "./made.js";
import { bar, scale_of, strip, table } from "./pictures.js";
import { ranked, top } from "./sampling.js";
import { silu } from "./steps.js";
import { SCALE } from "./views_text.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./types.js").View} View */

/** @type {Record<string, string>} */
const SIDES = { attention: "attention", ffn: "the feed-forward network" };
const side_choice = (/** @type {Explorer} */ e) => [
  choice(e, "side", "sub-layer", Object.entries(SIDES)),
];

/** @type {View} */
const norm = {
  choose: ["token"],
  controls: side_choice,
  draw(e) {
    const { side } = e.settings;
    const { norm_eps } = e.config;
    const [name, y] = side === "ffn" ? ["h", "ffn_norm"] : ["x", "attention_norm"];
    const scale = scale_of(e.shown.map((t) => e.trace.row(name, e.layer, t)));
    const [rows, at] = e.table_rows((t) => {
      const x = e.trace.row(name, e.layer, t);
      const after = e.trace.row(y, e.layer, t);
      const plain = x.map((v) => v / Math.sqrt(rms_of(x) ** 2 + norm_eps));
      return [
        e.label(t),
        strip(x, 40, scale),
        number(rms_of(x), 3),
        strip(plain, 40, 3),
        number(rms_of(plain), 3),
        number(rms_of(after), 3),
      ];
    });
    return {
      parts: [
        table(
          `Layer ${e.layer}, the norm before ${SIDES[side]}; ${SCALE}`,
          ["token", "x", "RMS of x", "x / √(RMS² + ε)", "new RMS", "RMS after γ"],
          rows,
          at,
          [1],
        ),
      ],
      said: `“${e.label(e.t)}”: its RMS is ${rows[at][2]}, and ${rows[at][4]} after the division.`,
    };
  },
};
/** @type {View} */
const residual = {
  choose: ["token"],
  controls: side_choice,
  draw(e) {
    const { side } = e.settings;
    const { t } = e;
    const before = side === "attention" ? "x" : "h";
    const parts = (/** @type {number} */ t) => {
      const x = e.trace.row(before, e.layer, t);
      const y = e.added(side, t);
      return [x, y, x.map((v, i) => v + y[i])];
    };
    const [rows, at] = e.table_rows((t) => {
      const [x, y, after] = parts(t);
      return [
        e.label(t),
        ...[length_of(x), length_of(y), cosine(x, y), length_of(after)].map((v) => number(v)),
      ];
    });
    const [x, y, z] = parts(t);
    const scale = 3 * rms_of(z);
    const chance = number(1 / Math.sqrt(e.config.dim));
    const line = (/** @type {string} */ name, /** @type {Float32Array} */ v) => [
      name,
      strip(v, 64, scale),
      numbers(v, 3),
    ];
    return {
      parts: [
        table(
          `“${e.label(t)}” in layer ${e.layer}; ${SCALE}`,
          ["what", "all numbers", "the first 3"],
          [line("the stream", x), line(`+ ${SIDES[side]}`, y), line("= the stream after it", z)],
        ),
        table(
          `Lengths (L2 norms), and the cosine of the stream with what is added (random vectors: about ±${chance})`,
          ["token", "before", "added", "cosine", "after"],
          rows,
          at,
        ),
      ],
      said: `“${e.label(t)}”: a vector of length ${number(length_of(y))} is added to one of length ${number(length_of(x))}.`,
    };
  },
};
/** @type {View} */
const swiglu = {
  choose: ["token"],
  draw(e) {
    const { t } = e;
    const [gate, up] = ["gate", "up"].map((name) => e.trace.row(name, e.layer, t));
    const products = e.trace.product(e.layer, t);
    const sizes = products.map(Math.abs);
    const squares = sizes.map((x) => x * x);
    const largest = top(sizes, 10);
    const longest = sizes[largest[0]];
    const tenth = Math.round(products.length / 10);
    const share =
      (100 *
        sum(
          ranked(sizes)
            .slice(0, tenth)
            .map((i) => squares[i]),
        )) /
      sum(squares);
    const rows = largest.map((i) => [
      `neuron ${i}`,
      number(gate[i]),
      number(silu(gate[i])),
      number(up[i]),
      bar(products[i], number(products[i]), products[i] < 0 ? colours.key : colours.query, longest),
    ]);
    const [all, at] = e.table_rows((t) => [e.label(t), strip(e.trace.product(e.layer, t), 128)]);
    const closed = gate.reduce((n, x) => n + (x < 0 ? 1 : 0), 0);
    return {
      parts: [
        table(
          `The neurons with the largest products (in absolute value) at “${e.label(t)}” in layer ${e.layer}`,
          ["neuron", "w1·u", "gate = SiLU(w1·u)", "up = w3·u", "gate × up"],
          rows,
        ),
        table(
          `The products of all ${with_commas(gate.length)} neurons; ${SCALE}`,
          ["token", "products, neuron 0 at the left"],
          all,
          at,
        ),
      ],
      said:
        `Of ${with_commas(gate.length)} gates ${with_commas(closed)} are negative (never below −0.28). The ` +
        `top 10 % of the products hold ${share.toFixed(1)} % of the sum of squares.`,
    };
  },
};
/** @type {View} */
const stream = {
  choose: ["token"],
  draw(e) {
    const { n_layers: L } = e.config;
    const { t } = e;
    const lens = e.trace.lens(t);
    const final = lens[L].top[0].id;
    const lengths = lens.map((_, l) => length_of(e.trace.row("x", l, t)));
    const longest = Math.max(...lengths);
    const rows = lens.map(({ top, rank }, l) => [
      l ? `after layer ${l - 1}` : "embedding",
      bar(lengths[l], number(lengths[l], 1), colours.residual, longest),
      with_commas(rank),
      top.map(({ id, p }) => `“${e.name(id)}” ${probability(p)}`).join(" · "),
    ]);
    const first = lens.findIndex(({ rank }) => rank === 1);
    return {
      parts: [
        table(
          `“${e.label(t)}” through all layers, by the logit lens`,
          ["where", "length", `rank of “${e.name(final)}”`, "the most likely next tokens"],
          rows,
        ),
      ],
      said:
        `“${e.name(final)}”, the final answer, has rank ${with_commas(lens[0].rank)} at the embedding. It first reaches rank 1 ` +
        `${first ? `after layer ${first - 1}` : "there"}.`,
    };
  },
};
/** @type {Record<string, View>} */
export const BLOCK_VIEWS = { norm, residual, swiglu, stream };
