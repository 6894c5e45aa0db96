/* The form: the prompt, the buttons, prompts to try, and which model answers. */
import { count, html } from "./dom.js";
import { runs } from "./made.js";
import { DEFAULTS } from "./settings.js";
import { go } from "./walk.js";
import { generate, next_token } from "./writing.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./models.js").Model} Model */
/** @typedef {import("./types.js").About} About */

/** What the reader types and presses. */
export class Form {
  /**
   * @param {Explorer} e
   * @param {string} id of the prompt's field, unique in the page */
  constructor(e, id) {
    this.e = e;
    /** @type {HTMLTextAreaElement} */
    this.field = html("textarea", {
      id,
      rows: 1,
      spellcheck: "false",
      autocomplete: "off",
      oninput: () => this.type(),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.enter(event),
    });
    this.field.value = e.settings.prompt;
    const button = (
      /** @type {string} */ label,
      /** @type {(event: UIEvent) => void} */ onclick,
      look = "llama-plain",
    ) => html("button", { type: "button", class: look, onclick }, label);
    // no submit: a frame in JupyterLab lets no form be sent
    this.next = button("Next token", () => next_token(e), "llama-next");
    this.step = button("Step by step", () => go(e), "llama-plain llama-step");
    this.write = button("Generate", () => generate(e), "llama-plain llama-write");
    this.how = button("", (event) => e.open("sample", event), "llama-chip");
    const reset = button("Reset", () =>
      e.set({ ...DEFAULTS, ...e.own, model: e.settings.model, prompt: this.text }),
    );
    const onsubmit = (/** @type {Event} */ event) => event.preventDefault();
    this.models = html("div", { class: "llama-models", role: "radiogroup", "aria-label": "model" });
    this.chips = html("div", { class: "llama-buttons llama-chips" });
    /** @type {HTMLElement} */
    this.element = html(
      "form",
      { class: "llama-form", onsubmit },
      this.models,
      html("label", { for: id }, "Prompt"),
      this.field,
      e.message.text,
      html("div", { class: "llama-buttons" }, this.next, this.step, this.write, this.how, reset),
      this.chips,
    );
  }
  get text() {
    return this.field.value;
  }
  type() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.e.set({}), 400);
  }
  /** Enter asks for the next token; with Shift it is a new line. @param {KeyboardEvent} event */
  enter(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    next_token(this.e);
  }
  draw() {
    const { e } = this;
    const { temperature, top_k, top_p, prompt } = e.settings;
    if (this.text !== prompt && document.activeElement !== this.field) this.field.value = prompt;
    const k = top_k ? `, top-k ${top_k}` : "";
    this.how.textContent = temperature
      ? `sampling: temperature ${temperature}${k}, top-p ${top_p}`
      : "greedy";
    this.draw_models();
    this.draw_chips();
  }
  /** Show the models that can answer any prompt, if there is a choice. */
  draw_models() {
    const { e } = this;
    const able = e.shelf.filter(({ about }) => about.parts.length);
    const all = able.length > 1 ? able : [];
    this.models.replaceChildren(
      ...all.map((model) => {
        const { about } = model;
        const input = html("input", {
          type: "radio",
          name: `model-${this.field.id}`,
          value: about.key,
          onchange: () => this.change_model(model),
        });
        input.checked = about.key === e.settings.model;
        return html("label", {}, input, html("span", {}, about.name));
      }),
      html("span", { class: "llama-knows" }, `${e.chosen.about.name} ${e.chosen.about.knows}.`),
    );
  }
  /** Let another model answer: the reader's own prompt, or its own first. @param {Model} model */
  change_model({ about }) {
    const is_own = this.e.shelf.every((it) => !it.about.prompts.includes(this.text));
    this.e.set({ model: about.key, prompt: is_own ? this.text : about.prompts[0] });
  }
  /** Show prompts to try: of the chosen model; of all models if one has but recorded runs. */
  draw_chips() {
    const { e } = this;
    const has_switch = e.shelf.every(({ about }) => about.parts.length);
    const shown = e.shelf.filter((model) => !has_switch || model === e.chosen);
    const needs_model = (/** @type {About} */ about, /** @type {string} */ prompt) =>
      e.chosen.about === about &&
      !e.chosen.llama &&
      !runs.some((it) => it.model === about.key && it.prompt === prompt);
    const all = shown.flatMap(({ about }) => [
      html("span", {}, has_switch ? "Try" : `${about.name}:`),
      ...about.prompts.map((prompt) =>
        html(
          "button",
          {
            type: "button",
            class: `llama-chip ${needs_model(about, prompt) ? "llama-dashed" : ""}`,
            onclick: () => e.set({ model: about.key, prompt, next: "", special: false }),
          },
          prompt.replace(/\n/g, "⏎"),
        ),
      ),
    ]);
    const is_dashed = shown.some(({ about }) => about.prompts.some((it) => needs_model(about, it)));
    this.chips.replaceChildren(
      ...all,
      is_dashed ? html("span", {}, "(dashed: needs the model)") : "",
    );
  }
}
/** Say so if most of a prompt's words are strange to the pocket: they become several tokens.
 * @param {Explorer} e */
export function strangeness(e) {
  const {
    tokenizer,
    model: { about },
  } = e;
  if (about.key !== "pocket") return "";
  const words = e.settings.prompt.match(/ ?\p{L}+/gu) ?? [];
  const split = words.filter((word) => tokenizer.encode(word).length > 1).length;
  if (words.length < 3 || split < 0.4 * words.length) return "";
  return `${about.name} does not know ${split} of these ${count(words.length, "word")}. `;
}
