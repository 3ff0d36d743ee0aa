/**
 * Mutants of every file that the command line takes: whatever a file holds, a call ends soon with exit code 0, 1, 2 or 3
 * and a sentence, without a stack, without a byte that a terminal obeys, and in bounded memory.
 *
 * A few of each option; `mutants.mjs` makes 10,000 on all cores. CHORALE_MUTANTS sets how many of each option are made (a
 * third of them where a call starts ranks or programs), CHORALE_SEED the seed, CHORALE_ONLY a regular expression over the options' names, and
 * CHORALE_SHARD=I/N makes the I-th of N equal parts, so that N processes share the work.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { afterAll, expect, it } from "vitest";
import { runCli } from "../helpers/cli.ts";
import { Random } from "../oracle/random.ts";
import type { FileOption } from "../support/file-option.ts";
import { fileOptions } from "../support/file-options.ts";
import { mutateFile } from "../support/mutate-file.ts";
import { rootOptions } from "../support/root-options.ts";
import { spread } from "../support/spread.ts";
import { tryMutant } from "../support/try-mutant.ts";

const asked = process.env["CHORALE_MUTANTS"];
const COUNT = Number(asked ?? 3);
const SEED = Number(process.env["CHORALE_SEED"] ?? 20_261_122);
const [SHARD = 1, SHARDS = 1] = (process.env["CHORALE_SHARD"] ?? "1/1").split("/").map(Number);
const ONLY = new RegExp(process.env["CHORALE_ONLY"] ?? "");

const folder = mkdtempSync(join(tmpdir(), "chorale-mutants-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const right = fileOptions(join(folder, "right"));
const options = [...right, ...rootOptions(join(folder, "right", "right-two.json"))].filter(({ name }) =>
  ONLY.test(name),
);
const countOf = ({ isSlow }: FileOption) => (isSlow === true ? Math.ceil(COUNT / 3) : COUNT);

// Of a third of the options, where nobody asks for a number.
const mutated = asked === undefined ? spread(options, 3) : options;
it.each(mutated.map((option) => [option.name, countOf(option), option] as const))(
  `%s: %i mutants from seed ${SEED} end in words`,
  async (name, count, option) => {
    const wrong: string[] = [];
    const codes = new Map<number, number>();
    for (let index = SHARD - 1; index < count && wrong.length < 5; index += SHARDS) {
      const place = join(folder, String(index % 8));
      rmSync(place, { recursive: true, force: true });
      const { code, problems } = await tryMutant(option, SEED + index, place, runCli);
      if (code !== undefined) codes.set(code, (codes.get(code) ?? 0) + 1);
      wrong.push(...problems.map((problem) => `seed ${SEED + index}: ${problem}`));
      if (index % 64 === 0) await turn();
    }
    if (COUNT > 1000) console.log(`${name}: ${[...codes].map(([code, n]) => `${n} x exit ${code}`).join(", ")}`);
    expect(wrong).toEqual([]);
  },
  Math.max(60_000, COUNT * 500),
);

it("leaves what it makes mutants of as it is, a Buffer, too", () => {
  const content = Buffer.from("some text that is no JSON");
  for (let seed = 0; seed < 50; seed++) mutateFile(content, new Random(seed));
  expect(content.toString()).toBe("some text that is no JSON");
});

it("makes mutants of documents of any depth, the same for the same seed", () => {
  const deep = new TextEncoder().encode(`{"a": ${"[".repeat(20_000)}${"]".repeat(20_000)}, "b": 1}`);
  for (let seed = 0; seed < 10; seed++) {
    const changed = mutateFile(deep, new Random(seed));
    expect(Buffer.compare(changed, mutateFile(deep, new Random(seed)))).toBe(0);
    expect(Buffer.compare(changed, deep)).not.toBe(0);
  }
});
