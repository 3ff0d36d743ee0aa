/**
 * Mutants of every file that the command line takes: whatever a file holds, a call ends soon with exit code 0, 1, 2 or 3
 * and a sentence, without a stack, without a byte that a terminal obeys, and in bounded memory.
 *
 * CHORALE_MUTANTS sets how many of each option are made (10,000 before a release, a few in CI), CHORALE_SEED the seed,
 * CHORALE_ONLY a regular expression over the options' names.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { afterAll, expect, it } from "vitest";
import { runCli } from "../helpers/cli.ts";
import { Random } from "../oracle/random.ts";
import { wrongEnding } from "../support/cli-verdict.ts";
import { fileOptions } from "../support/file-options.ts";
import { mutateFile } from "../support/mutate-file.ts";

const COUNT = Number(process.env["CHORALE_MUTANTS"] ?? 12);
const SEED = Number(process.env["CHORALE_SEED"] ?? 20_261_122);
const ONLY = new RegExp(process.env["CHORALE_ONLY"] ?? "");
/** A call that takes longer hangs, as far as anybody who waits for it can tell. */
const MAX_MS = 20_000;
const MAX_RSS_BYTES = 1e9;

const folder = mkdtempSync(join(tmpdir(), "chorale-mutants-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const options = fileOptions(join(folder, "right")).filter(({ name }) => ONLY.test(name));
/** A mutant that runs takes long, and starts threads: fewer of them in CI. */
const countOf = (name: string) => (/^(launch|bench|tune)/.test(name) ? Math.ceil(COUNT / 3) : COUNT);

it.each(options.map((option) => [option.name, countOf(option.name), option] as const))(
  `%s: %i mutants from seed ${SEED} end in words`,
  async (name, count, option) => {
    const wrong: string[] = [];
    const codes = new Map<number, number>();
    for (let index = 0; index < count && wrong.length < 5; index++) {
      const random = new Random(SEED + index);
      const place = join(folder, String(index % 8));
      rmSync(place, { recursive: true, force: true });
      const file = join(place, option.file);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, mutateFile(option.content, random));
      const began = performance.now();
      let problems: string[];
      try {
        const end = await runCli(...option.argv(file));
        codes.set(end.code, (codes.get(end.code) ?? 0) + 1);
        problems = wrongEnding(end, option.isProgram);
      } catch (error) {
        problems = [`threw ${String(error)}`];
      }
      const tookMs = performance.now() - began;
      if (tookMs > MAX_MS) problems.push(`took ${tookMs.toFixed(0)} ms`);
      const { rss } = process.memoryUsage();
      if (rss > MAX_RSS_BYTES) problems.push(`${(rss / 1e6).toFixed(0)} MB resident after it`);
      wrong.push(...problems.map((problem) => `seed ${SEED + index}: ${problem}`));
      if (index % 64 === 0) await turn();
    }
    if (COUNT > 1000) console.log(`${name}: ${[...codes].map(([code, n]) => `${n} x exit ${code}`).join(", ")}`);
    expect(wrong).toEqual([]);
  },
  Math.max(60_000, COUNT * 500),
);
