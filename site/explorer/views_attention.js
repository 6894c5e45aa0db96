/* The stations of attention; see views_text.js. */
import {
  count,
  html,
  length_of,
  number,
  numbers,
  probability,
  rms_of,
  sum,
  with_commas,
} from "./dom.js";
import { all_heads } from "./heads.js";
import { bar, large_map, strip, table } from "./pictures.js";
import { top } from "./sampling.js";
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
    const target = `${e.named(most)}${most || !t ? "" : ", the first token (often a sink)"}`;
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
    if (!shown.includes(most)) {
      const weight = bar(row[most], probability(row[most]), e.group_colour(), 1);
      rows.splice(2, 0, [`of them ${e.named(most)}`, number(scores[head][t][most]), weight]);
    }
    const choose = (/** @type {number} */ i) =>
      shown[i] !== undefined && e.set({ token: shown[i] });
    const at = shown.indexOf(t);
    const map = large_map(seen(weights[head]), labels, at, e.group_colour(), name, choose);
    return {
      parts: [
        html(
          "div",
          { class: "llama-figure", style: { flexBasis: `${map.getAttribute("width")}px` } },
          map,
          html(
            "p",
            {},
            "down: query; across: key; grey: hidden by the mask; weight: 0 ",
            html("span", { class: "llama-scale" }),
            " 1",
          ),
        ),
        table(
          `What “${e.label(t)}” attends to (${name})`,
          ["key", "score q·k / √hd", "weight"],
          rows,
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
export const ATTENTION_VIEWS = { qkv, attention, values };
