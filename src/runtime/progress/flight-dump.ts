/** The flight recorder's dump of a world that has a control segment: it is read from there, also of ranks that are dead. */
import { describeWords, type FlightDump, type FlightEntry, flightDump, unpackCall } from "../comm/index.ts";
import { COLLECTIVE, type ControlSegment, type FlightNote, type GroupControl, LANE_RING } from "../memory/index.ts";
import { IN_BATCH, placeOf } from "./call-sequence.ts";

/**
 * Reads what every rank did last.
 * @param segment `undefined` when it is gone already: the dump then has ranks without entries
 * @param isTold whether a rank's calls are told
 */
export function dumpSegment(
  segment: ControlSegment | undefined,
  world: Pick<FlightDump, "backend" | "generation" | "worldSize">,
  isTold: (rank: number) => boolean = () => true,
): FlightDump {
  const groups = segment?.groups() ?? [];
  const failure = segment?.failure;
  const heads = groups.map(({ name, ranks, control }) => ({ name, ranks, failure: control.failure }));
  return flightDump(world, heads, (rank) => ({
    rank,
    failed: failure?.code === "RANK_FAILED" && failure.rank === rank ? failure.cause : undefined,
    entries: groups.flatMap(({ name, ranks, control }) =>
      ranks.includes(rank) && isTold(rank) ? entriesOf(name, control, ranks.indexOf(rank)) : [],
    ),
  }));
}

/** Of a call that has just been published. */
const NOT_NOTED: FlightNote = { stage: "issued", failed: false, issuedMs: 0, endedMs: 0, startUs: 0, durationUs: 0 };

/** What a note says in a dump. */
function told({ stage, failed, issuedMs, endedMs, startUs, durationUs }: FlightNote) {
  return {
    state: failed ? "failed" : stage,
    timeMs: issuedMs,
    ...(endedMs === 0 ? {} : { endMs: endedMs }),
    ...(failed && stage !== "done" ? { reached: stage } : {}),
    ...(durationUs === 0 ? {} : { startUs, durationUs }),
  } as const;
}

/** A member's calls of a group, in the order of issue. */
function entriesOf(group: string, control: GroupControl, member: number): FlightEntry[] {
  const all = [...collectivesOf(group, control, member), ...pairCallsOf(group, control, member)];
  const timeOf = ({ timeMs }: FlightEntry) => (timeMs === 0 ? Number.MAX_VALUE : timeMs);
  return all.sort((a, b) => timeOf(a) - timeOf(b));
}

function collectivesOf(group: string, control: GroupControl, member: number): FlightEntry[] {
  const issued = control.issued(member, COLLECTIVE);
  const notes = control.notesOf(member).collectives;
  const entries: FlightEntry[] = [];
  // Call 0 is the member's joining.
  for (let seq = Math.max(1, issued - LANE_RING); seq < issued; seq++) {
    const print = control.read(member, COLLECTIVE, seq);
    if (print === undefined) continue;
    entries.push({
      group,
      seq: placeOf({ lane: COLLECTIVE, seq }),
      op: unpackCall(print.call).op,
      call: describeWords(print.call, print.count >>> 0),
      ...told(notes.read(seq) ?? NOT_NOTED),
    });
  }
  return entries;
}

function pairCallsOf(group: string, control: GroupControl, member: number): FlightEntry[] {
  return control
    .notesOf(member)
    .pairs.read()
    .map((note) => {
      const count = note.count >>> 0;
      const { op, dtype = "u8", root: peer } = unpackCall(note.call);
      const inBatch = (note.call & IN_BATCH) !== 0;
      return {
        group,
        seq: note.seq,
        op,
        call: describeWords(note.call, count),
        ...told(note),
        peer,
        dtype,
        count,
        inBatch,
      };
    });
}
