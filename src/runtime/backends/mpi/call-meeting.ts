/**
 * Where the members of a group meet as a call begins: each writes its call's fingerprint, and what the call adds, into its meeting
 * place, and then the mark that says so. Who finds all marks knows in one look that all have brought their parts, and whether of the
 * same call; comparing what they publish (runtime/progress) would be a meeting of its own.
 *
 * Two places take turns, by the count of a call's pieces. A rank that writes one knows that all have left the call which had it
 * before: they could not have ended the one in between otherwise.
 */
import type { Arrival } from "../../progress/index.ts";
import { MEETING } from "./host-arena.ts";
import type { MeetingHalf } from "./one-round-places.ts";
import type { PlanPlace } from "./plan-call.ts";

export class CallMeeting {
  readonly #group: PlanPlace;
  #half: MeetingHalf;
  #arrival: Arrival | undefined;
  #awaited = 0;
  /** Whether this rank has brought its part. */
  isBrought = false;

  constructor(group: PlanPlace) {
    this.#group = group;
    this.#half = group.rounds.halves[0];
  }

  /** The place of the call, once it is taken. */
  get half(): MeetingHalf {
    return this.#half;
  }

  /** Takes a place, and the call's pieces and steps: the first of those is to bring its part. @returns the place */
  take(numPieces = 1, numSteps = 1): MeetingHalf {
    const group = this.#group;
    this.#half = group.rounds.halves[(group.numPieces & 1) as 0 | 1];
    this.#awaited = (group.numTold + 1) | 0;
    group.numPieces += numPieces;
    group.numTold += numSteps;
    return this.#half;
  }

  /** Says that this rank's part is there. @param arrival what it says of the call; others that hear it in another way find none */
  tell(arrival: Arrival | undefined): void {
    const { arena, me } = this.#group;
    const words = arena.words();
    const at = this.#half.meetings[me] ?? 0;
    this.#arrival = arrival;
    this.isBrought = true;
    words[at + MEETING.seq] = arrival === undefined ? 0 : arrival.seq | 0;
    if (arrival !== undefined) {
      const { call, count, hash } = arrival.print;
      words[at + MEETING.call] = call;
      words[at + MEETING.count] = count;
      words[at + MEETING.hash] = hash;
    }
    Atomics.store(words, at, this.#awaited);
  }

  /** Whether all members have brought their parts. */
  get isFull(): boolean {
    const words = this.#group.arena.words();
    for (const at of this.#half.meetings) if (Atomics.load(words, at) !== this.#awaited) return false;
    return true;
  }

  /** Says, before its program may change what it lent, that this rank has left a call whose part it had brought: it failed here. */
  withdraw(): void {
    const at = this.#half.meetings[this.#group.me] ?? 0;
    Atomics.store(this.#group.arena.words(), at + MEETING.withdrawn, this.#awaited);
  }

  /** To be asked once the others' inputs were read: whether they may have changed by then. */
  get someWithdrew(): boolean {
    const words = this.#group.arena.words();
    return this.#half.meetings.some((at) => Atomics.load(words, at + MEETING.withdrawn) === this.#awaited);
  }

  /** Whether all members have brought the same call. Where not, one may have made it in another way, or another call. */
  hasMet(): boolean {
    const arrival = this.#arrival;
    if (arrival === undefined || !this.isFull) return false;
    const words = this.#group.arena.words();
    const seq = arrival.seq | 0;
    const { call, count, hash } = arrival.print;
    for (const at of this.#half.meetings) {
      if (words[at + MEETING.seq] !== seq || words[at + MEETING.call] !== call) return false;
      if (words[at + MEETING.count] !== count || words[at + MEETING.hash] !== hash) return false;
    }
    return true;
  }
}
