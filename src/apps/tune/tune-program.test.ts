/** Tuning a program: its variants, what is measured of them, and that comm.run uses what was stored. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "chorale";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";
import { algorithm, ringAllReduce } from "../../authoring/algorithms/index.ts";
import { hashPlan } from "../../authoring/plan/index.ts";
import { AS_WRITTEN, loadLibraryPlans } from "../../runtime/executor/internal.ts";
import { storeProgramTuning, type TuneProgramResult, tunedMachine } from "./index.ts";
import { shapedLabels, variantsOf } from "./program-variants.ts";

const ring = fileURLToPath(new URL("../../../examples/write-a-collective/ring.ts", import.meta.url));
const variables = ["CHORALE_CHOICES", "CHORALE_CUDA_LIBRARY"] as const;
const before = Object.fromEntries(variables.map((name) => [name, process.env[name]]));
let folder = "";
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "chorale-tune-program-"));
  await loadLibraryPlans();
});
afterEach(() => {
  for (const [name, value] of Object.entries(before)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Writes a program file that makes `text`. */
function programFile(name: string, text: string): string {
  const file = join(folder, `${name}.mjs`);
  writeFileSync(file, `import * as language from "chorale/language";\n${text}\n`);
  return file;
}

describe("variants of a program", () => {
  const source = { differs: "", program: ringAllReduce({ numRanks: 2 }) };

  it("have names of their own, the program as written first, and are different plans", () => {
    const variants = variantsOf([source], { instances: [1, 2] }, true);
    expect(variants.map(({ label, differs }) => [label.replace(/[0-9a-f]{8}$/, ""), differs])).toEqual([
      ["ring-all-reduce-h", "as written"],
      ["ring-all-reduce-x2-h", "2 instances"],
    ]);
    for (const { label, plan } of variants) expect(label.endsWith(hashPlan(plan).slice(0, 8))).toBe(true);
    const others = [2, 4].map((chunks) => ({
      differs: `instances=${chunks}`,
      program: ringAllReduce({ numRanks: 2, instances: chunks }),
    }));
    // What is the same plan by another way is one variant.
    expect(variantsOf([source, ...others], { instances: [1, 2, 4] }, true)).toHaveLength(3);
  });

  it("compute what the program computes", () => {
    const other = { differs: "gather=true", program: algorithm("ring-all-gather").make({ numRanks: 2 }) };
    expect(() => variantsOf([source, other], {}, false)).toThrow(
      /gather=true: all_gather of 2 ranks.*all_reduce of 2 ranks/,
    );
  });

  it("are kernels of the shapes that the plan can have", () => {
    const labels = (name: string, search = {}) => {
      const [variant] = variantsOf([{ differs: "", program: algorithm(name).make({ numRanks: 2 }) }], {}, true);
      return shapedLabels(variant, 4096, { dtype: "f32" }, search).map((label) => label.split("@")[1]);
    };
    expect(labels("one-shot-packet-all-reduce")).toEqual(["256.lines", "256.words", "128.lines"]);
    expect(labels("one-shot-packet-all-reduce", { threads: [32], packets: ["words"] })).toEqual(["32.words"]);
    expect(labels("ring-all-reduce", { threads: [64, 96], unroll: [2, 8] })).toEqual([
      "64.u2",
      "64.u8",
      "96.u2",
      "96.u8",
    ]);
    expect(labels("ring-all-reduce", { threads: [64], blocks: [1, 4] })).toEqual(["64.b1", "64.b4"]);
    expect(labels("two-phase-all-reduce")).toEqual(["256", "128", "512"]);
  });
});

