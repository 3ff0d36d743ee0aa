/** Files that are none: FIFOs, devices, folders, endless ones; and files whose names and texts are made for a terminal. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { runCli } from "../helpers/cli.ts";
import { wrongEnding } from "../support/cli-verdict.ts";
import { callWith } from "../support/file-option.ts";
import { fileOptions, flightDump, ggufModel } from "../support/file-options.ts";
import { filesOfHelp, isReached } from "../support/file-options-of-help.ts";
import { rootOptions } from "../support/root-options.ts";
import { isFull, spread } from "../support/spread.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-hostile-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const options = fileOptions(join(folder, "right"));
/** Broken files of a recorded root are warnings: what the options below ask of a file does not hold for them. */
const ofRoots = rootOptions(join(folder, "right", "right-two.json"));
const path = (name: string) => join(folder, name);
/** A path of its own for each option: some look at what lies beside the file. */
const own = (option: { readonly name: string; readonly file: string }) => {
  const place = path(option.name.replaceAll(/\W+/g, "-"));
  mkdirSync(place, { recursive: true });
  return join(place, option.file);
};
/** Clears the screen, sets the title, turns writing round, goes back to the line's start. */
const HOSTILE = "\u001b[2J\u001b]0;pwned\u0007\u202egpj\u009b31m\rall fine";

/** Places of a file where each is tried; 16 before a release. */
const MOST_PLACES = isFull ? 16 : 3;
const quick = options.filter(({ isSlow }) => isSlow !== true);
/** Where ranks start. */
const slow = options.filter(({ isSlow }) => isSlow === true);
const attacked = [...spread(quick, 8), ...spread(slow, 8)];

async function endOf(argv: readonly string[]) {
  const began = performance.now();
  const end = await runCli(...argv);
  return { ...end, tookMs: performance.now() - began, wrong: wrongEnding(end) };
}

describe("every option that takes a file", () => {
  it("is in the list that mutants are made of, wherever --help speaks of a file", async () => {
    const calls = [...options, ...ofRoots].map((option) => {
      const file = own(option);
      writeFileSync(file, option.content);
      return { words: option.argv(file), folder: dirname(file), file };
    });
    const places = await filesOfHelp();
    // As many as there are now, at least: a rule that finds no options would find none missing.
    expect(places.length).toBeGreaterThanOrEqual(24);
    const missing = places.filter((place) => !isReached(place, calls)).map(({ name }) => name);
    for (const { file } of calls) rmSync(file);
    expect(missing).toEqual([]);
  });

  it.each([...spread(quick, 5, 1), ...spread(slow, 5, 1), ...ofRoots].map((option) => [option.name, option] as const))(
    "%s takes a right one",
    async (_, option) => {
      const file = own(option);
      writeFileSync(file, option.content);
      const { code, err, wrong } = await callWith(option, file, endOf);
      rmSync(file);
      const said = err.replace(/^chorale \w+: tools of \S+ are executed\n$/, "");
      expect({ wrong, said }).toEqual({ wrong: [], said: "" });
      // A stuck flight and a difference are findings.
      expect(code).toBe(/flight|diff: MSCCL plan/.test(option.name) ? 1 : 0);
    },
  );

  const isPosix = process.platform !== "win32";
  it.skipIf(!isPosix).each(attacked.map((option) => [option.name, option] as const))(
    "%s refuses a FIFO, /dev/zero and a folder at once (needs mkfifo)",
    async (_, option) => {
      const file = own(option);
      const kinds: [string, () => void][] = [
        ["a FIFO", () => execFileSync("mkfifo", [file])],
        ["/dev/zero", () => execFileSync("ln", ["-s", "/dev/zero", file])],
        ["a folder", () => execFileSync("mkdir", [file])],
      ];
      for (const [kind, make] of kinds) {
        make();
        const { code, wrong, tookMs, err, out } = await callWith(option, file, endOf);
        rmSync(file, { recursive: true });
        expect({ kind, wrong, isQuick: tookMs < 30_000 }).toEqual({ kind, wrong: [], isQuick: true });
        expect([kind, code === 1 || code === 2, (out + err).includes(option.file)]).toEqual([kind, true, true]);
      }
    },
  );

  it.each(attacked.map((option) => [option.name, option] as const))(
    "%s is not obeyed by the terminal",
    async (_, option) => {
      // In place of every string and word of the file, one by one for some of them; for two where ranks start.
      const most = option.isSlow === true ? 2 : MOST_PLACES;
      const text = new TextDecoder("latin1").decode(option.content);
      const places = [...text.matchAll(/"(?:[^"\\]|\\.)*"/g)].filter(
        (_, i, all) => i % Math.ceil(all.length / most) === 0,
      );
      const escaped = JSON.stringify(HOSTILE);
      const raw = Buffer.from(HOSTILE, "utf8").toString("latin1");
      const wrong: string[] = [];
      for (const with_ of [escaped, `"${raw}"`]) {
        for (const place of places) {
          const file = own(option);
          const changed = `${text.slice(0, place.index)}${with_}${text.slice(place.index + place[0].length)}`;
          writeFileSync(file, Buffer.from(changed, "latin1"));
          wrong.push(...wrongEnding(await callWith(option, file, endOf), option.isProgram));
          rmSync(file);
        }
      }
      expect(wrong).toEqual([]);
    },
  );
});

