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
/** A head whose place is one token, but not the first: at least three queries see it. */
const OTHER = {
  name: "one token, not the first",
  about: "another sink, or a word that many look up",
};
const SPREAD = { name: "none of these", about: "" };

const ALL = [...KINDS, OTHER, SPREAD];
/** Return the largest mean weight on a key after the first, of at least three queries after it.
 * @param {Float32Array[]} rows a head's weights, by query */
function other_place(rows) {
  let most = 0;
  for (let s = 1; s + 3 < rows.length; s++) {
    const later = rows.slice(s + 1);
    most = Math.max(most, sum(later.map((row) => row[s])) / later.length);
  }
  return most;
}
/** Return the heads by what they do, the clearest first: on which keys a head has half of its
 * weight or more, as the mean of the queries that can see them and another key.
 * @param {Explorer} e
 * @returns {[{ name: string, about: string }, Found[]][]} */
function heads_by_kind(e) {
  const {
    ids,
    trace,
    config: { n_layers, n_heads },
  } = e;
  /** @type {Found[][]} */
  const found = ALL.map(() => []);
  // the keys of each query; with two tokens, the first is the one before, too
  const rules = KINDS.map(({ keys }) => ids.map((_, t) => (t > 1 ? keys(t, ids) : [])));
  for (let layer = 0; layer < n_layers; layer++) {
    const { weights } = trace.attention(layer);
    for (let head = 0; head < n_heads; head++) {
      const shares = rules.map((rows, rule) => {
        const least = rule ? 1 : 3; // of copies there must be some
        const queries = rows.flatMap((keys, t) =>
          keys.length ? [sum(keys.map((s) => weights[head][t][s]))] : [],
        );
        return queries.length >= least ? sum(queries) / queries.length : 0;
      });
      shares.push(other_place(weights[head]));
      const share = Math.max(...shares);
      const kind = share >= 0.5 ? shares.indexOf(share) : ALL.length - 1;
      found[kind].push({ layer, head, share });
    }
  }
  for (const heads of found) heads.sort((a, b) => b.share - a.share);
  return ALL.map((kind, i) => [kind, found[i]]);
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
  if (e.T < 4)
    return [html("p", {}, "With four tokens or more, all heads stand here, by what they do.")];
  const { shown, trace, config } = e;
  const seen = (/** @type {Float32Array[]} */ rows) =>
    shown.map((q) => shown.filter((s) => s <= q).map((s) => rows[q][s]));
  const map_of = (/** @type {Found} */ { layer, head }) => {
    const name = `layer ${layer}, head ${head}`;
    const look = { title: name, "aria-label": name, style: { borderColor: e.group_colour(head) } };
    const onclick = () => {
      e.set({ layer, head });
      e.panel.out.querySelector(".llama-large")?.scrollIntoView({ block: "nearest" }); // the large map
    };
    return html(
      "button",
      { type: "button", "data-key": `${layer} ${head}`, ...look, onclick },
      thumb(seen(trace.attention(layer).weights[head])),
    );
  };
  const groups = heads_by_kind(e)
    .filter(([, heads]) => heads.length)
    .map(([{ name, about }, heads]) => {
      const words =
        name === SPREAD.name
          ? `${count(heads.length, "head")}: none of these`
          : `${count(heads.length, "head")}: on ${name}${about && ` (${about})`}`;
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
  const note =
    ": where they have half of their weight or more, on average over the queries from the third token on. After an " +
    "earlier copy: over the queries whose token stood earlier, if there are three.";
  return [html("p", {}, html("b", {}, title), note), ...groups];
}
