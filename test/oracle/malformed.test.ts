/** Files that are no plans, or nearly are: what `chorale check` reads them with must end soon, in findings or typed errors. */
import { describe, expect, it } from "vitest";
import { ALGORITHMS, mscclppAllReducePipeline } from "../../src/authoring/algorithms/index.ts";
import { planToJson, readPlan } from "../../src/authoring/interchange/index.ts";
import { compile, writeMscclpp } from "../../src/authoring/language/index.ts";
import { verifyPlan } from "../../src/authoring/verifier/index.ts";
import { FormatError } from "../../src/core/index.ts";
import { Random } from "./random.ts";

const TOTAL = Number(process.env["FUZZ"] ?? 250);
const SLOWEST_MS = 20_000;

/** Small plans in both formats. */
function files(): string[] {
  const all: string[] = [];
  const programs = ALGORITHMS.map((algorithm) => algorithm.make({ numRanks: algorithm.legal(2) ? 2 : 4 }));
  // Loops more often than their share: they are what runs for long.
  for (let i = 0; i < 6; i++) programs.push(mscclppAllReducePipeline({}));
  for (const program of programs) {
    all.push(planToJson(compile(program, { verify: false })));
    try {
      const pieces: string[] = [];
      writeMscclpp(program, (piece) => pieces.push(piece));
      all.push(pieces.join(""));
    } catch {
      // What the MSCCL++ executor cannot do has no such file.
    }
  }
  return all;
}

const NUMBERS = [
  "-1",
  "0",
  "1",
  "7",
  "255",
  "65536",
  "100000",
  "1000000",
  "1000000000",
  "9007199254740993",
  "1e308",
  "0.5",
];
const VALUES = [...NUMBERS, "null", "true", '"x"', '"scratch"', "[]", "{}", "[[]]", "18446744073709551615", "-1e999"];

/** A value somewhere in the text: where it begins and ends. Numbers and words only, which keeps the rest parsable. */
function scalar(text: string, random: Random, numbersOnly = false): [number, number] {
  const match = numbersOnly
    ? /(?<=[[:,]\s*)\d+(?=\s*[,\]}])/g
    : /(?<=[[:,]\s*)(-?\d+(\.\d+)?|true|false|null|"[^"\\]*")(?=\s*[,\]}])/g;
  match.lastIndex = random.below(text.length);
  const found = match.exec(text) ?? /\d+/.exec(text);
  const at = found?.index ?? 0;
  return [at, at + (found?.[0].length ?? 0)];
}

const DAMAGE: readonly ((text: string, random: Random) => string)[] = [
  (text, random) => text.slice(0, random.below(text.length)),
  (text, random) => {
    const [from, to] = scalar(text, random);
    return text.slice(0, from) + random.pick(VALUES) + text.slice(to);
  },
  (text, random) => {
    let result = text;
    for (let i = 0; i < 4; i++) {
      const [from, to] = scalar(result, random);
      result = result.slice(0, from) + random.pick(NUMBERS) + result.slice(to);
    }
    return result;
  },
  ...[1, 3].map((times) => (text: string, random: Random) => {
    // Whole numbers for whole numbers, which pass as a plan more often.
    let result = text;
    for (let i = 0; i < times; i++) {
      const [from, to] = scalar(result, random, true);
      const number = random.chance(0.5) ? `${random.below(9)}` : random.pick(["64", "65536", "1000000", "1000000000"]);
      result = result.slice(0, from) + number + result.slice(to);
    }
    return result;
  }),
  (text, random) => {
    // A list or object in place of a word, many levels deep.
    const [from, to] = scalar(text, random);
    const depth = random.pick([10, 1000, 200_000]);
    const [open, close] = random.pick([
      ["[", "]"],
      ['{"a":', "}"],
    ] as const);
    return `${text.slice(0, from)}${open.repeat(depth)}0${close.repeat(depth)}${text.slice(to)}`;
  },
  (text, random) => {
    const keys = [...text.matchAll(/"([A-Za-z_]+)"\s*:/g)];
    const key = random.pick(keys);
    const name = random.pick(["__proto__", "constructor", "toString", "ranks", "gpus", "schemaVersion", ""]);
    return `${text.slice(0, key.index)}"${name}":${text.slice(key.index + key[0].length)}`;
  },
  (text, random) => {
    const at = random.below(text.length);
    return `${text.slice(0, at)}${String.fromCharCode(random.below(300))}${text.slice(at + random.below(3))}`;
  },
  (text, random) => {
    const [from, to] = [random.below(text.length), random.below(text.length)].sort((a, b) => a - b) as [number, number];
    return random.chance(0.5) ? text.slice(0, from) + text.slice(to) : text.slice(0, to) + text.slice(from);
  },
  (text, random) =>
    random.pick(["", "[", "null", "[]", "{}", "\uFEFF{}", '{"schemaVersion":1}', '{"gpus":[]}', text + text]),
];

describe("malformed plan files", () => {
  it(`end in findings or FormatError, soon and without wild allocation (${TOTAL} of them; FUZZ=5000 for more)`, {
    timeout: 600_000,
  }, () => {
    const bases = files();
    const outcomes = { refused: 0, flagged: 0, right: 0 };
    let slowest = 0;
    const before = process.memoryUsage().rss;
    let peak = before;
    for (let seed = 0; seed < TOTAL; seed++) {
      const random = new Random(seed + 40_000);
      const text = DAMAGE[seed % DAMAGE.length]!(bases[random.below(bases.length)]!, random);
      const started = performance.now();
      try {
        const verdict = verifyPlan(readPlan(Buffer.from(text), "plan.json"));
        if (verdict.ok) outcomes.right++;
        else outcomes.flagged++;
        for (const finding of verdict.findings) expect(finding.message.length, `seed ${seed}`).toBeLessThan(20_000);
      } catch (error) {
        expect(error, `seed ${seed}: ${error instanceof Error ? error.stack : ""}`).toBeInstanceOf(FormatError);
        outcomes.refused++;
      }
      const took = performance.now() - started;
      slowest = Math.max(slowest, took);
      peak = Math.max(peak, process.memoryUsage().rss);
      expect(took, `seed ${seed}`).toBeLessThan(SLOWEST_MS);
    }
    if (process.env["FUZZ"] !== undefined)
      console.log(outcomes, `slowest ${slowest.toFixed(0)} ms, ${((peak - before) / 1e6).toFixed(0)} MB more`);
    expect(outcomes.refused).toBeGreaterThan(TOTAL * 0.4);
    expect(outcomes.flagged).toBeGreaterThan(TOTAL * 0.02);
    expect(peak - before).toBeLessThan(1.5e9);
  });

  it("read piece by piece say the same as when read at once", () => {
    for (const text of files().filter((_, i) => i % 8 === 0)) {
      // Blanks make a small file a large one.
      const large = `${" ".repeat(2 ** 20)}${text}`;
      const once = readPlan(Buffer.from(text), "plan.json");
      expect(readPlan(Buffer.from(large), "plan.json")).toEqual(once);
    }
    const text = files()[0] ?? "";
    const large = (broken: string) => readPlan(Buffer.from(" ".repeat(2 ** 20) + broken), "plan.json");
    expect(() => large(text.replace('{"rank":1,"input"', '{"rank":5,"input"'))).toThrow(
      /ranks\.1\.rank: is 5, expected 1/,
    );
    expect(() => large(text.replace('"kind":"', '"kind":"no'))).toThrow(/ranks\.0\.strands\.0\.ops\.\d+/);
    expect(() => large(text.slice(0, -20))).toThrow(/is not JSON/);
  });
});
