/* The stations of attention; see views_text.js. */
import { choice, number_field, slider } from "./controls.js";
import {
  count,
  dot,
  html,
  length_of,
  number,
  numbers,
  probability,
  rms_of,
  sum,
  svg,
  with_commas,
} from "./dom.js";
import { all_heads } from "./heads.js";
import { colours } from "./made.js";
import { arrow, bar, large_map, strip, table } from "./pictures.js";
import { top } from "./sampling.js";
import { apply_rotary_emb, precompute_freqs_cis, rope_frequencies } from "./steps.js";
import { SCALE } from "./views_text.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./types.js").View} View */

/** @type {View} */
const qkv = {
  choose: ["head", "token"],
  draw(e) {
    const {
      head,
      n_rep,
      config: { head_dim: hd },
    } = e;
    const group = Math.floor(head / n_rep);
    const from = group * n_rep;
    const names = { q: "query", k: "key", v: "value" };
    const [rows, at] = e.table_rows((t) => [
      e.label(t),
      ...Object.keys(names).map((name) => strip(e.trace.head(name, e.layer, head, t), 32)),
    ]);
    const own = Object.entries(names).map(([name, word]) => {
      const x = e.trace.head(name, e.layer, head, e.t);
      return [word, numbers(x, 6), number(length_of(x))];
    });
    return {
      parts: [
        table(
          `Layer ${e.layer}, head ${head}, before RoPE; ${SCALE}`,
          [
            "token",
            `query of head ${head}`,
            `key of KV head ${group}`,
            `value of KV head ${group}`,
          ],
          rows,
          at,
        ),
        table(
          `“${e.label(e.t)}” in numbers, the first 6 of ${hd}`,
          ["what", "numbers", "length"],
          own,
        ),
      ],
      said:
        `Query heads ${from} to ${from + n_rep - 1} share KV head ${group}. So the KV cache has 1/${n_rep} of ` +
        "the size that a KV head for each query head would need.",
    };
  },
};
/** A query or a key of the chosen head, rotated as at position `by` + t.
 * @param {Explorer} e
 * @param {Float32Array} angles
 * @param {string} name
 * @param {number} t
 * @param {number} by */
function turned(e, angles, name, t, by) {
  const x = e.trace.head(name, e.layer, e.head, t).slice();
  apply_rotary_emb(x, angles, by + t, 1, e.config.head_dim);
  return x;
}
/** Return pictures of the chosen pair: a plane with two arrows for each position.
 * @param {Explorer} e
 * @param {Float32Array} angles */