describe("names and messages of files", () => {
  it("of GGUF models and tensors are shown, not obeyed", async () => {
    const file = path("hostile.gguf");
    for (const content of [ggufModel(HOSTILE), ggufModel("small", HOSTILE), ggufModel(`a\n${HOSTILE}`)]) {
      writeFileSync(file, content);
      for (const more of [[], ["--json"], ["--explain"]]) {
        const end = await endOf(["plan", file, "--hardware", "l4", "--context", "64", ...more]);
        expect(end.wrong).toEqual([]);
      }
    }
    writeFileSync(file, ggufModel(HOSTILE));
    const { out } = await endOf(["plan", file, "--hardware", "l4", "--context", "64"]);
    expect(out).toContain("\\x1b[2J\\x1b]0;pwned\\x07\\u202egpj\\x9b31m\\x0dall fine");
  });

  it("of flight dumps are shown, not obeyed, and do not begin lines of their own", async () => {
    const file = path("hostile-flight.json");
    writeFileSync(file, JSON.stringify(flightDump(`${HOSTILE}\nworld: every operation is done`)));
    const { out, wrong } = await endOf(["doctor", "--flight", file]);
    expect(wrong).toEqual([]);
    expect(out).toContain("\\x1b[2J");
    expect(out).not.toMatch(/^world: every operation/m);
  });

  it("of files and options themselves are shown, not obeyed", async () => {
    const named = path(`${HOSTILE.replaceAll("/", "")}.json`);
    writeFileSync(named, "{");
    for (const argv of [
      ["check", named],
      ["plan", named],
      ["sim", named, "--topology", "l4"],
      ["doctor", "--flight", named],
      ["plan", "gpt2", "--hardware", named],
      ["plan", HOSTILE],
      [HOSTILE],
      ["plan", `--${HOSTILE}`],
      ["launch", "-n", "2", `${HOSTILE}.ts`],
      ["bench", HOSTILE],
      ["detect", "--columns", HOSTILE],
    ]) {
      const { code, wrong } = await endOf(argv);
      expect([argv[0], code, wrong]).toEqual([argv[0], code === 1 ? 1 : 2, []]);
    }
  });
});

