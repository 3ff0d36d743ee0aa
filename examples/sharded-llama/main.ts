/**
 * A Llama-family model, sharded over the ranks of a world, continues a text:
 *
 *   chorale launch -n 4 examples/sharded-llama/main.ts -- --model examples/sharded-llama/model --tp 2 --pp 2 \
 *     --prompt "ROMEO:" --max-new-tokens 96
 *
 * With --json one rank prints one document, {tokens, text, lastLogits, tokensPerSecond}, and nothing else is on stdout (where
 * ranks are processes, with `launch --no-prefix`).
 */
import { writeSync } from "node:fs";
import type { World } from "chorale";
import { parseArguments } from "./arguments.ts";
import { checkLayout, type Generated, generate } from "./generate.ts";

export default async function main(world: World): Promise<void> {
  const options = parseArguments(world.args);
  const { dp, pp, tp } = checkLayout(options.model, options, world.size);
  const results = await generate(world, options);
  if (world.rank !== 0) return;
  if (options.json) {
    // The first prompt's result; with several prompts also all of them.
    const document = { ...(results[0] as Generated), ...(results.length > 1 ? { results } : {}), mesh: { dp, pp, tp } };
    printDocument(`${JSON.stringify(document)}\n`);
    return;
  }
  for (const { text, tokens, tokensPerSecond } of results) {
    console.log(text ?? tokens.join(","));
    console.log(`-- ${tokens.length} tokens, ${tokensPerSecond.toFixed(1)} a second, dp ${dp} x pp ${pp} x tp ${tp}`);
  }
}

const PATIENCE_MS = 60_000;

/** Writes to the process's own stdout: what a rank logs is prefixed by its number, and a document must not be. */
function printDocument(text: string): void {
  const bytes = new TextEncoder().encode(text);
  const sleeper = new Int32Array(new SharedArrayBuffer(4));
  const deadline = Date.now() + PATIENCE_MS;
  for (let done = 0; done < bytes.length; ) {
    try {
      done += writeSync(1, bytes, done);
    } catch (error) {
      // A pipe that is full: its reader is behind.
      if (!(error instanceof Error && "code" in error && error.code === "EAGAIN") || Date.now() > deadline) throw error;
      Atomics.wait(sleeper, 0, 0, 1);
    }
  }
}
