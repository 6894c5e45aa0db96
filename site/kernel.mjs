/* Write explorer/kernel.wat as a program into explorer/kernel.js; with --check, compare them.

npm run kernel, npm run kernel -- --check */
import { readFileSync, writeFileSync } from "node:fs";
import process from "node:process";
import open_wabt from "wabt";

const wabt = await open_wabt();
const text = readFileSync("explorer/kernel.wat", "utf8");
const binary = wabt.parseWat("kernel.wat", text, { simd: true }).toBinary({}).buffer;
const line = `const PROGRAM =\n  "${Buffer.from(binary).toString("base64")}";`;
const script = readFileSync("explorer/kernel.js", "utf8");
const written = script.replace(/const PROGRAM =\s+"[^"]*";/, line);
if (!process.argv.includes("--check")) writeFileSync("explorer/kernel.js", written);
else if (written !== script) {
  console.error("kernel.js does not have the program of kernel.wat: npm run kernel");
  process.exit(1);
}
