/* What stands between the prompt and the map when a model must come into the page first. */
import { html, megabytes } from "./dom.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./models.js").Model} Model */

/** Return whether the reader pays for each megabyte, or asked the browser to save them. */
const is_metered = () =>
  Boolean(navigator.connection?.saveData) || navigator.connection?.type === "cellular";

/** The offer to fetch a model, and the bar while it comes. */
export class Offer {
  /** @param {Explorer} e */
  constructor(e) {
    this.e = e;
    /** The model that comes. @type {Model | undefined} */
    this.model = undefined;
    /** @type {HTMLElement} */
    this.element = html("div", {
      class: "llama-offer",
      role: "group",
      "aria-label": "the model",
      hidden: "",
    });
    this.bar = html("progress", { "aria-label": "the model's download" });
    this.words = html("span", {});
    this.pause = html(
      "button",
      { type: "button", class: "llama-plain", onclick: () => this.wait_or_go() },
      "Pause",
    );
  }
  hide() {
    this.element.hidden = true;
  }
  /** Offer the models that this page can run, for a text that none has computed yet.
   * @param {string} why */
  async show(why) {
    const { e } = this;
    const able = e.shelf.filter(({ about }) => about.parts.length);
    const models = able.sort((a, b) => Number(b === e.chosen) - Number(a === e.chosen));
    const kept = await Promise.all(models.map((model) => model.kept_bytes()));
    const choices = models.map((model, i) => {
      const { about, bytes } = model;
      const missing = megabytes(bytes - kept[i]);
      const here = model.is_inside || kept[i] === bytes;
      const size = here ? "already here" : `download ${missing}${kept[i] ? " more" : ""}, once`;
      const onclick = () => e.choose_model(model);
      return html(
        "p",
        {},
        html(
          "button",
          { type: "button", "data-model": about.key, onclick },
          `${about.name} (${size})`,
        ),
        html("span", {}, about.knows),
      );
    });
    const metered = is_metered() && html("p", {}, "Your connection is metered, or saves data.");
    this.element.replaceChildren(html("p", {}, why), ...(metered ? [metered] : []), ...choices);
    this.element.hidden = false;
  }
  /** Show how much of a model has come, as long as it comes. @param {Model} model */
  show_progress(model) {
    this.model = model;
    this.bar.removeAttribute("value"); // it only moves
    this.words.textContent = "";
    this.element.replaceChildren(
      html("p", {}, html("b", {}, model.about.name), this.bar, this.words, this.pause),
    );
    this.element.hidden = false;
    this.name_button();
    const listen = (/** @type {number} */ arrived) => {
      if (this.model !== model) return;
      Object.assign(this.bar, { value: arrived, max: model.bytes });
      this.words.textContent = `${(arrived / 1e6).toFixed(0)} of ${megabytes(model.bytes)}`;
    };
    model.listeners.add(listen);
    return () => model.listeners.delete(listen);
  }
  wait_or_go() {
    const { gate } = /** @type {Model} */ (this.model);
    if (gate.is_closed) gate.open();
    else gate.close();
    this.name_button();
  }
  name_button() {
    const is_waiting = this.model?.gate.is_closed;
    this.pause.textContent = is_waiting ? "Go on" : "Pause";
  }
}
