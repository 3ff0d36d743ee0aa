/**
 * The flight recorder: a ring of the last operations of each rank, in shared memory, so that any rank, or the
 * launcher, can say what a dead or silent one did last. Entries cost a handful of stores.
 */
import {
  describeWords,
  type FlightDump,
  type FlightEntry,
  type FlightRank,
  flightDump,
  unpackCall,
} from "../../comm/index.ts";
import { Heap } from "./heap.ts";
import { causeOf, rankBlock } from "./host.ts";
import { ENTRY, GROUP, groupLayout, LAUNCHER, RANK, stampOf, TEXT_BYTES, WORLD } from "./layout.ts";
import type { SharedWorld } from "./shared-world.ts";
import type { ThreadsWork } from "./threads-work.ts";

const STATES = ["issued", "done", "failed"] as const;
/** How long a dump waits for ranks that are in the heap, ms. */
const PATIENCE_MS = 50;
const ENTRY_WORDS = RANK.flightEntryBytes / 4;

export class FlightRing {
  readonly #words: Int32Array;
  readonly #times: Float64Array;
  readonly #count: number;
  readonly #ring: number;

  /** @param first number of the first entry */
  constructor(words: Int32Array, rank: number, first: number) {
    this.#words = words;
    this.#times = new Float64Array(words.buffer, 0, words.length >> 1);
    this.#count = (rankBlock(rank) + RANK.flightCount) / 4;
    words[this.#count] = first;
    this.#ring = (rankBlock(rank) + RANK.flight) / 4;
  }

  /** Records a call with its time, and remembers the entry in the work. */
  issue(work: ThreadsWork<unknown>, group: number): void {
    work.entry = this.note(group, work.seq, work.call, work.count, 0);
    this.#times[(work.entry + ENTRY.time / 4) >> 1] = Date.now();
  }

  /** Records a call without a clock, as `eagerCall` (eager-code.ts) does of its own. @returns its entry */
  note(group: number, seq: number, call: number, count: number, state: 0 | 1 | 2): number {
    const words = this.#words;
    const next = words[this.#count]!;
    const at = this.#ring + offsetOf(next);
    words[at] = group;
    words[at + 1] = seq;
    words[at + 2] = call;
    words[at + 3] = count;
    words[at + 4] = state;
    words[at + 5] = seq / 2 ** 32;
    this.#times[(at + ENTRY.time / 4) >> 1] = 0;
    words[this.#count] = next + 1;
    return at;
  }

  /** The fingerprint's first words of a call that a rank made not long ago; undefined when it is not on record any more. */
  callOf(rank: number, group: number, seq: number): { readonly call: number; readonly count: number } | undefined {
    const ring = (rankBlock(rank) + RANK.flight) / 4;
    for (let i = 0; i < RANK.flightEntries; i++) {
      const at = ring + offsetOf(i);
      if (this.#words[at] === (group | 0) && seqAt(this.#words, at) === seq) {
        return { call: this.#words[at + 2]!, count: this.#words[at + 3]! };
      }
    }
    return undefined;
  }

  settle(entry: number, done: boolean): void {
    if (entry !== 0) this.#words[entry + ENTRY.state / 4] = done ? 1 : 2;
  }

  /** The last operation of any rank, and of which group; `waits` when it has not ended. */
  lastOf(rank: number): LastOperation | undefined {
    const count = this.#words[(rankBlock(rank) + RANK.flightCount) / 4]!;
    const at = (rankBlock(rank) + RANK.flight) / 4 + offsetOf(count - 1);
    if (this.#words[at] === 0) return undefined;
    const call = this.#words[at + 2]!;
    const seq = seqAt(this.#words, at);
    const text = `${describeWords(call, this.#words[at + 3]! >>> 0)} #${seq}`;
    return { op: unpackCall(call).op, seq, text, group: this.#words[at]!, waits: this.#words[at + 4] === 0 };
  }
}

interface LastOperation {
  readonly op: string;
  readonly seq: number;
  readonly text: string;
  /** Its group's block. */
  readonly group: number;
  readonly waits: boolean;
}

/** A group's name. @param group its block, which has not been freed */
export function groupName(heap: Heap, group: number): string {
  const all = heap.words((group >>> 0) + GROUP.ranks);
  const key = all[((group >>> 0) + GROUP.key) / 4]! >>> 0;
  const nameBytes = all[((group >>> 0) + GROUP.nameBytes) / 4]!;
  heap.words(key + all[((group >>> 0) + GROUP.keyBytes) / 4]!);
  return new TextDecoder().decode(new Uint8Array(heap.memory.buffer, key, nameBytes).slice());
}

/** Where entry `index` stands in a ring, in words; `index` may have wrapped. */
const offsetOf = (index: number): number => (index & (RANK.flightEntries - 1)) * ENTRY_WORDS;

/** The number of the call whose entry is at `at`. */
const seqAt = (words: Int32Array, at: number): number => words[at + 5]! * 2 ** 32 + (words[at + 1]! >>> 0);

/** Where a rank's strands stood in the call of this stamp, when that failed: what `PeerCalls.noteStrands` left. */
function strandsNoted(words: Int32Array, at: number): { stamp: number; strands: readonly string[] } | undefined {
  const length = words[at / 4 + 1]!;
  if (length <= 0 || length > TEXT_BYTES - 8) return undefined;
  try {
    const text = new TextDecoder().decode(new Uint8Array(words.buffer, at + 8, length).slice());
    const { strands } = JSON.parse(text) as { readonly strands?: readonly string[] };
    return strands === undefined ? undefined : { stamp: words[at / 4]!, strands };
  } catch {
    // It is being written.
    return undefined;
  }
}

/**
 * Reads the flight recorders of all ranks, dead ones included, from any thread that has the handle.
 * @returns a self-describing value, ready for JSON
 */
export function dumpFlight(handle: SharedWorld): FlightDump {
  const heap = new Heap(handle, LAUNCHER);
  const words = heap.words();
  const times = new Float64Array(words.buffer, 0, words.length >> 1);
  const names = new Map<number, string>();
  const strands = new Map<string, readonly string[]>();
  const groups: { name: string; ranks: number[]; failure: unknown }[] = [];
  const decoder = new TextDecoder();
  const readGroups = () => {
    for (let group = words[WORLD.firstGroup]! >>> 0; group !== 0; ) {
      const all = heap.words(group + GROUP.ranks + 4 * handle.ranks);
      const text = (at: number, length: number) => decoder.decode(new Uint8Array(all.buffer, at, length).slice());
      const size = all[(group + GROUP.size) / 4]!;
      const name = groupName(heap, group);
      const failureBytes = all[(group + GROUP.failureBytes) / 4]!;
      const ranks = Array.from(all.subarray((group + GROUP.ranks) / 4, (group + GROUP.ranks) / 4 + size));
      const { texts } = groupLayout(size, all[(group + GROUP.keyBytes) / 4]!);
      const told = heap.words(group + texts + size * TEXT_BYTES);
      for (const [r, rank] of ranks.entries()) {
        const noted = strandsNoted(told, group + texts + r * TEXT_BYTES);
        if (noted !== undefined) strands.set(`${group | 0} ${rank} ${noted.stamp}`, noted.strands);
      }
      names.set(group | 0, name);
      groups.push({
        name,
        ranks,
        failure: failureBytes === 0 ? null : (JSON.parse(text(group + GROUP.failure, failureBytes)) as unknown),
      });
      group = all[(group + GROUP.next) / 4]! >>> 0;
    }
  };
  // A rank that was killed within the heap holds its lock: better a dump without groups than none.
  heap.tryLocked(readGroups, PATIENCE_MS);
  const rankOf = (rank: number): FlightRank => {
    const count = words[(rankBlock(rank) + RANK.flightCount) / 4]!;
    const entries = Array.from({ length: RANK.flightEntries }, (_, i): FlightEntry[] => {
      // The oldest stands where the next one will.
      const at = (rankBlock(rank) + RANK.flight) / 4 + offsetOf(count + i);
      if (words[at] === 0) return [];
      const call = words[at + 2]!;
      const state = STATES[words[at + 4]!] ?? "issued";
      const stood = state === "done" ? undefined : strands.get(`${words[at]!} ${rank} ${stampOf(seqAt(words, at))}`);
      const entry: FlightEntry = {
        group: names.get(words[at]!) ?? "(closed)",
        seq: seqAt(words, at),
        op: unpackCall(call).op,
        call: describeWords(call, words[at + 3]! >>> 0),
        state,
        timeMs: times[(at + ENTRY.time / 4) >> 1]!,
        ...(stood === undefined ? {} : { strands: stood }),
      };
      return [entry];
    }).flat();
    return { rank, failed: causeOf(words, rank), entries };
  };
  const { kind, generation, ranks } = handle;
  return flightDump({ backend: kind, generation, worldSize: ranks }, groups, rankOf);
}
