import { describe, expect, it } from "vitest";
import { hashPlan } from "../../authoring/plan/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { planFromJson, planToJson } from "../interchange/index.ts";
import { allGather, compile, program } from "../language/index.ts";
import { parametersFor, simulate } from "./index.ts";

/** Two devices, joined directly by 10 GB/s and over a switch by 30 GB/s. */
const inventory: Inventory = {
  schemaVersion: 1,
  devices: ["a", "b"].map((id, index) => ({
    id,
    family: "nvidia-gpu",
    vendor: "generic",
    name: "generic NPU",
    index,
    visible: true,
  })),
  topology: {
    nodes: [
      { id: "a", kind: "device", host: 0 },
      { id: "b", kind: "device", host: 0 },
      { id: "s", kind: "nvswitch", host: 0 },
    ],
    links: [
      { a: "a", b: "b", kind: "xgmi", bandwidthGBps: 10, latencyUs: 1 },
      { a: "a", b: "s", kind: "nvlink", bandwidthGBps: 30, latencyUs: 1 },
      { a: "s", b: "b", kind: "nvlink", bandwidthGBps: 30, latencyUs: 1 },
    ],
  },
  warnings: [],
};

/** Each rank sends its four chunks by the ways named, one each, at once. */
const exchange = (ways: readonly (readonly string[] | undefined)[]) =>
  compile(
    program({ name: "exchange", collective: allGather(2, { chunks: 4 }), autoSync: "full", fusion: true }, (p) => {
      for (const [from, to] of [
        [0, 1],
        [1, 0],
      ] as const) {
        const rank = p.rank(from);
        rank.copy(rank.output.slice(from * 4, from * 4 + 4), rank.input.all);
        for (const [i, way] of ways.entries()) {
          const [dst, src] = [p.rank(to).output.at(from * 4 + i), rank.input.at(i)];
          const nodes = way === undefined || from === 0 ? way : [...way].reverse();
          if (nodes === undefined) p.copy(dst, src, i + 1);
          else p.copyAlong(nodes, dst, src, i + 1);
        }
      }
    }),
  );

const timeOf = (plan: ReturnType<typeof exchange>): number =>
  simulate(plan, { inventory, parameters: parametersFor("ideal"), sizeBytes: 8e8 }).timeUs;

describe("ways of channels", () => {
  const direct = ["a", "b"];
  const switched = ["a", "s", "b"];

  it("are followed: a way's link carries what was sent by it", () => {
    // 100 MB a chunk: by the widest way 4 x 100 MB / 30; by ways as wide as their loads 300 MB / 30 and 100 MB / 10.
    const left = timeOf(exchange([undefined, undefined, undefined, undefined]));
    const shared = exchange([direct, switched, switched, switched]);
    expect(left / 1e4).toBeCloseTo(4 / 3, 2);
    expect(timeOf(shared) / 1e4).toBeCloseTo(1, 2);
    expect(timeOf(exchange([direct, direct, direct, direct])) / 1e4).toBeCloseTo(4, 2);
    expect(shared.ranks[1]?.ways?.map(({ nodes }) => nodes.join())).toEqual(["b,a", "b,s,a"]);
    const again = planFromJson(planToJson(shared));
    expect(again.ranks[0]?.ways).toEqual(shared.ranks[0]?.ways);
    expect(hashPlan(again)).toBe(hashPlan(shared));
  });

  it("that the machine does not have are the machine's choice", () => {
    const elsewhere = [["a", "x", "b"], switched, switched, switched];
    expect(timeOf(exchange(elsewhere))).toBeCloseTo(timeOf(exchange([undefined, undefined, undefined, undefined])), 6);
  });
});
