/** From a machine with a dead link to sums: synthesised, proved, run by the executor on threads, chosen by size. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { readPlan } from "../../src/authoring/interchange/index.ts";
import type { ExecutionPlan } from "../../src/authoring/plan/index.ts";
import { presetInventory } from "../../src/machine/topology/index.ts";
import { createThreadsHost } from "../../src/runtime/backends/threads/host.ts";
import { machineChoices } from "../../src/runtime/executor/internal.ts";
import { runCli } from "../helpers/cli.ts";
import { scratchFolder } from "../helpers/scratch.ts";
import { onRanks, valuesOf } from "../helpers/threads-ranks.ts";

const folder = scratchFolder("synthesised");

/** mi250x-8 without one of its single links. */
function maskedMachine(): { file: string; a: string; b: string } {
  const inventory = presetInventory("mi250x-8");
  const { links } = inventory.topology;
  const isGpuLink = ({ a, b }: (typeof links)[number]) => a.startsWith("gpu") && b.startsWith("gpu");
  const widths = links.filter(isGpuLink).map(({ bandwidthGBps = 0 }) => bandwidthGBps);
  const dead = links.find((link) => isGpuLink(link) && link.bandwidthGBps === Math.min(...widths));
  if (dead === undefined) throw new Error("mi250x-8 has links");
  const file = join(folder, "masked.json");
  const topology = { ...inventory.topology, links: links.filter((link) => link !== dead) };
  writeFileSync(file, JSON.stringify({ ...inventory, topology }));
  return { file, a: dead.a, b: dead.b };
}

