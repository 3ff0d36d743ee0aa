/**
 * Why a run got stuck: for every strand that did not end, who could let it go on, and from that the cycle of strands
 * that wait for each other, or the wait that nobody can ever satisfy.
 */
import type { BufferKind, SimpleOp } from "../plan/index.ts";
import { formatOp } from "../plan/index.ts";
import { type Geometry, placeOfCell } from "./cell-geometry.ts";
import type { Blocked, Exploration } from "./explore-plan.ts";
import { type Finding, type Findings, opRef, times } from "./findings.ts";
import { type CounterTable, counterUse } from "./signal-counters.ts";

/** Operations a blocked strand has not executed yet, the blocked one included. */
function* remaining(geometry: Geometry, blocked: Blocked): Generator<SimpleOp> {
  const { strand, op, body } = blocked.site;
  const rank = geometry.strandRank[strand]!;
  const ops = geometry.plan.ranks[rank]!.strands[strand - geometry.strandBase[rank]!]!.ops;
  for (let i = op; i < ops.length; i++) {
    const outer = ops[i]!;
    if (outer.kind !== "pipeline") yield outer;
    else {
      // The rest of this iteration, and then the whole body once more stands for the iterations to come.
      if (i === op && body >= 0) yield* outer.body.slice(body);
      yield* outer.body;
    }
  }
}

/** Where an operation leaves packets. */
function packetTargets(geometry: Geometry, rank: number, op: SimpleOp) {
  const own = (range: { buffer: BufferKind; index: number; size: number }) => ({ rank, ...range });
  switch (op.kind) {
    case "copy":
      return op.format === "pack" ? [own(op.dst)] : [];
    case "put":
      return op.format === "plain" ? [] : op.dst;
    case "reduce":
      return [...(op.packetDst === undefined ? [] : [own(op.packetDst)]), ...(op.packets ? op.remoteDst : [])];
    case "switch-broadcast": {
      const channel = geometry.plan.ranks[rank]!.channels.switch[op.dst.channel];
      return op.format === "forward" && channel !== undefined
        ? channel.ranks.map((peer) => ({ rank: peer, buffer: channel.buffer, index: op.dst.index, size: op.dst.size }))
        : [];
    }
    default:
      return [];
  }
}

/** Blocked strands that could still do what `blocked` waits for. */
function helpers(
  geometry: Geometry,
  table: CounterTable,
  all: readonly Blocked[],
  blocked: Blocked,
): readonly Blocked[] {
  const rankOf = (b: Blocked) => geometry.strandRank[b.site.strand]!;
  const { on } = blocked;
  if (blocked.heldBy.length > 0)
    return all.filter((other) => other !== blocked && blocked.heldBy.includes(other.site.strand));
  switch (on.kind) {
    case "counter":
      return all.filter((other) => {
        if (other === blocked || !on.counter.signallers.has(other.site.strand)) return false;
        for (const op of remaining(geometry, other))
          if (counterUse(table, rankOf(other), op).raise.includes(on.counter)) return true;
        return false;
      });
    case "barrier":
      return all.filter((other) => {
        if (other === blocked || rankOf(other) !== rankOf(blocked)) return false;
        if (other.on.kind === "barrier" && other.on.barrier === on.barrier) return false;
        for (const op of remaining(geometry, other))
          if (op.kind === "barrier" && op.barrier === on.barrier) return true;
        return false;
      });
    case "packet": {
      const place = placeOfCell(geometry, on.cell);
      return all.filter((other) => {
        if (other === blocked) return false;
        for (const op of remaining(geometry, other)) {
          for (const target of packetTargets(geometry, rankOf(other), op)) {
            const { rank, buffer, index } = place;
            if (target.rank === rank && target.buffer === buffer && index >= target.index)
              if (index < target.index + target.size) return true;
          }
        }
        return false;
      });
    }
    case "proxy":
      return [];
    case "launch":
      return all.filter(
        (other) => other !== blocked && rankOf(other) === rankOf(blocked) && other.on.kind !== "launch",
      );
  }
}

function waitsFor(geometry: Geometry, blocked: Blocked): string {
  const { on } = blocked;
  const held = blocked.heldBy.length > 0;
  switch (on.kind) {
    case "counter":
      return on.counter.kind === "semaphore"
        ? `semaphore ${on.counter.toId} to be released`
        : `${held ? "the proxy to raise " : ""}a signal of rank ${on.counter.from} on ${on.counter.kind} channel ${on.counter.toId}`;
    case "barrier":
      return `the other strands of barrier ${on.barrier}`;
    case "packet": {
      const { rank, buffer, index } = placeOfCell(geometry, on.cell);
      return `packets in ${buffer}[${index}] of rank ${rank}`;
    }
    case "proxy":
      return "the proxy of its rank";
    case "launch":
      return "the other strands of its rank to end";
  }
}

