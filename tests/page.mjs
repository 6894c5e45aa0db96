/* Runs site/llama.js without a browser, for tests/test_page_llama.py.

A line of the input is JSON: { folders, code, given }. The code is run as an async function with
`llama`, the page's, and `given`. The page's files are those of the first folder that has them.
Answers each line by one: { value }, or { error }, and `errors`, what was written to the console. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

const script = readFileSync(new URL("../site/llama.js", import.meta.url), "utf8");
const AsyncFunction = (async () => {}).constructor;
const pages = new Map();

/** Return { llama, errors } of a page: the script runs with what it uses of a browser. */
function open(folders) {
  const page = { errors: [] };
  const file_of = (url) =>
    folders.map((folder) => join(folder, url.pathname.split("/").at(-1))).find(existsSync);
  const browser = {
    window: page,
    document: { currentScript: { src: "https://page/llama.js" } },
    location: { protocol: "https:" },
    fetch: async (url) => new Response(readFileSync(file_of(url))),
    console: { error: (error) => page.errors.push(String(error)) },
  };
  new Function(...Object.keys(browser), script)(...Object.values(browser));
  return page;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { folders, code, given } = JSON.parse(line), key = folders.join("\n");
  if (!pages.has(key)) pages.set(key, open(folders));
  const { llama, errors } = pages.get(key), answer = {};
  try {
    answer.value = await new AsyncFunction("llama", "given", code)(llama, given);
  } catch (error) {
    answer.error = error.stack;
  }
  answer.errors = errors.splice(0);
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
