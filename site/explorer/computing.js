/* How a text gets its numbers: a recorded run's, or a model's, which may have to be fetched first. */
import { megabytes } from "./dom.js";
import { UserError } from "./files.js";
import { runs } from "./made.js";
import { read_run } from "./models.js";
import { is_metered } from "./offer.js";
import { check_settings } from "./settings.js";
import { Trace } from "./trace.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */
/** @typedef {import("./models.js").Model} Model */

const LONGEST_TEXT = 3000; // characters that are encoded at once
const SMALL = 20e6; // bytes of a model that a page fetches without asking, if nobody pays for them

/** Throw if the page can't take a prompt. @param {string} prompt */
function check_prompt(prompt) {
  const size = [...prompt].length;
  if (!size) throw new UserError("The prompt is empty. Type a word or more.");
  if (size > LONGEST_TEXT)
    throw new UserError(
      `The text has ${size} characters; this page takes at most ${LONGEST_TEXT}. Shorten it.`,
    );
}
/** Compute the explorer's text, or find its recorded numbers, and draw them.
 * @param {Explorer} e
 * @param {() => boolean} is_current becomes false if another text is wanted */
export async function compute(e, is_current) {
  const model = e.chosen;
  const { settings } = e;
  check_prompt(settings.prompt);
  const recorded = await prepare(e, model, is_current);
  if (!is_current()) return;
  if (recorded && !model.llama) {
    e.trace = recorded;
    const is_enough = !settings.next && !e.agreed.has(model.about.key);
    if (is_enough) e.offer.hide();
    e.draw();
    if (is_enough) return;
  }
  if (!model.llama) {
    if (!(await may_fetch(e, model))) return void e.ask(Boolean(recorded));
    e.say(`${model.about.name} is being loaded: ${megabytes(model.bytes)}.`);
    model.llama = await model.load(e.offer.progress(model), e.offer.gate);
  }
  if (!is_current()) return;
  e.offer.hide();
  take(e, model, await model.config(), await model.tokenizer());
  if (e.trace?.llama !== model.llama) e.trace = new Trace(e.config, model.llama.w, model.llama);
  if ((await e.trace.follow(e.text_ids, is_current)) && is_current()) e.draw();
}
/** Fetch what even a recorded run needs; return that run's trace, if there is one.
 * @param {Explorer} e
 * @param {Model} model
 * @param {() => boolean} is_current */
async function prepare(e, model, is_current) {
  const { prompt, special } = e.settings;
  const run = runs.find((it) => it.model === model.about.key && it.prompt === prompt && !special);
  const [config, tokenizer, recorded] = await Promise.all([
    model.config(),
    model.tokenizer(),
    run && !model.llama ? read_run(model, run) : undefined,
  ]);
  if (is_current() && (recorded || !e.trace)) take(e, model, config, tokenizer);
  return recorded;
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
/** Return whether a model may be fetched without asking.
 * @param {Explorer} e
 * @param {Model} model */
async function may_fetch(e, model) {
  if (!model.about.parts.length) return false;
  if (e.agreed.has(model.about.key) || model.is_inside || (await model.is_kept())) return true;
  return model.bytes < SMALL && !is_metered();
}
/** Say why a model is needed.
 * @param {Explorer} e
 * @param {boolean} has_numbers whether those of the prompt were recorded */
export function why_ask(e, has_numbers) {
  if (has_numbers)
    return "These numbers came with the page. To go on, it needs a model, which runs in your browser:";
  const shown = e.trace ? ` The map still shows “${e.tokenizer.decode(e.ids)}”.` : "";
  return `No model has read this text yet.${shown} It needs one, which runs in your browser:`;
}
