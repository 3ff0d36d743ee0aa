/** One collective's messages: which frames they are, and the run of the schedule that sends and awaits them. */
import type { Carrier } from "../../hosts/index.ts";
import type { Arrival } from "../../progress/index.ts";
import { type GroupKey, LANE } from "./frame.ts";
import type { Inbox } from "./inbox.ts";
import type { GrantHolds } from "./link.ts";
import type { Reducer } from "./reducer.ts";
import type { Schedule } from "./schedule.ts";
import { type CallBuffers, ScheduleRun } from "./schedule-run.ts";

/** What messages of all of a group's calls have in common. */
export interface GroupMessages {
  readonly group: GroupKey;
  /** By group rank. */
  readonly inboxes: readonly (Inbox | undefined)[];
  readonly grants: GrantHolds;
  readonly reducer: Reducer;
}

/** Carries a collective's messages, whose slots count from one on. */
class CallCarrier implements Carrier {
  readonly #messages: GroupMessages;
  readonly #arrival: Arrival;
  readonly #firstSlot: number;

  constructor(messages: GroupMessages, arrival: Arrival, firstSlot: number) {
    this.#messages = messages;
    this.#arrival = arrival;
    this.#firstSlot = firstSlot;
  }

  send(to: number, slot: number, payload: Uint8Array, extra: number, done: () => void): void {
    const { group, inboxes } = this.#messages;
    const { seq, print } = this.#arrival;
    const lane = LANE.collective;
    inboxes[to]?.send({ group, lane, seq, slot: this.#firstSlot + slot, print, extra, payload, done });
  }

  receive(from: number, slot: number, into: Uint8Array, extra: number, done: () => void): void {
    const { group, inboxes } = this.#messages;
    const { seq, print } = this.#arrival;
    const name = { group, lane: LANE.collective, seq, slot: this.#firstSlot + slot };
    inboxes[from]?.receive(name, print, extra, into, done);
  }

  hold(): void {
    this.#messages.grants.hold();
  }

  release(): void {
    this.#messages.grants.release();
  }
}

/** Runs the schedules of one collective, one after the other. */
export class CallRunner {
  readonly #messages: GroupMessages;
  readonly #arrival: Arrival;
  #current: ScheduleRun | undefined;

  constructor(messages: GroupMessages, arrival: Arrival) {
    this.#messages = messages;
    this.#arrival = arrival;
  }

  carrierFrom(firstSlot: number): Carrier {
    return new CallCarrier(this.#messages, this.#arrival, firstSlot);
  }

  /** @throws OutOfMemoryError for its scratch */
  run(schedule: Schedule, buffers: CallBuffers, firstSlot: number, done: () => void): void {
    this.#current = new ScheduleRun(schedule, buffers, this.#messages.reducer, this.carrierFrom(firstSlot), done);
    this.#current.start();
  }

  /** Gives up what runs. */
  drop(): void {
    this.#current?.end();
  }
}
