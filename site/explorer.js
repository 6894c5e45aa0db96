/* The explorer: one prompt through the whole Llama, alive.

Each <section class="llama" data-station="…"> gets a prompt, the model's map with the numbers of
this prompt, and below it the station that is open. llama.js computes; stations.js, written when
the site is built, has the stations' texts. What the reader chose is kept from page to page and in
the address. Letters of shapes: see llama.js. */
"use strict";
(() => {
const { load_tokenizer, load, load_example, next_token_probs, cut_logits, pick, generator, softmax,
  ranked, silu, rope_frequencies, precompute_freqs_cis, apply_rotary_emb, tensor_shapes, UserError,
  LONGEST, LONGEST_TEXT, utf8_of } = window.llama;
const { stations, examples, large, at_random } = window.llama_stations;
const LARGE = { dim: large.D, n_layers: large.L, n_heads: large.H, n_kv_heads: large.KV,
  vocab_size: large.V, head_dim: large.hd, hidden_dim: large.F }; // Llama 3.2-1B
const SOURCE = document.currentScript.src; // "" in a page that carries everything in itself
const ROOT = SOURCE && new URL("../", SOURCE); // of the site

// ---- elements and colours ----
// The colours of the notebooks' pictures (lessons/theme.py).
const COLOURS = { query: "#0072B2", key: "#D55E00", value: "#009E73", token: "#CC79A7",
  probability: "#E69F00", residual: "#56B4E9", other: "#999999" };
const GROUPS = Object.values(COLOURS).slice(0, 6); // of query heads that share a KV head
const AMOUNT = [[255, 255, 255], [158, 202, 225], [0, 114, 178], [8, 48, 107]]; // 0 to 1
const SIGNED = [[213, 94, 0], [253, 208, 162], [255, 255, 255], [158, 202, 225], [0, 114, 178]];
/** Return a colour of a scale at a share from 0 to 1, as red, green and blue. */
function blend(scale, share) {
  const at = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
  const low = Math.min(Math.floor(at), scale.length - 2);
  return scale[low].map((v, i) => Math.round(v + (at - low) * (scale[low + 1][i] - v)));
}
/** Return a function that makes elements: name, attributes, children. A string becomes a text
    node, so that no text of a reader is ever markup. */
function maker(namespace) {
  return (tag, attributes = {}, ...children) => {
    const element = document.createElementNS(namespace, tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") Object.assign(element.style, value);
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children.flat(Infinity).filter((it) => it !== undefined && it !== false));
    return element;
  };
}
const html = maker("http://www.w3.org/1999/xhtml"), svg = maker("http://www.w3.org/2000/svg");
/** Return trusted markup of stations.js as elements. */
const markup = (text) => document.createRange().createContextualFragment(text);
/** Return a token's text as a label, with spaces and line ends visible. */
function visible(text) {
  const shown = text.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/^\p{M}/u, "◌$&")
    .replace(/[\p{C}\p{Z}]/gu, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase()}⟩`);
  const all = [...shown], long = all.length > 17; // <|begin_of_text|> fits
  return (long ? [...all.slice(0, 10), "…", ...all.slice(-6)].join("") : shown) || "∅";
}
const is_calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const reveal = (element) => element.scrollIntoView({ block: "start",
  behavior: is_calm() ? "auto" : "smooth" });
/** Say how large a tied Llama is. */
function sizes_of(config) {
  const { n_layers, n_heads, n_kv_heads, vocab_size } = config;
  const parameters = [...tensor_shapes(config, true)].reduce((sum, [, shape]) =>
    sum + shape.reduce((a, b) => a * b), 0);
  return `${with_commas(parameters)} parameters, ${n_layers} layers, ${n_heads} query heads, ` +
    `${n_kv_heads} KV heads, a vocabulary of ${with_commas(vocab_size)} tokens`;
}
const with_commas = (n) => n.toLocaleString("en");
const count = (n, noun) => `${with_commas(n)} ${noun}${n === 1 ? "" : "s"}`;
/** Return a rounded number, with a minus sign that is as wide as a plus. */
const number = (x, digits = 2) => x.toFixed(digits).replace("-", "−");
const numbers = (x, n = 4, digits = 2) => Array.from(x.slice(0, n), (v) => number(v, digits)).join(", ");
/** Return a rounded probability that does not read 0, nor 1 unless it is. */
function probability(p) {
  if (p === 0 || p === 1 || p >= 0.005 && p <= 0.995) return p.toFixed(2);
  return p < 0.0001 ? "<0.0001" : p > 0.9999 ? ">0.9999" : p.toFixed(4);
}
const dot = (x, y) => x.reduce((sum, v, i) => sum + v * y[i], 0);
const length_of = (x) => Math.sqrt(dot(x, x));
const rms_of = (x) => length_of(x) / Math.sqrt(x.length);
const cosine = (x, y) => dot(x, y) / length_of(x) / length_of(y);
const minus = (x, y) => x.map((v, i) => v - y[i]);

// ---- pictures ----
/** Draw rows of numbers, one pixel for some columns each: orange is negative, blue positive, white
    is 0. Of the columns that share a pixel, the number farthest from 0 shows. */
function heat(rows, columns = 64, scale = 3 * Math.max(...rows.map(rms_of), 1e-9)) {
  const width = Math.min(columns, rows[0].length);
  return pixels(rows.length, width, (t, c) => {
    const row = rows[t], from = Math.floor(c * row.length / width);
    const to = Math.floor((c + 1) * row.length / width);
    let most = 0;
    for (let i = from; i < to; i++) if (Math.abs(row[i]) > Math.abs(most)) most = row[i];
    return blend(SIGNED, 0.5 + most / scale / 2);
  });
}
/** Return a picture of height × width pixels; colour(row, column) may be nothing: transparent. */
function pixels(height, width, colour) {
  const canvas = html("canvas", { width, height, "aria-hidden": "true" });
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let t = 0; t < height; t++) for (let c = 0; c < width; c++) {
    const found = colour(t, c);
    if (found) image.data.set([...found, 255], 4 * (t * width + c));
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
/** Return a table's cell with a picture of numbers in one row. */
const strip = (x, columns = 64, scale) => html("td", { class: "llama-strip" }, heat([x], columns, scale));
/** Return a cell with a number's text and a bar, of full width at `longest`; negative: leftwards. */
function bar(value, text, background, longest) {
  const width = `${Math.min(100, 100 * Math.abs(value) / longest)}%`;
  return html("td", {}, html("div", { class: "llama-bar" }, html("span", {}, text),
    html("span", { class: "llama-track" }, html("span", { class: "llama-fill",
      style: { width, background } }))));
}
/** Return a table. The first cell of a row is its heading; chosen: the row that is marked; spare:
    the columns that a narrow page leaves out. */
function table(caption, heads, rows, chosen = -1, spare = []) {
  const look = (i) => (spare.includes(i) ? "llama-spare" : undefined);
  const cell = (it, i) => {
    const made = it instanceof Element ? it : html("td", {}, it);
    if (look(i + 1)) made.classList.add(look(i + 1));
    return made;
  };
  return html("div", { class: "llama-table" }, html("p", {}, html("b", {}, caption)),
    html("div", { tabindex: 0, role: "group", "aria-label": caption }, html("table",
      { "aria-label": caption }, html("thead", {}, html("tr", {}, heads.map((it, i) =>
        html("th", { scope: "col", class: look(i) }, it)))),
      html("tbody", {}, rows.map(([first, ...rest], i) => html("tr",
        { class: i === chosen ? "llama-chosen" : undefined },
        html("th", { scope: "row" }, first), rest.map(cell)))))));
}
/** Return lines from keys (left) to the queries (right) that look at them; e: the explorer. */
function lines_of(e, shown, row_height, width) {
  const y = (i) => (i + 0.5) * row_height, weights = e.weights();
  return shown.flatMap((t, i) => shown.slice(0, i + 1).map((s, j) => {
    const weight = weights[t][s];
    if (weight < 0.02) return undefined;
    const path = `M 0 ${y(j)} C ${width / 2} ${y(j)}, ${width / 2} ${y(i)}, ${width} ${y(i)}`;
    return svg("path", { d: path, fill: "none", stroke: e.group_colour(),
      "stroke-width": 0.5 + 4 * weight, opacity: 0.15 + 0.85 * weight });
  }));
}
/** Draw T rows of weights, a pixel each; what the mask hides stays empty. */
const thumb = (rows) => pixels(rows.length, rows.length,
  (t, s) => (s <= t ? blend(AMOUNT, rows[t][s]) : undefined));
/** Return one head's map, with queries down and keys across. */
function large_map(rows, labels, chosen, stroke, name, choose) {
  const T = rows.length, margin = 124, cell = Math.min(480 / T, 46);
  const side = cell * T, every = Math.ceil(14 / cell), width = margin + side + 8; // every n-th label
  const square = { x: margin, y: 4, width: side, height: side };
  const parts = [svg("rect", { ...square, class: "llama-hidden" })];
  const write = (words, attributes) => parts.push(svg("text", attributes, words));
  rows.forEach((row, t) => row.forEach((weight, s) => {
    const x = margin + s * cell, y = 4 + t * cell, fill = `rgb(${blend(AMOUNT, weight)})`;
    parts.push(svg("rect", { x, y, width: cell, height: cell, fill }));
    if (cell >= 34) write(weight.toFixed(2), { x: x + cell / 2, y: y + cell / 2 + 4,
      "text-anchor": "middle", class: weight > 0.65 ? "llama-white" : "llama-black" });
  }));
  labels.forEach((label, i) => {
    const at = (i + 0.5) * cell;
    if (i % every) return;
    write(label, { x: margin - 6, y: at + 8, "text-anchor": "end" });
    write(label, { "text-anchor": "end",
      transform: `translate(${margin + at + 4} ${side + 16}) rotate(-60)` });
  });
  const frame = { fill: "none", stroke };
  const onclick = ({ offsetY, currentTarget: it }) => // the keyboard has the choice of a token
    choose(Math.floor((offsetY * (side + 128) / it.clientHeight - 4) / cell));
  return svg("svg", { class: "llama-large", viewBox: `0 0 ${width} ${side + 128}`, width, onclick,
    role: "img", "aria-label": `Attention weights of ${name}; the table has the chosen query's row in numbers.` },
  parts, svg("rect", { ...square, ...frame, "stroke-width": 3 }),
  svg("rect", { ...frame, x: margin, y: 4 + chosen * cell, width: side, height: cell,
    stroke: "#000", "stroke-width": 1.5 }));
}
/** Return an arrow from a plane's middle; turn: its angle in radians; r: its length. */
function arrow(turn, colour, r, width = 2.5) {
  const at = (angle, r) => [r * Math.cos(angle), -r * Math.sin(angle)];
  const [x2, y2] = at(turn, r - 4), points = [at(turn, r), at(turn + 0.16, r - 9),
    at(turn - 0.16, r - 9)].join(" ");
  return [svg("line", { x2, y2, stroke: colour, "stroke-width": width }),
    svg("polygon", { points, fill: colour })];
}

