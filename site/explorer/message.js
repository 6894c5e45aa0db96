/* The bar below the map: the text as it grows, what is said, and the next step of a walk. */
import { html } from "./dom.js";
import { end_walk, go } from "./walk.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */

/** What an explorer says. */
export class Message {
  /** @param {Explorer} e */
  constructor(e) {
    const leave = () => {
      end_walk(e);
      e.draw();
    };
    const button = (/** @type {string} */ label, /** @type {() => void} */ onclick, look = "") =>
      html("button", { type: "button", class: look, hidden: "", onclick }, label);
    this.prompt = html("span", { class: "llama-prompt" });
    this.new = html("span", { class: "llama-new" });
    this.text = html("p", { class: "llama-text", hidden: "" }, this.prompt, this.new);
    this.words = html("span", { role: "status" });
    this.again = button("Try again", () => e.run(), "llama-again");
    this.onward = button("Next step", () => go(e));
    this.back = button("Back", () => go(e, -1), "llama-plain");
    this.finish = button("End the walk", leave, "llama-plain");
    const onclick = () => e.map.scrollIntoView({ block: "center" });
    /** Out of sight as long as the map is not. @type {HTMLElement} */
    this.up = html("button", { type: "button", class: "llama-plain llama-up", onclick }, "↑ map");
    /** @type {HTMLElement} */
    this.element = html(
      "div",
      { class: "llama-message" },
      this.onward,
      this.back,
      this.finish,
      this.words,
      this.again,
      this.up,
    );
  }
  /** Show a sentence; an error stays until the next.
   * @param {string} text
   * @param {boolean} is_error */
  say(text, is_error = false) {
    this.words.textContent = text;
    this.element.classList.toggle("llama-error", is_error);
  }
  /** Show the prompt and what was written after it; its end is new.
   * @param {string} prompt
   * @param {string} added
   * @param {boolean} is_shown */
  write(prompt, added, is_shown) {
    this.prompt.textContent = prompt;
    this.new.textContent = added.replace(/\n/g, "⏎\n"); // or nobody would see it
    this.text.hidden = !is_shown;
    this.text.scrollTop = this.text.scrollHeight;
  }
}
