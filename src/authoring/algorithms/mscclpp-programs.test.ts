import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { compile, type Program, writeMscclpp } from "../language/index.ts";
import { verifyPlan } from "../verifier/index.ts";
import * as mscclpp from "./mscclpp-programs.ts";

const sizes = { numThreadsPerBlock: 512, minMessageSizeBytes: 2048, maxMessageSizeBytes: 1_048_576 };

/** A MSCCL++ program with its arguments, the SHA-256 (first half) of the plan that the MSCCL++ DSL 0.9.0 prints, ours. */
const PROGRAMS: readonly (readonly [string, string, () => Program])[] = [
  [
    "single_node_allreduce__n4_t512_min1024_max1m",
    "4f581f12d0defd842eecb2dbfe6f0b88",
    () => mscclpp.mscclppAllReduce({ numRanks: 4, ...sizes }),
  ],
  [
    "single_node_allreduce_naivy__n2",
    "3af9da4efd2d3e3a0b1ebaf089c0bca0",
    () => mscclpp.mscclppAllReduceNaive({ numRanks: 2 }),
  ],
  [
    "single_node_allreduce_naivy__n8",
    "10fee9202d7dac0d7102c1de19f78664",
    () => mscclpp.mscclppAllReduceNaive({ numRanks: 8 }),
  ],
  [
    "single_node_allreduce_nvls_zero_copy__n3",
    "c844b03df23350729a17e08a7b8cf5ce",
    () => mscclpp.mscclppAllReduceSwitch({ numRanks: 3 }),
  ],
  [
    "single_node_allreduce_nvls_zero_copy__n8",
    "1e45c1be7248f74b646996f44662ff89",
    () => mscclpp.mscclppAllReduceSwitch({ numRanks: 8 }),
  ],
  [
    "single_node_allreduce_pkt__n3",
    "56f18eb50e8959649a825351ea922b2b",
    () => mscclpp.mscclppAllReducePackets({ numRanks: 3 }),
  ],
  [
    "single_node_allreduce_pkt__n4_t512_min1024_max1m",
    "961b2e76c2ba0922f97a0e75200fba96",
    () => mscclpp.mscclppAllReducePackets({ numRanks: 4, ...sizes }),
  ],
  [
    "single_node_allreduce_pipeline__default",
    "16d799ddee96767e0fb9c6ed47c7c41e",
    () => mscclpp.mscclppAllReducePipeline({}),
  ],
  [
    "single_node_allreduce_pipeline__t256",
    "d30a998522e0b770d9db5db1067b442f",
    () => mscclpp.mscclppAllReducePipeline({ numThreadsPerBlock: 256 }),
  ],
  [
    "single_node_allgather_pkt__n8",
    "564132b2e69dd8046a3025592dbdc562",
    () => mscclpp.mscclppAllGatherPackets({ numRanks: 8 }),
  ],
  [
    "single_node_allgather_pkt_rppkt__n4",
    "53b5767d7100c42452de37242e800961",
    () => mscclpp.mscclppAllGatherForward({ numRanks: 4 }),
  ],
  [
    "single_node_allgather_pkt_rppkt__n8",
    "62a2c1038c641631ed0ae5b88c112b0c",
    () => mscclpp.mscclppAllGatherForward({ numRanks: 8 }),
  ],
  [
    "single_node_alltoall_alltoall_ring_oop__n2",
    "8d534e18dfd032064338adebbf1ea133",
    () => mscclpp.mscclppAllToAllRing({ numRanks: 2 }),
  ],
  [
    "multi_node_send_recv__nn3_gpn2_m1_inst1",
    "1a4d48a878cefd2e7fff5e41cd534c9b",
    () => mscclpp.mscclppSendRecv({ numRanks: 6, groupSize: 2 }),
  ],
  [
    "multi_node_send_recv__nn2_gpn2_m0_inst3",
    "247b350bef1e4bb99c0d708b90d3daf0",
    () => mscclpp.mscclppSendRecv({ numRanks: 4, groupSize: 1, instances: 3 }),
  ],
  [
    "multi_node_send_recv__nn1_gpn2_m0_inst4",
    "92c585a94eb686e9b0e7631e5ee1f93a",
    () => mscclpp.mscclppSendRecv({ numRanks: 2, groupSize: 1, instances: 4 }),
  ],
];

function printed(program: Program): string {
  const pieces: string[] = [];
  writeMscclpp(program, (piece) => pieces.push(piece), { compat: "mscclpp" });
  return pieces.join("");
}

describe("MSCCL++'s own programs", () => {
  it.each(PROGRAMS)("%s is the same file, byte for byte", (_, expected, make) => {
    expect(createHash("sha256").update(printed(make()).trimEnd()).digest("hex").slice(0, 32)).toBe(expected);
  });

  it.each(PROGRAMS)("%s compiles in chorale's mode and is proved right", (_, _expected, make) => {
    expect(verifyPlan(compile(make(), { verify: false }), { lint: false }).findings).toEqual([]);
  });
});
