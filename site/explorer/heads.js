/* What each attention head does with a text: all heads, as small maps. */
import { count, html, sum } from "./dom.js";
import { thumb } from "./pictures.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {{ layer: number, head: number, share: number }} Found */

/** What a head can do: where most of its weight is. Each rule returns the keys of query t. */
const KINDS = [
  {
    name: "the token after an earlier copy",
    about: "as induction heads do",
    keys: (/** @type {number} */ t, /** @type {number[]} */ ids) => {
      const copies = ids.slice(0, t).flatMap((id, s) => (id === ids[t] ? [s + 1] : []));
      return copies.filter((s) => s < t);
    },
  },
  { name: "the token before", about: "", keys: (/** @type {number} */ t) => [t - 1] },
  { name: "the token itself", about: "", keys: (/** @type {number} */ t) => [t] },
  { name: "the first token", about: "an attention sink", keys: () => [0] },
];
const FIRST = 32; // heads of a kind that are shown at once
const SPREAD = { name: "no one place", about: "the weight is spread, or its place changes" };

/** Return the heads by what they do, the clearest first: on which keys a head has half of its
 * weight or more, as the mean of the queries that can see them and another key.
 * @param {Explorer} e
 * @returns {[{ name: string, about: string }, Found[]][]} */
export function heads_by_kind(e) {
  const {
    ids,
    trace,
    config: { n_layers, n_heads },
  } = e;
  /** @type {Found[][]} */
  const found = [...KINDS, SPREAD].map(() => []);
  // the keys of each query; with two tokens, the first is the one before, too
  const rules = KINDS.map(({ keys }) => ids.map((_, t) => (t > 1 ? keys(t, ids) : [])));
  for (let layer = 0; layer < n_layers; layer++) {
    const { weights } = trace.attention(layer);
    for (let head = 0; head < n_heads; head++) {
      const shares = rules.map((rows) => {
        const queries = rows.flatMap((keys, t) =>
          keys.length ? [sum(keys.map((s) => weights[head][t][s]))] : [],
        );
        return queries.length ? sum(queries) / queries.length : 0;
      });
      const share = Math.max(...shares);
      const kind = share >= 0.5 ? shares.indexOf(share) : KINDS.length;
      found[kind].push({ layer, head, share });
    }
  }
  for (const heads of found) heads.sort((a, b) => b.share - a.share);
  return [...KINDS, SPREAD].map((kind, i) => [kind, found[i]]);
}
/** Return small maps of all heads, in groups of what they do.
 * @param {Explorer} e */
export function all_heads(e) {
  const mark = (/** @type {HTMLElement} */ place) => {
    for (const button of place.querySelectorAll("button")) {
      const is_chosen = button.dataset.key === `${e.layer} ${e.head}`;
      button.setAttribute("aria-pressed", String(is_chosen));
    }
  };
  // many pictures: they are drawn once for a text, after what is above them
  const place = e.trace.once(`heads ${e.shown}`, () => {
    const empty = html("div", { class: "llama-heads" });
    const { trace } = e;
    setTimeout(() => {
      if (e.trace !== trace) return;
      empty.append(...maps_of(e));
      mark(empty);
    });
    return empty;
  });
  mark(place);
  return place;
}
/** @param {Explorer} e */
function maps_of(e) {
  const { shown, trace, config } = e;
  const seen = (/** @type {Float32Array[]} */ rows) =>
    shown.map((q) => shown.filter((s) => s <= q).map((s) => rows[q][s]));
  const map_of = (/** @type {Found} */ { layer, head }) => {
    const name = `layer ${layer}, head ${head}`;
    const look = { title: name, "aria-label": name, style: { borderColor: e.group_colour(head) } };
    const onclick = () => e.set({ layer, head });
    return html(
      "button",
      { type: "button", "data-key": `${layer} ${head}`, ...look, onclick },
      thumb(seen(trace.attention(layer).weights[head])),
    );
  };
  const groups = heads_by_kind(e)
    .filter(([, heads]) => heads.length)
    .map(([{ name, about }, heads]) => {
      const words = `${count(heads.length, "head")}: most weight on ${name}${about && `, ${about}`}`;
      const maps = heads.map(map_of);
      const rest = maps.splice(FIRST);
      return html(
        "div",
        { role: "group", "aria-label": words },
        html("p", {}, words),
        html("div", { class: "llama-maps" }, maps),
        rest.length > 0 &&
          html(
            "details",
            {},
            html("summary", {}, `${rest.length} more of these`),
            html("div", { class: "llama-maps" }, rest),
          ),
      );
    });
  const title = `All ${config.n_layers} × ${config.n_heads} heads, by what they do in this text`;
  const note = " (mean of the queries from the third token on).";
  return [html("p", {}, html("b", {}, title), note), ...groups];
}
