/* The map: the model's tiles in the order data flows. */
import { html, replace } from "./dom.js";
import { stations } from "./made.js";
import { TILES } from "./tiles.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */

export const LEGEND =
  "Colours: a number is orange if negative, blue if positive, and full at 3 times the RMS of the row; in a " +
  "picture of several rows, at 3 times that of its middle row. A cell of several numbers shows the one farthest from 0. " +
  "In RoPE a query is blue, a key orange. Heads, and lines from key (left) to query, have the colour of their KV head; " +
  "weights under 0.02, or on a token that is not shown, have no line. The light blue line is the residual stream. The curve of ranks is " +
  "logarithmic, 1 at the top. In “weights” a bar is as long as the root of a tensor's size.";
export const INTRO =
  "From “tokens” to the last +, a row is a token; in striped tiles orange is negative, blue positive. Choose a tile to open it.";

/** Stations that have two tiles in a block: of attention, and of the feed-forward network.
 * @type {Record<string, Record<string, string>>} */
const SIDED = {
  norm: { attention: "norm 1", ffn: "norm 2" },
  residual: { attention: "plus 1", ffn: "plus 2" },
};
/** A tile: its id, its width in a wide page, its label if it is not the station's.
 * @typedef {[id: string, width: number, label?: string]} Tile */
/** @type {Tile[]} */
const BEFORE = [
  ["weights", 44],
  ["tokens", 104],
  ["embed", 48],
];
/** @type {Tile[]} */
const BLOCK = [
  ["norm 1", 50],
  ["qkv", 72],
  ["rope", 56],
  ["attention", 76],
  ["values", 50],
  ["plus 1", 30, "+"],
  ["norm 2", 50],
  ["swiglu", 52],
  ["plus 2", 30, "+"],
];
/** @type {Tile[][]} */
const AFTER = [
  [["stream", 140, "all layers"]],
  [
    ["logits", 128, "LM head"],
    ["sample", 128],
  ],
  [["text", 96]],
];
const GAPS = 16 * 13; // pixels of all borders and gaps of the band
/** The narrowest page that has the map as one band. */
const BAND = 760;

/** Return the station and side of a tile. @param {string} id */
export function station_of(id) {
  for (const [station, sides] of Object.entries(SIDED))
    for (const [side, tile] of Object.entries(sides)) if (tile === id) return { station, side };
  return stations.some(({ key }) => key === id) ? { station: id } : {};
}
/** Return the tile of the open station. @param {{ station: string, side: string }} settings */
export const tile_of = ({ station, side }) => SIDED[station]?.[side] ?? station;

/** Draw the map into its element.
 * @param {Explorer} e
 * @param {HTMLElement} place */
export function draw_map(e, place) {
  const shown = e.positions(16);
  const width = e.section.clientWidth;
  const is_band = width >= BAND;
  const total = [...BEFORE, ...BLOCK].reduce((sum, [, w]) => sum + w, 0) + 140 + 128 + 96;
  const scale = is_band ? Math.min(1.15, (width - GAPS) / total) : width < 480 ? 0.75 : 1;
  const height = Math.max(
    e.is_narrow ? 0 : 136,
    shown.length * Math.max(14, Math.min(24, 224 / shown.length)),
  );
  const make = (/** @type {Tile} */ [id, w, label], h = height) =>
    tile(e, id, label, shown, Math.round(w * scale), h);
  const {
    layer,
    config: { n_layers },
  } = e;
  const block = html(
    "div",
    { class: "llama-block", role: "presentation" },
    html("p", {}, `transformer block: layer ${layer} (${n_layers} layers, 0 to ${n_layers - 1})`),
    BLOCK.map((it) => make(it)),
  );
  const after = AFTER.map((tiles) =>
    html(
      "div",
      { class: "llama-column", role: "presentation" },
      tiles.map((it) => make(it, tiles.length > 1 ? (height - 34) / 2 : height)),
    ),
  );
  place.classList.toggle("llama-band", is_band);
  place.classList.toggle("llama-tight", scale < 1.05);
  replace(place, "data-tile", [...BEFORE.map((it) => make(it)), block, ...after]);
}
/**
 * @param {Explorer} e
 * @param {string} id
 * @param {string | undefined} label
 * @param {number[]} shown
 * @param {number} width
 * @param {number} height */
function tile(e, id, label, shown, width, height) {
  const { station: key } = station_of(id);
  const is_open = id === tile_of(e.settings);
  const name = label ?? stations.find((it) => it.key === key)?.label;
  const picture = html(
    "span",
    { class: "llama-picture", style: { height: `${height}px` } },
    TILES[id](e, shown, width, height),
  );
  return html(
    "button",
    {
      type: "button",
      role: "tab",
      "data-tile": id,
      class: "llama-tile",
      "aria-selected": String(is_open),
      "aria-controls": e.panel.element.id,
      tabindex: is_open ? 0 : -1,
      onclick: (/** @type {UIEvent} */ event) => e.open(id, event),
      style: { width: `${width + 8}px` },
    },
    html("span", { class: "llama-name" }, name),
    picture,
  );
}
/** Move from tile to tile by the arrow keys.
 * @param {HTMLElement} place
 * @param {KeyboardEvent} event */
export function move(place, event) {
  /** @type {Record<string, number>} */
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  /** @type {HTMLElement[]} */
  const tiles = [...place.querySelectorAll(/** @type {any} */ ("[role=tab]"))];
  const at = tiles.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  /** @type {Record<string, number>} */
  const ends = { Home: 0, End: tiles.length - 1 };
  const to = ends[event.key] ?? at + steps[event.key];
  if (at < 0 || !tiles[to]) return;
  event.preventDefault();
  tiles[to].focus();
  tiles[to].click();
}
/** Mark the tiles where a walk is; what lies ahead is pale.
 * @param {HTMLElement} place
 * @param {string} [id] of the tile; "block": all of the block; nothing: no walk */
export function mark(place, id) {
  const tiles = [...place.querySelectorAll("[role=tab]")];
  const is_here = (/** @type {Element} */ tile) =>
    id === "block" ? Boolean(tile.closest(".llama-block")) : tile.getAttribute("data-tile") === id;
  const last = tiles.findLastIndex(is_here);
  tiles.forEach((tile, i) => {
    tile.classList.toggle("llama-now", id !== undefined && is_here(tile));
    tile.classList.toggle("llama-ahead", id !== undefined && i > last);
  });
}
