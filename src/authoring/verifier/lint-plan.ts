/** What is allowed but pointless: channels nobody uses, data nobody reads, operations that never run. Warnings. */
import { bodyOf, channelOrdinal, formatOp, type SimpleOp } from "../plan/index.ts";
import { type Geometry, iterationsOf } from "./cell-geometry.ts";
import type { Exploration } from "./explore-plan.ts";
import type { Findings } from "./findings.ts";

/** Adds warnings about a plan that is otherwise right. */
export function lint(geometry: Geometry, run: Exploration, findings: Findings): void {
  const { plan } = geometry;
  const { wrote, used } = run.memory;
  for (const rank of plan.ranks) {
    const usedChannels = { memory: new Set<number>(), port: new Set<number>(), switch: new Set<number>() };
    rank.strands.forEach((strand, s) => {
      strand.ops.forEach((outer, o) => {
        const first = geometry.opBase[geometry.strandBase[rank.rank]! + s]![o]!;
        if (outer.kind === "pipeline" && iterationsOf(outer, geometry) < 1 && outer.body.length > 0) {
          findings.at(plan, [rank.rank, s, o], {
            code: "unreachable",
            severity: "warning",
            message: "the loop runs over 0 chunks: its body never runs",
            hint: "remove it, or give it chunks",
          });
        }
        bodyOf(outer).forEach((op, b) => {
          if ("channels" in op && op.channelKind !== undefined)
            for (const id of op.channels) usedChannels[op.channelKind].add(id);
          if (op.kind === "put" || op.kind === "get" || op.kind === "reduce") {
            const remote = op.kind === "get" ? op.src : op.kind === "put" ? op.dst : [...op.remoteSrc, ...op.remoteDst];
            if (op.channels.length === 0 && op.channelKind === "memory")
              for (const range of remote)
                rank.channels.memory.forEach((peer, id) => {
                  if (peer === range.rank) usedChannels.memory.add(id);
                });
          }
          if (op.kind === "switch-reduce") usedChannels.switch.add(op.src.channel);
          if (op.kind === "switch-broadcast") usedChannels.switch.add(op.dst.channel);
          if (op.kind === "switch-reduce-broadcast") {
            usedChannels.switch.add(op.src.channel);
            usedChannels.switch.add(op.dst.channel);
          }
          if (isEmpty(op)) {
            findings.at(plan, [rank.rank, s, o, outer.kind === "pipeline" ? b : undefined], {
              code: "unreachable",
              severity: "warning",
              message: `${formatOp(op)}: moves nothing, its ranges have 0 chunks`,
              hint: "remove it, or give it chunks",
            });
          }
          const id = first + (outer.kind === "pipeline" ? b : 0);
          if (wrote[id] === 1 && used[id] === 0) {
            findings.at(plan, [rank.rank, s, o, outer.kind === "pipeline" ? b : undefined], {
              code: "dead-copy",
              severity: "warning",
              message: `${formatOp(op)}: nothing that it writes is read, nor is it output`,
              hint: "remove it",
            });
          }
        });
      });
    });
    // An incoming channel needs its counterpart: a channel whose peer signals it is in use although this side is silent.
    for (const kind of ["memory", "port"] as const) {
      rank.channels[kind].forEach((peer, id) => {
        if (usedChannels[kind].has(id) || isHeard(geometry, rank.rank, kind, peer, id)) return;
        findings.atRank(rank.rank, {
          code: "unused-channel",
          severity: "warning",
          message: `${kind} channel ${id} to rank ${peer} is never used`,
          hint: "remove it: every channel costs the executor memory and set-up time",
        });
      });
    }
    rank.channels.switch.forEach((_, id) => {
      if (usedChannels.switch.has(id)) return;
      findings.atRank(rank.rank, {
        code: "unused-channel",
        severity: "warning",
        message: `switch channel ${id} is never used by rank ${rank.rank}`,
        hint: "members that only receive may ignore this",
      });
    });
  }
}

function isEmpty(op: SimpleOp): boolean {
  switch (op.kind) {
    case "copy":
    case "switch-broadcast":
    case "switch-reduce":
    case "switch-reduce-broadcast":
      return op.src.size === 0;
    case "get":
    case "put":
      return op.src.every((range) => range.size === 0);
    case "reduce":
      return op.dst.size === 0;
    default:
      return false;
  }
}

/** Says whether the peer's counterpart of a channel exists: then this end is needed to pair with it. */
function isHeard(geometry: Geometry, rank: number, kind: "memory" | "port", peer: number, id: number): boolean {
  const own = geometry.plan.ranks[rank]!.channels[kind];
  const counterparts = geometry.plan.ranks[peer]?.channels[kind].filter((other) => other === rank).length ?? 0;
  return channelOrdinal(own, id) < counterparts;
}
