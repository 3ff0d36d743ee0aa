/**
 * Explains flight-recorder dumps: puts the ranks of a folder's dumps side by side and says which operation each group is
 * stuck in, who has issued it, who has not, and what those did last.
 */
import { readdir, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { z } from "zod";
import { InvalidArgumentError } from "../../core/index.ts";
import { checkSchema, readJsonFile } from "../../foreign/formats/index.ts";
import { FLIGHT_SCHEMA_VERSION, type FlightEntry } from "../../runtime/comm/index.ts";
import { entrySchema, progressOf } from "./flight-entry.ts";
import { isUnfit, pairsInWords, stuckPairs } from "./flight-pairs.ts";
import { knownCause } from "./known-causes.ts";

/** Largest dump that is read: 1024 ranks with 1000 entries of 100 bytes are about 100 MB. */
const MAX_DUMP_BYTES = 128 * 1024 * 1024;
const MAX_DUMPS = 4096;
/** The hosts of a world write their dumps within that time of each other: a host may be told late that the world failed. */
const ONE_RUN_MS = 600_000;

const dumpSchema = z.object({
  schemaVersion: z.literal(FLIGHT_SCHEMA_VERSION),
  backend: z.string(),
  generation: z.number(),
  worldSize: z.number(),
  groups: z.array(z.object({ name: z.string(), ranks: z.array(z.number()), failure: z.unknown().optional() })),
  ranks: z.array(z.object({ rank: z.number(), failed: z.string().optional(), entries: z.array(entrySchema) })),
});

/** What a group failed with whose ranks found that they disagree. */
const mismatchSchema = z.object({
  code: z.literal("MISMATCH"),
  problem: z.string(),
  sides: z.array(z.object({ rank: z.number(), call: z.string() })),
});

function mismatchInWords({ problem, sides }: z.infer<typeof mismatchSchema>): string {
  return `${problem}: ${sides.map(({ rank, call }) => `rank ${rank} called ${call}`).join("; ")}`;
}

/** `writtenMs`: as its file's name says, ms since 1970. */
type Dump = z.infer<typeof dumpSchema> & { readonly writtenMs?: number };

/** What one rank's timed calls of a group took on its stream. */
export interface StreamTimings {
  readonly rank: number;
  readonly calls: number;
  readonly totalUs: number;
  readonly slowest: { readonly call: string; readonly seq: number; readonly durationUs: number };
}

export interface GroupDiagnosis {
  readonly group: string;
  readonly ranks: readonly number[];
  readonly verdict: "complete" | "stuck" | "mismatch";
  /** In words, naming the culprit. */
  readonly message: string;
  readonly waiting: readonly {
    readonly rank: number;
    readonly call: string;
    readonly seq: number;
    /** How far the call came on this rank. */
    readonly state: FlightEntry["state"];
    /** When it was issued, ms since 1970; 0 if not known. */
    readonly timeMs: number;
  }[];
  readonly missing: readonly { readonly rank: number; readonly last: string }[];
  /** Where calls were timed on the device's stream: how long each rank's took. */
  readonly timings?: readonly StreamTimings[];
}

export interface FlightReport {
  readonly worldSize: number;
  readonly generation: number;
  readonly backend: string;
  /** `mend` where the failure's text is one of CUDA or NCCL that is known. */
  readonly failures: readonly { readonly rank: number; readonly failed: string; readonly mend?: string }[];
  readonly groups: readonly GroupDiagnosis[];
  /** How many dumps were left out, because they are of other runs or earlier generations. */
  readonly leftOut: number;
}

/**
 * Reads the dumps of a folder (or one file).
 * @throws InvalidArgumentError when there is none
 * @throws FormatError for a file that is no dump
 */
export async function explainFlight(path: string): Promise<FlightReport> {
  const kind = await stat(path).catch(() => undefined);
  if (kind === undefined)
    throw new InvalidArgumentError("--flight", path, "a folder of flight-recorder dumps, or one dump");
  const names = kind.isDirectory()
    ? (await readdir(path))
        .filter((name) => name.endsWith(".json"))
        .sort()
        .slice(0, MAX_DUMPS)
        .map((name) => join(path, name))
    : [path];
  if (names.length === 0) throw new InvalidArgumentError("--flight", path, "a folder that holds .json dumps");
  return explain(names.map(readDump));
}

function readDump(path: string): Dump {
  const dump = checkSchema(dumpSchema, readJsonFile(path, MAX_DUMP_BYTES), path, "flight-recorder dump");
  const written = /^flight-(\d{1,15})-/.exec(basename(path))?.[1];
  return written === undefined ? dump : { ...dump, writtenMs: Number(written) };
}

/** When a dump was made; of one that does not say, the last that it tells of. */
function timeOf({ writtenMs, ranks }: Dump): number {
  if (writtenMs !== undefined) return writtenMs;
  const times = ranks.flatMap(({ entries }) => entries.map(({ timeMs, endMs = 0 }) => Math.max(timeMs, endMs)));
  return times.reduce((latest, time) => Math.max(latest, time), 0);
}

/**
 * The dumps of the latest run's last generation. The hosts of a world write one each, with calls of their own ranks: a dump
 * that has calls of a rank once more is another run's.
 */
function latestRun(dumps: readonly Dump[]): readonly Dump[] {
  const sorted = dumps
    .map((dump) => ({ dump, time: timeOf(dump) }))
    .sort((a, b) => b.time - a.time || b.dump.generation - a.dump.generation);
  const [first] = sorted;
  if (first === undefined) return [];
  const { generation, backend, worldSize } = first.dump;
  const told = new Set<number>();
  const isOfRun = ({ dump, time }: (typeof sorted)[number]) => {
    if (dump.generation !== generation || dump.backend !== backend || dump.worldSize !== worldSize) return false;
    if (first.time - time > ONE_RUN_MS) return false;
    const ranks = dump.ranks.filter(({ entries }) => entries.length > 0).map(({ rank }) => rank);
    if (ranks.some((rank) => told.has(rank))) return false;
    for (const rank of ranks) told.add(rank);
    return true;
  };
  return sorted.filter(isOfRun).map(({ dump }) => dump);
}

/** Puts the dumps of a world together; of several runs and generations the latest is explained. */
export function explain(dumps: readonly Dump[]): FlightReport {
  const latest = latestRun(dumps);
  const generation = latest[0]?.generation ?? 0;
  const ranks = new Map<number, readonly FlightEntry[]>();
  const failures = new Map<number, string>();
  const groups = new Map<string, readonly number[]>();
  const mismatches = new Map<string, string>();
  for (const dump of latest) {
    for (const { name, ranks: members, failure } of dump.groups) {
      groups.set(name, members);
      const mismatch = mismatchSchema.safeParse(failure);
      if (mismatch.success) mismatches.set(name, mismatchInWords(mismatch.data));
    }
    for (const { rank, failed, entries } of dump.ranks) {
      if (entries.length >= (ranks.get(rank)?.length ?? 0)) ranks.set(rank, entries);
      if (failed !== undefined) failures.set(rank, failed);
    }
  }
  return {
    worldSize: latest[0]?.worldSize ?? 0,
    generation,
    backend: latest[0]?.backend ?? "unknown",
    failures: [...failures]
      .sort(([a], [b]) => a - b)
      .map(([rank, failed]) => {
        const mend = knownCause(failed);
        return mend === undefined ? { rank, failed } : { rank, failed, mend };
      }),
    groups: [...groups].map(([name, members]) => {
      const found = diagnoseGroup(name, members, ranks, failures);
      const told = mismatches.get(name);
      if (told === undefined || found.verdict === "mismatch") return found;
      // The ranks compared their calls before any of them was stuck.
      return { ...found, verdict: "mismatch", message: `${name}: ${told}` };
    }),
    leftOut: dumps.length - latest.length,
  };
}

/** Adds up what was timed on the streams; `undefined` when nothing was. */
function timingsOf(
  members: readonly number[],
  of: (rank: number) => readonly FlightEntry[],
): readonly StreamTimings[] | undefined {
  const timings = members.flatMap((rank): StreamTimings[] => {
    const timed = of(rank).flatMap(({ call, seq, durationUs }) =>
      durationUs === undefined ? [] : [{ call, seq, durationUs }],
    );
    const [slowest] = [...timed].sort((a, b) => b.durationUs - a.durationUs);
    if (slowest === undefined) return [];
    return [{ rank, calls: timed.length, totalUs: timed.reduce((sum, one) => sum + one.durationUs, 0), slowest }];
  });
  return timings.length === 0 ? undefined : timings;
}

const waitingIn = ({ rank, entry: { call, seq, state, timeMs } }: { rank: number; entry: FlightEntry }) => ({
  rank,
  call,
  seq,
  state,
  timeMs,
});

/** Where a rank stood in the plan that served a call, where the dump tells. */
function strandsInWords(rank: number, { strands = [] }: FlightEntry): string {
  return strands.length === 0 ? "" : `; rank ${rank} stood in its plan: ${strands.join("; ")}`;
}

function diagnoseGroup(
  group: string,
  members: readonly number[],
  ranks: ReadonlyMap<number, readonly FlightEntry[]>,
  failures: ReadonlyMap<number, string>,
): GroupDiagnosis {
  const all = (rank: number) => (ranks.get(rank) ?? []).filter((entry) => entry.group === group);
  // Sends and receives of pairs that are numbered by themselves are no rounds of the group.
  const of = (rank: number) => all(rank).filter(({ peer }) => peer === undefined);
  const lastOf = (rank: number) => {
    const last = all(rank).at(-1);
    const said =
      last === undefined
        ? ranks.has(rank)
          ? "issued nothing in this group"
          : "left no dump"
        : `last issued ${last.call} (#${last.seq}, ${last.state})`;
    const failed = failures.get(rank);
    return failed === undefined ? said : `${said}; failed: ${failed}`;
  };
  // A rank is stuck in its oldest operation that is not done.
  const open = members.flatMap((rank) => {
    const entry = of(rank).find((e) => e.state !== "done");
    return entry === undefined ? [] : [{ rank, entry }];
  });
  const pairs = stuckPairs(members, (rank) => (ranks.has(rank) ? all(rank) : undefined));
  const inPairs = pairsInWords(pairs, lastOf);
  const timings = timingsOf(members, all);
  const timed = timings === undefined ? {} : { timings };
  const seq = open.reduce((least, { entry }) => Math.min(least, entry.seq), Number.POSITIVE_INFINITY);
  const isMismatch = pairs.some(isUnfit);
  if (open.length === 0) {
    const unmatched = new Set(
      pairs.flatMap(({ peer, called }) => (called === false || !ranks.has(peer) ? [peer] : [])),
    );
    return {
      group,
      ranks: members,
      verdict: pairs.length === 0 ? "complete" : isMismatch ? "mismatch" : "stuck",
      message: `${group}: ${pairs.length === 0 ? "every operation that was issued is done" : inPairs}`,
      waiting: pairs.map(waitingIn),
      missing: [...unmatched].map((rank) => ({ rank, last: lastOf(rank) })),
      ...timed,
    };
  }
  const at = members.flatMap((rank) => {
    const entry = of(rank).find((e) => e.seq === seq);
    return entry === undefined ? [] : [{ rank, entry }];
  });
  // A rank that has made later calls has made this one, too long ago to be noted.
  const isPast = (rank: number) => of(rank).some((entry) => entry.seq > seq) && !of(rank).some((e) => e.seq === seq);
  const past = members.filter(isPast);
  const waiting = at.map(waitingIn);
  const missing = members
    .filter((rank) => !at.some((other) => other.rank === rank) && !isPast(rank))
    .map((rank) => ({ rank, last: lastOf(rank) }));
  const calls = new Map<string, number[]>();
  for (const { rank, call } of waiting) calls.set(call, [...(calls.get(call) ?? []), rank]);
  if (calls.size > 1) {
    const sides = [...calls].map(([call, who]) => `ranks [${who.join(", ")}] called ${call}`).join("; ");
    return {
      group,
      ranks: members,
      verdict: "mismatch",
      message: `${group}: operation #${seq} differs between ranks: ${sides}`,
      waiting,
      missing,
      ...timed,
    };
  }
  const call = waiting[0]?.call ?? "";
  // Engines that say how far a call came tell more than who has called it.
  const tells = at.some(({ entry }) => entry.reached !== undefined || /started|running/.test(entry.state));
  const progress = tells ? at.map(({ rank, entry }) => `; rank ${rank} ${progressOf(entry)}`).join("") : "";
  const strands = at.map(({ rank, entry }) => strandsInWords(rank, entry)).join("");
  const done = at.filter(({ entry }) => entry.state === "done").map(({ rank }) => rank);
  const ahead = past.map((rank) => `; rank ${rank} has called it and others since: it ${lastOf(rank)}`).join("");
  const message =
    missing.length === 0 && past.length > 0
      ? `${group}: ${call} (#${seq}) is not done on ranks [${at.flatMap(({ rank, entry }) => (entry.state === "done" ? [] : [rank])).join(", ")}]${ahead}${progress}`
      : missing.length === 0 && done.length > 0
        ? `${group}: ${call} (#${seq}) is done on ranks [${done.join(", ")}] and not on the others${progress}`
        : missing.length === 0
          ? `${group}: all ranks are in ${call} (#${seq}) and none has finished${pairs.length === 0 && strands === "" ? ": the transport is stuck, not the program" : ""}${progress}`
          : `${group}: ${call} (#${seq}) waits for ranks [${missing.map((m) => m.rank).join(", ")}]: ${missing.map((m) => `rank ${m.rank} ${m.last}`).join("; ")}${ahead}${progress}`;
  // Who hangs in a send or receive does not come to the operation behind it.
  const said = [message + strands, inPairs].filter((text) => text !== "").join("; ");
  return {
    group,
    ranks: members,
    verdict: isMismatch ? "mismatch" : "stuck",
    message: said,
    waiting,
    missing,
    ...timed,
  };
}
