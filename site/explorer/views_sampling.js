/* The stations that choose the next token; see views_text.js. */
import { sampling_controls, slider } from "./controls.js";
import { count, html, number, probability, rms_of, sum, with_commas } from "./dom.js";
import { colours } from "./made.js";
import { bar, table } from "./pictures.js";
import { cut_logits, generator, next_token_probs, pick, softmax, top } from "./sampling.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./types.js").View} View */

/** Return the end of a text up to the token that is looked at. @param {Explorer} e */
function end_of(e) {
  const ids = e.ids.slice(0, e.t + 1).filter((id) => id !== e.tokenizer.bos_id);
  const text = e.tokenizer.decode(ids);
  return `${text.length < 60 ? text : `… ${text.slice(-40)}`} …`;
}

/** @type {View} */
const logits = {
  choose: ["token"],
  controls: (e) => [slider(e, "bars", "tokens shown")],
  draw(e) {
    const all = e.trace.logits(e.t);
    const probs = softmax(all.slice());
    const ids = top(probs, e.settings.bars);
    const rows = ids.map((id) => [
      e.name(id),
      id,
      number(all[id]),
      bar(probs[id], probability(probs[id]), colours.probability, 1),
    ]);
    const rms = number(rms_of(e.trace.row("x", e.config.n_layers, e.t)));
    const least = all.reduce((a, b) => Math.min(a, b));
    const most = all.reduce((a, b) => Math.max(a, b));
    return {
      parts: [
        html(
          "p",
          {},
          `The vector at “${e.label(e.t)}” has an RMS of ${rms}. The final norm divides by it and ` +
            `multiplies by its γ. The ${with_commas(probs.length)} logits range from ${number(least, 1)} to ${number(most, 1)}.`,
        ),
        table(`After “${end_of(e)}”`, ["next token", "id", "logit", "probability"], rows),
      ],
      said: `The most likely next token: “${rows[0][0]}”, ${probability(probs[ids[0]])}.`,
    };
  },
};
/** Draw as many tokens as were asked for; return how often each came, and how many.
 * @param {Explorer} e
 * @param {Float32Array} logits */
function draws(e, logits) {
  const { temperature, top_k, top_p, seed } = e.settings;
  const key = JSON.stringify([e.ids, e.t, temperature, top_k, top_p, seed]);
  // another setting begins the draws again
  if (key !== e.drawn?.key) e.drawn = { key, random: generator(seed), counts: {}, all: 0 };
  const { drawn } = e;
  for (; e.more > 0; e.more--, drawn.all++) {
    const id = pick(logits, drawn.random, { temperature, top_k: top_k || null, top_p });
    drawn.counts[id] = (drawn.counts[id] ?? 0) + 1;
  }
  return drawn;
}
/** @type {View} */
const sample = {
  choose: ["token"],
  controls: (e) => {
    const onclick = () => {
      e.more = 20;
      e.draw();
    };
    const button = html("button", { type: "button", onclick }, "Draw the next token 20 times");
    return [...sampling_controls(e), html("div", { class: "llama-buttons" }, button)];
  },
  draw(e) {
    const { temperature, top_k: k, top_p, seed } = e.settings;
    const all = e.trace.logits(e.t);
    const cut = cut_logits(all, temperature, k || null, top_p);
    const before = next_token_probs(all);
    const after = softmax(cut.slice());
    const drawn = draws(e, all);
    const shown = new Set([...top(before, 11), ...Object.keys(drawn.counts).map(Number)]);
    const others = Array.from(after.keys()).filter((i) => !shown.has(i));
    /** @type {[string, number[]][]} */
    const lines = Array.from(shown, (i) => [e.name(i), [i]]);
    lines.push([`${with_commas(others.length)} others`, others]);
    const total = (/** @type {Float32Array} */ x, /** @type {number[]} */ ids) =>
      sum(ids.map((i) => x[i]));
    const rows = lines.map(([name, ids]) => {
      const is_kept = ids.some((i) => cut[i] > -Infinity);
      const colour = is_kept ? colours.probability : colours.other;
      const cell = (/** @type {Float32Array} */ x) =>
        bar(total(x, ids), probability(total(x, ids)), colour, 1);
      return [
        name,
        cell(before),
        is_kept ? cell(after) : "cut off",
        sum(ids.map((i) => drawn.counts[i] ?? 0)),
      ];
    });
    const kept = after.reduce((n, p) => n + (p > 0 ? 1 : 0), 0);
    const nats = after.reduce((all, p) => all - (p && p * Math.log(p)), 0);
    return {
      parts: [
        table(
          `After “${end_of(e)}” `,
          [
            "next token",
            "model (τ = 1)",
            `τ ${temperature}, k ${k || "off"}, p ${top_p}`,
            "times drawn",
          ],
          rows,
        ),
      ],
      said:
        `${with_commas(kept)} of ${count(cut.length, "token")} can be drawn, with an entropy of ` +
        `${nats.toFixed(2)} nats. Drawn so far: ${drawn.all}, with seed ${seed}.`,
    };
  },
};
/** @type {Record<string, View>} */
export const SAMPLING_VIEWS = { logits, sample };
