/** Results of the mutants' campaign in files, one per option and a line per order, from which a campaign that was cut short goes on. */
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const fileOf = (folder, option) => join(folder, `${encodeURIComponent(option)}.jsonl`);

/** The seed that the folder's campaign began with; a new folder begins with `seed`. */
export function firstSeedOf(folder, seed) {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "first-seed");
  if (!existsSync(file)) writeFileSync(file, `${seed}\n`);
  return Number(readFileSync(file, "utf8"));
}

/** Adds what an order made of an option, with the option's name in the first line. */
export function appendResult(folder, option, result) {
  const file = fileOf(folder, option);
  if (!existsSync(file)) writeFileSync(file, `${JSON.stringify({ option })}\n`);
  appendFileSync(file, `${JSON.stringify(result)}\n`);
}

/** What was made of an option before. A last line that is not whole, of a process that was killed, is left out. */
export function readResults(folder, option) {
  const file = fileOf(folder, option);
  if (!existsSync(file)) return [];
  const [, ...lines] = readFileSync(file, "utf8").split("\n");
  return lines.slice(0, -1).flatMap((line) => {
    try {
      return [JSON.parse(line)];
    } catch {
      return [];
    }
  });
}

/** The seeds from `first` on, `count` of them, that no result covers: as ranges of at most `size`. */
export function uncovered(results, first, count, size) {
  const ranges = [];
  let at = first;
  const fill = (end) => {
    for (; at < end; at += size) ranges.push({ seed: at, count: Math.min(size, end - at) });
  };
  for (const { seed, count: made } of results.toSorted((a, b) => a.seed - b.seed)) {
    fill(Math.min(seed, first + count));
    at = Math.max(at, seed + made);
  }
  fill(first + count);
  return ranges;
}