/** Reports what keeps a stuck run from going on. */
export function reportDeadlock(geometry: Geometry, table: CounterTable, run: Exploration, findings: Findings): void {
  const { plan } = geometry;
  const { blocked } = run;
  const ref = (b: Blocked) => {
    const rank = geometry.strandRank[b.site.strand]!;
    const { op, body, iteration } = b.site;
    const strand = b.site.strand - geometry.strandBase[rank]!;
    return body < 0 ? opRef(plan, rank, strand, op) : opRef(plan, rank, strand, op, body, iteration);
  };
  const where = (b: Blocked) => {
    const { rank, strand, op } = ref(b);
    return `rank ${rank} strand ${strand} op ${op} (${formatOp(b.simple)})`;
  };
  const add = (b: Blocked, finding: Pick<Finding, "code" | "message" | "hint" | "related" | "waits">) =>
    findings.add({ ...ref(b), severity: "error", ...finding });
  const helpersOf = new Map(blocked.map((b) => [b, helpers(geometry, table, blocked, b)]));
  let explained = false;
  const seen = new Set<string>();
  for (const b of blocked) {
    if ((helpersOf.get(b)?.length ?? 0) > 0 || b.on.kind === "launch") continue;
    const key = `${b.site.id} ${b.on.kind === "counter" ? b.on.counter.id : ""}`;
    if (seen.has(key)) continue;
    seen.add(key);
    explained = true;
    if (b.on.kind === "counter" && b.on.counter.kind !== "semaphore") {
      const { from, to, kind, toId, totalSignals, totalWaits } = b.on.counter;
      add(b, {
        code: "unmatched-wait",
        message: `rank ${to} waits ${times(totalWaits)} on ${kind} channel ${toId}, rank ${from} signals it ${times(totalSignals)}: this wait never ends`,
        hint: `add the missing signal on rank ${from}'s matching channel (the k-th to rank ${to}), or remove the wait`,
      });
    } else if (b.on.kind === "barrier") {
      add(b, {
        code: "barrier-mismatch",
        message: `waits for ${waitsFor(geometry, b)}, and none of them comes`,
        hint: "every strand of a barrier has to name it equally often, and numStrands has to be their number",
      });
    } else if (b.on.kind === "packet") {
      add(b, {
        code: "deadlock",
        message: `waits for ${waitsFor(geometry, b)}, which nobody writes as packets`,
        hint: "plain data is never seen as packets: send with a packet operation to this place, or read it plainly",
      });
    } else {
      add(b, {
        code: "deadlock",
        message: `waits for ${waitsFor(geometry, b)}, which never happens`,
        hint: "release the semaphore in another strand first, or give it an initial value",
      });
    }
  }
  // Follow first helpers from every strand; what repeats is a cycle.
  const done = new Set<Blocked>();
  for (const start of blocked) {
    const path: Blocked[] = [];
    let at: Blocked | undefined = start;
    while (at !== undefined && !done.has(at) && !path.includes(at)) {
      path.push(at);
      at = helpersOf.get(at)?.[0];
    }
    if (at !== undefined && path.includes(at)) {
      const cycle = path.slice(path.indexOf(at));
      explained = true;
      const waits = cycle.map(
        (b, i) => `${where(b)} waits for ${waitsFor(geometry, b)} <- ${where(cycle[(i + 1) % cycle.length]!)}`,
      );
      add(cycle[0]!, {
        code: "deadlock",
        message: `wait cycle: ${waits.join("; ")}`,
        waits,
        hint: cycle.some((b) => b.heldBy.length > 0)
          ? "a proxy cannot raise the signal of a put while its strand waits for packets, and does nothing else meanwhile: put a nop (sync) between these packets and the put"
          : "let one of them signal (or send) before it waits",
        related: cycle.slice(1).map(ref),
      });
    }
    for (const b of path) done.add(b);
  }
  if (!explained && blocked[0] !== undefined) {
    add(blocked[0], {
      code: "deadlock",
      message: `${where(blocked[0])} waits for ${waitsFor(geometry, blocked[0])} and never goes on; ${blocked.length} strands do not end`,
      hint: "look at what this strand waits for",
    });
  }
}
