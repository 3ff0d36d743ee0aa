/**
 * A queue of timed events: earliest first, of equal times the one that was added first. So runs repeat exactly. Events of
 * one time lie together, and the heap is one of times: in schedules that march in step most events are simultaneous.
 */
import { NumberHeap } from "../../core/internal.ts";

type Action = () => void;

export class EventQueue {
  /** Distinct times. */
  readonly #times = new NumberHeap();
  readonly #moments = new Map<number, Action[]>();
  /** What was added to last, mostly to be added to again. */
  #lastTime = Number.NaN;
  #lastMoment: Action[] = [];
  /** The earliest moment, when it is being worked through, and how far. */
  #first: Action[] | undefined;
  #done = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Time of the earliest event, Infinity when there is none. */
  get nextTime(): number {
    return this.#times.first ?? Number.POSITIVE_INFINITY;
  }

  push(time: number, action: Action): void {
    this.#size++;
    if (time === this.#lastTime) {
      this.#lastMoment.push(action);
      return;
    }
    let moment = this.#moments.get(time);
    if (moment === undefined) {
      moment = [action];
      this.#moments.set(time, moment);
      // Earlier than the moment at hand: that one is gone on with later.
      if (time < this.nextTime) this.#leave();
      this.#times.push(time);
    } else moment.push(action);
    this.#lastTime = time;
    this.#lastMoment = moment;
  }

  pop(): Action {
    const time = this.nextTime;
    if (this.#first === undefined) {
      this.#first = this.#moments.get(time)!;
      this.#done = 0;
    }
    const action = this.#first[this.#done++]!;
    this.#size--;
    if (this.#done === this.#first.length) {
      this.#first = undefined;
      this.#moments.delete(time);
      if (this.#lastTime === time) this.#lastTime = Number.NaN;
      this.#times.pop();
    }
    return action;
  }

  /** Leaves the moment at hand with what is left of it. */
  #leave(): void {
    if (this.#first === undefined) return;
    this.#first.splice(0, this.#done);
    this.#first = undefined;
  }
}
