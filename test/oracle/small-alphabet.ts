/** All plans of a few operations from a small alphabet: on one rank of two strands, and on two ranks of one strand. */
import {
  DEFAULT_PLAN_OPTIONS,
  type ExecutionPlan,
  type Range,
  type SimpleOp,
} from "../../src/authoring/plan/execution-plan.ts";

const at = (buffer: Range["buffer"], index = 0): Range => ({ buffer, index, size: 1 });
const INPUT = at("input");
const OUTPUT = at("output");
const SCRATCH = at("scratch");
/** Where packets lie, and sometimes plain data by mistake. */
const PACKETS = at("scratch", 1);
const copy = (src: Range, dst: Range, format: "plain" | "pack" | "unpack" = "plain"): SimpleOp => ({
  kind: "copy",
  format,
  src,
  dst,
});
const put = (rank: number, src: Range, dst: Range, format: "plain" | "pack" = "plain"): SimpleOp => ({
  kind: "put",
  format,
  notify: "none",
  channelKind: "memory",
  channels: [0],
  src: [src],
  dst: [{ rank, ...dst }],
});
const channel = (kind: "signal" | "wait", relaxed: boolean): SimpleOp => ({
  kind,
  relaxed,
  channelKind: "memory",
  channels: [0],
});

/** What each line of operations chooses from. */
export type Shape = "two strands" | "two ranks";
export const SHAPES: readonly Shape[] = ["two strands", "two ranks"];

function alphabet(shape: Shape, line: number): readonly SimpleOp[] {
  if (shape === "two strands") {
    return [
      copy(INPUT, OUTPUT),
      copy(INPUT, SCRATCH),
      copy(SCRATCH, OUTPUT),
      copy(OUTPUT, SCRATCH),
      copy(INPUT, PACKETS, "pack"),
      copy(PACKETS, OUTPUT, "unpack"),
      copy(INPUT, PACKETS),
      { kind: "release", semaphores: [0] },
      { kind: "acquire", semaphores: [0] },
      { kind: "barrier", barrier: 0, numStrands: 2 },
    ];
  }
  const peer = 1 - line;
  return [
    put(peer, INPUT, OUTPUT),
    put(peer, INPUT, SCRATCH),
    copy(SCRATCH, OUTPUT),
    copy(INPUT, OUTPUT),
    put(peer, INPUT, PACKETS, "pack"),
    copy(PACKETS, OUTPUT, "unpack"),
    channel("signal", false),
    channel("wait", false),
    channel("signal", true),
    channel("wait", true),
  ];
}

function planOf(shape: Shape, lines: readonly [readonly SimpleOp[], readonly SimpleOp[]]): ExecutionPlan {
  const numRanks = shape === "two ranks" ? 2 : 1;
  return {
    schemaVersion: 1,
    name: "small",
    mode: "imported",
    collective: { operation: "test", numRanks, chunksPerPart: 1, inPlace: false },
    options: { ...DEFAULT_PLAN_OPTIONS, protocol: "LL" },
    ranks: Array.from({ length: numRanks }, (_, rank) => ({
      rank,
      input: { chunks: 1, segments: 1 },
      output: { chunks: 1, segments: 1 },
      scratch: { chunks: 2, segments: 1 },
      channels: { memory: numRanks === 2 ? [1 - rank] : [], port: [], switch: [] },
      semaphores: numRanks === 1 ? [{ initialValue: 0 }] : [],
      strands: (numRanks === 2 ? [lines[rank]!] : lines).map((ops, id) => ({ id, ops })),
    })),
    sources: [],
  };
}

/** How many plans there are with `numOps` operations in all. */
export function countPlans(shape: Shape, numOps: number): number {
  return (numOps + 1) * alphabet(shape, 0).length ** numOps;
}

/** Plan number `index` of those with `numOps` operations. */
export function smallPlan(shape: Shape, numOps: number, index: number): ExecutionPlan {
  const size = alphabet(shape, 0).length;
  let rest = Math.floor(index / (numOps + 1));
  const first = index % (numOps + 1);
  const lines: [SimpleOp[], SimpleOp[]] = [[], []];
  for (let i = 0; i < numOps; i++) {
    const line = i < first ? 0 : 1;
    lines[line].push(alphabet(shape, line)[rest % size]!);
    rest = Math.floor(rest / size);
  }
  return planOf(shape, lines);
}
