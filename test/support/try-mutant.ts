/** One mutant of a file option: made, given to the command line, and judged. */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Random } from "../oracle/random.ts";
import { wrongEnding } from "./cli-verdict.ts";
import { callWith, type FileOption } from "./file-option.ts";
import { mutateFile } from "./mutate-file.ts";
import { changedPrototypes } from "./untouched-prototypes.ts";

/** A call that takes longer hangs, as far as anybody who waits for it can tell. */
const MAX_MS = 20_000;
const MAX_RSS_BYTES = 1e9;

type Call = (...argv: string[]) => Promise<{ code: number; out: string; err: string }>;

/**
 * Calls the command line with the mutant that a seed makes, in the folder `place`.
 * @returns the exit code (absent when the call threw), what is wrong, and how long it took
 */
export async function tryMutant(
  option: FileOption,
  seed: number,
  place: string,
  call: Call,
): Promise<{ readonly code?: number; readonly problems: readonly string[]; readonly tookMs: number }> {
  const file = join(place, option.file);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, mutateFile(option.content, new Random(seed)));
  const began = performance.now();
  let code: number | undefined;
  const problems: string[] = [];
  try {
    const end = await callWith(option, file, (argv) => call(...argv));
    code = end.code;
    problems.push(...wrongEnding(end, option.isProgram));
  } catch (error) {
    problems.push(`threw ${String(error)}`);
  }
  const tookMs = performance.now() - began;
  problems.push(...changedPrototypes());
  if (tookMs > MAX_MS) problems.push(`took ${tookMs.toFixed(0)} ms`);
  const { rss } = process.memoryUsage();
  if (rss > MAX_RSS_BYTES) problems.push(`${(rss / 1e6).toFixed(0)} MB resident after it`);
  return { ...(code === undefined ? {} : { code }), problems, tookMs };
}
