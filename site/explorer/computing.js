/* How a text gets its numbers: a recorded run's, or a model's, which may have to be fetched first. */
import { megabytes } from "./dom.js";
import { PromptError } from "./files.js";
import { runs } from "./made.js";
import { read_run } from "./models.js";
import { check_settings } from "./settings.js";
import { Trace } from "./trace.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./models.js").Model} Model */

const LONGEST_TEXT = 3000; // characters that are encoded at once

/** Throw if the page can't take a prompt. @param {string} prompt */
function check_prompt(prompt) {
  const size = [...prompt].length;
  if (!size) throw new PromptError("The prompt is empty. Type a word or more.");
  if (size > LONGEST_TEXT)
    throw new PromptError(
      `The text has ${size} characters; this page takes at most ${LONGEST_TEXT}. Shorten it.`,
    );
}
/** Compute the explorer's text, or find its recorded numbers, and draw them. Then do what the reader
 * asked for before the model was there.
 * @param {Explorer} e
 * @param {() => boolean} is_current becomes false if another text is wanted
 * @param {boolean} must whether recorded numbers are not enough */
export async function compute(e, is_current, must) {
  const model = e.chosen;
  check_prompt(e.settings.prompt);
  const has_numbers = await prepare(e, model, is_current);
  if (!is_current()) return;
  if (!model.llama) {
    if (has_numbers && !e.settings.next && !must) return void e.offer.hide();
    if (!(await may_fetch(e, model))) return void e.ask(has_numbers);
    await fetch_model(e, model);
  }
  if (!is_current() || !model.llama) return;
  e.offer.hide();
  take(e, model, await model.config(), await model.tokenizer());
  if (e.trace?.llama !== model.llama) e.trace = new Trace(e.config, model.llama.w, model.llama);
  if (!(await e.trace.follow(e.text_ids, is_current)) || !is_current()) return;
  e.draw();
  e.go_on();
}
/** Show what comes with the page: the prompt's recorded numbers or, if the page is empty, another
 * prompt's. Returns whether they are the prompt's.
 * @param {Explorer} e
 * @param {Model} model
 * @param {() => boolean} is_current */
async function prepare(e, model, is_current) {
  const { prompt, special } = e.settings;
  const all = model.llama ? [] : runs.filter((it) => it.model === model.about.key);
  const own = all.find((it) => it.prompt === prompt && !special);
  const run = own ?? (e.trace ? undefined : all[0]);
  const [config, tokenizer, recorded] = await Promise.all([
    model.config(),
    model.tokenizer(),
    run && read_run(model, run),
  ]);
  if (!is_current() || !recorded) return false;
  take(e, model, config, tokenizer);
  e.trace = recorded;
  e.draw();
  return run === own;
}
/** @param {Explorer} e @param {Model} model */
async function fetch_model(e, model) {
  const {
    about: { name },
    bytes,
  } = model;
  const kept = await model.kept_bytes();
  const is_here = model.is_inside || kept === bytes;
  e.say(
    is_here
      ? `${name} comes from this browser's own store.`
      : `${name} is being downloaded: ${megabytes(bytes - kept)}${kept ? " more" : ""}.`,
  );
  const stop = e.offer.show_progress(model);
  try {
    model.llama = await model.load();
  } finally {
    stop();
  }
}
/** Show a model's numbers from now on.
 * @param {Explorer} e
 * @param {Model} model
 * @param {import("./types.js").Config} config
 * @param {import("./tokenizer.js").Tokenizer} tokenizer */
function take(e, model, config, tokenizer) {
  Object.assign(e, { model, config, tokenizer });
  check_settings(e.settings, config, model.about);
  e.write_address(); // also of what this tab had before
}
/** Return whether a model may come without asking: the reader has agreed, or nothing is downloaded.
 * @param {Explorer} e
 * @param {Model} model */
async function may_fetch(e, model) {
  if (!model.about.parts.length) return false;
  if (e.agreed.has(model.about.key) || model.is_inside) return true;
  return (await model.kept_bytes()) === model.bytes;
}
/** Say why a model is needed.
 * @param {Explorer} e
 * @param {boolean} has_numbers whether those of the prompt were recorded */
export function why_ask(e, has_numbers) {
  if (has_numbers)
    return "These numbers came with the page. To go on, it needs a model, which runs in your browser:";
  const shown = e.trace
    ? ` The map still shows “${e.text_of(e.ids)}” in ${e.model.about.name}.`
    : "";
  return `${e.chosen.about.name} has not read this text.${shown} To read it, a model must run in your browser:`;
}
