/** A plan for people: one line an operation, by rank and strand. `formatOp` is also what findings and traces show. */
import { printableLine } from "../../core/index.ts";
import type {
  ChannelKind,
  ExecutionPlan,
  Op,
  OpKind,
  OpOf,
  Range,
  RankPlan,
  RemoteRange,
  SwitchRange,
} from "./execution-plan.ts";

const span = (index: number, size: number) => (size === 1 ? `${index}` : `${index}:${index + size}`);
const local = (r: Range) => `${r.buffer}[${span(r.index, r.size)}]`;
const remote = (r: RemoteRange) => `rank ${r.rank} ${r.buffer}[${span(r.index, r.size)}]`;
const onSwitch = (r: SwitchRange) => `switch ${r.channel}[${span(r.index, r.size)}]`;
const list = <T>(items: readonly T[], write: (item: T) => string) => items.map(write).join(", ");
const via = (kind: ChannelKind, ids: readonly number[]) => `${kind} ${ids.join(",")}`;

const FORMAT: { readonly [K in OpKind]: (op: OpOf<K>) => string } = {
  nop: () => "sync",
  barrier: (op) => `barrier ${op.barrier} of ${op.numStrands} strands`,
  copy: (op) => `copy${op.format === "plain" ? "" : ` (${op.format})`} ${local(op.dst)} <- ${local(op.src)}`,
  get: (op) => `get ${list(op.dst, local)} <- ${list(op.src, remote)} via ${via(op.channelKind, op.channels)}`,
  put: (op) =>
    `put${op.format === "plain" ? "" : ` (${op.format})`}${op.notify === "none" ? "" : ` + ${op.notify}`} ` +
    `${list(op.dst, remote)} <- ${list(op.src, local)} via ${via(op.channelKind, op.channels)}`,
  reduce: (op) =>
    `reduce${op.packets ? " (packets)" : ""} ${[local(op.dst), ...(op.packetDst === undefined ? [] : [`packets ${local(op.packetDst)}`]), ...op.remoteDst.map(remote)].join(", ")}` +
    ` <- ${op.op}(${[...op.src.map(local), ...op.remoteSrc.map(remote)].join(", ")})` +
    (op.channelKind === undefined ? "" : ` via ${via(op.channelKind, op.channels)}`),
  signal: (op) => `signal${op.relaxed ? " (relaxed)" : ""} ${via(op.channelKind, op.channels)}`,
  wait: (op) => `wait${op.relaxed ? " (relaxed)" : ""} ${via(op.channelKind, op.channels)}`,
  flush: (op) => `flush ${via(op.channelKind, op.channels)}`,
  acquire: (op) => `acquire semaphore ${op.semaphores.join(",")}`,
  release: (op) => `release semaphore ${op.semaphores.join(",")}`,
  "switch-reduce": (op) => `switch-reduce ${local(op.dst)} <- ${op.op}(${onSwitch(op.src)})`,
  "switch-broadcast": (op) =>
    `switch-broadcast${op.format === "plain" ? "" : ` (${op.format})`} ${onSwitch(op.dst)} <- ${local(op.src)}`,
  "switch-reduce-broadcast": (op) => `switch-reduce-broadcast ${onSwitch(op.dst)} <- ${op.op}(${onSwitch(op.src)})`,
  pipeline: (op) => `pipeline ${op.numChunks} chunks by ${op.unitBytes} B { ${list(op.body, formatOp)} }`,
};

/** One operation on one line. */
export function formatOp(op: Op): string {
  const text = (FORMAT[op.kind] as (op: Op) => string)(op);
  return "tbg" in op && op.tbg !== undefined ? `${text} (part ${op.tbg.index} of ${op.tbg.size})` : text;
}

function lines(plan: ExecutionPlan, op: Op, indent: string): string[] {
  const at = op.source === undefined ? undefined : plan.sources[op.source];
  const where = at === undefined ? "" : `  // ${at.file.split(/[\\/]/).at(-1)}:${at.line}`;
  if (op.kind !== "pipeline") return [`${indent}${formatOp(op)}${where}`];
  return [
    `${indent}pipeline ${op.numChunks} chunks by ${op.unitBytes} B {${where}`,
    ...op.body.flatMap((inner) => lines(plan, inner, `${indent}  `)),
    `${indent}}`,
  ];
}

/** One rank of a plan, as lines. */
export function printRank(plan: ExecutionPlan, rank: RankPlan): string {
  const to = (kind: ChannelKind) => rank.channels[kind].map((peer, id) => `${id}->${peer}`).join(" ");
  return [
    `rank ${rank.rank}: input ${rank.input.chunks}, output ${rank.output.chunks}, scratch ${rank.scratch.chunks} chunks`,
    ...(rank.channels.memory.length === 0 ? [] : [`  memory channels ${to("memory")}`]),
    ...(rank.channels.port.length === 0 ? [] : [`  port channels ${to("port")}`]),
    ...rank.channels.switch.map((s, id) => `  switch channel ${id} on ${s.buffer} of ranks ${s.ranks.join(",")}`),
    ...(rank.semaphores.length === 0
      ? []
      : [`  semaphores start at ${rank.semaphores.map((s) => s.initialValue).join(",")}`]),
    ...rank.strands.flatMap((strand) => [
      `  strand ${strand.id}`,
      ...strand.ops.flatMap((op) => lines(plan, op, "    ")),
    ]),
  ].join("\n");
}

/** A plan, by rank and strand. @param ranks only these; all when absent */
export function printPlan(plan: ExecutionPlan, ranks?: readonly number[]): string {
  const c = plan.collective;
  const head =
    `plan ${printableLine(plan.name ?? "(unnamed)")}: ${c.operation}${c.inPlace ? " in place" : ""}, ${plan.ranks.length} ranks, ` +
    `${plan.options.instances} instance${plan.options.instances === 1 ? "" : "s"}, protocol ${plan.options.protocol}`;
  return [head, ...plan.ranks.filter((r) => ranks?.includes(r.rank) ?? true).map((r) => printRank(plan, r))].join("\n");
}