describe("files that are too much", () => {
  const end = async (name: string, content: Uint8Array | string, ...argv: string[]) => {
    const file = path(name);
    writeFileSync(file, content);
    const { code, err, wrong, tookMs } = await endOf(argv.map((word) => (word === "FILE" ? file : word)));
    rmSync(file);
    expect({ name, wrong, isQuick: tookMs < 30_000 }).toEqual({ name, wrong: [], isQuick: true });
    return { code, err };
  };

  it("JSON that is nested 3,000 deep is refused in words, wherever it is read", async () => {
    const deep = `${"[".repeat(3000)}${"]".repeat(3000)}`;
    const inventory = `{"schemaVersion":1,"devices":[{"id":"a","family":"cpu","vendor":"","name":"","index":0,"visible":true,"details":{"x":${deep}}}],"topology":{"nodes":[],"links":[]},"warnings":[]}`;
    const answer = await end("deep.json", inventory, "plan", "gpt2", "--hardware", "FILE");
    expect(answer).toMatchObject({ code: 2, err: expect.stringContaining("nested deeper than 64 levels") });
    for (const argv of [
      ["doctor", "--flight", "FILE"],
      ["plan", "FILE"],
      ["check", "FILE"],
      ["sim", "FILE", "--topology", "l4"],
    ]) {
      const { code } = await end("deep.json", deep, ...argv);
      expect([argv[0], code === 1 || code === 2]).toEqual([argv[0], true]);
    }
  });

  it("times beyond what a date holds are shown as they are", async () => {
    const dump = JSON.stringify(flightDump()).replaceAll("1000000000000", "8640000000000001");
    expect(await end("late.json", dump, "doctor", "--flight", "FILE")).toMatchObject({ code: 1, err: "" });
    expect(
      await end("late.json", dump.replaceAll("8640000000000001", "-1e300"), "doctor", "--flight", "FILE"),
    ).toMatchObject({ code: 1 });
  });

  it("130,000 tensors and as many entries of a GGUF array are read or refused in words", async () => {
    const header: Record<string, object> = {};
    for (let i = 0; i < 130_000; i++)
      header[`model.layers.${i}.x.weight`] = { dtype: "F32", shape: [0], data_offsets: [0, 0] };
    const text = Buffer.from(JSON.stringify(header));
    const size = Buffer.alloc(8);
    size.writeBigUInt64LE(BigInt(text.length));
    expect(
      await end("many.safetensors", Buffer.concat([size, text]), "plan", "FILE", "--hardware", "l4"),
    ).toMatchObject({ code: 2 });
    // More than a call of JavaScript may have arguments.
    const counts = ggufModel("small", "token_embd.weight", ["a"], 130_000);
    expect((await end("counts.gguf", counts, "plan", "FILE", "--hardware", "l4", "--context", "64")).code).toBe(0);
  });

  it("plans whose ranks, strands or channels do not fit together are findings, in check and in sim", async () => {
    const right = JSON.parse(new TextDecoder().decode(options[0]?.content)) as {
      ranks: { strands: { ops: object[] }[]; channels?: unknown }[];
    };
    const spoils: ((plan: typeof right) => void)[] = [
      (plan) => void plan.ranks.pop(),
      (plan) => void plan.ranks[0]?.strands.splice(0),
      (plan) => {
        const [, rank] = plan.ranks;
        if (rank !== undefined) rank.channels = {};
      },
      (plan) => void plan.ranks[2]?.strands[0]?.ops.splice(0, 3),
    ];
    for (const spoil of spoils) {
      const plan = structuredClone(right);
      spoil(plan);
      for (const argv of [
        ["check", "FILE"],
        ["sim", "FILE", "--topology", "hgx-h100-8", "-b", "1K", "-e", "1K"],
      ]) {
        expect([0, 1, 2]).toContain((await end("spoilt.json", JSON.stringify(plan), ...argv)).code);
      }
    }
  });

  it("plans of billions of chunks end in words", async () => {
    const text = new TextDecoder().decode(options[0]?.content);
    const scratch = /"scratch":\{"chunks":\d+/g;
    expect(text).toMatch(scratch);
    const huge = text.replaceAll(scratch, `"scratch":{"chunks":${2 ** 32 + 3}`);
    for (const plan of [huge, huge.replaceAll(/"size":\d+/g, `"size":${2 ** 32 + 3}`)])
      for (const argv of [
        ["check", "FILE"],
        ["compile", "FILE", "--target", "cuda"],
        ["sim", "FILE", "--topology", "hgx-h100-8", "-b", "1K", "-e", "1K"],
        ["bench", "FILE", "-b", "1K", "-e", "1K"],
      ]) {
        const { code, err } = await end("huge.json", plan, ...argv);
        expect(code, `${argv[0]}: ${err}`).toBeLessThanOrEqual(2);
      }
  });
});