describe("chorale tune FILE on threads", () => {
  const few = ["-n", "2", "-b", "4K", "-e", "4K", "--budget", "20"];

  it("measures variants beside the program as written, and comm.run uses what is stored", {
    timeout: 120_000,
  }, async () => {
    const file = join(folder, "machine.json");
    process.env["CHORALE_CHOICES"] = file;
    const { code, out, err } = await runCli("tune", ring, "--backend", "threads", ...few, "--json");
    expect(code, err).toBe(0);
    const result = JSON.parse(out) as TuneProgramResult;
    expect(result).toMatchObject({ program: "ring", op: "all_reduce", ranks: 2, backend: "threads", wrong: [] });
    expect(result.rows).toMatchObject([{ sizeBytes: 4096, shipped: { label: AS_WRITTEN, wrong: 0 } }]);
    expect(result.rows[0]?.builtIn.label).toMatch(/-(kernel|all-reduce)$/);
    expect(result.rows[0]?.measured.length).toBeGreaterThan(0);

    // Whatever was found: a table of our own shows that runs use it, from the size on that it says.
    const [, variant] = result.variants;
    const [written, twice] = variantsOf([{ differs: "", program: await ringProgram() }], { instances: [1, 2] }, false);
    expect([variant?.label, result.hash]).toEqual([twice?.label, hashPlan(written.plan)]);
    const { planToJson } = await import("../../authoring/interchange/index.ts");
    const plan = JSON.parse(planToJson(twice!.plan)) as never;
    const table = {
      backend: "threads",
      collective: "all_reduce",
      ranks: [2, 2],
      program: result.hash,
      rows: [
        { fromBytes: 0, use: AS_WRITTEN },
        { fromBytes: 4096, use: twice!.label },
      ],
    } as const;
    storeProgramTuning(
      file,
      { ...result, table, plans: { [twice!.label]: { collective: "all_reduce", plan } } },
      "0.1.0",
    );
    expect(tunedMachine(file).choices?.tables).toMatchObject([{ program: result.hash }]);
    expect((await runCli("tune", "--show")).out).toMatch(
      /the program [0-9a-f]{16}, all_reduce on threads, 2 ranks[\s\S]*from 0 B +as-written\n +from 4 KiB +ring-x2-h/,
    );

    const ran = await launch<{ sums: number[]; choices: Record<string, number> }, string>({
      ranks: 2,
      data: ring,
      run: async (world, file) => {
        const { importUserModule } = await import("chorale/world");
        const { default: make } = (await importUserModule(file, "FILE")) as { default: (args: object) => never };
        const { comm } = world;
        const program = make({ numRanks: 2 });
        const sums: number[] = [];
        for (const count of [64, 1024, 64, 1024, 2048]) {
          const input = world.tensor("f32", [count]).fill(comm.rank + 1);
          const output = world.tensor("f32", [count]);
          await comm.run(program, { input, output });
          sums.push(output.at(0) as number, output.at(count - 1) as number);
        }
        const host = new Float32Array(1024).fill(1);
        await comm.run(program, { input: host, output: host.slice() });
        return { sums, choices: comm.stats().choices ?? {} };
      },
    });
    for (const { sums, choices } of ran) {
      expect(sums).toEqual(Array(10).fill(3));
      expect(choices).toMatchObject({ "run as-written": 2, [`run ${twice!.label}`]: 4 });
    }
    expect((await runCli("tune", "--reset")).out).toMatch(/^removed /);
    expect(existsSync(file)).toBe(false);
  });

  async function ringProgram() {
    const { loadProgram } = await import("../cli/load-program.ts");
    return loadProgram(ring, { numRanks: 2 });
  }

  it("refuses what it cannot tune, and says why", { timeout: 60_000 }, async () => {
    process.env["CHORALE_CHOICES"] = join(folder, "none.json");
    const refused = async (status: number, ...argv: string[]) => {
      const { code, err } = await runCli("tune", ...argv);
      expect(code, err).toBe(status);
      return err;
    };
    const inPlace = programFile(
      "in-place",
      `import { ringAllReduce } from "chorale/algorithms";
       export default ({ numRanks }) => ringAllReduce({ numRanks, inPlace: true });`,
    );
    expect(await refused(2, inPlace, "--backend", "threads", ...few)).toMatch(
      /in place.*write the program without inPlace/,
    );
    const wrong = programFile(
      "wrong",
      `export default ({ numRanks: n }) => language.program({ name: "wrong", collective: language.allReduce(n), autoSync: "full" }, (p) => {
         for (const rank of p.ranks) p.copy(rank.output.at(0), rank.input.at(0));
       });`,
    );
    expect(await refused(1, wrong, "--backend", "threads", ...few)).toMatch(/wrong/);
    expect(await refused(2, ring, ...few)).toMatch(/a program, and threads or cuda/);
    const on = ["--backend", "threads", ...few] as const;
    expect(await refused(2, ring, ...on, "--try", "instances=0")).toMatch(/whole numbers from 1 to 256/);
    expect(await refused(2, ring, ...on, "--try", "threads=64")).toMatch(/what there is on threads/);
    expect(await refused(2, ring, ...on, "--try", "nonsense=1,2")).toMatch(
      /--try nonsense is 1; expected an argument that/,
    );
    expect(await refused(2, "all_reduce", ...on, "--try", "instances=2")).toMatch(/all_reduce is not a program/);
    expect(await refused(2, "no-such-file.ts", ...on)).toMatch(/no-such-file/);
    expect(existsSync(join(folder, "none.json"))).toBe(false);
    process.env["CHORALE_CUDA_LIBRARY"] = join(folder, "no-cuda.so");
    expect(await refused(3, ring, "--backend", "cuda")).toMatch(/CUDA/);
  });
});
