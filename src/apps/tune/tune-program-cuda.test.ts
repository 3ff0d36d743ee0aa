/** Tuning a program on devices, over the stand-in library, which runs generated kernels on the host (needs g++). */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { buildFakeGpu, useFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../test/helpers/kept-ranks.ts";
import { algorithm } from "../../authoring/algorithms/index.ts";
import { planToJson } from "../../authoring/interchange/index.ts";
import { DEFAULT_CPU_COSTS, parametersFor, placeRanks, SimulatedMachine } from "../../authoring/simulator/index.ts";
import { presetInventory } from "../../machine/topology/index.ts";
import type { ChoiceDocument } from "../../runtime/executor/index.ts";
import { AS_WRITTEN, loadLibraryPlans } from "../../runtime/executor/internal.ts";
import { storeProgramTuning, tuneProgram } from "./index.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-tune-program-"));
afterAll(() => rmSync(folder, { recursive: true }));

const available = buildFakeGpu() !== undefined && useFakeGpu();

describe.skipIf(!available)("chorale tune FILE on cuda, over a stand-in library (needs g++)", () => {
  it("measures kernels of several shapes beside NCCL, and comm.run uses the chosen one", {
    timeout: 300_000,
  }, async () => {
    await loadLibraryPlans();
    process.env["CHORALE_NVRTC_LIBRARY"] = process.env["CHORALE_CUDA_LIBRARY"];
    process.env["XDG_CACHE_HOME"] = folder;
    const file = join(folder, "device.json");
    process.env["CHORALE_CHOICES"] = file;
    const program = algorithm("one-shot-packet-all-reduce").make({ numRanks: 2 });
    const inventory = presetInventory("hgx-h200-8");
    const devices = placeRanks(2, inventory);
    const machine = new SimulatedMachine(inventory, devices, parametersFor("h200"));
    const result = await tuneProgram({
      sources: [{ differs: "", program }],
      backend: "cuda",
      sizes: [1024],
      // Small blocks: every thread is a fiber here.
      search: { instances: [1], threads: [32] },
      rankedOn: { inventory, machine },
      costs: DEFAULT_CPU_COSTS,
      iterations: 2,
    });
    expect(result).toMatchObject({ wrong: [], topology: expect.stringMatching(/^fake-gpu-\d threads$/) });
    const [row] = result.rows;
    expect(row).toMatchObject({
      sizeBytes: 1024,
      shipped: { label: AS_WRITTEN, wrong: 0 },
      builtIn: { label: "nccl", wrong: 0 },
    });
    const name = result.variants[0]?.label ?? "";
    expect(row?.measured.map(({ label }) => label).sort()).toEqual([`${name}@32.lines`, `${name}@32.words`]);

    const plan = program.plan();
    const table = {
      backend: "cuda",
      collective: "all_reduce",
      ranks: [2, 2],
      program: result.hash,
      rows: [{ fromBytes: 0, use: `${name}@32.lines` }],
    } as const;
    const plans = { [name]: { collective: "all_reduce", plan: JSON.parse(planToJson(plan)) as never } } as const;
    storeProgramTuning(file, { ...result, table, plans }, "0.1.0");
    const document = JSON.parse(readFileSync(file, "utf8")) as { choices: { data: ChoiceDocument } };
    expect(Object.keys(document.choices.data.plans ?? {})).toEqual([name]);
    const ran = await launch({
      ranks: 2,
      backend: "cuda",
      run: async (world) => {
        const { algorithm } = await import("chorale/algorithms");
        const { comm } = world;
        const output = new Float32Array(256);
        const program = algorithm("one-shot-packet-all-reduce").make({ numRanks: 2 });
        await comm.run(program, { input: new Float32Array(256).fill(comm.rank + 1), output });
        return { sum: output[255], choices: comm.stats().choices };
      },
    });
    for (const { sum, choices } of ran) {
      expect(sum).toBe(3);
      expect(choices).toMatchObject({ [`run ${name}@32.lines`]: 1 });
    }
  });
});
