/* The station of RoPE; see views_text.js. */
import { choice, number_field, slider } from "./controls.js";
import { count, dot, html, length_of, number, numbers, svg } from "./dom.js";
import { colours } from "./made.js";
import { arrow, table } from "./pictures.js";
import { apply_rotary_emb, precompute_freqs_cis, rope_frequencies } from "./steps.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./types.js").View} View */

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
export const rope = {
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
            ["wavelength", `${number((2 * Math.PI) / freq, 1)} positions`],
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
