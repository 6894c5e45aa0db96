/* The explorer: one prompt through the whole Llama, alive.

Each <section class="llama" data-station="…"> gets a prompt, the model's map with the numbers of
this prompt, and below it the station that is open. What the reader chose is kept from page to page
and in the address. Letters of shapes: see steps.js. */
import { compute, why_ask } from "./computing.js";
import { range } from "./controls.js";
import { html, reveal } from "./dom.js";
import { PromptError, UserError } from "./files.js";
import { Form, strangeness } from "./form.js";
import { LARGE, Look, sizes_of } from "./look.js";
import { colours, models, runs, scales } from "./made.js";
import { INTRO, LEGEND, draw_map, mark, move, station_of } from "./map.js";
import { Message } from "./message.js";
import { Model, read_run } from "./models.js";
import { Offer } from "./offer.js";
import { Panel, VIEWS } from "./panel.js";
import { SAMPLING, TEXT, keep_settings, query_of, read_settings } from "./settings.js";
import { top } from "./sampling.js";
import { end_walk } from "./walk.js";

/** @typedef {import("./types.js").Settings} Settings */

/** The models of this page, which all its explorers share. */
const SHELF = models.map((about) => new Model(about));
/** One explorer of a page. */
export class Explorer extends Look {
  /**
   * @param {HTMLElement} section
   * @param {number} n which of its page */
  constructor(section, n) {
    const { station } = section.dataset;
    const own = station ? { station } : {};
    const settings = read_settings(own);
    super(section, settings, SHELF[0]);
    /** @type {Partial<Settings>} */
    this.own = own;
    if (!Object.hasOwn(VIEWS, settings.station)) settings.station = station ?? "attention";
    this.shelf = SHELF;
    this.model = this.chosen;
    /** The models that the reader agreed to fetch. @type {Set<string>} */
    this.agreed = new Set();
    this.turn = 0; // of runs
    this.more = 0; // tokens to draw in the sampling station
    /** @type {import("./types.js").Drawn | undefined} */
    this.drawn = undefined;
    /** @type {import("./walk.js").Walk | undefined} */
    this.walk = undefined;
    this.is_writing = this.is_stopped = false;
    /** What the reader asked for when the model was missing. @type {(() => void) | undefined} */
    this.wish = undefined;
    this.news = ""; // what is said at the next drawing
    this.message = new Message(this);
    this.form = new Form(this, `llama-prompt-${n}`);
    this.offer = new Offer(this);
    this.panel = new Panel(this, `llama-station-${n}`);
    /** @type {HTMLElement} */
    this.map = html("div", {
      class: "llama-map",
      role: "tablist",
      "aria-label": "The model, in the order data flows",
      onkeydown: (/** @type {KeyboardEvent} */ event) => move(this.map, event),
    });
    this.about = html("p", { class: "llama-about" });
    const { element: bar } = this.message;
    /** @type {HTMLElement} */
    this.layers = html("div", { class: "llama-layers" });
    const intro = html("div", { class: "llama-intro" }, html("p", {}, INTRO), this.layers);
    section.replaceChildren(
      this.form.element,
      this.offer.element,
      intro,
      this.map,
      bar,
      this.panel.element,
      html("p", { class: "llama-about" }, LEGEND),
      this.about,
    );
    for (const [name, colour] of Object.entries(colours))
      section.style.setProperty(`--llama-${name}`, colour);
    section.style.setProperty(
      "--llama-amount",
      scales.amount.map((rgb) => `rgb(${rgb})`).join(", "),
    );
    this.watch();
  }
  /** Begin when the reader is near: a page may hold more than the explorer. Draw again when the width
   * changes. */
  watch() {
    const {
      section,
      message: { element },
    } = this;
    this.form.draw();
    new IntersectionObserver(
      (entries, observer) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        observer.disconnect();
        this.say("Loading …");
        this.run();
      },
      { rootMargin: "100%" },
    ).observe(section);
    new IntersectionObserver(
      ([
        {
          isIntersecting,
          boundingClientRect: { top },
        },
      ]) => {
        this.message.up.hidden = isIntersecting || top > 0; // it leads upwards
      },
    ).observe(this.map);
    let width = section.clientWidth;
    new ResizeObserver(() => {
      if (width !== section.clientWidth) this.draw();
      width = section.clientWidth;
      section.style.setProperty("--llama-bar", `${element.offsetHeight}px`);
    }).observe(section);
  }
  /** The model that shall answer; it may still be on its way. */
  get chosen() {
    return /** @type {Model} */ (this.shelf.find(({ about }) => about.key === this.settings.model));
  }
  /** Show a message; an error stays until the next run.
   * @param {string} text
   * @param {boolean} is_error */
  say(text, is_error = false) {
    this.message.say(text, is_error);
  }

  // -- loading and running --
  /** Run what may fail; show why it failed. @param {() => Promise<void>} task */
  async attempt(task) {
    this.message.again.hidden = true;
    try {
      await task();
    } catch (error) {
      const sorry = error instanceof UserError ? "" : "The page has an error; reload it. ";
      if (sorry) console.error(error);
      this.say(sorry + /** @type {Error} */ (error).message, true);
      this.offer.hide();
      this.message.again.hidden = error instanceof PromptError;
    }
  }
  /** Compute the text, or find its recorded numbers, then draw. A newer run makes this one stale. */
  run(must = false) {
    const turn = ++this.turn;
    const is_current = () => turn === this.turn && this.section.isConnected;
    this.form.draw();
    this.running = this.attempt(() => compute(this, is_current, must));
    return this.running;
  }
  /** Do what the reader asked for when the model was missing. */
  go_on() {
    const { wish } = this;
    this.wish = undefined;
    wish?.();
  }
  /** Ask which model shall compute the text; see computing.js. @param {boolean} has_numbers */
  ask(has_numbers) {
    if (!has_numbers) {
      this.message.write("", "", false);
      this.say("The map waits for a model.");
    }
    return this.offer.show(why_ask(this, has_numbers));
  }
  /** Take a model that the reader agreed to fetch. @param {Model} model */
  choose_model(model) {
    this.agreed.add(model.about.key);
    if (this.form.element.getBoundingClientRect().bottom < 0) reveal(this.form.element);
    if (model === this.chosen) this.run(true);
    else {
      const { wish } = this; // of the reader, whichever model grants it
      this.set({ model: model.about.key });
      this.wish = wish;
    }
  }
  /** Change settings, keep them, and draw again what they change. @param {Partial<Settings>} changes */
  set(changes) {
    const { settings, form } = this;
    const typed = form.text; // perhaps a moment ago
    clearTimeout(form.timer);
    if (changes.prompt === undefined && typed !== settings.prompt)
      changes = { ...changes, prompt: typed, next: "" };
    if (changes.model !== undefined && changes.model !== settings.model)
      changes = { next: "", layer: -1, head: -1, theta: -1, ...changes };
    const names = /** @type {(keyof Settings)[]} */ (TEXT);
    const is_other_text = names.some((name) => name in changes && changes[name] !== settings[name]);
    if (is_other_text || SAMPLING.some((name) => name in changes)) end_walk(this);
    else if (this.walk) {
      // a look aside: the walk waits
      this.walk.is_aside = true;
      Object.assign(this.walk.before, changes);
    }
    if (is_other_text) {
      changes = { token: -1, shift: 0, ...changes };
      this.wish = undefined;
    }
    Object.assign(settings, changes);
    if (typed !== settings.prompt) form.field.value = settings.prompt;
    keep_settings(settings);
    this.write_address();
    if (is_other_text) this.run();
    else this.draw();
  }
  /** Write what was chosen into the address, so that it can be shared. */
  write_address() {
    clearTimeout(this.address);
    this.address = setTimeout(() => {
      const end = query_of(this.settings, this.own);
      try {
        history.replaceState(null, "", location.pathname + end + location.hash);
      } catch {
        // a page in a frame may have no address
      }
    }, 300); // browsers refuse many changes at once
  }

  // -- drawing --
  draw() {
    this.form.draw();
    if (!this.trace) return;
    const {
      added_ids: added,
      config,
      model: { about },
    } = this;
    this.message.write(
      this.settings.prompt,
      this.tokenizer.decode(added),
      added.length > 0 || this.is_writing,
    );
    this.draw_layers();
    draw_map(this, this.map);
    mark(this.map, this.walk?.step.tile);
    this.message.element.classList.toggle("llama-walking", Boolean(this.walk));
    const said = this.panel.draw();
    if (this.walk)
      this.say(
        this.walk.is_aside ? `${said} The walk waits at step ${this.walk.at + 1}.` : this.walk.said,
      );
    else if (!this.is_writing) this.say(this.news || `${strangeness(this)}${said}`);
    this.news = "";
    this.name_buttons();
    this.about.textContent = `${about.name}: ${sizes_of(config)}; ${about.note}. Llama 3.2-1B: ${sizes_of(LARGE)}.`;
  }
  /** Draw the choice of the layer that the map shows. */
  draw_layers() {
    const {
      layers,
      config: { n_layers: L },
    } = this;
    if (layers.dataset.of !== this.model.about.key) {
      layers.dataset.of = this.model.about.key;
      layers.replaceChildren(range(this, "layer", `layer of the block (0–${L - 1})`, L - 1));
    }
    const input = /** @type {HTMLInputElement} */ (layers.querySelector("input"));
    input.value = String(this.layer);
    /** @type {HTMLOutputElement} */ (input.nextElementSibling).value = input.value;
  }
  name_buttons() {
    this.form.step.textContent = this.walk ? "Next step" : "Step by step";
    const { onward, back, finish } = this.message;
    onward.hidden = back.hidden = finish.hidden = !this.walk;
    this.form.write.textContent = this.is_writing ? "Stop" : "Generate";
  }
  /** Open a tile's station. If a finger or the mouse did it, bring it into sight.
   * @param {string} id
   * @param {UIEvent} [event] */
  open(id, event) {
    this.set(station_of(id));
    if (event?.detail && this.panel.element.getBoundingClientRect().top > 0.8 * innerHeight)
      reveal(this.panel.element);
  }
}

/** @type {Explorer[]} */
export const explorers = [];
for (const section of document.querySelectorAll("section.llama"))
  explorers.push(new Explorer(/** @type {HTMLElement} */ (section), explorers.length));
window.llama = { explorers, runs, read_run, top }; // for scripts
if (window.parent !== window) {
  // a notebook's frame grows with its page; then it needs no scroll bar
  const { body, documentElement: root } = document;
  body.classList.add("llama-framed");
  const tell = () => {
    window.parent.postMessage({ llama: body.offsetHeight }, "*");
    root.style.overflowY = window.innerHeight < body.offsetHeight ? "" : "hidden";
  };
  new ResizeObserver(tell).observe(body);
  window.addEventListener("resize", tell);
  tell(); // a browser observes nothing in a frame that is out of sight
}