// ---- what the reader chose ----
// "next" are the ids that were drawn after the prompt; token -1 is the last.
const DEFAULTS = { prompt: examples[0], special: false, next: "", station: "attention", layer: 5, head: 6,
  token: -1, pair: 1, side: "attention", shift: 0, theta: 0, bars: 10, temperature: 0.7, top_k: 0,
  top_p: 0.9, seed: 0, most: 120 };
// The smallest and largest value of a setting, and the step between two.
const RANGES = { shift: [0, 400, 1], theta: [2, 1e7], bars: [3, 15, 1], temperature: [0, 3, 0.05],
  top_k: [0, 50, 1], top_p: [0.05, 1, 0.05], seed: [0, 2 ** 31 - 1, 1], most: [1, LONGEST, 1] };
const SAMPLING = ["temperature", "top_k", "top_p", "seed"]; // which choose the next token
const KEY = "llama-explorer";
/** Return a storage of this tab, or nothing where a page may have none. */
function storage() {
  try { return window.sessionStorage; } catch { return undefined; }
}
/** Return the settings: of the address, else those that this tab had before, else `own`. */
function read_settings(own) {
  let kept = {};
  try { kept = JSON.parse(storage()?.getItem(KEY) ?? "{}"); } catch { /* not ours */ }
  delete kept.station; // each page begins with its own
  const given = Object.fromEntries(new URLSearchParams(location.search)), found = { ...DEFAULTS };
  found.station = own.station ?? found.station;
  for (const from of [own, kept, given]) for (const name of Object.keys(DEFAULTS)) {
    const value = from[name], type = typeof DEFAULTS[name];
    if (value === undefined) continue;
    if (type === "number") found[name] = Number.isFinite(+value) ? +value : found[name];
    else found[name] = type === "boolean" ? String(value) === "true" : String(value);
  }
  return found;
}
/** Return the settings that differ from a page's own, as an address's end. */
function query_of(settings, own) {
  const changed = Object.entries(settings).filter(([name, value]) =>
    value !== (own[name] ?? DEFAULTS[name]));
  return changed.length ? `?${new URLSearchParams(changed)}` : "";
}

// ---- the explorer ----
class Explorer {
  constructor(section) {
    const { station } = section.dataset, own = station ? { station } : {};
    Object.assign(this, { section, own, turn: 0, walk: undefined, is_writing: false,
      settings: read_settings(own) });
    this.build();
    this.start();
    let { is_narrow } = this;
    new ResizeObserver(() => {
      if (is_narrow !== this.is_narrow) this.draw();
      ({ is_narrow } = this);
    }).observe(section);
  }

  // -- the page's elements --
  build() {
    const { section, settings } = this;
    const key = (name) => `${name}-${explorers.length}`; // ids are one page's
    this.field = html("input", { type: "text", spellcheck: "false", id: key("llama-prompt"),
      autocomplete: "off", oninput: () => this.type() });
    this.field.value = settings.prompt;
    this.play = html("button", { type: "submit" }, "Next token");
    this.step = html("button", { type: "button", class: "llama-plain", onclick: () => this.go(true) },
      "Step");
    this.write = html("button", { type: "button", class: "llama-plain",
      onclick: () => this.write_text() }, "Generate");
    this.reset = html("button", { type: "button", class: "llama-plain",
      onclick: () => this.set({ ...DEFAULTS, ...this.own, prompt: this.field.value }) }, "Reset");
    this.how = html("button", { type: "button", class: "llama-chip", onclick: (event) => this.open("sample", event) });
    const chips = examples.map((text) => html("button", { type: "button", class: "llama-chip",
      onclick: () => this.choose(text) }, text));
    const form = html("form", { class: "llama-form", novalidate: "",
      onsubmit: (event) => { event.preventDefault(); this.go(); } },
    html("label", { for: this.field.id }, "Prompt"), this.field,
    html("div", { class: "llama-buttons" }, this.play, this.step, this.write, this.reset, this.how),
    html("div", { class: "llama-buttons" }, html("span", {}, "Try"), chips));
    this.text = html("p", { class: "llama-text" });
    const intro = html("p", { class: "llama-intro" }, "“Step” shows, step by step, how the model computes " +
      "the next token. From “tokens” to the last +, a row is a token. Click a tile to open it.");
    const legend = html("p", { class: "llama-about" }, "Colours: a number is orange if negative, blue if " +
      "positive, and full at 3 times the RMS of the row; in a picture of several rows, at 3 times that of its largest " +
      "row. A cell of several numbers shows the one farthest from 0. In RoPE a query is blue, a key orange. Heads, and lines from key (left) to query, have the colour " +
      "of their KV head; weights under 0.02, or on a token that is not shown, have no line. The light blue line is the residual stream.");
    this.words = html("span", { role: "status" });
    this.progress = html("progress", { hidden: "", "aria-label": "loading the weights" });
    this.again = html("button", { type: "button", class: "llama-again", hidden: "", onclick: () => this.fetch_weights() });
    this.onward = html("button", { type: "button", hidden: "", onclick: () => (this.walk?.is_playing ? this.pause() : this.go(true)) });
    const up = html("button", { type: "button", class: "llama-plain llama-up",
      onclick: () => this.map.scrollIntoView({ block: "center" }) }, "↑ map");
    this.message = html("div", { class: "llama-message" }, this.text, this.onward, this.words,
      this.progress, this.again, up);
    this.map = html("div", { class: "llama-map", role: "tablist",
      "aria-label": "The model, in the order data flows", onkeydown: (event) => this.arrow(event) });
    this.choosers = html("div", { class: "llama-choosers", onchange: ({ target }) =>
      this.set({ [target.dataset.setting]: +target.value }) });
    this.panel = html("div", { class: "llama-station", role: "tabpanel", id: key("llama-station") });
    this.about = html("p", { class: "llama-about" });
    section.replaceChildren(form, intro, this.map, this.message, this.panel, legend, this.about);
  }
  /** Show a message; an error stays until the next run. */
  say(text, is_error = false) {
    this.words.textContent = text;
    this.message.classList.toggle("llama-error", is_error);
  }

  get is_narrow() { return this.section.clientWidth < 480; }

  // -- what is computed --
  get T() { return this.trace.ids.length; }
  get ids() {
    const { prompt, special, next } = this.settings;
    const added = next ? next.split(".").map(Number) : [];
    return { prompt: this.tokenizer.encode(prompt, { bos: true, special }), added };
  }
  /** Return the position that is looked at. */
  get t() {
    const { token } = this.settings;
    return token < 0 || token >= this.T ? this.T - 1 : token;
  }
  get layer() { return this.settings.layer; }
  get n_rep() { return this.config.n_heads / this.config.n_kv_heads; }
  group_colour(head = this.settings.head) {
    return GROUPS[Math.floor(head / this.n_rep) % GROUPS.length];
  }
  label(t) { return this.name(this.trace.ids[t]); }
  /** Return a token's label; of a token that is no whole character, its bytes. */
  name(id) {
    const text = this.tokenizer.decode([id]);
    return text.includes("\ufffd") ? `⟨bytes ${this.hex(id)}⟩` : visible(text);
  }
  hex(id) {
    const pair = (byte) => byte.toString(16).padStart(2, "0");
    return Array.from(this.tokenizer.decode_bytes(id), pair).join(" ");
  }
  rows(name, layer = this.layer, shown = this.shown) {
    return shown.map((t) => this.trace.row(name, layer, t));
  }
  heads(name, shown = this.shown) {
    return shown.map((t) => this.trace.head(name, this.layer, this.settings.head, t));
  }
  weights(head = this.settings.head, layer = this.layer) {
    return this.trace.attention(layer).weights[head];
  }
  /** Return what a sub-layer adds to the stream at a position (D). */
  added(side, t, layer = this.layer) {
    const [x, h] = [this.trace.row("x", layer, t), this.trace.row("h", layer, t)];
    return side === "attention" ? minus(h, x) : minus(this.trace.row("x", layer + 1, t), h);
  }
  /** Return the positions that are drawn: all, or the first and the last of a long text. */
  positions(most) {
    const all = Array.from({ length: this.T }, (_, t) => t);
    if (all.length <= most) return all;
    const first = this.t < all.length - most + 2 && this.t && most < 40 ? [0, this.t] : [0];
    return [...first, ...all.slice(first.length - most)];
  }
  get shown() { return this.positions(40); }
  /** Return a mark if positions before the i-th that is shown are not. */
  gap(i) { return i && this.shown[i] > this.shown[i - 1] + 1 ? "⋯ " : ""; }
  /** Return a row of a table for each position that is shown, up to a last one, and where the chosen
      position's is. A row in the gap says how many are not shown. */
  table_rows(row_of, last = Infinity, more = []) {
    const shown = this.shown.filter((t) => t <= last), gap = (shown[1] ?? 1) - 1;
    const rows = shown.map(row_of), at = shown.indexOf(this.t) + (gap > 0 && this.t > 0);
    if (gap > 0) rows.splice(1, 0, [`⋯ ${count(gap, "token")} not shown`, ...more]);
    return [rows, at];
  }

