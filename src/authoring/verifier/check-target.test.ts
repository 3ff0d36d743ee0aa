import { describe, expect, it } from "vitest";
import { at, broadcast, codes, copy, far, nop, planOf, put, signal, wait } from "../../../test/support/small-plans.ts";
import type { ExecutionPlan, Op, SimpleOp } from "../plan/index.ts";
import { verifyPlan } from "./index.ts";

const target = "mscclpp";
const [I, O, S] = [at("input", 0), at("output", 0), at("scratch", 0)];
const one = { input: 1, output: 1, scratch: 1 };
const gather = { operation: "all_gather" } as const;

describe("limits of MSCCL++'s executor that depend on more than an operation", () => {
  it("are places in a table of 16 barriers, not how many of them are used", () => {
    const plan = (barrier: number) => {
      const meet: Op = { kind: "barrier", barrier, numStrands: 1 };
      return planOf([[[meet, copy(O, I)]]], one, gather);
    };
    expect(codes(plan(15), { target })).toEqual([]);
    expect(codes(plan(16), { target })).toEqual(["limit-exceeded"]);
    expect(codes(plan(16))).toEqual([]);
  });

  it("are 16 bits of iterations, at the largest message that the plan takes", () => {
    const plan = (maxMessageSizeBytes: bigint, unitBytes = 1024, chunks = 1): ExecutionPlan => {
      const body = [copy(at("output", 0, chunks), at("input", 0, chunks)) as SimpleOp];
      const loop: Op = { kind: "pipeline", unitBytes, numChunks: chunks, body };
      const base = planOf([[[loop]]], { input: chunks, output: chunks }, { ...gather, chunksPerPart: chunks });
      return { ...base, options: { ...base.options, maxMessageSizeBytes } };
    };
    const most = 65_535n * 1024n;
    for (const chunks of [1, 4]) {
      expect(codes(plan(most, 1024, chunks), { target })).toEqual([]);
      expect(codes(plan(most + 1n, 1024, chunks), { target })).toEqual(["limit-exceeded"]);
    }
    expect(codes(plan(most + 1n))).toEqual([]);
    // Messages have 4 GiB at most, whatever the plan says.
    expect(codes(plan(2n ** 64n - 1n, 2 ** 17), { target })).toEqual([]);
    const [finding] = verifyPlan(plan(2n ** 64n - 1n, 2 ** 12), { target, lint: false }).findings;
    expect(finding?.hint).toContain(`at most ${65_535 * 2 ** 12}`);
    expect(codes(plan(1n, 2 ** 33), { target })).toEqual(["limit-exceeded"]);
  });

  it("are chunks of both buffers on every rank", () => {
    const strands = [[copy(O, I), nop, put(far(1, "output", 0), I), nop, signal()]];
    const plan = planOf([strands, [[wait()]]], { input: 1, output: 1 }, broadcast);
    const without: ExecutionPlan = {
      ...plan,
      ranks: plan.ranks.map((rank) => (rank.rank === 1 ? { ...rank, input: { chunks: 0, segments: 1 } } : rank)),
    };
    expect(codes(plan, { target })).toEqual([]);
    expect(codes(without)).toEqual([]);
    expect(codes(without, { target })).toEqual(["target-defect"]);
  });
});

describe("two halves of scratch on MSCCL++'s executor", () => {
  const sync = [nop, signal(), nop, wait(), nop];
  /** Both ranks hand their input to the other through scratch, launch after launch. */
  const exchange = (through: (peer: number) => Op[], receive: (peer: number) => Op[]): ExecutionPlan => {
    const rank = (own: number) => [
      ...through(1 - own),
      ...sync,
      ...receive(1 - own),
      copy(at("output", own), I),
      ...sync,
    ];
    const base = planOf([[rank(0)], [rank(1)]], { input: 1, output: 2, scratch: 2 }, gather);
    return { ...base, options: { ...base.options, useDoubleScratchBuffer: true, protocol: "LL" } };
  };
  const port = (op: Op): Op => ({ ...op, channelKind: "port" }) as Op;
  const remote = { channelKind: "memory", channels: [0] } as const;
  const plans: Readonly<Record<string, readonly [right: boolean, plan: ExecutionPlan]>> = {
    "local plain data": [
      true,
      exchange(
        (peer) => [copy(S, I), nop, put(far(peer, "output", 1 - peer), S)],
        () => [],
      ),
    ],
    "packets at the peer": [
      true,
      exchange(
        (peer) => [put(far(peer, "scratch", 0), I, "pack")],
        (peer) => [copy(at("output", peer), S, "unpack")],
      ),
    ],
    "plain data put at the peer": [
      false,
      exchange(
        (peer) => [put(far(peer, "scratch", 0), I)],
        (peer) => [copy(at("output", peer), S)],
      ),
    ],
    "plain data got from the peer": [
      false,
      exchange(
        (peer) => [copy(at("scratch", 1 - peer), I)],
        (peer) => [{ ...remote, kind: "get", src: [far(peer, "scratch", peer)], dst: [at("output", peer)] }],
      ),
    ],
    "plain data read from the peer by a reduction": [
      false,
      exchange(
        () => [copy(S, I)],
        (peer) => [
          {
            ...remote,
            kind: "reduce",
            op: "sum",
            packets: false,
            src: [],
            remoteSrc: [far(peer, "scratch", 0)],
            dst: at("output", peer),
            remoteDst: [],
          },
        ],
      ),
    ],
    "plain data of scratch sent through a port": [
      false,
      exchange(
        (peer) => [copy(S, I), nop, port(put(far(peer, "output", 1 - peer), S)), nop, port(signal())],
        () => [port(wait()), nop],
      ),
    ],
  };
  it.each(Object.entries(plans))("%s", (_, [right, plan]) => {
    expect(codes(plan)).toEqual([]);
    expect(codes(plan, { target })).toEqual(right ? [] : ["target-defect"]);
  });
});