function planes(e, angles) {
  const { pair, shift } = e.settings;
  const turn = (/** @type {Float32Array} */ x) => Math.atan2(x[2 * pair + 1], x[2 * pair]);
  const axes = () => [
    svg("circle", { r: 40, fill: "none", class: "llama-axis" }),
    svg("line", { x1: -44, x2: 44, class: "llama-axis" }),
    svg("line", { y1: -44, y2: 44, class: "llama-axis" }),
  ];
  const arrows = (/** @type {number} */ t) =>
    ["q", "k"].map((name, i) => [
      arrow(turn(e.trace.head(name, e.layer, e.head, t)), colours.other, i ? 27 : 38, 1.5),
      arrow(turn(turned(e, angles, name, t, shift)), i ? colours.key : colours.query, i ? 27 : 38),
    ]);
  return e.positions(12).map((t) => {
    const label = `pair ${pair} of ${e.label(t)} at position ${t + shift}`;
    const look = { viewBox: "-48 -48 96 96", width: 96, role: "img", "aria-label": label };
    return html(
      "figure",
      { class: t === e.t ? "llama-chosen" : undefined },
      svg("svg", look, axes(), arrows(t)),
      html("figcaption", {}, html("b", {}, e.label(t)), ` at ${t + shift}`),
    );
  });
}
/** @type {View} */
const rope = {
  choose: ["head", "token"],
  controls: (e) => [
    choice(
      e,
      "pair",
      "pair k",
      Array.from({ length: e.config.head_dim / 2 }, (_, k) => [k, k]),
    ),
    slider(e, "shift", "move the whole text by (positions)"),
    number_field(e, "theta", "base θ (in this panel)"),
  ],
  draw(e) {
    const { pair, shift } = e.settings;
    const { head_dim: hd } = e.config;
    const { t } = e;
    const freqs = rope_frequencies({ ...e.config, rope_theta: e.theta });
    const freq = freqs[pair];
    const angles = precompute_freqs_cis(freqs, shift + e.T);
    const full = (freq * (t + shift)) / 2 / Math.PI;
    const of_pair = (/** @type {Float32Array} */ x) => x.slice(2 * pair, 2 * pair + 2);
    const q = of_pair(e.trace.head("q", e.layer, e.head, t));
    const after = of_pair(turned(e, angles, "q", t, shift));
    const degrees = `${number(360 * (full % 1), 1)}°`;
    const times = count(Math.floor(full), "full rotation");
    const [rows] = e.table_rows((s) => {
      const score = (/** @type {number} */ by) =>
        number(
          dot(turned(e, angles, "q", t, by), turned(e, angles, "k", s, by)) / Math.sqrt(hd),
          3,
        );
      return [e.label(s), t - s, score(0), score(shift)];
    }, t);
    const pair_text = (/** @type {Float32Array} */ x) => `(${numbers(x, 2, 3)})`;
    return {
      parts: [
        html(
          "p",
          {},
          `Pair ${pair} of each query (long, blue) and key (short, orange), as directions; grey: ` +
            "before the rotation.",
        ),
        html("div", { class: "llama-planes" }, planes(e, angles)),
        table(
          "The query's pair in numbers",
          ["what", "value"],
          [
            [`pair ${pair} before`, pair_text(q)],
            [
              "m · Θₖ",
              `${t + shift} · ${freq.toPrecision(6)} = ${number(freq * (t + shift), 4)} radians`,
            ],
            ["that is", `${times} and ${degrees}`],
            [`pair ${pair} after`, pair_text(after)],
            ["length of both", number(length_of(q), 3)],
            ["wavelength", `${with_commas(Math.round((20 * Math.PI) / freq) / 10)} positions`],
          ],
        ),
        table(
          `Scores of “${e.label(t)}” with each key (all ${hd / 2} pairs): they keep their values when the whole text moves`,
          [
            "key",
            "distance",
            "score (with this θ)",
            shift ? `${shift} positions later` : "after a move",
          ],
          rows,
          rows.length - 1,
        ),
      ],
      said: `“${e.label(t)}” at position ${t + shift}: pair ${pair} is rotated by ${full >= 1 ? `${times} and ` : ""}${degrees}.`,
    };
  },
};
/** @type {View} */
const attention = {
  choose: ["head", "token"],
  draw(e) {
    const { head, shown, t, n_rep } = e;
    const group = Math.floor(head / n_rep);
    const first = group * n_rep;
    const seen = (/** @type {Float32Array[]} */ rows) =>
      shown.map((q) => shown.filter((s) => s <= q).map((s) => rows[q][s]));
    const { weights, scores } = e.trace.attention(e.layer);
    const row = weights[head][t];
    const name = `layer ${e.layer}, head ${head} · KV head ${group}, shared by heads ${first} to ${first + n_rep - 1}`;
    const labels = shown.map((q, i) => e.gap(i) + e.label(q));
    const [most] = top(row, 1);
    const target = `${e.named(most)}${most || !t ? "" : ", the first token: a sink"}`;
    const hidden = sum(Array.from(row).filter((_, s) => !shown.includes(s)));
    const [rows] = e.table_rows(
      (s) => [
        e.label(s),
        number(scores[head][t][s]),
        bar(row[s], probability(row[s]), e.group_colour(), 1),
      ],
      t,
      ["", probability(hidden)],
    );
    const choose = (/** @type {number} */ i) =>
      shown[i] !== undefined && e.set({ token: shown[i] });
    return {
      parts: [
        large_map(seen(weights[head]), labels, shown.indexOf(t), e.group_colour(), name, choose),
        table(
          `What “${e.label(t)}” attends to (${name})`,
          ["key", "score q·k / √hd", "weight"],
          rows,
        ),
        html(
          "p",
          {},
          "down: query; across: key; grey: hidden by the mask; weight: 0 ",
          html("span", { class: "llama-scale" }),
          " 1",
        ),
        all_heads(e),
      ],
      said: `Layer ${e.layer}, head ${head}: ${e.named(t)} attends most to ${target} (${probability(row[most])}).`,
    };
  },
};
/** @type {View} */
const values = {
  choose: ["head", "token"],
  draw(e) {
    const {
      head,
      t,
      config: { head_dim: hd, n_heads, dim },
    } = e;
    const { weights, heads } = e.trace.attention(e.layer);
    const row = weights[head][t];
    const out = heads[t].subarray(head * hd, (head + 1) * hd);
    const scale = 3 * rms_of(out);
    const hidden = sum(Array.from(row).filter((_, s) => !e.shown.includes(s)));
    const [rows] = e.table_rows(
      (s) => {
        const v = e.trace.head("v", e.layer, head, s);
        const share = v.map((x) => row[s] * x);
        return [
          e.label(s),
          probability(row[s]),
          numbers(v, 3),
          strip(share, 32, scale),
          numbers(share, 3),
        ];
      },
      t,
      [probability(hidden)],
    );
    rows.push(["sum", number(sum(row)), "", strip(out, 32, scale), numbers(out, 3)]);
    const added = e.added("attention", t);
    return {
      parts: [
        table(
          `The output of head ${head}, layer ${e.layer}, at “${e.label(t)}”; ${SCALE}`,
          ["key", "weight", "its value", "weight × value", "the first 3"],
          rows,
          rows.length - 1,
          [2, 4],
        ),
        table(
          "The output projection",
          ["what", `all ${with_commas(dim)}`, "the first 3", "length"],
          [
            [
              `all ${n_heads} heads, concatenated`,
              strip(heads[t]),
              numbers(heads[t], 3),
              number(length_of(heads[t])),
            ],
            [
              "times wo: added to the stream",
              strip(added),
              numbers(added, 3),
              number(length_of(added)),
            ],
          ],
          -1,
          [2],
        ),
      ],
      said: `Head ${head} at “${e.label(t)}” adds up ${count(t + 1, "weighted value")}.`,
    };
  },
};
/** @type {Record<string, View>} */
export const ATTENTION_VIEWS = { qkv, rope, attention, values };