  // -- loading and running --
  async start() {
    const wish = () => this.fetch_weights();
    // in a frame that is not drawn again, Chromium may never be idle: then after a second
    const when_idle = () => window.requestIdleCallback?.(wish, { timeout: 1000 }) ?? setTimeout(wish);
    await this.attempt(async () => {
      await this.prepare();
      const { prompt, next, special } = this.settings, example = examples.indexOf(prompt);
      if (example < 0 || next || special) return;
      this.trace ??= await load_example(example);
      this.draw();
    });
    // the browser's wish to save data, and a reader who never comes here, cost no 13 MB
    if (navigator.connection?.saveData) this.offer("Load the model (13 MB)");
    else new IntersectionObserver((entries, observer) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      when_idle();
    }, { rootMargin: "100%" }).observe(this.section);
  }
  async prepare() {
    if (this.tokenizer) return;
    this.tokenizer = await load_tokenizer();
    this.config = this.tokenizer.params;
    this.check_settings();
    this.write_address();
  }
  /** Offer a button that loads the weights. */
  offer(words) {
    this.again.textContent = words;
    this.again.hidden = false;
  }
  async fetch_weights() {
    this.again.hidden = true;
    await this.attempt(async () => {
      const bar = this.progress;
      await this.prepare();
      this.llama ??= await load((bytes, all) => {
        bar.hidden = false;
        if (all) Object.assign(bar, { value: bytes, max: all }); // else it only moves
      });
      bar.hidden = true;
      await this.run();
    });
    this.progress.hidden = true;
  }
  /** Run what may fail; show why it failed. Returns whether it went well. */
  async attempt(task) {
    try {
      await task();
      return true;
    } catch (error) {
      const sorry = error instanceof UserError ? "" : "The page has an error; reload it. ";
      if (sorry) console.error(error);
      this.say(sorry + error.message, true);
      if (!this.llama) this.offer("Try again");
      return false;
    }
  }
  check_settings() {
    const { settings, config: { n_layers, n_heads, head_dim, rope_theta, vocab_size } } = this;
    DEFAULTS.theta = rope_theta;
    const ranges = { layer: [0, n_layers - 1, 1], head: [0, n_heads - 1, 1],
      pair: [0, head_dim / 2 - 1, 1], token: [-1, LONGEST - 1, 1], ...RANGES };
    for (const [name, [least, most, step]] of Object.entries(ranges)) {
      const value = settings[name], is_whole = step !== 1 || Number.isInteger(value);
      if (!(value >= least && value <= most && is_whole))
        settings[name] = Math.min(DEFAULTS[name], most);
    }
    if (!SIDES[settings.side]) settings.side = DEFAULTS.side;
    if (!VIEWS[settings.station]) settings.station = this.own.station ?? DEFAULTS.station;
    const ids = settings.next.split(".");
    if (settings.next && !ids.every((id) => /^\d+$/.test(id) && +id < vocab_size)) settings.next = "";
  }
  /** Compute the prompt's trace, then draw. A newer run makes this one stale. */
  async run() {
    const turn = ++this.turn, is_current = () => turn === this.turn && this.section.isConnected;
    const { prompt: text } = this.settings, size = [...text].length;
    await this.attempt(async () => {
      if (!text) throw new UserError("The prompt is empty. Type a word or more.");
      if (size > LONGEST_TEXT) throw new UserError(`The text has ${size} characters; this page ` +
        `takes at most ${LONGEST_TEXT}. Shorten it.`);
      await this.prepare();
      const { prompt, added } = this.ids;
      if (!this.llama) { this.llama = await load(); this.again.hidden = true; }
      if (!is_current()) return;
      if (!this.trace?.llama) this.trace = this.llama.trace();
      if (await this.trace.follow([...prompt, ...added], is_current) && is_current()) this.draw();
    });
  }
  type() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.set({}), 200);
  }
  async choose(text) {
    if (!this.llama) await this.attempt(async () => { // its numbers are smaller than the weights
      this.trace = await load_example(examples.indexOf(text));
    });
    this.set({ prompt: text, next: "" });
  }
  /** Change settings, keep them, and draw again what they change. */
  set(changes) {
    clearTimeout(this.timer);
    const typed = this.field.value; // perhaps a moment ago
    if (changes.prompt === undefined && typed !== this.settings.prompt)
      changes = { ...changes, prompt: typed, next: "" };
    const is_other_text = ["prompt", "special", "next"].some((name) =>
      name in changes && changes[name] !== this.settings[name]);
    if (is_other_text || SAMPLING.some((name) => name in changes)) this.end_walk();
    else if (this.walk) { // a look aside: the walk waits
      this.pause();
      this.walk.is_aside = true;
      Object.assign(this.walk.before, changes);
    }
    if (is_other_text && !("token" in changes)) changes.token = -1;
    Object.assign(this.settings, changes);
    if (typed !== this.settings.prompt) this.field.value = this.settings.prompt;
    try { storage()?.setItem(KEY, JSON.stringify({ ...this.settings, shift: 0 })); } catch { /* full or forbidden */ }
    this.write_address();
    const { prompt, next, special } = this.settings, { trace } = this;
    const is_example = trace && !trace.llama && !next && !special
      && String(trace.ids) === String(this.tokenizer.encode(prompt, { bos: true }));
    if (is_other_text && !is_example || !prompt) this.run();
    else this.draw();
  }

  /** Return the tensors outside the blocks, then those of the shown layer, with the 1B's shapes. */
  tensors() {
    const there = Object.fromEntries(tensor_shapes(LARGE, true));
    return [...tensor_shapes(this.config, true)].filter(([name]) =>
      !name.startsWith("layers.") || name.startsWith(`layers.${this.layer}.`)).map(([name, shape]) =>
      ({ name, shape, large: there[name] }));
  }

  /** Write what was chosen into the address, so that it can be shared. */
  write_address() {
    clearTimeout(this.address);
    this.address = setTimeout(() => {
      const end = query_of(this.settings, this.own);
      try { history.replaceState(null, "", location.pathname + end + location.hash); } catch { /* srcdoc */ }
    }, 300); // browsers refuse many changes at once
  }

  // -- drawing --
  draw() {
    if (!this.trace) return;
    const { added } = this.ids, words = this.tokenizer.decode(added);
    this.text.replaceChildren(html("span", { class: "llama-prompt" }, this.settings.prompt),
      html("span", { class: "llama-new" }, words));
    this.text.hidden = !added.length && !this.is_writing;
    const { temperature, top_k, top_p } = this.settings, k = top_k ? `, top-k ${top_k}` : "";
    this.how.textContent = temperature ? `τ ${temperature}${k}, top-p ${top_p}` : "greedy";
    this.how.setAttribute("aria-label", `sampling settings: ${this.how.textContent}`);
    this.draw_map();
    this.draw_station();
    this.draw_choosers();
    this.about.textContent = `Pocket Llama: ${sizes_of(this.config)}. This browser computes it. ` +
      `Llama 3.2-1B: ${sizes_of(LARGE)}.`;
  }
  /** Draw the map: a tile for each station, with a row for each position. */
  draw_map() {
    const shown = this.positions(12), { settings } = this;
    const height = this.is_narrow ? 14 : Math.max(16, Math.min(24, 168 / shown.length));
    const make = ([key, id = key]) => this.tile(key, id, shown, height);
    const block = html("div", { class: "llama-block", role: "presentation" },
      html("p", {}, `transformer block: layer ${settings.layer} of 0 to ${this.config.n_layers - 1}`), BLOCK.map(make));
    const focused = document.activeElement?.dataset?.tile;
    this.map.style.setProperty("--llama-rows", `${height * shown.length}px`);
    const after = html("div", { class: "llama-after", role: "presentation" }, AFTER.map(make));
    this.map.replaceChildren(...BEFORE.map(make), block, after);
    if (focused) this.map.querySelector(`[data-tile="${focused}"]`)?.focus({ preventScroll: true });
    this.mark_walk();
  }
  tile(key, id, shown, height) {
    const station = stations.find((it) => it.key === key), is_open = this.is_open(id);
    const { width, picture } = TILES[id](this, shown, height);
    return html("button", { type: "button", role: "tab", "data-tile": id, class: "llama-tile",
      "aria-selected": String(is_open), "aria-controls": this.panel.id, tabindex: is_open ? 0 : -1,
      onclick: (event) => this.open(id, event),
      style: { width: `${(this.is_narrow && width < 80 ? 0.75 * width : width) + 10}px` } },
    html("span", { class: "llama-name" }, LABELS[id] ?? station.label), picture);
  }
  /** Return whether a tile's station is open; some stations have a tile for each side of a block. */
  is_open(id) {
    const { station, side } = this.settings;
    return id === (SIDED[station]?.[side] ?? station);
  }
  /** Open a tile's station. If a finger or the mouse did it, bring it into sight. */
  open(id, { detail } = {}) {
    this.set(this.station_of(id));
    if (detail && this.panel.getBoundingClientRect().top > 0.8 * innerHeight) reveal(this.panel);
  }
  /** Return the settings of a tile's station; "block" is none. */
  station_of(id) {
    for (const [station, sides] of Object.entries(SIDED))
      for (const [side, tile] of Object.entries(sides)) if (tile === id) return { station, side };
    return VIEWS[id] ? { station: id } : {};
  }
  /** Move from tile to tile by the arrow keys. */
  arrow(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const tiles = [...this.map.querySelectorAll("[role=tab]")];
    const at = tiles.indexOf(document.activeElement);
    const to = { Home: 0, End: tiles.length - 1 }[event.key] ?? at + step;
    if (at < 0 || !tiles[to]) return;
    event.preventDefault();
    tiles[to].focus();
    tiles[to].click();
  }
  /** Draw the choices of layer, head and token that the station has. */
  draw_choosers() {
    const { config: { n_layers: L, n_heads: H }, settings, t } = this;
    const group = (name, legend, options, chosen) => html("fieldset", {}, html("legend", {}, legend),
      options.map(([value, label, style]) => {
        const input = html("input", { type: "radio", name: `${name}-${this.panel.id}`, value,
          "data-setting": name });
        input.checked = value === chosen;
        return html("label", { style }, input, html("span", {}, label));
      }));
    const n = (n) => Array.from({ length: n }, (_, i) => i);
    const focused = document.activeElement?.dataset?.setting;
    const head = (h) => [h, h, { borderBottom: `4px solid ${this.group_colour(h)}` }];
    const all = {
      layer: () => group("layer", "layer", n(L).map((l) => [l, l]), settings.layer),
      head: () => group("head", "query head (one colour: one KV head)", n(H).map(head), settings.head),
      token: () => group("token", "token", this.shown.map((t, i) => [t, this.gap(i) + this.label(t)]), t) };
    this.choosers.replaceChildren(...VIEWS[settings.station].choose.map((name) => all[name]()));
    if (focused) this.choosers.querySelector(`[data-setting=${focused}]:checked`)?.focus({ preventScroll: true });
  }
  draw_station() {
    const { station: key } = this.settings, station = stations.find((it) => it.key === key);
    if (this.panel.dataset.station !== key) this.open_station(key, station);
    for (const control of this.panel.querySelectorAll("[name]")) {
      const value = this.settings[control.name];
      if (control.type === "checkbox") control.checked = value;
      else if (control !== document.activeElement) control.value = value;
      if (control.nextElementSibling?.matches("output")) control.nextElementSibling.value = value;
    }
    if (ROOT) this.panel.querySelector(".llama-notebook").href = this.notebook(station);
    this.panel.querySelector(".llama-shapes").replaceChildren(this.shapes(station));
    const focused = document.activeElement?.dataset?.key;
    const { parts, said } = VIEWS[key].draw(this);
    this.out.replaceChildren(...parts.filter(Boolean));
    if (focused) this.out.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
    if (!this.walk && !this.is_writing) this.say(this.news ?? said);
    this.news = undefined;
    if (this.walk?.is_aside) this.say(`${said} The walk waits at step ${this.walk.at + 1}.`);
    this.name_buttons();
    this.text.scrollTop = this.text.scrollHeight; // its end is new
  }
  /** Return a notebook's address, with what the reader chose. */
  notebook({ file }) {
    const page = file.replace(".ipynb", ".html") + query_of(this.settings, { station: this.settings.station });
    return new URL(page, ROOT);
  }
  open_station(key, station) {
    this.out = html("div", { class: "llama-out" });
    const code = html("pre", { class: "highlight", tabindex: 0 }, html("code", {}, markup(station.code)));
    this.panel.dataset.station = key;
    this.panel.setAttribute("aria-label", station.title);
    this.panel.replaceChildren(html("h3", {}, station.title), html("p", {}, station.text),
      this.choosers, html("div", { class: "llama-controls" }, VIEWS[key].controls?.(this) ?? []),
      html("div", { class: "llama-two" }, this.out, html("aside", {},
        html("p", { class: "llama-formula" }, markup(station.formula)), code,
        html("p", { class: "llama-source" }, `from llamalib/${station.source}`),
        html("div", { class: "llama-shapes" }),
        html("p", {}, html("a", { class: "llama-notebook" }, `Notebook ${station.notebook}`),
          " explains and computes it. ", ROOT ? html("a", { href: new URL("glossary.html", ROOT) },
            "Glossary") : ""))));
  }
  /** Return the shapes of this text in the pocket Llama, with the 1B's. */
  shapes({ shapes }) {
    const c = this.config, here = { T: this.T, D: c.dim, L: c.n_layers, H: c.n_heads, V: c.vocab_size,
      KV: c.n_kv_heads, hd: c.head_dim, F: c.hidden_dim };
    const size = (word, sizes) => word.split("·").reduce((product, part) => {
      const [letter, divisor = 1] = part.split("/");
      return product * (letter === "L+1" ? sizes.L + 1 : sizes[letter] ?? +letter) / divisor;
    }, 1);
    const fill = (letters, sizes) =>
      `(${letters.split(", ").map((word) => with_commas(size(word, sizes))).join(", ")})`;
    return table("Shapes (T tokens, D model dim, H query heads, KV key/value heads, hd head dim, F hidden " +
      "dim, V vocabulary, L layers)", ["what", "letters", "here", "the 1B, for this T"], shapes.map(([what, letters]) =>
      [what, `(${letters})`, fill(letters, here), fill(letters, { ...large, T: this.T })]));
  }

  // -- the walk of one token through the model --
  /** Return the steps: a tile, a layer, what is said, how long it stays. */
  steps() {
    const { trace, config: { n_layers: L, dim: D, n_heads: H, n_kv_heads: KV, hidden_dim: F } } = this;
    const last = this.T - 1, name = `“${this.label(last)}”`, steps = [];
    const add = (tile, said, layer = 0, pace = 1) => steps.push({ tile, said, layer, pace });
    const best = (layer) => {
      const [[id, p] = []] = this.lens(layer, last);
      return id === undefined ? "" : `“${this.name(id)}” (${probability(p)})`;
    };
    add("tokens", `The text becomes ${count(last, "token")} with an id each, after <|begin_of_text|>.`);
    add("embed", `Each id selects its row of the embedding matrix: ${D} numbers for ${name}.`);
    add("norm 1", "Layer 0. RMSNorm divides every vector by its RMS, then multiplies by γ.");
    add("qkv", `Three matrices make ${H} queries, ${KV} keys and ${KV} values for each token.`);
    add("rope", "RoPE rotates queries and keys by angles proportional to the token's position.");
    const { head } = this.settings, row = trace.attention(0).weights[head][last];
    const most = ranked(row)[0];
    add("attention", `Layer 0, head ${head}: ${name} attends most to “${this.label(most)}”, with weight ` +
      `${probability(row[most])}.`);
    add("values", "Each head's output is the sum of the values, weighted by attention.");
    add("plus 1", "The heads' outputs are concatenated, projected by wo, and added to the stream.");
    add("norm 2", "A second RMSNorm, before the feed-forward network.");
    const products = trace.product(0, last), top = ranked(products.map(Math.abs))[0];
    add("swiglu", `SwiGLU: of ${with_commas(F)} neurons, neuron ${top} has the largest product of gate and up, in absolute value.`);
    add("plus 2", `w2 projects the products to ${D} numbers, which are added to the stream. The final norm and the LM head would now ` +
      `predict ${best(1)}: the logit lens.`);
    for (let l = 1; l < L; l++)
      add("block", `Layer ${l}: the same steps with other weights. Logit lens: ${best(l + 1)}.`, l, 0.5);
    add("stream", `The vector has passed through ${L} layers. The model itself reads only what comes out.`, L - 1);
    add("logits", `The final norm, then ${with_commas(this.config.vocab_size)} dot products, give the logits. The most likely next ` +
      `token is ${best(L)}.`, L - 1);
    return steps;
  }
  /** Play the next token's way, or one step of it; stop or go on if it was begun. */
  async go(one_step = false) {
    one_step ||= is_calm();
    if (this.walk?.is_playing) {
      this.pause();
      if (!one_step) return undefined;
    }
    if (this.is_writing || !await this.is_ready()) return undefined;
    this.walk ??= this.begin_walk();
    if (this.map.getBoundingClientRect().bottom > innerHeight - 60) reveal(this.map);
    if (one_step) return this.advance();
    this.walk.is_playing = true;
    return this.advance();
  }
  begin_walk() {
    const { temperature, top_k, top_p, seed } = this.settings, { added } = this.ids;
    const random = generator(seed);
    added.forEach(random); // one number for each token that was drawn
    const logits = this.trace.logits(this.T - 1);
    const id = pick(logits, random, { temperature, top_k: top_k || null, top_p });
    const steps = this.steps(), label = `“${this.name(id)}”`;
    const how = temperature ? `sampled (temperature ${temperature}${top_k ? `, top-k ${top_k}` : ""}, top-p ${top_p})`
      : "the most likely one (greedy decoding)";
    steps.push({ tile: "sample", layer: this.config.n_layers - 1, pace: 1, said: `${label} is ${how}.` });
    const stops = this.tokenizer.stop_tokens.has(id);
    steps.push({ tile: "text", layer: this.config.n_layers - 1, pace: 1, said: stops
      ? `${label} is a stop token: the text ends.` : `${label} is appended, and the model runs again.` });
    const { layer, station, side, token } = this.settings; // which the walk changes
    return { at: -1, steps, id: stops ? undefined : id, before: { layer, station, side, token } };
  }
  advance() {
    const { walk } = this;
    clearTimeout(this.pacer);
    if (++walk.at >= walk.steps.length) return this.arrive();
    const step = walk.steps[walk.at];
    walk.is_aside = false;
    Object.assign(this.settings, { layer: step.layer, token: -1 }, this.station_of(step.tile));
    this.draw();
    this.say(`${walk.at + 1} of ${walk.steps.length}. ${step.said}`);
    const first = this.has_walked ? 0.4 : 1; // once seen, it may be faster
    if (walk.is_playing) this.pacer = setTimeout(() => this.advance(), 1700 * step.pace * first);
    return undefined;
  }
  pause() {
    clearTimeout(this.pacer);
    this.walk.is_playing = false;
    this.name_buttons();
  }
  name_buttons() {
    const { walk } = this;
    this.play.textContent = walk?.is_playing ? "Stop" : walk ? "Continue" : "Next token";
    this.onward.textContent = walk?.is_playing ? "Stop" : "Next step";
    this.onward.hidden = !walk;
  }
  /** Append the walk's token: the text begins again, one token longer. */
  arrive() {
    const { id } = this.walk, { next } = this.settings;
    this.has_walked = true;
    this.end_walk();
    if (id === undefined) { this.draw(); this.say("The model drew a stop token: the text ends."); return; }
    if (this.T === LONGEST) { this.draw(); this.say(`This page holds ${LONGEST} tokens.`); return; }
    this.news = `That was one token. The text ends with “${this.name(id)}”, and the tiles show what follows.`;
    this.set({ next: next ? `${next}.${id}` : String(id) });
  }
  end_walk() {
    clearTimeout(this.pacer);
    Object.assign(this.settings, this.walk?.before);
    this.walk = undefined;
    this.name_buttons();
    this.mark_walk();
  }
  /** Show where the walk is: what lies ahead is pale. */
  mark_walk() {
    const tiles = [...this.map.querySelectorAll("[role=tab]")], { walk } = this;
    const step = walk?.steps[walk.at];
    const at = tiles.findIndex((tile) => tile.dataset.tile === step?.tile);
    const block = tiles.filter((tile) => tile.closest(".llama-block"));
    tiles.forEach((tile, i) => {
      const is_now = step && (i === at || step.tile === "block" && block.includes(tile));
      tile.classList.toggle("llama-now", Boolean(is_now));
      tile.classList.toggle("llama-ahead", Boolean(step) && !is_now && (at >= 0 ? i > at
        : i > tiles.indexOf(block.at(-1))));
    });
  }
  /** Return whether the weights are here; wait for them if they are on their way. */
  async is_ready() {
    if (this.field.value !== this.settings.prompt) this.set({});
    if (!this.llama) await this.fetch_weights();
    else await this.run();
    return this.llama && !this.message.classList.contains("llama-error");
  }
  /** Return the three most likely next tokens, [id, probability], if the model stopped before a
      layer; L: after the last. */
  lens(layer, t) {
    const logits = this.trace.logits(t, layer);
    if (!logits) return this.trace.said?.(layer, t) ?? [];
    const probs = softmax(logits.slice());
    return ranked(probs).slice(0, 3).map((id) => [id, probs[id]]);
  }
  /** Continue the text by many tokens, as they come; again: stop. */
  async write_text() {
    if (this.is_writing) { this.is_stopped = true; return; }
    this.end_walk();
    if (!await this.is_ready()) return;
    const { temperature, top_k, top_p, seed, most } = this.settings, { prompt, added } = this.ids;
    const ids = [...prompt, ...added], how = { temperature, top_k: top_k || null, top_p };
    const begin = performance.now();
    Object.assign(this, { is_writing: true, is_stopped: false });
    this.write.textContent = "Stop";
    this.say("Generating …");
    let n = 0, first = 0;
    const { turn } = this; // another prompt makes this text a stale one
    await this.attempt(async () => {
      const random = generator(seed);
      added.forEach(random);
      const goes_on = () => !this.is_stopped && turn === this.turn;
      for await (const id of this.llama.generate(ids, { max_new_tokens: most, random, goes_on, ...how })) {
        if (!goes_on()) break;
        if (!n++) first = performance.now() - begin;
        this.text.hidden = false;
        added.push(id);
        this.text.lastChild.textContent = this.tokenizer.decode(added);
      }
    });
    const speed = Math.round(1000 * (n - 1) / (performance.now() - begin - first));
    const why = this.is_stopped ? "you stopped it" : n === most ? `the limit of ${most} new tokens`
      : prompt.length + added.length >= LONGEST ? `this page holds ${LONGEST} positions`
        : "the model drew a stop token";
    this.is_writing = false;
    this.write.textContent = "Generate";
    if (turn !== this.turn) { this.draw(); return; }
    this.settings.next = ""; // so that the same ids count as a change
    this.set({ next: added.join(".") });
    await this.run();
    this.say(`Generation ended: ${why}. ${count(n, "new token")}` + (n > 1 ? `, the first after ` +
      `${Math.round(first)} ms, then ${speed} a second in this browser.` : "."));
  }
}

