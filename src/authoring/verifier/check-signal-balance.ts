/**
 * Counting, which needs no run: as many signals as waits on every channel, semaphores back where they began, loops that
 * run equally often at every size.
 */
import { bodyOf } from "../plan/index.ts";
import type { Geometry } from "./cell-geometry.ts";
import { type Findings, type OpRef, opRef, times } from "./findings.ts";
import { unequalBarriers, unequalRates } from "./loop-units.ts";
import type { Counter, CounterTable } from "./signal-counters.ts";

/** Compares how often every channel is signalled and awaited, and every semaphore released and acquired. */
export function checkCounts(geometry: Geometry, table: CounterTable, findings: Findings): void {
  checkBarrierRates(geometry, findings);
  const unequal = unequalRates(geometry.plan, table);
  for (const counter of table.counters) {
    const { totalSignals: signals, totalWaits: waits, from, to, kind } = counter;
    const loops = unequal.has(counter);
    if (signals === waits && !loops) continue;
    const place = placeOfCounter(geometry, counter);
    const is = kind === "semaphore" ? `semaphore ${counter.toId} of rank ${to}` : undefined;
    if (loops) {
      const ends = is ?? `${kind} channel ${counter.fromId} from rank ${from} to rank ${to}`;
      const [raises, takes] = kind === "semaphore" ? ["releases", "acquires"] : ["signals", "waits"];
      findings.add({
        ...place,
        code: "loop-mismatch",
        severity: "error",
        message:
          `the loops at the two ends of ${ends} run a different number of times` +
          (signals === waits ? " at other sizes" : `: ${signals} ${raises}, ${waits} ${takes}`),
        hint: "give both loops the same unit and the same number of chunks",
      });
    } else if (is !== undefined) {
      if (waits > signals + counter.initial) continue;
      findings.add({
        ...place,
        code: "semaphore-not-restored",
        severity: "error",
        message: `${is} is acquired ${times(waits)} and released ${times(signals)}: it ends at ${counter.initial + signals - waits} instead of ${counter.initial}`,
        hint: "release it as often as it is acquired: the next launch begins with what is left",
      });
    } else if (signals > waits) {
      findings.add({
        ...place,
        code: "surplus-signal",
        severity: "error",
        message:
          `rank ${from} signals ${kind} channel ${counter.fromId} to rank ${to} ${times(signals)}, ` +
          (counter.toId < 0 ? `rank ${to} has no channel that pairs with it` : `rank ${to} waits ${times(waits)}`),
        hint: "a signal that is left over satisfies a wait of the next launch too early: add the wait or remove the signal",
      });
    }
  }
}

/** Compares how often the strands that name a barrier come to it in loops. */
function checkBarrierRates(geometry: Geometry, findings: Findings): void {
  for (const { rank, barrier, strand, op } of unequalBarriers(geometry.plan)) {
    findings.at(geometry.plan, [rank, strand, op], {
      code: "loop-mismatch",
      severity: "error",
      message: `the loops in which strands come to barrier ${barrier} of rank ${rank} run a different number of times at some size`,
      hint: "give these loops the same unit and the same number of chunks",
    });
  }
}

/** The first operation that signals (or else waits on) a counter. */
function placeOfCounter(geometry: Geometry, counter: Counter): OpRef {
  const { plan } = geometry;
  const side = counter.signallers.size > 0 ? counter.signallers : counter.waiters;
  const kinds = counter.signallers.size > 0 ? ["signal", "release", "put"] : ["wait", "acquire"];
  for (const g of side) {
    const rank = geometry.strandRank[g]!;
    const strand = g - geometry.strandBase[rank]!;
    const ops = plan.ranks[rank]!.strands[strand]!.ops;
    for (const [o, outer] of ops.entries()) {
      for (const [b, op] of bodyOf(outer).entries()) {
        const id = rank === counter.from && kinds[0] === "signal" ? counter.fromId : counter.toId;
        const ids = "channels" in op ? op.channels : "semaphores" in op ? op.semaphores : [];
        const same = "channelKind" in op ? op.channelKind === counter.kind : counter.kind === "semaphore";
        if (kinds.includes(op.kind) && same && ids.includes(id))
          return opRef(plan, rank, strand, o, outer.kind === "pipeline" ? b : undefined);
      }
    }
  }
  return { rank: counter.to, strand: -1, op: -1 };
}
