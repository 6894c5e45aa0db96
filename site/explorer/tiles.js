/* The map's tiles: a picture each, with a row for each position that is shown. */
import { html, percent, short, svg, with_commas } from "./dom.js";
import { colours } from "./made.js";
import { heat, rank_line } from "./pictures.js";
import { cut_logits, next_token_probs, softmax, top } from "./sampling.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** Draws a tile of w × h pixels; `shown` are the positions.
 * @typedef {(e: Explorer, shown: number[], w: number, h: number) => Element} Draw */

const LETTER = 6.8; // pixels of a letter, about, at the tiles' 11 px

/**
 * @param {number} w
 * @param {number} h
 * @param {any[]} parts */
const drawing = (w, h, ...parts) =>
  svg("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h, "aria-hidden": "true" }, parts);
/** Return a tile with a row of numbers for each position.
 * @param {(e: Explorer, t: number) => Float32Array} row_of
 * @returns {Draw} */
const vectors = (row_of) => (e, shown) =>
  heat(
    shown.map((t) => row_of(e, t)),
    32,
  );
/** Return a tile of the most likely tokens of a distribution.
 * @param {Explorer} e
 * @param {Float32Array} probs
 * @param {number} w
 * @param {number} h
 * @param {number} [drawn] the token that was drawn; it is shown, too */
function bars_of(e, probs, w, h, drawn) {
  const n = Math.max(3, Math.min(6, Math.floor(h / 16)));
  const step = Math.min(24, h / n);
  const ids = top(probs, n).filter((id) => probs[id] > 0);
  if (drawn !== undefined && !ids.includes(drawn)) ids[ids.length - 1] = drawn;
  return drawing(
    w,
    h,
    ids.map((id, i) => {
      const y = i * step;
      const bar = { x: 0, y: y + 1, width: Math.max(1, w * probs[id]), height: step - 2 };
      const look = { y: y + step / 2 + 4, "font-weight": id === drawn ? "bold" : "normal" };
      const room = (w - 46) / LETTER;
      return [
        svg("rect", { ...bar, fill: colours.probability, opacity: 0.45 }),
        svg("text", { ...look, x: 3 }, short(e.name(id), room)),
        svg("text", { ...look, x: w - 2, "text-anchor": "end" }, percent(probs[id])),
      ];
    }),
  );
}

/** @type {Record<string, Draw>} */
export const TILES = {
  weights(e, _, w, h) {
    const sizes = e
      .tensors()
      .slice(2)
      .map(({ shape }) => shape.reduce((a, b) => a * b));
    const step = h / 9;
    const largest = Math.sqrt(Math.max(...sizes));
    return drawing(
      w,
      h,
      sizes.map((size, i) =>
        svg("rect", {
          x: 0,
          y: i * step + 2,
          width: Math.max(3, (w * Math.sqrt(size)) / largest),
          height: step - 4,
          fill: colours.other,
        }),
      ),
    );
  },
  tokens(e, shown, w, h) {
    const row = h / shown.length;
    const has_ids = w > 84;
    const letters = (w - (has_ids ? 46 : 8)) / LETTER;
    return drawing(
      w,
      h,
      shown.map((t, i) => {
        const y = (i + 0.5) * row + 4;
        const weight = t === e.t ? "bold" : "normal";
        const under = (i + 1) * row;
        const hidden = (shown[i + 1] ?? t + 1) - t - 1; // tokens that follow, and have no row
        const end = hidden ? `+${hidden}` : has_ids && e.ids[t];
        const room = hidden && !has_ids ? letters - 4 : letters;
        const look = { y: i * row + 1, width: w, height: row - 2, rx: 3 };
        return [
          svg("rect", { ...look, class: t % 2 ? "llama-odd" : "llama-even" }),
          svg(
            "text",
            { x: 4, y, "font-weight": weight, class: "llama-black" },
            short(e.label(t), room),
          ),
          end && svg("text", { x: w - 3, y, "text-anchor": "end", class: "llama-black" }, end),
          hidden > 0 && svg("line", { x2: w, y1: under, y2: under, class: "llama-cut" }),
        ];
      }),
    );
  },
  embed: vectors((e, t) => e.trace.row("x", 0, t)),
  "norm 1": vectors((e, t) => e.trace.row("attention_norm", e.layer, t)),
  qkv(e, shown) {
    const parts = ["q", "k", "v"].map((name) =>
      shown.map((t) => e.trace.head(name, e.layer, e.head, t)),
    );
    return html(
      "span",
      { class: "llama-three" },
      parts.map((rows, i) => html("span", {}, html("b", {}, "qkv"[i]), heat(rows, 12))),
    );
  },
  rope(e, shown, w, h) {
    const row = h / shown.length;
    const r = Math.min(11, row / 2 - 1, w / 4 - 3);
    const { pair } = e.settings;
    const turn = (/** @type {Float32Array} */ x) => Math.atan2(x[2 * pair + 1], x[2 * pair]);
    const hand = (
      /** @type {number} */ angle,
      /** @type {string} */ stroke,
      /** @type {number} */ width,
    ) =>
      svg("line", {
        x2: r * Math.cos(angle),
        y2: -r * Math.sin(angle),
        stroke,
        "stroke-width": width,
      });
    return drawing(
      w,
      h,
      shown.flatMap((t, i) =>
        ["q", "k"].map((name, c) => {
          const [before, after] = [name, `x${name}`].map((it) =>
            turn(e.trace.head(it, e.layer, e.head, t)),
          );
          const transform = `translate(${w * (0.25 + 0.5 * c)} ${(i + 0.5) * row})`;
          return svg(
            "g",
            { transform },
            svg("circle", { r, fill: "none", class: "llama-axis" }),
            hand(before, colours.other, 1.5),
            hand(after, c ? colours.key : colours.query, 2.5),
          );
        }),
      ),
    );
  },
  attention(e, shown, w, h) {
    const y = (/** @type {number} */ i) => ((i + 0.5) * h) / shown.length;
    const weights = e.weights();
    // from keys (left) to the queries (right) that look at them
    return drawing(
      w,
      h,
      shown.flatMap((t, i) =>
        shown.slice(0, i + 1).map((s, j) => {
          const weight = weights[t][s];
          const half = w / 2;
          const d = `M 0 ${y(j)} C ${half} ${y(j)}, ${half} ${y(i)}, ${w} ${y(i)}`;
          return (
            weight >= 0.02 &&
            svg("path", {
              d,
              fill: "none",
              stroke: e.group_colour(),
              "stroke-width": 0.5 + 4 * weight,
              opacity: 0.15 + 0.85 * weight,
            })
          );
        }),
      ),
    );
  },
  values: vectors((e, t) => {
    const { head_dim: hd } = e.config;
    return e.trace.attention(e.layer).heads[t].subarray(e.head * hd, (e.head + 1) * hd);
  }),
  "plus 1": vectors((e, t) => e.trace.row("h", e.layer, t)),
  "norm 2": vectors((e, t) => e.trace.row("ffn_norm", e.layer, t)),
  swiglu: vectors((e, t) => e.trace.product(e.layer, t)),
  "plus 2": vectors((e, t) => e.trace.row("x", e.layer + 1, t)),
  stream(e, _, w, h) {
    const lens = e.trace.lens(e.T - 1);
    const ranks = lens.map(({ rank }) => rank);
    const worst = Math.max(10, ...ranks);
    const word = short(e.name(lens[lens.length - 1].top[0].id), w / LETTER - 9);
    return drawing(
      w,
      h,
      svg("text", { x: 2, y: 11 }, `rank of “${word}”`),
      svg(
        "g",
        { transform: "translate(0 16)" },
        rank_line(ranks, w, h - 32, worst, colours.probability),
      ),
      svg("text", { x: 2, y: h - 3 }, with_commas(ranks[0])),
      svg(
        "text",
        { x: w - 2, y: h - 3, "text-anchor": "end" },
        `→ ${with_commas(ranks[ranks.length - 1])}`,
      ),
    );
  },
  logits: (e, _, w, h) => bars_of(e, next_token_probs(e.trace.logits(e.T - 1)), w, h),
  sample(e, _, w, h) {
    const { temperature, top_k, top_p } = e.settings;
    return bars_of(
      e,
      softmax(cut_logits(e.trace.logits(e.T - 1), temperature, top_k || null, top_p)),
      w,
      h,
      e.walk?.step.tile === "sample" ? e.walk.drawn : undefined,
    );
  },
  text(e, _, w, h) {
    const { step, id } = e.walk ?? {};
    const next = step?.tile === "text" && id !== undefined ? [id] : []; // a walk's last step
    const text = [...e.text_of([...e.text_ids, ...next])];
    const room = Math.floor(0.75 * (w / LETTER) * (h / 18)); // words leave lines unfilled
    const end = text.length > room ? `… ${text.slice(-room).join("")}` : text.join("");
    return html("span", { class: "llama-end" }, `↺ ${end}`);
  },
};
