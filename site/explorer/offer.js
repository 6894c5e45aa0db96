/* What stands between the prompt and the map when a model must come into the page first. */
import { html, megabytes } from "./dom.js";
import { Gate } from "./files.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./models.js").Model} Model */

/** Return whether the reader pays for each megabyte, or asked the browser to save them. */
export const is_metered = () =>
  Boolean(navigator.connection?.saveData) || navigator.connection?.type === "cellular";

/** The offer to fetch a model, and the bar while it comes. */
export class Offer {
  /** @param {Explorer} e */
  constructor(e) {
    this.e = e;
    this.gate = new Gate();
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
    const models = e.shelf.filter(({ about }) => about.parts.length);
    const kept = await Promise.all(models.map((model) => model.is_kept()));
    const choices = models.map((model, i) => {
      const { about, bytes } = model;
      const size = kept[i] ? "already here" : `download ${megabytes(bytes)}, once`;
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
  /** Show how much of a model has come. @param {Model} model */
  progress(model) {
    this.gate = new Gate();
    this.pause.textContent = "Pause";
    this.words.textContent = "";
    this.bar.removeAttribute("value"); // it only moves
    const line = html("p", {}, html("b", {}, model.about.name), this.bar, this.words, this.pause);
    this.element.replaceChildren(line);
    this.element.hidden = false;
    return (/** @type {number} */ arrived) => {
      Object.assign(this.bar, { value: arrived, max: model.bytes });
      this.words.textContent = `${(arrived / 1e6).toFixed(0)} of ${megabytes(model.bytes)}`;
    };
  }
  wait_or_go() {
    if (this.gate.is_closed) this.gate.open();
    else this.gate.close();
    this.pause.textContent = this.gate.is_closed ? "Go on" : "Pause";
  }
}
