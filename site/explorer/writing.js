/* How a text grows: by the next token, or by many. */
import { count, reveal } from "./dom.js";
import { generator, pick } from "./sampling.js";
import { end_walk } from "./walk.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */

/** Return whether the numbers are those of the whole text. If a model is missing, its offer is in
 * sight, and the wish is done once it is there.
 * @param {Explorer} e
 * @param {() => void} wish */
export async function is_ready(e, wish) {
  if (e.form.text !== e.settings.prompt) e.set({});
  await e.running;
  const is_whole = e.trace && e.model === e.chosen && String(e.ids) === String(e.text_ids);
  if (!is_whole && !e.offer.element.hidden) {
    e.wish = wish;
    reveal(e.form.element);
  }
  return is_whole;
}
/** Return the token that the settings draw after the text; "how" says why it.
 * @param {Explorer} e */
export function draw_token(e) {
  const { temperature, top_k, top_p, seed } = e.settings;
  const random = generator(seed);
  e.added_ids.forEach(random); // one number for each token that was drawn
  const id = pick(e.trace.logits(e.T - 1), random, { temperature, top_k: top_k || null, top_p });
  const cut = top_k ? `, top-k ${top_k}` : "";
  const how = temperature
    ? `drawn by chance, at temperature ${temperature}${cut}, top-p ${top_p}`
    : "the most likely one (greedy decoding)";
  return { id, how, stops: e.tokenizer.stop_tokens.has(id) };
}

/** Draw the next token and append it.
 * @param {Explorer} e */
export async function next_token(e) {
  if (e.is_writing || !(await is_ready(e, () => next_token(e)))) return;
  end_walk(e);
  append(e, draw_token(e));
}
/** Append a token that was drawn, unless the text ends.
 * @param {Explorer} e
 * @param {{ id: number, how: string, stops: boolean }} token */
export function append(e, { id, how, stops }) {
  const { longest } = e.model.about;
  const name = `“${e.name(id)}”`;
  if (stops) e.news = `${name}, ${how}, is a stop token: the text ends.`;
  else if (e.T >= longest) e.news = `This page holds ${longest} tokens.`;
  else {
    e.news = `${name} was appended: ${how}.`;
    return e.set({ next: [...e.added_ids, id].join(".") });
  }
  return e.draw();
}
/** Continue the text by many tokens, as they come; again: stop.
 * @param {Explorer} e */
export async function generate(e) {
  if (e.is_writing) e.is_stopped = true;
  else if (await is_ready(e, () => generate(e))) await write(e);
}
/** Continue an explorer's text until it ends or is stopped.
 * @param {Explorer} e */
async function write(e) {
  const { llama, about } = e.model;
  if (!llama) {
    await e.ask(true);
    e.wish = () => generate(e);
    return;
  }
  end_walk(e);
  const { temperature, top_k, top_p, seed, most } = e.settings;
  const added = e.added_ids;
  const ids = e.text_ids;
  const { turn } = e;
  const begin = performance.now(); // another prompt makes this text a stale one
  const goes_on = () => !e.is_stopped && turn === e.turn;
  const random = generator(seed);
  added.forEach(random); // one number for each token that was drawn
  let n = 0;
  let first = 0;
  Object.assign(e, { is_writing: true, is_stopped: false });
  e.name_buttons();
  e.say("Generating … The map follows at the end.");
  await e.attempt(async () => {
    const how = { temperature, top_k: top_k || null, top_p };
    for await (const id of llama.generate(ids, { max_new_tokens: most, random, goes_on, ...how })) {
      if (!goes_on()) break;
      if (!n++) first = performance.now() - begin;
      added.push(id);
      e.message.write(e.settings.prompt, e.tokenizer.decode(added), true);
    }
  });
  const seconds = (performance.now() - begin - first) / 1000;
  const speed = Math.round((n - 1) / seconds);
  e.is_writing = false;
  if (turn !== e.turn) return void e.draw();
  const why = e.is_stopped
    ? "you stopped it"
    : n === most
      ? `the limit of ${most} new tokens`
      : e.text_ids.length + n >= about.longest
        ? `this page holds ${about.longest} positions`
        : n
          ? "the model drew a stop token"
          : "the model drew a stop token; another seed may draw another";
  const rate =
    n > 1
      ? `, the first after ${Math.round(first)} ms, then ${speed} a second in this browser.`
      : ".";
  e.news = `Generation ended: ${why}. ${count(n, "new token")}${rate}`;
  if (n) e.set({ next: added.join(".") });
  else e.draw();
}
