/**
 * Records for plans of which some ranks are far: their memory is not this rank's, and what is moved from or to them goes by
 * messages (`far-run.ts`). A record that touches near and far ranks becomes one of each.
 *
 * Messages to one rank arrive in their order; those to several do not. A signal makes visible all that its strand did
 * before, to its receiver and to whoever that one signals in turn. So before it leaves, what was put at other ranks
 * has to be there: a fence asks them. Packets prove themselves, and need none.
 */
import type { DataRecord, FarRecord, PartedRecord, StrandRecord, Stretch } from "./records.ts";

type IsFar = (rank: number) => boolean;
type AnyRecord = PartedRecord["record"];

/** The strands of a rank, where some ranks are far. */
export function withFarRanks(strands: readonly (readonly StrandRecord[])[], isFar: IsFar): PartedRecord[][] {
  const split = strands.map((records) =>
    records.flatMap((one): PartedRecord[] => {
      const { record } = one;
      return "ins" in record ? parted(record, isFar).map((part) => ({ ...one, record: part })) : [one];
    }),
  );
  const everywhere = new Set(split.flat().flatMap(({ record }) => targetsOf(record, isFar)));
  return split.map((records) => withLengths(fenced(records, everywhere, isFar)));
}

/** What does the same as a record, near ranks first. */
function parted(record: DataRecord, isFar: IsFar): AnyRecord[] {
  const { code, raw, ins, outs, op } = record;
  const at = ({ rank }: Stretch) => isFar(rank);
  const near = outs.filter((one) => !at(one));
  const far = outs.filter(at);
  if (far.length === 0 && !ins.some(at)) return [record];
  const farRecord = (form: FarRecord["form"], from: readonly Stretch[], to: readonly Stretch[]): FarRecord => {
    const { code: _, ...rest } = record;
    return { ...rest, code: "far", form, ins: from, outs: to };
  };
  if (code === "pack") return [farRecord("packets", ins, far)];
  if (code === "forward") {
    // Without near ranks it still waits for the packets.
    const waits: AnyRecord[] = raw && near.length === 0 ? [] : [{ ...record, outs: near }];
    return [...waits, farRecord("raw", ins, far)];
  }
  // Far sources, or a reduction that is stored at far ranks alone: all of it is done piece by piece.
  if (ins.some(at) || (op !== undefined && near.length === 0)) return [farRecord("plain", ins, outs)];
  const put: FarRecord = { ...farRecord("plain", op === undefined ? ins : near.slice(0, 1), far), op: undefined };
  return near.length === 0 ? [put] : [{ ...record, outs: near }, put];
}

/** Ranks at which a record puts plain data. */
function targetsOf(record: AnyRecord, isFar: IsFar): readonly number[] {
  if (record.code !== "far" || record.form !== "plain") return [];
  return record.outs.map(({ rank }) => rank).filter(isFar);
}

/** A strand with a fence before every signal that needs one. @param everywhere where its rank puts plain data */
function fenced(records: readonly PartedRecord[], everywhere: ReadonlySet<number>, isFar: IsFar): PartedRecord[] {
  if (everywhere.size === 0) return [...records];
  /** Where this strand, or one that it has met, may have put what is not known to be there. */
  const open = new Set<number>();
  return records.flatMap((one, index): PartedRecord[] => {
    const { record } = one;
    if (record.code === "signal" && !record.relaxed) {
      // To one rank alone, its own data comes before the signal.
      const [first] = record.counters;
      const only = record.counters.every(({ rank }) => rank === first?.rank) ? first?.rank : undefined;
      const ranks = [...open].filter((rank) => rank !== only).sort((a, b) => a - b);
      for (const rank of ranks) open.delete(rank);
      return ranks.length === 0 ? [one] : [{ ...one, record: { code: "fence", ranks } }, one];
    }
    // A round of a loop comes after all that an earlier one did.
    const end = record.code === "loop" ? records.findIndex((next, i) => i > index && next.record.code === "repeat") : 0;
    const within = record.code === "loop" ? records.slice(index, end) : [one];
    const meets = within.some(({ record: { code } }) => code === "barrier" || code === "acquire");
    for (const rank of meets ? everywhere : within.flatMap((inner) => targetsOf(inner.record, isFar))) open.add(rank);
    return [one];
  });
}

/** Loops with the numbers of records that they have now. They are not within each other. */
function withLengths(records: readonly PartedRecord[]): PartedRecord[] {
  let loopAt = 0;
  return records.map((one, index): PartedRecord => {
    const { record } = one;
    if (record.code === "loop") {
      loopAt = index;
      const end = records.findIndex((next, i) => i > index && next.record.code === "repeat");
      return { ...one, record: { ...record, length: end - index - 1 } };
    }
    return record.code === "repeat" ? { ...one, record: { ...record, length: index - loopAt - 1 } } : one;
  });
}
