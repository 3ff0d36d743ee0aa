import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { COLLECTIVE_LAUNCH_US } from "../../machine/cost/index.ts";
import { parseSystem, presetInventory } from "../../machine/topology/index.ts";
import { modelFromConfig } from "../model/from-config.ts";
import { Fabric } from "../placement/fabric.ts";
import { planModel } from "../plan-model.ts";
import { allReduceUs, reduceScatterUs } from "./collectives.ts";

interface Row {
  readonly model: string;
  readonly hidden: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly mlp: number;
  readonly vocab: number;
  readonly tp: number;
  readonly phase: "decode" | "prefill";
  readonly batch: number;
  readonly context: number;
  readonly ms: number;
}

const { rows } = JSON.parse(
  readFileSync(new URL("../../../bench/results/planner-calibration.json", import.meta.url), "utf8"),
) as { rows: Row[] };
const inventory = parseSystem("hgx-h200-8");

function predictMs(row: Row): number {
  if (inventory === undefined) throw new Error("no preset");
  const model = modelFromConfig({
    model_type: "llama",
    hidden_size: row.hidden,
    num_hidden_layers: row.layers,
    num_attention_heads: row.heads,
    num_key_value_heads: row.kvHeads,
    head_dim: row.headDim,
    intermediate_size: row.mlp,
    vocab_size: row.vocab,
    max_position_embeddings: 131_072,
    dtype: "bfloat16",
  });
  const { plans } = planModel({
    model,
    inventory,
    engine: "pytorch",
    constrain: { dp: 1, pp: 1, ep: 1, cp: 1, tp: row.tp },
    batch: row.batch,
    contextTokens: row.context,
    outputTokens: row.phase === "decode" ? 1 : 0,
  });
  const estimates = plans[0]?.estimates;
  if (estimates?.kind !== "inference") throw new Error("no plan");
  return row.phase === "decode" ? estimates.decodeStepMs : estimates.prefillMs;
}

const median = (values: readonly number[]) => [...values].sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
const errors = (some: readonly Row[]) => some.map((row) => Math.abs(predictMs(row) / row.ms - 1));

describe("predictions against PyTorch on H200 (bench/results/planner-calibration.json)", () => {
  it("have measurements from 1 B to 30 B, batch 1 to 64, on one GPU and on four", () => {
    expect(new Set(rows.map((row) => row.model))).toEqual(new Set(["1b", "3b", "8b", "14b", "30b"]));
    expect(new Set(rows.map((row) => row.batch))).toEqual(new Set([1, 4, 16, 64]));
    expect(new Set(rows.map((row) => `${row.phase} ${row.tp}`)).size).toBe(4);
  });

  it.each([
    ["decode", 1],
    ["decode", 4],
    ["prefill", 1],
    ["prefill", 4],
  ] as const)("%s on %i GPU(s): median error within 25 %%", (phase, tp) => {
    const some = rows.filter((row) => row.phase === phase && row.tp === tp);
    expect(some.length).toBeGreaterThanOrEqual(15);
    expect(median(errors(some))).toBeLessThan(0.25);
  });

  it("shapes that nothing was fitted to: median error within 25 %", () => {
    const held = rows.filter((row) => !["1b", "8b"].includes(row.model));
    expect(median(errors(held))).toBeLessThan(0.25);
  });
});

describe("collectives against NCCL 2.28 on four H200", () => {
  const host = presetInventory("hgx-h200-8");
  const ids = host.devices.flatMap(({ family, id }) => (family === "cpu" ? [] : [id]));
  const link = new Fabric(host).group(ids.slice(0, 4));
  const all = new Fabric(host).group(ids);

  // nccl-tests, one process, a thread a GPU, graph replay, no multicast; microseconds.
  it.each([
    [1024, 12.2],
    [65_536, 10.9],
    [1 << 20, 19.1],
    [4 << 20, 41.6],
    [16 << 20, 101],
    [64 << 20, 316],
    [256 << 20, 1173],
  ])("all-reduce of %i bytes takes about %d us", (bytes, measured) => {
    // nccl-tests has no other stream to join.
    const predicted = allReduceUs(bytes, 4, link) - COLLECTIVE_LAUNCH_US;
    expect(predicted / measured).toBeGreaterThan(0.75);
    expect(predicted / measured).toBeLessThan(1.4);
  });

  it("reduce-scatter of 256 MiB takes about 660 us", () => {
    expect(reduceScatterUs(256 << 20, 4, link) / 660).toBeGreaterThan(0.75);
    expect(reduceScatterUs(256 << 20, 4, link) / 660).toBeLessThan(1.3);
  });

  it("costs nothing alone, grows with size, and falls with bandwidth", () => {
    const links = host.topology.links.map((own) => ({ ...own, bandwidthGBps: 2 * (own.bandwidthGBps ?? 0) }));
    const faster = new Fabric({ ...host, topology: { ...host.topology, links } }).group(ids);
    expect(allReduceUs(1 << 20, 1, link)).toBe(0);
    let last = 0;
    for (let bytes = 1; bytes < 2 ** 32; bytes *= 3) {
      const now = allReduceUs(bytes, 8, all);
      expect(now).toBeGreaterThan(last);
      expect(allReduceUs(bytes, 8, faster)).toBeLessThanOrEqual(now);
      last = now;
    }
  });

  it("across hosts: dearer than inside one, cheaper than over one NIC of each host", () => {
    const [rails, single] = ["2x hgx-h200-8", "2x hgx-h200-8 --nic 1xNDR"].map((system) => {
      const inventory = parseSystem(system)!;
      return new Fabric(inventory).group(inventory.devices.flatMap(({ family, id }) => (family === "cpu" ? [] : [id])));
    });
    const across = allReduceUs(64 << 20, 16, rails);
    expect(across).toBeGreaterThan(allReduceUs(64 << 20, 8, all));
    expect(across).toBeLessThan(allReduceUs(64 << 20, 16, single));
  });

  it("takes the library's model, and alpha-beta where none is known", () => {
    const machine = link?.machine?.();
    expect(machine?.fabric.deviceGBps).toBeCloseTo(478.1, 1);
    const ours = { scope: "network", kind: "ethernet", effectiveGBps: 1, latencyUs: 10, hosts: 2 } as const;
    expect(allReduceUs(1e6, 2, ours)).toBeCloseTo(10 + 20 + 1000, 6);
  });
});
