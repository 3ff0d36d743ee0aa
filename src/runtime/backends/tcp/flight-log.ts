/**
 * The flight recorder of one rank: its last calls, in memory of a fixed layout, so that the launcher reads them from a
 * mapped file also when the rank is dead or stuck. A note costs a dozen stores.
 */
import { describeWords, type FlightEntry, unpackCall } from "../../comm/index.ts";

const MAX_CALLS = 256;
const MAX_GROUPS = 64;
const NAME_BYTES = 92;
const GROUP_BYTES = 4 + NAME_BYTES;
const CALL_WORDS = 16;
const CALLS_AT = 64 + MAX_GROUPS * GROUP_BYTES;
export const FLIGHT_BYTES = CALLS_AT + MAX_CALLS * CALL_WORDS * 4;
const MAGIC = 0x63687466;

const STATES = ["issued", "started", "done", "failed"] as const;
type State = (typeof STATES)[number];

/** Where things stand in a call's words. */
const WORD = { number: 0, group: 1, seq: 2, call: 3, count: 4, state: 5, peer: 6, issued: 8, ended: 10 } as const;

const NOBODY = -1;

export class FlightLog {
  readonly #words: Int32Array;
  readonly #times: Float64Array;
  readonly #bytes: Uint8Array;
  readonly #groups = new Map<string, number>();
  #number = 0;

  /** @param memory of FLIGHT_BYTES zeros */
  constructor(memory: ArrayBuffer) {
    this.#words = new Int32Array(memory, 0, FLIGHT_BYTES / 4);
    this.#times = new Float64Array(memory, 0, FLIGHT_BYTES / 8);
    this.#bytes = new Uint8Array(memory, 0, FLIGHT_BYTES);
    this.#words[0] = MAGIC;
  }

  /** Notes a call. @param peer the other end of a send or receive @returns its number, for `reach` */
  issue(group: string, seq: number, call: number, count: number, peer: number | undefined): number {
    const number = this.#number++;
    const at = placeOf(number);
    const words = this.#words;
    words[at + WORD.number] = 0;
    words[at + WORD.group] = this.#groupIndex(group);
    words[at + WORD.seq] = seq;
    words[at + WORD.call] = call;
    words[at + WORD.count] = count;
    words[at + WORD.state] = 0;
    words[at + WORD.peer] = peer ?? NOBODY;
    this.#times[(at + WORD.issued) / 2] = Date.now();
    this.#times[(at + WORD.ended) / 2] = 0;
    words[at + WORD.number] = (number % (2 ** 31 - 1)) + 1;
    return number;
  }

  reach(number: number, state: Exclude<State, "issued">): void {
    const at = placeOf(number);
    if (this.#words[at + WORD.number] !== (number % (2 ** 31 - 1)) + 1) return;
    this.#words[at + WORD.state] = STATES.indexOf(state);
    if (state !== "started") this.#times[(at + WORD.ended) / 2] = Date.now();
  }

  #groupIndex(name: string): number {
    const known = this.#groups.get(name);
    if (known !== undefined) return known;
    const index = this.#groups.size % MAX_GROUPS;
    for (const [other, at] of this.#groups) if (at === index) this.#groups.delete(other);
    this.#groups.set(name, index);
    const bytes = Buffer.from(name).subarray(0, NAME_BYTES);
    const at = 64 + index * GROUP_BYTES;
    this.#words[at / 4] = bytes.length;
    this.#bytes.set(bytes, at + 4);
    return index;
  }
}

const placeOf = (number: number) => (CALLS_AT + (number % MAX_CALLS) * CALL_WORDS * 4) / 4;

/** Reads what a `FlightLog` wrote, oldest first; nothing of memory that is none. */
export function readFlightLog(memory: Uint8Array): readonly FlightEntry[] {
  if (memory.byteLength < FLIGHT_BYTES) return [];
  // A Buffer's own slice is no copy: its memory may be a part of Node's pool, which begins elsewhere.
  const copy = Uint8Array.prototype.slice.call(memory, 0, FLIGHT_BYTES);
  const words = new Int32Array(copy.buffer);
  const times = new Float64Array(copy.buffer);
  if (words[0] !== MAGIC) return [];
  const found: { readonly number: number; readonly entry: FlightEntry }[] = [];
  for (let slot = 0; slot < MAX_CALLS; slot++) {
    const at = placeOf(slot);
    const number = words[at + WORD.number] ?? 0;
    if (number === 0) continue;
    const groupAt = 64 + ((words[at + WORD.group] ?? 0) % MAX_GROUPS) * GROUP_BYTES;
    const nameBytes = Math.min(NAME_BYTES, Math.max(0, words[groupAt / 4] ?? 0));
    const [call, count] = [words[at + WORD.call] ?? 0, (words[at + WORD.count] ?? 0) >>> 0];
    const { op, dtype = "u8" } = unpackCall(call);
    const peer = words[at + WORD.peer] ?? NOBODY;
    const endMs = times[(at + WORD.ended) / 2] ?? 0;
    found.push({
      number,
      entry: {
        group: Buffer.from(copy.subarray(groupAt + 4, groupAt + 4 + nameBytes)).toString(),
        seq: words[at + WORD.seq] ?? 0,
        op,
        call: describeWords(call, count),
        state: STATES[(words[at + WORD.state] ?? 0) & 3] ?? "issued",
        timeMs: times[(at + WORD.issued) / 2] ?? 0,
        ...(endMs === 0 ? {} : { endMs }),
        ...(peer === NOBODY ? {} : { peer, dtype, count }),
      },
    });
  }
  return found.sort((a, b) => a.number - b.number).map(({ entry }) => entry);
}
