/* Pictures of numbers, and tables. */
import { html, rms_of, svg } from "./dom.js";
import { colours, scales } from "./made.js";

/** @typedef {number[]} Rgb red, green, blue */

/** Colours of groups of query heads that share a KV head. */
export const GROUPS = Object.values(colours).slice(0, 6);
/** Return a colour of a scale.
 * @param {Rgb[]} scale
 * @param {number} share from 0 to 1 */
function blend(scale, share) {
  const at = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
  const low = Math.min(Math.floor(at), scale.length - 2);
  return scale[low].map((v, i) => Math.round(v + (at - low) * (scale[low + 1][i] - v)));
}
/** Return a picture of height × width pixels.
 * @param {number} height
 * @param {number} width
 * @param {(row: number, column: number) => Rgb | undefined} colour nothing: transparent
 * @returns {HTMLCanvasElement} */
function pixels(height, width, colour) {
  const canvas = html("canvas", { width, height, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let t = 0; t < height; t++)
    for (let c = 0; c < width; c++) {
      const found = colour(t, c);
      if (!found) continue;
      const at = 4 * (t * width + c);
      image.data.set(found, at);
      image.data[at + 3] = 255;
    }
  context.putImageData(image, 0, 0);
  return canvas;
}
/** Return the number that has the full colour in a picture of rows: 3 times the RMS of the middle row.
 * (The first token's row is often a hundred times as long as the others.)
 * @param {Float32Array[]} rows */
export function scale_of(rows) {
  const sizes = rows.map(rms_of).sort((a, b) => a - b);
  return Math.max(3 * sizes[Math.floor(sizes.length / 2)], 1e-9);
}
/** Draw rows of numbers, one pixel for some columns each: orange is negative, blue positive, white
 * is 0. Of the columns that share a pixel, the number farthest from 0 shows.
 * @param {Float32Array[]} rows
 * @param {number} columns
 * @param {number} scale the number that has the full colour */
export function heat(rows, columns = 64, scale = scale_of(rows)) {
  const width = Math.min(columns, rows[0].length);
  return pixels(rows.length, width, (t, c) => {
    const row = rows[t];
    const from = Math.floor((c * row.length) / width);
    const to = Math.floor(((c + 1) * row.length) / width);
    let most = 0;
    for (let i = from; i < to; i++) if (Math.abs(row[i]) > Math.abs(most)) most = row[i];
    return blend(scales.signed, 0.5 + most / scale / 2);
  });
}
/** Draw T rows of weights, a pixel each; what the mask hides stays empty.
 * @param {ArrayLike<number>[]} rows */
export const thumb = (rows) =>
  pixels(rows.length, rows.length, (t, s) =>
    s <= t ? blend(scales.amount, rows[t][s]) : undefined,
  );
/** Return a table's cell with a picture of numbers in one row.
 * @param {Float32Array} x
 * @param {number} [columns]
 * @param {number} [scale] */
export const strip = (x, columns = 64, scale) =>
  html("td", { class: "llama-strip" }, heat([x], columns, scale));
/** Return a cell with a number's text and a bar.
 * @param {number} value
 * @param {string} text
 * @param {string} background
 * @param {number} longest the value whose bar has the full width */
export function bar(value, text, background, longest) {
  const width = `${Math.min(100, (100 * Math.abs(value)) / longest)}%`;
  const fill = html("span", { class: "llama-fill", style: { width, background } });
  return html(
    "td",
    {},
    html(
      "div",
      { class: "llama-bar" },
      html("span", {}, text),
      html("span", { class: "llama-track" }, fill),
    ),
  );
}
/** Return a table. The first cell of a row is its heading.
 * @param {string} caption
 * @param {string[]} heads
 * @param {any[][]} rows
 * @param {number} chosen the row that is marked
 * @param {number[]} spare the columns that a narrow page leaves out
 * @returns {HTMLElement} */
export function table(caption, heads, rows, chosen = -1, spare = []) {
  const look = (/** @type {number} */ i) => (spare.includes(i) ? "llama-spare" : undefined);
  const cell = (/** @type {any} */ it, /** @type {number} */ i) => {
    const made = it instanceof Element ? it : html("td", {}, it);
    if (spare.includes(i + 1)) made.classList.add("llama-spare");
    return made;
  };
  const head = heads.map((it, i) => html("th", { scope: "col", class: look(i) }, it));
  const body = rows.map(([first, ...rest], i) =>
    html(
      "tr",
      { class: i === chosen ? "llama-chosen" : undefined },
      html("th", { scope: "row" }, first),
      rest.map(cell),
    ),
  );
  const made = html(
    "table",
    { "aria-label": caption },
    html("thead", {}, html("tr", {}, head)),
    html("tbody", {}, body),
  );
  const scroller = { tabindex: 0, role: "group", "aria-label": caption };
  return html(
    "div",
    { class: "llama-table" },
    html("p", {}, html("b", {}, caption)),
    html("div", scroller, made),
  );
}
/** Return one head's map, with queries down and keys across.
 * @param {ArrayLike<number>[]} rows
 * @param {string[]} labels
 * @param {number} chosen
 * @param {string} stroke
 * @param {string} name
 * @param {(row: number) => void} choose */
export function large_map(rows, labels, chosen, stroke, name, choose) {
  const T = rows.length;
  const margin = 124;
  const cell = Math.min(480 / T, 46);
  const side = cell * T;
  const every = Math.ceil(14 / cell);
  const width = margin + side + 8; // every n-th label
  const height = side + 30 + 6 * Math.max(...labels.map((label) => [...label].length));
  const square = { x: margin, y: 4, width: side, height: side };
  /** @type {any[]} */
  let parts = [svg("rect", { ...square, class: "llama-hidden" })];
  const write = (/** @type {string} */ words, /** @type {object} */ attributes) =>
    parts.push(svg("text", attributes, words));
  rows.forEach((row, t) =>
    Array.from(row).forEach((weight, s) => {
      const x = margin + s * cell;
      const y = 4 + t * cell;
      const fill = `rgb(${blend(scales.amount, weight)})`;
      parts.push(svg("rect", { x, y, width: cell, height: cell, fill }));
      const look = {
        "text-anchor": "middle",
        class: weight > 0.65 ? "llama-white" : "llama-black",
      };
      if (cell >= 34) write(weight.toFixed(2), { x: x + cell / 2, y: y + cell / 2 + 4, ...look });
    }),
  );
  parts = [svg("g", { class: "llama-cells" }, parts)]; // whose light and dark may change places
  labels.forEach((label, i) => {
    const at = (i + 0.5) * cell;
    const transform = `translate(${margin + at + 4} ${side + 16}) rotate(-60)`;
    if (i % every) return;
    write(label, { x: margin - 6, y: at + 8, "text-anchor": "end" });
    write(label, { "text-anchor": "end", transform });
  });
  const frame = { fill: "none", stroke };
  const row = { x: margin, y: 4 + chosen * cell, width: side, height: cell };
  parts.push(svg("rect", { ...square, ...frame, "stroke-width": 3 }));
  parts.push(svg("rect", { ...row, fill: "none", stroke: "currentColor", "stroke-width": 1.5 }));
  const onclick = (/** @type {any} */ { offsetY, currentTarget: it }) =>
    // the keyboard chooses a token
    choose(Math.floor(((offsetY * height) / it.clientHeight - 4) / cell));
  const label = `Attention weights of ${name}; the table has the chosen query's row in numbers.`;
  const viewBox = `0 0 ${width} ${height}`;
  return svg(
    "svg",
    { class: "llama-large", viewBox, width, onclick, role: "img", "aria-label": label },
    parts,
  );
}
/** Return an arrow from a plane's middle.
 * @param {number} turn its angle in radians
 * @param {string} colour
 * @param {number} r its length
 * @param {number} width */
export function arrow(turn, colour, r, width = 2.5) {
  const at = (/** @type {number} */ angle, /** @type {number} */ r) => [
    r * Math.cos(angle),
    -r * Math.sin(angle),
  ];
  const [x2, y2] = at(turn, r - 4);
  const points = [at(turn, r), at(turn + 0.16, r - 9), at(turn - 0.16, r - 9)].join(" ");
  const line = svg("line", { x2, y2, stroke: colour, "stroke-width": width });
  return [line, svg("polygon", { points, fill: colour })];
}
/** Draw a rank in each layer as a line: 1 is at the top, a step down is ten times as far.
 * @param {number[]} ranks
 * @param {number} width
 * @param {number} height
 * @param {number} worst the rank at the bottom
 * @param {string} stroke */
export function rank_line(ranks, width, height, worst, stroke) {
  const x = (/** @type {number} */ l) => 2 + (l * (width - 4)) / (ranks.length - 1);
  const y = (/** @type {number} */ rank) => 3 + (Math.log(rank) / Math.log(worst)) * (height - 6);
  const points = ranks.map((rank, l) => `${x(l).toFixed(1)},${y(rank).toFixed(1)}`).join(" ");
  return [
    svg("line", { x1: 0, x2: width, y1: 3, y2: 3, class: "llama-axis" }),
    svg("polyline", { points, fill: "none", stroke, "stroke-width": 2 }),
  ];
}
