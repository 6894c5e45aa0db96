/* Runs the page's Llama, site/explorer, without a browser, for tests/test_page_llama.py.

A line of the input is JSON: { folders, about, code, given }. The code is run as an async function
with `llama`, what the modules export; `model`, the Model of `about`; and `given`. The page's files
are those of the first folder that has them.
Answers each line by one: { value }, or { error }, and `errors`, what was written to the console. */
import { existsSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { createInterface } from "node:readline";

const NAMES = ["files", "kernel", "llama", "models", "sampling", "steps", "tokenizer", "trace"];
const modules = NAMES.map((name) => import(`../site/explorer/${name}.js`));
const llama = Object.assign({}, ...(await Promise.all(modules)));
const AsyncFunction = (async () => {}).constructor;
const models = new Map();
let folders = [];
let errors = [];

globalThis.fetch = async (url) => {
  const places = folders.map((folder) => join(folder, basename(url.pathname)));
  return new Response(readFileSync(places.find(existsSync)));
};
console.error = console.warn = (error) => errors.push(String(error));

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line), key = JSON.stringify([asked.folders, asked.about]);
  if (!models.has(key)) models.set(key, new llama.Model(asked.about));
  const answer = {};
  ({ folders } = asked);
  errors = [];
  try {
    const code = new AsyncFunction("llama", "model", "given", asked.code);
    answer.value = await code(llama, models.get(key), asked.given);
  } catch (error) {
    answer.error = error.stack;
  }
  answer.errors = errors;
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
