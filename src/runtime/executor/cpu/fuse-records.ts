/**
 * Records that become one: a value that is stored to several places is read once, and signals in a row are one record.
 * Only neighbours are looked at, so nothing is moved past a wait.
 */
import type { DataRecord, StrandRecord, Stretch } from "./records.ts";

const isSame = (a: Stretch, b: Stretch) =>
  a.rank === b.rank &&
  a.buffer === b.buffer &&
  a.packets === b.packets &&
  a.segment === b.segment &&
  a.chunk === b.chunk;

/** A record that does what both do, if there is one. */
function fused({ record: first }: StrandRecord, { record: second }: StrandRecord): StrandRecord["record"] | undefined {
  if (first.code === "signal" && second.code === "signal" && first.relaxed === second.relaxed)
    return { ...first, counters: [...first.counters, ...second.counters] };
  if ((first.code !== "copy" && first.code !== "move") || second.code !== "copy") return undefined;
  return fusedCopy(first, second);
}

/** A copy of what was read, or has just been stored: one more place for it to go. */
function fusedCopy(first: DataRecord, second: DataRecord): DataRecord | undefined {
  const isAlike =
    first.chunks === second.chunks &&
    first.from === second.from &&
    first.to === second.to &&
    first.windowed === second.windowed &&
    first.tbg?.index === second.tbg?.index &&
    first.tbg?.size === second.tbg?.size;
  const [source, target] = [second.ins[0], second.outs[0]];
  if (!isAlike || source === undefined || target === undefined) return undefined;
  const isRead = first.op === undefined && first.ins.some((range) => isSame(range, source));
  if (!isRead && !first.outs.some((range) => isSame(range, source))) return undefined;
  // Written a second time: then the order counts.
  if ([...first.ins, ...first.outs].some((range) => isSame(range, target))) return undefined;
  return { ...first, code: "move", outs: [...first.outs, target] };
}

/** Fuses neighbours in the records of a strand, as often as it can. A fused record stands where the first one stood. */
export function fuseRecords(records: readonly StrandRecord[]): StrandRecord[] {
  const result: StrandRecord[] = [];
  for (const next of records) {
    const last = result.at(-1);
    const both = last === undefined ? undefined : fused(last, next);
    if (last !== undefined && both !== undefined) result[result.length - 1] = { ...last, record: both };
    else result.push(next);
  }
  return result;
}
