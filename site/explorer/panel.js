/* The open station: its numbers, and at the side the formula, the code, the shapes. */
import { html, markup, replace, with_commas } from "./dom.js";
import { ROOT } from "./files.js";
import { large, stations } from "./made.js";
import { table } from "./pictures.js";
import { query_of } from "./settings.js";
import { ATTENTION_VIEWS } from "./views_attention.js";
import { BLOCK_VIEWS } from "./views_block.js";
import { rope } from "./views_rope.js";
import { SAMPLING_VIEWS } from "./views_sampling.js";
import { TEXT_VIEWS } from "./views_text.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./made.js").Station} Station */

/** The stations by key. @type {Record<string, import("./types.js").View>} */
export const VIEWS = { ...TEXT_VIEWS, ...ATTENTION_VIEWS, ...BLOCK_VIEWS, ...SAMPLING_VIEWS, rope };

/** The place of the open station. */
export class Panel {
  /**
   * @param {Explorer} e
   * @param {string} id */
  constructor(e, id) {
    this.e = e;
    /** @type {HTMLElement} */
    this.element = html("div", { class: "llama-station", role: "tabpanel", id });
    const onchange = (/** @type {any} */ { target }) =>
      e.set({ [target.dataset.setting]: +target.value });
    /** @type {HTMLElement} */
    this.choosers = html("div", { class: "llama-choosers", onchange });
    /** @type {HTMLElement} */
    this.out = html("div", { class: "llama-out" });
    /** @type {HTMLElement} */
    this.shapes = html("div", { class: "llama-shapes" });
    /** @type {HTMLAnchorElement} */
    this.link = html("a", { class: "llama-notebook" });
  }
  /** Draw the station; return what is said of it. */
  draw() {
    const { e } = this;
    const { station: key, model } = e.settings;
    const station = /** @type {Station} */ (stations.find((it) => it.key === key));
    if (this.element.dataset.station !== `${key} ${model}`) this.open(station);
    for (const control of /** @type {any} */ (this.element.querySelectorAll("[name]"))) {
      const value = e.value_of(control.name);
      if (control.dataset.setting) continue; // the choosers are drawn anew
      if (control.type === "checkbox") control.checked = value;
      else if (control !== document.activeElement) control.value = value;
      if (control.nextElementSibling?.matches("output")) control.nextElementSibling.value = value;
    }
    if (ROOT) this.link.href = this.notebook(station).href;
    replace(this.shapes, "data-key", [this.table_of_shapes(station)]);
    const { parts, said } = VIEWS[key].draw(e);
    replace(this.out, "data-key", parts);
    this.draw_choosers(key);
    return said;
  }
  /** @param {Station} station */
  open(station) {
    const { e } = this;
    const { key } = station;
    const view = VIEWS[key];
    const code = html(
      "pre",
      { class: "highlight", tabindex: 0 },
      html("code", {}, markup(station.code)),
    );
    const controls = view.controls?.(e) ?? [];
    this.element.dataset.station = `${key} ${e.settings.model}`;
    this.element.setAttribute("aria-label", station.title);
    this.link.textContent = `Notebook ${station.notebook}`;
    const glossary = ROOT && html("a", { href: new URL("glossary.html", ROOT).href }, "Glossary");
    this.element.replaceChildren(
      html("h3", {}, station.title),
      html("p", {}, station.text),
      html("div", { class: "llama-controls" }, controls),
      this.choosers,
      html(
        "div",
        { class: "llama-two" },
        this.out,
        html(
          "aside",
          {},
          html("p", { class: "llama-formula" }, markup(station.formula)),
          code,
          html("p", { class: "llama-source" }, `from llamalib/${station.source}`),
          this.shapes,
          html("p", {}, this.link, " explains and computes it. ", glossary),
        ),
      ),
    );
  }
  /** Draw the choices of layer, head and token that the station has. @param {string} key */
  draw_choosers(key) {
    const { e } = this;
    const { n_heads: H } = e.config;
    /** @type {(name: string, legend: string, options: [number, string | number, object?][], chosen: number) => HTMLElement} */
    const group = (name, legend, options, chosen) =>
      html(
        "fieldset",
        {},
        html("legend", {}, legend),
        options.map(([value, label, style]) => {
          const input = html("input", {
            type: "radio",
            name: `${name}-${this.element.id}`,
            value,
            "data-setting": name,
          });
          input.checked = value === chosen;
          if (value === chosen) input.setAttribute("data-chosen", name);
          return html("label", { style }, input, html("span", {}, label));
        }),
      );
    const n = (/** @type {number} */ n) => Array.from({ length: n }, (_, i) => i);
    const all = {
      head: () =>
        group(
          "head",
          "query head (one colour: one KV head)",
          n(H).map((h) => [h, h, { borderBottom: `4px solid ${e.group_colour(h)}` }]),
          e.head,
        ),
      token: () =>
        group(
          "token",
          "token",
          e.shown.map((t, i) => [t, e.gap(i) + e.label(t)]),
          e.t,
        ),
    };
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.setting;
    const is_ours = this.choosers.contains(document.activeElement);
    replace(
      this.choosers,
      "data-none",
      VIEWS[key].choose.map((name) => all[name]()),
    );
    if (is_ours && focused)
      /** @type {HTMLElement | null} */ (
        this.choosers.querySelector(`[data-chosen=${focused}]`)
      )?.focus({ preventScroll: true });
  }
  /** Return a notebook's address, with what the reader chose. @param {Station} station */
  notebook({ file }) {
    const { settings } = this.e;
    const end = query_of(settings, { station: settings.station });
    return new URL(file.replace(".ipynb", ".html") + end, ROOT);
  }
  /** Return the shapes of this text in the model, with the 1B's. @param {Station} station */
  table_of_shapes({ shapes }) {
    const { config: c, T } = this.e;
    /** @type {Record<string, number>} */
    const here = {
      T,
      D: c.dim,
      L: c.n_layers,
      H: c.n_heads,
      V: c.vocab_size,
      KV: c.n_kv_heads,
      hd: c.head_dim,
      F: c.hidden_dim,
    };
    const size = (/** @type {string} */ word, /** @type {Record<string, number>} */ sizes) =>
      word.split("·").reduce((product, part) => {
        const [letter, divisor = "1"] = part.split("/");
        return (product * (letter === "L+1" ? sizes.L + 1 : (sizes[letter] ?? +letter))) / +divisor;
      }, 1);
    const fill = (/** @type {string} */ letters, /** @type {Record<string, number>} */ sizes) =>
      `(${letters
        .split(", ")
        .map((word) => with_commas(size(word, sizes)))
        .join(", ")})`;
    return table(
      "Shapes (T tokens, D model dim, H query heads, KV key/value heads, hd head dim, F hidden " +
        "dim, V vocabulary, L layers)",
      ["what", "letters", "here", "the 1B, for this T"],
      shapes.map(([what, letters]) => [
        what,
        `(${letters})`,
        fill(letters, here),
        fill(letters, { ...large, T }),
      ]),
    );
  }
}
