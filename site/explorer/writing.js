/* A text that grows by many tokens. */
import { count } from "./dom.js";
import { generator } from "./sampling.js";

/** @typedef {import("./explorer.js").Explorer} Explorer */

/** Continue an explorer's text until it ends or is stopped.
 * @param {Explorer} e */
export async function write(e) {
  const { llama, about } = e.model;
  if (!llama) return void e.ask(true);
  e.end_walk();
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
  e.say("Generating …");
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
        : "the model drew a stop token";
  const rate =
    n > 1
      ? `, the first after ${Math.round(first)} ms, then ${speed} a second in this browser.`
      : ".";
  e.news = `Generation ended: ${why}. ${count(n, "new token")}${rate}`;
  if (n) e.set({ next: added.join(".") });
  else e.draw();
}
