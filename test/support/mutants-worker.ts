/**
 * A process of the mutants' campaign (`test/campaigns/mutants.mjs`, which bundles it): makes the mutants that it is told to,
 * and tells of each before it begins, so that one which hangs, or ends the process, is known.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { setImmediate as turn } from "node:timers/promises";
import { main } from "../../src/apps/cli/main.ts";
import { callWith, type FileOption } from "./file-option.ts";
import { fileOptions } from "./file-options.ts";
import { rootOptions } from "./root-options.ts";
import { tryMutant } from "./try-mutant.ts";

/** What the campaign asks for: mutants of one option. */
interface Order {
  readonly option: number;
  readonly seed: number;
  readonly count: number;
}

const [folder = ""] = process.argv.slice(2);
const right = `${folder}/right`;
const options = [...fileOptions(right), ...rootOptions(`${right}/right-two.json`)];

const streams = [process.stdout, process.stderr] as const;
const writers = streams.map((stream) => stream.write);

async function call(...argv: string[]): Promise<{ code: number; out: string; err: string }> {
  const texts = ["", ""];
  streams.forEach((stream, i) => {
    stream.write = ((text: unknown) => {
      texts[i] += String(text);
      return true;
    }) as typeof stream.write;
  });
  try {
    const code = await main(argv);
    return { code, out: texts[0] ?? "", err: texts[1] ?? "" };
  } finally {
    streams.forEach((stream, i) => {
      stream.write = writers[i] as typeof stream.write;
    });
  }
}

/** The most that this process ever held, MB. */
const mostMb = () => process.resourceUsage().maxRSS / 1024;

/** Options that this process has begun with: with the file unchanged, since mutants of an option that refuses every file show nothing. */
const begun = new Set<number>();

async function refusal(option: FileOption, place: string): Promise<string | undefined> {
  const file = `${place}/${option.file}`;
  mkdirSync(place, { recursive: true });
  writeFileSync(file, option.content);
  const { code, err } = await callWith(option, file, (argv) => call(...argv));
  return code > 1 ? `exit code ${code} for the file before it was changed: ${err.slice(0, 200)}` : undefined;
}

process.on("message", async ({ option: index, seed, count }: Order) => {
  const option = options[index];
  if (option === undefined) throw new RangeError(`there is no option ${index}`);
  // A folder of its own: some commands read what else lies beside the file.
  const place = `${folder}/place-${index}`;
  const codes: Record<number, number> = {};
  const faults: { seed: number; problem: string }[] = [];
  if (!begun.has(index)) {
    const problem = await refusal(option, place);
    if (problem !== undefined) faults.push({ seed, problem });
    begun.add(index);
  }
  let [totalMs, worstMs, worstSeed] = [0, 0, seed];
  for (let at = seed; at < seed + count; at++) {
    process.send?.({ at });
    const { code = -1, problems, tookMs } = await tryMutant(option, at, place, call);
    codes[code] = (codes[code] ?? 0) + 1;
    faults.push(...problems.map((problem) => ({ seed: at, problem })));
    totalMs += tookMs;
    if (tookMs > worstMs) [worstMs, worstSeed] = [tookMs, at];
    if (at % 16 === 0) await turn();
  }
  process.send?.({ done: { codes, faults, totalMs, worstMs, worstSeed, mostMb: mostMb() } });
});
process.send?.({ options: options.map(({ name, isSlow = false, mayLeave = false }) => ({ name, isSlow, mayLeave })) });