describe("a synthesised all-reduce", () => {
  it("of a machine with a masked link runs right on CPU ranks, and keeps off the link", async () => {
    const { file, a, b } = maskedMachine();
    const path = join(folder, "plan.json");
    const made = await runCli("synth", "all_reduce", "--topology", file, "-o", path, "--pieces", "2", "--json");
    expect(made).toMatchObject({ code: 0, err: "" });
    expect(JSON.parse(made.out)).toMatchObject({ bound: "1/150", optimal: true, ranks: 8 });
    const plan = readPlan(readFileSync(path), path);
    const [one, other] = [Number(a.slice(3)), Number(b.slice(3))];
    const peers = (rank: number) => plan.ranks[rank]?.channels.memory;
    expect(peers(one)).not.toContain(other);
    expect(peers(other)).not.toContain(one);
    const outcomes = await onRanks(
      8,
      async ({ comm, rank, load, data }) => {
        const { provePlanOnce } =
          await load<typeof import("../../src/authoring/verifier/index.ts")>("authoring/verifier");
        const plan = data[0] as ExecutionPlan;
        // By one rank for all: what is not proved is refused.
        provePlanOnce(plan);
        // Lengths that the chunks do not divide, too.
        for (const length of [1000, 1, 12_345, 65_536]) {
          const input = Float32Array.from({ length }, (_, i) => (i % 97) + rank);
          const output = new Float32Array(length);
          await comm.run(plan, { input, output });
          const wrong = output.findIndex((sum, i) => sum !== 8 * (i % 97) + 28);
          if (wrong >= 0) return `element ${wrong} of ${length} is ${output[wrong]}`;
        }
        await comm.close();
        return "right";
      },
      { data: [plan] },
    );
    expect(valuesOf(outcomes)).toEqual(Array(8).fill("right"));
  });

  it("is stored as a choice by size, and serves the calls of that size", async () => {
    // A ring of four whose last link is dead.
    const network = join(folder, "line.network.json");
    const edges = [
      ["a", "b"],
      ["b", "c"],
      ["c", "d"],
    ].flatMap(([from, to]) => [
      { from, to, capacity: "50", latencyUs: 1 },
      { from: to, to: from, capacity: "50", latencyUs: 1 },
    ]);
    writeFileSync(network, JSON.stringify({ nodes: ["a", "b", "c", "d"].map((id) => ({ id, kind: "rank" })), edges }));
    const file = join(folder, "choices.json");
    const made = await runCli(
      "synth",
      "all_reduce",
      "--topology",
      network,
      "--choices",
      file,
      "-b",
      "1K",
      "-e",
      "1M",
      "-f",
      "1024",
    );
    expect(made).toMatchObject({ code: 0, err: "" });
    expect(made.out).toMatch(/1 MiB .* synthesised-all-reduce-[a-z-]+-\d+-h[0-9a-f]{8}/);
    const choices = machineChoices(file);
    const [name] = Object.keys(choices?.plans ?? {});
    const outcomes = await onRanks(
      4,
      async ({ comm, rank }) => {
        const sums: number[] = [];
        for (const length of [64, 2 ** 18, 2 ** 18 + 3]) {
          const x = new Float32Array(length).fill(rank + 1);
          await comm.allReduce(x);
          sums.push(x.reduce((a, b) => a + b, 0) / length);
        }
        const { choices } = comm.stats();
        await comm.close();
        return [sums, choices];
      },
      { handle: createThreadsHost({ ranks: 4, ...(choices === undefined ? {} : { choices }) }) },
    );
    for (const [sums, counts] of valuesOf(outcomes) as [number[], Record<string, number>][]) {
      expect(sums).toEqual([10, 10, 10]);
      expect(counts[`all_reduce ${name}`]).toBeGreaterThanOrEqual(2);
    }
    // Whoever changes the plan after it was written is found out.
    const text = readFileSync(file, "utf8").replaceAll('"sum"', '"max"');
    writeFileSync(file, text);
    const changed = machineChoices(file);
    const failed = await onRanks(4, async ({ comm }) => comm.allReduce(new Float32Array(2 ** 18)), {
      // A thread that has read the choices before would not look at them again.
      isFresh: true,
      handle: createThreadsHost({ ranks: 4, ...(changed === undefined ? {} : { choices: changed }) }),
    });
    expect(failed[0]?.error?.message).toMatch(/changed after it was written/);
  });

  it.each([
    [["broadcast", "--choices"], /without a root/],
    [["all_reduce", "--choices"], /a new file, or one/],
  ])("refuses %j where choices cannot be stored", async (words, message) => {
    const file = join(folder, "not-choices.json");
    writeFileSync(file, JSON.stringify({ schemaVersion: 1, machine: { key: "another" } }));
    const { code, err } = await runCli("synth", ...words, file, "--topology", "hgx-a100-8", "-b", "1M", "-e", "1M");
    expect(code).toBe(2);
    expect(err).toMatch(message);
    expect(readFileSync(file, "utf8")).toContain("another");
  });

  it("and an all-gather and a reduce-scatter of unequal shares run right", async () => {
    const shares = ["1/2", "0", "1/3", "1/6"];
    const network = join(folder, "line-of-four.network.json");
    const ids = ["a", "b", "c", "d"];
    const edges = ids.slice(1).flatMap((to, i) => [
      { from: ids[i], to, capacity: "10" },
      { from: to, to: ids[i], capacity: "10" },
    ]);
    writeFileSync(network, JSON.stringify({ nodes: ids.map((id) => ({ id, kind: "rank" })), edges }));
    const words = ["--topology", network, "--pieces", "2", ...shares.flatMap((share) => ["--share", share])];
    const files = ["all_gather", "reduce_scatter"].map((op) => join(folder, `${op}.json`));
    for (const [i, op] of ["all_gather", "reduce_scatter"].entries()) {
      expect(await runCli("synth", op, ...words, "-o", files[i] as string)).toMatchObject({ code: 0, err: "" });
    }
    const outcomes = await onRanks(
      4,
      async ({ comm, rank, load, data }) => {
        const { planFromJson } =
          await load<typeof import("../../src/authoring/interchange/index.ts")>("authoring/interchange");
        const { provePlan } = await load<typeof import("../../src/authoring/verifier/index.ts")>("authoring/verifier");
        const [gather, scatter] = [planFromJson(data[0]), planFromJson(data[1])];
        if (!provePlan(gather).ok || !provePlan(scatter).ok) return "not proved";
        const starts = [0, 180, 180, 300, 360];
        const [start, end] = [starts[rank] as number, starts[rank + 1] as number];
        const all = Float32Array.from({ length: 360 }, (_, i) => i);
        const gathered = new Float32Array(360);
        await comm.run(gather, { input: all.slice(start, end), output: gathered });
        const scattered = new Float32Array(end - start);
        await comm.run(scatter, { input: all.map((value) => value + rank), output: scattered });
        await comm.close();
        const wrong = scattered.findIndex((sum, i) => sum !== 4 * (start + i) + 6);
        return gathered.every((value, i) => value === i) && wrong === -1 ? "right" : `wrong at ${wrong}`;
      },
      { data: files.map((file) => readFileSync(file, "utf8")) },
    );
    expect(valuesOf(outcomes)).toEqual(Array(4).fill("right"));
  });
});
