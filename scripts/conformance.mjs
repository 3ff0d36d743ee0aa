/**
 * Replays MSCCL++ DSL traces and compares the plans: `npm run conformance -- --data DIR`. DIR holds programs.jsonl.gz
 * and fuzz.jsonl.gz (any *.jsonl.gz or *.jsonl): one object a line with `trace`, and `plan`, `plan_text` or `error`.
 * Without --data, ../shared/conformance/mscclpp beside the repository; skipped visibly where that is absent.
 */
import { createReadStream, existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { createGunzip } from "node:zlib";
import { importTests } from "./bundle-tests.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const { values } = parseArgs({ options: { data: { type: "string" }, verbose: { type: "boolean" } } });
const data = resolve(values.data ?? join(root, "../shared/conformance/mscclpp"));
if (!existsSync(data)) {
  console.log(`SKIPPED: no conformance data in ${data} (name its folder with --data DIR)`);
  console.log("0 passed, 0 failed");
  process.exit(values.data === undefined ? 0 : 2);
}

const { checkConformance } = await importTests("test/mscclpp/check-conformance.ts");
let passed = 0;
let failed = 0;
let sameText = 0;
let texts = 0;
for (const file of readdirSync(data).sort()) {
  if (!/\.jsonl(\.gz)?$/.test(file)) continue;
  const stream = createReadStream(join(data, file));
  let line = 0;
  for await (const text of createInterface({
    input: file.endsWith(".gz") ? stream.pipe(createGunzip()) : stream,
    crlfDelay: Number.POSITIVE_INFINITY,
  })) {
    line++;
    if (text.trim() === "") continue;
    const result = checkConformance(text);
    if (result.sameText !== undefined) texts++;
    if (result.sameText === true) sameText++;
    if (result.problem === undefined) passed++;
    else {
      failed++;
      if (failed <= 20 || values.verbose) console.log(`FAILED ${file}:${line} (${result.id}): ${result.problem}`);
    }
  }
}
if (texts > 0) console.log(`${sameText} of ${texts} printed plans are the same text, byte for byte`);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