// ---- the map's tiles: a picture with a row for each position that is shown ----
const BEFORE = [["weights"], ["tokens"], ["embed"]];
const BLOCK = [["norm", "norm 1"], ["qkv"], ["rope"], ["attention"], ["values"],
  ["residual", "plus 1"], ["norm", "norm 2"], ["swiglu"], ["residual", "plus 2"]];
const AFTER = [["stream"], ["logits"], ["sample"], ["text"]];
// Stations with two tiles in a block: of attention, and of the feed-forward network.
const SIDED = { norm: { attention: "norm 1", ffn: "norm 2" },
  residual: { attention: "plus 1", ffn: "plus 2" } };
const SIDES = { attention: "attention", ffn: "the feed-forward network" };
const LABELS = { "plus 1": "+", "plus 2": "+", stream: "all layers", logits: "LM head" };
const vectors = (width, rows_of) => (e, shown) => ({ width, picture: heat(rows_of(e, shown), 32) });
/** Return an SVG picture of a tile. */
const drawing = (width, height, ...parts) => ({ width, picture: svg("svg",
  { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, parts) });
/** Return a tile with rows of a token and a bar: [id, probability, what stands before it]. */
function bars_of(e, rows, height, width = 150) {
  const step = Math.min(24, height / rows.length);
  return drawing(width, height, rows.map(([id, p, before], i) => [
    svg("rect", { x: width - 64, y: i * step + 3, height: Math.max(step - 6, 4),
      fill: COLOURS.probability, width: Math.max(1, 62 * p) }),
    svg("text", { x: width - 69, y: (i + 0.5) * step + 4, "text-anchor": "end" },
      short(e.name(id), 12)),
    before !== undefined && svg("text", { x: 2, y: (i + 0.5) * step + 4 }, before)]));
}
/** Return the most likely tokens of a distribution, as many as have room. */
const likely = (probs, height) => ranked(probs).slice(0, Math.max(3, Math.min(6, Math.floor(height / 16))))
  .filter((id) => probs[id] > 0).map((id) => [id, probs[id]]);
const short = (label, most) => {
  const all = [...label];
  return all.length > most ? `${all.slice(0, most - 1).join("")}…` : label;
};
const TILES = {
  weights(e, shown, height) {
    const all = height * shown.length, step = all / 9, tensors = e.tensors().slice(2);
    return drawing(60, all, tensors.map(({ shape }, i) => svg("rect", { x: 2, y: i * step + 2,
      width: Math.max(3, 56 * Math.sqrt(shape.reduce((a, b) => a * b)) / 512), height: step - 4,
      fill: COLOURS.other })));
  },
  tokens(e, shown, height) {
    return drawing(118, height * shown.length, shown.map((t, i) => {
      const y = (i + 0.5) * height + 4, weight = t === e.t ? "bold" : "normal";
      return [svg("rect", { y: i * height + 1, width: 118, height: height - 2, rx: 3,
        class: t % 2 ? "llama-odd" : "llama-even" }),
      svg("text", { x: 5, y, "font-weight": weight, class: "llama-black" }, short(e.label(t), 10)),
      svg("text", { x: 114, y, "text-anchor": "end", class: "llama-black" }, e.trace.ids[t]),
      t > shown[i - 1] + 1 && svg("line", { x2: 118, y1: y - 4 - height / 2, y2: y - 4 - height / 2,
        stroke: "currentColor", "stroke-dasharray": "3 3" })];
    }));
  },
  embed: vectors(64, (e, shown) => e.rows("x", 0, shown)),
  "norm 1": vectors(58, (e, shown) => e.rows("attention_norm", e.layer, shown)),
  qkv(e, shown) {
    const parts = ["q", "k", "v"].map((name) => e.heads(name, shown));
    return { width: 84, picture: html("span", { class: "llama-three" }, parts.map((rows, i) =>
      html("span", { style: { borderColor: Object.values(COLOURS)[i] } }, heat(rows, 12)))) };
  },
  rope(e, shown, height) {
    const r = Math.min(11, height / 2 - 1), { pair } = e.settings;
    return drawing(64, height * shown.length, shown.flatMap((t, i) => ["q", "k"].map((name, c) => {
      const turn = (x) => Math.atan2(x[2 * pair + 1], x[2 * pair]);
      const [before, after] = [name, `x${name}`].map((it) =>
        turn(e.trace.head(it, e.layer, e.settings.head, t)));
      const hand = (angle, stroke, width) => svg("line", { x2: r * Math.cos(angle),
        y2: -r * Math.sin(angle), stroke, "stroke-width": width });
      return svg("g", { transform: `translate(${17 + 30 * c} ${(i + 0.5) * height})` },
        svg("circle", { r, fill: "none", class: "llama-axis" }), hand(before, COLOURS.other, 1.5),
        hand(after, c ? COLOURS.key : COLOURS.query, 2.5));
    })));
  },
  attention: (e, shown, height) => drawing(84, height * shown.length,
    lines_of(e, shown, height, 84)),
  values: vectors(58, (e, shown) => {
    const { head_dim: hd } = e.config, { head } = e.settings, { heads } = e.trace.attention(e.layer);
    return shown.map((t) => heads[t].subarray(head * hd, (head + 1) * hd));
  }),
  "plus 1": vectors(38, (e, shown) => e.rows("h", e.layer, shown)),
  "norm 2": vectors(58, (e, shown) => e.rows("ffn_norm", e.layer, shown)),
  swiglu: vectors(64, (e, shown) => shown.map((t) => e.trace.product(e.layer, t))),
  "plus 2": vectors(38, (e, shown) => e.rows("x", e.layer + 1, shown)),
  stream(e, shown, height) {
    const layers = Array.from({ length: e.config.n_layers + 1 }, (_, l) => l);
    return bars_of(e, layers.map((l) => [...e.lens(l, e.t)[0], l ? `layer ${l - 1}` : "start"]),
      height * shown.length, 215);
  },
  logits: (e, shown, height) => bars_of(e, likely(next_token_probs(e.trace.logits(e.t)),
    height * shown.length), height * shown.length),
  sample(e, shown, height) {
    const { temperature, top_k, top_p } = e.settings, all = height * shown.length;
    const cut = cut_logits(e.trace.logits(e.t), temperature, top_k || null, top_p);
    return bars_of(e, likely(softmax(cut), all), all);
  },
  text(e) {
    const cut = e.T > 61 ? "… " : "", ids = e.trace.ids.slice(Math.max(1, e.T - 60));
    if (e.walk?.at === e.walk?.steps.length - 1 && e.walk?.id !== undefined) ids.push(e.walk.id);
    return { width: 150, picture: html("span", { class: "llama-end" }, `↺ ${cut}${e.tokenizer.decode(ids)}`) };
  },
};

// ---- the stations: controls, and draw(explorer) → { parts, said } ----
// A control is a label around an input that has a setting's name.
function control(e, name, label, tag, attributes = {}, ...children) {
  const oninput = ({ target: it }) => {
    const is_number = typeof DEFAULTS[name] === "number", [least, most] = RANGES[name] ?? [];
    const value = it.type === "checkbox" ? it.checked : is_number ? Number(it.value || NaN) : it.value;
    if (is_number && !(value >= (least ?? 0) && value <= (most ?? Infinity) && it.validity.valid))
      e.say(`${label}: expected a number from ${least} to ${with_commas(most)}.`, true);
    else e.set({ [name]: value });
  };
  return html("label", { class: "llama-field" }, html("span", {}, label),
    html(tag, { name, oninput, ...attributes }, ...children));
}
function slider(e, name, label) {
  const [min, max, step] = RANGES[name];
  const field = control(e, name, label, "input", { type: "range", min, max, step });
  field.append(html("output", { "aria-hidden": "true" })); // a range says its value
  return field;
}
const number_field = (e, name, label) => control(e, name, label, "input",
  { type: "number", min: RANGES[name][0], max: RANGES[name][1] });
const choice = (e, name, label, options) => control(e, name, label, "select", {}, ...options.map(([value, text]) => html("option", { value }, text)));
const sampling_controls = (e) => [
  slider(e, "temperature", "temperature τ (0: greedy)"),
  slider(e, "top_k", "top-k (0: every token)"),
  slider(e, "top_p", "top-p (1: off)"),
  number_field(e, "seed", "seed of the draws"),
];
const side_choice = (e) => [choice(e, "side", "sub-layer", Object.entries(SIDES))];
const SCALE = "orange: negative, blue: positive";
const VIEWS = {
  weights: {
    choose: ["layer"],
    draw(e) {
      const tensors = e.tensors(), all = (key) => tensors.map((it) => it[key].reduce((a, b) => a * b));
      const here = all("shape"), there = all("large"), { w } = e.llama ?? {};
      const rows = tensors.map(({ name, shape, large }, i) => [name,
        shape.map(with_commas).join(" × "), large.map(with_commas).join(" × "), with_commas(here[i]),
        w ? number(rms_of(w[name]), 3) : "…",
        w ? strip(w[name].subarray(0, 48), 48) : html("td", {})]);
      return { parts: [table(`Tensors outside the blocks, then those of layer ${e.layer}; ${SCALE}`,
        ["name", "shape here", "in the 1B", "parameters here", "RMS", "the first 48"], rows, -1, [3, 4, 5])],
      said: `A block has ${with_commas(sum(here.slice(2)))} numbers here, ` +
        `${with_commas(sum(there.slice(2)))} in the 1B.` };
    },
  },
  tokens: {
    choose: ["token"],
    controls: (e) => [control(e, "special", "parse special tokens, such as <|eot_id|>", "input",
      { type: "checkbox" })],
    draw(e) {
      const { ids } = e.trace, { tokenizer } = e, most = 300, text = tokenizer.decode(ids.slice(1));
      const boxes = ids.slice(0, most).map((id, t) => {
        const is_special = id >= tokenizer.ranks.size;
        const look = [is_special && "llama-control", t === e.t && "llama-chosen"];
        return html("li", { class: look.filter(Boolean).join(" ") },
          html("b", {}, e.label(t)), html("span", {}, id),
          html("span", {}, is_special ? "special" : e.hex(id)));
      });
      const note = ids.length > most ? ` The first ${most} are shown.` : "";
      return { parts: [html("ol", { class: "llama-tokens", "aria-label": "tokens" }, boxes),
        html("p", {}, "Each box: a token, its id, its bytes. ␣ is a space, ⏎ a line end. A token that is only part " +
          "of a character shows its bytes in hexadecimal.")],
      said: `${count([...text].length, "character")}, ${count(utf8_of(text).length, "byte")}, ` +
        `${count(ids.length, "token")} with <|begin_of_text|>.${note}` };
    },
  },
  embed: {
    choose: ["token"],
    draw(e) {
      const [rows, at] = e.table_rows((t) => {
        const x = e.trace.row("x", 0, t);
        return [e.label(t), e.trace.ids[t], strip(x), numbers(x, 3), number(length_of(x))];
      });
      const [name, x] = [e.label(e.t), e.trace.row("x", 0, e.t)], { dim: D } = e.config;
      const parts = [table(`The embedding of each token; ${SCALE}`,
        ["token", "id", `its ${D} numbers`, "the first 3", "length"], rows, at, [3])];
      let nearest = [];
      if (e.llama) {
        const matrix = e.llama.w["tok_embeddings.weight"], V = e.config.vocab_size;
        const near = Float32Array.from({ length: V }, (_, id) =>
          cosine(matrix.subarray(id * D, (id + 1) * D), x) || 0);
        near[e.trace.ids[e.t]] = -1;
        nearest = ranked(near).slice(0, 6);
        parts.push(table(`The nearest tokens of “${name}”, and the nearest of ${with_commas(V)} random vectors`,
          ["token", "id", "cosine", "at random"], nearest.map((id, i) =>
            [e.name(id), id, bar(near[id], number(near[id]), COLOURS.token, 1), number(at_random.nearest[i])])));
      }
      return { parts, said: nearest.length
        ? `The token nearest to “${name}”: “${e.name(nearest[0])}”.`
        : `“${name}” is row ${e.trace.ids[e.t]} of the embedding matrix.` };
    },
  },
  norm: {
    choose: ["layer", "token"],
    controls: side_choice,
    draw(e) {
      const { side } = e.settings, [name, y] = { attention: ["x", "attention_norm"],
        ffn: ["h", "ffn_norm"] }[side];
      const largest = Math.max(...e.rows(name).map(rms_of)), { norm_eps } = e.config;
      const [rows, at] = e.table_rows((t) => {
        const [x, after] = [e.trace.row(name, e.layer, t), e.trace.row(y, e.layer, t)];
        const plain = x.map((v) => v / Math.sqrt(rms_of(x) ** 2 + norm_eps));
        return [e.label(t), strip(x, 40, 3 * largest), number(rms_of(x), 3), strip(plain, 40, 3),
          number(rms_of(plain), 3), number(rms_of(after), 3)];
      });
      return { parts: [table(`Layer ${e.layer}, the norm before ${SIDES[side]}; ${SCALE}`,
        ["token", "x", "RMS of x", "x / √(RMS² + ε)", "new RMS", "RMS after γ"], rows, at, [1])],
      said: `“${e.label(e.t)}”: its RMS is ${rows[at][2]}, and ${rows[at][4]} after the division.` };
    },
  },
  qkv: {
    choose: ["layer", "head", "token"],
    draw(e) {
      const { head } = e.settings, group = Math.floor(head / e.n_rep), { head_dim: hd } = e.config;
      const cells = (name, t) => strip(e.trace.head(name, e.layer, head, t), 32);
      const names = { q: "query", k: "key", v: "value" };
      const [rows, at] = e.table_rows((t) => [e.label(t), ...Object.keys(names).map((n) => cells(n, t))]);
      const own = Object.entries(names).map(([name, word]) => {
        const x = e.trace.head(name, e.layer, head, e.t);
        return [word, numbers(x, 6), number(length_of(x))];
      });
      const from = group * e.n_rep;
      return { parts: [
        table(`Layer ${e.layer}, head ${head}, before RoPE; ${SCALE}`, ["token", `query of head ${head}`,
          `key of KV head ${group}`, `value of KV head ${group}`], rows, at),
        table(`“${e.label(e.t)}” in numbers, the first 6 of ${hd}`, ["what", "numbers", "length"], own)],
      said: `Query heads ${from} to ${from + e.n_rep - 1} share KV head ${group}. So the KV cache has 1/${e.n_rep} of ` +
        "the size that a KV head for each query head would need." };
    },
  },
  rope: {
    choose: ["layer", "head", "token"],
    controls: (e) => [
      choice(e, "pair", "pair k", Array.from({ length: e.config.head_dim / 2 }, (_, k) => [k, k])),
      slider(e, "shift", "move the whole text by (positions)"), number_field(e, "theta", "base θ (in this panel)")],
    draw(e) {
      const { pair, shift, theta, head } = e.settings, { head_dim: hd } = e.config, { t } = e;
      const freqs = rope_frequencies({ ...e.config, rope_theta: theta }), freq = freqs[pair];
      const angles = precompute_freqs_cis(freqs, shift + e.T);
      const turned = (name, t, by) => {
        const x = e.trace.head(name, e.layer, head, t).slice();
        apply_rotary_emb(x, angles, by + t, 1, hd);
        return x;
      };
      const of_pair = (x) => x.slice(2 * pair, 2 * pair + 2), turn = (x) => Math.atan2(x[1], x[0]);
      const plane = (t) => svg("g", {}, svg("circle", { r: 40, fill: "none", class: "llama-axis" }),
        svg("line", { x1: -44, x2: 44, class: "llama-axis" }),
        svg("line", { y1: -44, y2: 44, class: "llama-axis" }),
        ["q", "k"].map((name, i) => [
          arrow(turn(of_pair(e.trace.head(name, e.layer, head, t))), COLOURS.other, i ? 27 : 38, 1.5),
          arrow(turn(of_pair(turned(name, t, shift))), i ? COLOURS.key : COLOURS.query, i ? 27 : 38)]));
      const planes = e.positions(12).map((t) => html("figure",
        { class: t === e.t ? "llama-chosen" : undefined },
        svg("svg", { viewBox: "-48 -48 96 96", width: 96, role: "img",
          "aria-label": `pair ${pair} of ${e.label(t)} at position ${t + shift}` }, plane(t)),
        html("figcaption", {}, html("b", {}, e.label(t)), ` at ${t + shift}`)));
      const full = (freq * (t + shift)) / 2 / Math.PI, [q, after] = [of_pair(e.trace.head("q",
        e.layer, head, t)), of_pair(turned("q", t, shift))];
      const degrees = `${number(360 * (full % 1), 1)}°`;
      const [rows] = e.table_rows((s) => {
        const score = (by) => number(dot(turned("q", t, by), turned("k", s, by)) / Math.sqrt(hd), 3);
        return [e.label(s), t - s, score(0), score(shift)];
      }, t);
      const pair_text = (x) => `(${numbers(x, 2, 3)})`;
      return { parts: [
        html("p", {}, `Pair ${pair} of each query (long, blue) and key (short, orange), as directions; grey: ` +
          "before the rotation."), html("div", { class: "llama-planes" }, planes),
        table("The query's pair in numbers", ["what", "value"], [
          [`pair ${pair} before`, pair_text(q)],
          ["m · Θₖ", `${t + shift} · ${freq.toPrecision(6)} = ${number(freq * (t + shift), 4)} radians`],
          ["that is", `${count(Math.floor(full), "full rotation")} and ${degrees}`],
          [`pair ${pair} after`, pair_text(after)], ["length of both", number(length_of(q), 3)],
          ["wavelength", `${with_commas(Math.round(20 * Math.PI / freq) / 10)} positions`]]),
        table(`Scores of “${e.label(t)}” with each key (all ${hd / 2} pairs): they keep their values when ` +
          "the whole text moves", ["key", "distance", "score (with this θ)", shift ? `${shift} positions later` : "after a move"],
        rows, rows.length - 1)],
      said: `“${e.label(t)}” at position ${t + shift}: pair ${pair} is rotated by ${full >= 1
        ? `${count(Math.floor(full), "full rotation")} and ` : ""}${degrees}.` };
    },
  },
  attention: {
    choose: ["layer", "head", "token"],
    draw(e) {
      const { n_layers: L, n_heads: H } = e.config, { head } = e.settings, { shown, t } = e;
      const group = Math.floor(head / e.n_rep), first = group * e.n_rep;
      const seen = (rows) => shown.map((q) => shown.filter((s) => s <= q).map((s) => rows[q][s]));
      const { weights, scores } = e.trace.attention(e.layer), row = weights[head][t];
      const name = `layer ${e.layer}, head ${head} · KV head ${group}, shared by heads ${first} to ` +
        `${first + e.n_rep - 1}`, labels = shown.map((q, i) => e.gap(i) + e.label(q));
      const maps = Array.from({ length: L }, (_, l) => html("div", {}, html("span", {}, `layer ${l}`),
        Array.from({ length: H }, (_, h) => html("button", { type: "button", "data-key": `${l} ${h}`,
          "aria-label": `layer ${l}, head ${h}`, "aria-pressed": String(l === e.layer && h === head),
          style: { borderColor: e.group_colour(h) }, onclick: () => e.set({ layer: l, head: h }) },
        thumb(seen(e.weights(h, l)))))));
      const hidden = sum(Array.from(row).filter((_, s) => !shown.includes(s)));
      const [rows] = e.table_rows((s) => [e.label(s), number(scores[head][t][s]),
        bar(row[s], probability(row[s]), e.group_colour(), 1)], t, ["", probability(hidden)]);
      const [most] = ranked(row);
      return { parts: [
        large_map(seen(weights[head]), labels, shown.indexOf(t), e.group_colour(), name,
          (row) => row >= 0 && row < shown.length && e.set({ token: shown[row] })),
        table(`What “${e.label(t)}” attends to (${name})`, ["key", "score q·k / √hd", "weight"], rows),
        html("p", {}, "down: query; across: key; grey: hidden by the mask; weight: 0 ",
          html("span", { class: "llama-scale" }), " 1"),
        html("div", { class: "llama-heads", role: "group", "aria-label": "all heads" },
          html("p", {}, `All heads: a row is a layer, with heads 0 to ${H - 1}.`), maps)],
      said: `Layer ${e.layer}, head ${head}: “${e.label(t)}” attends most to “${e.label(most)}” (` +
        `${probability(row[most])}).` };
    },
  },
  values: {
    choose: ["layer", "head", "token"],
    draw(e) {
      const { head } = e.settings, { head_dim: hd } = e.config, { t } = e;
      const { weights, heads } = e.trace.attention(e.layer), row = weights[head][t];
      const out = heads[t].subarray(head * hd, (head + 1) * hd), scale = 3 * rms_of(out);
      const hidden = sum(Array.from(row).filter((_, s) => !e.shown.includes(s)));
      const [rows] = e.table_rows((s) => {
        const v = e.trace.head("v", e.layer, head, s), share = v.map((x) => row[s] * x);
        return [e.label(s), probability(row[s]), numbers(v, 3), strip(share, 32, scale), numbers(share, 3)];
      }, t, [probability(hidden)]);
      rows.push(["sum", number(sum(row)), "", strip(out, 32, scale), numbers(out, 3)]);
      const added = e.added("attention", t), D = with_commas(e.config.dim);
      return { parts: [
        table(`The output of head ${head}, layer ${e.layer}, at “${e.label(t)}”; ${SCALE}`,
          ["key", "weight", "its value", "weight × value", "the first 3"], rows, rows.length - 1, [2, 4]),
        table("The output projection", ["what", `all ${D}`, "the first 3", "length"], [
          [`all ${e.config.n_heads} heads, concatenated`, strip(heads[t]), numbers(heads[t], 3),
            number(length_of(heads[t]))],
          ["times wo: added to the stream", strip(added), numbers(added, 3), number(length_of(added))]], -1, [2])],
      said: `Head ${head} at “${e.label(t)}” adds up ${count(t + 1, "weighted value")}.` };
    },
  },
  residual: {
    choose: ["layer", "token"],
    controls: side_choice,
    draw(e) {
      const { side } = e.settings, { t } = e, before = side === "attention" ? "x" : "h";
      const [rows, at] = e.table_rows((t) => {
        const [x, y] = [e.trace.row(before, e.layer, t), e.added(side, t)];
        const after = x.map((v, i) => v + y[i]);
        return [e.label(t), ...[length_of(x), length_of(y), cosine(x, y), length_of(after)].map(
          (v) => number(v))];
      });
      const [x, y] = [e.trace.row(before, e.layer, t), e.added(side, t)], z = x.map((v, i) => v + y[i]);
      const scale = 3 * rms_of(z), line = (name, v) => [name, strip(v, 64, scale), numbers(v, 3)];
      return { parts: [
        table(`“${e.label(t)}” in layer ${e.layer}; ${SCALE}`, ["what", "all numbers", "the first 3"],
          [line("the stream", x), line(`+ ${SIDES[side]}`, y), line("= the stream after it", z)]),
        table("Lengths (L2 norms), and the cosine of the stream with what is added (random vectors: about ±" +
          `${number(1 / Math.sqrt(e.config.dim))})`,
        ["token", "before", "added", "cosine", "after"], rows, at)],
      said: `“${e.label(t)}”: a vector of length ${number(length_of(y))} is added to one of length ` +
        `${number(length_of(x))}.` };
    },
  },
  swiglu: {
    choose: ["layer", "token"],
    draw(e) {
      const { t } = e, [gate, up] = ["gate", "up"].map((name) => e.trace.row(name, e.layer, t));
      const products = e.trace.product(e.layer, t), sizes = products.map(Math.abs);
      const top = ranked(sizes).slice(0, 10), longest = sizes[top[0]];
      const most = sum(ranked(sizes).slice(0, Math.round(products.length / 10)).map((i) => sizes[i] ** 2));
      const rows = top.map((i) => [`neuron ${i}`, number(gate[i]), number(silu(gate[i])), number(up[i]),
        bar(products[i], number(products[i]), products[i] < 0 ? COLOURS.key : COLOURS.query, longest)]);
      const [all, at] = e.table_rows((t) => [e.label(t), strip(e.trace.product(e.layer, t), 128)]);
      const closed = gate.filter((x) => x < 0).length;
      return { parts: [
        table(`The neurons with the largest products (in absolute value) at “${e.label(t)}” in layer ${e.layer}`,
          ["neuron", "w1·u", "gate = SiLU(w1·u)", "up = w3·u", "gate × up"], rows),
        table(`The products of all ${with_commas(gate.length)} neurons; ${SCALE}`,
          ["token", "products, neuron 0 at the left"], all, at)],
      said: `Of ${with_commas(gate.length)} gates ${with_commas(closed)} are negative (never below −0.28). The ` +
        `top 10 % of the products hold ${(100 * most / dot(sizes, sizes)).toFixed(1)} % of the sum of squares ` +
        `(of random ones: ${at_random.products} %).` };
    },
  },
  stream: {
    choose: ["token"],
    draw(e) {
      const { n_layers: L } = e.config, { t } = e;
      const lengths = Array.from({ length: L + 1 }, (_, l) => length_of(e.trace.row("x", l, t)));
      const rows = lengths.map((length, l) => [l ? `after layer ${l - 1}` : "embedding",
        bar(length, number(length), COLOURS.residual, Math.max(...lengths)),
        e.lens(l, t).map(([id, p]) => `“${e.name(id)}” ${probability(p)}`).join(" · ")]);
      const [[id]] = e.lens(L, t), right = rows.findIndex((_, l) => e.lens(l, t)[0]?.[0] === id);
      return { parts: [table(`“${e.label(t)}” through all layers`,
        ["where", "length", "logit lens: the most likely next tokens"], rows)],
      said: `“${e.name(id)}” first becomes the top guess ${right ? `after layer ${right - 1}` : "at the embedding"}.` };
    },
  },
  logits: {
    choose: ["token"],
    controls: (e) => [slider(e, "bars", "tokens shown")],
    draw(e) {
      const logits = e.trace.logits(e.t), probs = softmax(logits.slice()), { t } = e;
      const ids = ranked(probs).slice(0, e.settings.bars), L = e.config.n_layers;
      const rows = ids.map((id) => [e.name(id), id, number(logits[id]),
        bar(probs[id], probability(probs[id]), COLOURS.probability, 1)]);
      return { parts: [
        html("p", {}, `The vector at “${e.label(t)}” has an RMS of ${number(rms_of(e.trace.row("x", L, t)))}. The ` +
          `final norm divides by it and multiplies by its γ. The ${with_commas(probs.length)} logits range from ` +
          `${number(Math.min(...logits))} to ${number(Math.max(...logits))}.`),
        table(`After “${end_of(e)}”`, ["next token", "id", "logit", "probability"], rows)],
      said: `The most likely next token: “${rows[0][0]}”, ${probability(probs[ids[0]])}.` };
    },
  },
  sample: {
    choose: ["token"],
    controls: (e) => [...sampling_controls(e), html("div", { class: "llama-buttons" },
      html("button", { type: "button", onclick: () => { e.more = 20; e.draw(); } }, "Draw this token 20 times"))],
    draw(e) {
      const { temperature, top_k: k, top_p, seed } = e.settings, top_k = k || null;
      const logits = e.trace.logits(e.t), cut = cut_logits(logits, temperature, top_k, top_p);
      const before = next_token_probs(logits), after = softmax(cut.slice());
      const key = JSON.stringify([e.trace.ids, e.t, temperature, k, top_p, seed]);
      // another setting begins the draws again
      if (key !== e.drawn?.key) e.drawn = { key, random: generator(seed), counts: {}, all: 0 };
      const { drawn } = e, { counts } = drawn;
      for (; e.more > 0; e.more--, drawn.all++) {
        const id = pick(logits, drawn.random, { temperature, top_k, top_p });
        counts[id] = (counts[id] ?? 0) + 1;
      }
      const top = new Set([...ranked(before).slice(0, 11), ...Object.keys(counts).map(Number)]);
      const others = Array.from(after.keys()).filter((i) => !top.has(i));
      const rows = Array.from(top, (i) => [e.name(i), [i]]);
      rows.push([`${with_commas(others.length)} others`, others]);
      const total = (x, ids) => sum(ids.map((i) => x[i]));
      const nats = after.reduce((sum, p) => sum - (p && p * Math.log(p)), 0);
      return { parts: [table(`After “${end_of(e)}” `, ["next token", "model (τ = 1)",
        `τ ${temperature}, k ${k || "off"}, p ${top_p}`, "times drawn"], rows.map(([name, ids]) => {
        const is_kept = ids.some((i) => cut[i] > -Infinity), colour = is_kept ? "probability" : "other";
        const cell = (x) => bar(total(x, ids), probability(total(x, ids)), COLOURS[colour], 1);
        return [name, cell(before), is_kept ? cell(after) : "cut off",
          sum(ids.map((i) => counts[i] ?? 0))];
      }))],
      said: `${with_commas(cut.filter((x) => x > -Infinity).length)} of ${count(cut.length, "token")} ` +
        `can be drawn, with an entropy of ${nats.toFixed(2)} nats. Drawn so far: ${drawn.all}, with seed ${seed}.` };
    },
  },
  text: {
    choose: [],
    controls: (e) => [number_field(e, "most", "new tokens, at most"), ...sampling_controls(e)],
    draw(e) {
      const { T, config: { n_layers: L, n_kv_heads: KV, head_dim: hd } } = e, added = e.ids.added.length;
      const numbers = 2 * L * KV * hd, large_numbers = 2 * large.L * large.KV * large.hd;
      const kib = (n) => `${with_commas(Math.round(n / 102.4) / 10)} KiB`;
      return { parts: [
        html("p", { class: "llama-whole" }, e.settings.prompt,
          html("b", {}, e.tokenizer.decode(e.ids.added))),
        html("p", {}, "“Generate” continues it. “Next token” adds one token and shows how."),
        table("The KV cache of this many tokens, at 16 bits per number", ["", "numbers per token", "tokens", "size"], [
          ["here", with_commas(numbers), T, kib(2 * numbers * T)],
          ["the 1B", with_commas(large_numbers), T, kib(2 * large_numbers * T)]])],
      said: `${count(T, "token")}, of which the model wrote ${added}.` };
    },
  },
};
const sum = (x) => x.reduce((a, b) => a + b, 0);
const end_of = (e) => {
  const text = e.tokenizer.decode(e.trace.ids.slice(1, e.t + 1));
  return `${text.length < 60 ? text : `… ${text.slice(-40)}`} …`;
};

// ---- start ----
const explorers = []; // of this page
for (const section of document.querySelectorAll("section.llama")) explorers.push(new Explorer(section));
window.llama.explorers = explorers; // for scripts
})();
