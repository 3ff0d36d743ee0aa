/**
 * What a group's stream comes behind on the device, and what comes behind it. It guarantees that
 *
 * - a call runs behind everything that the rank's main stream had been given when the call was made;
 * - a call that is held back runs behind that too, and not behind what the main stream was given until it went onto its
 *   stream: that may wait for a call that members make after this one, and both would wait for ever;
 * - another stream, and calls that follow it, come behind each other only where the program asks for it; a call made
 *   before it asked does not, also when it goes onto its stream later;
 * - a call that overtakes one that is held back brings nothing before it that the other does not come behind itself.
 *
 * This thread waits for nothing here, and a call costs no event while the main stream is given nothing new.
 */

import { CudaEvent, type CudaStream, type RankDevice } from "../../device/index.ts";
import type { StreamSource } from "../../device/internal.ts";

/** A point of the main stream that calls which are held back come after. */
export interface MainPoint {
  /** Left out where the calls' stream is behind it already. */
  readonly event: CudaEvent | undefined;
  /** What the main stream had been given. */
  readonly touches: number;
  /** Calls that refer to it. */
  users: number;
}

/** A call, as far as its place on the stream is concerned. */
interface Held {
  /** Its number among the calls that its queue has taken, from 1. */
  readonly number: number;
  /** Where the main stream was when the call was made, of one that is held back. */
  main: MainPoint | undefined;
}

/** Another stream's point that calls come behind which are made from some moment on. */
interface Behind {
  readonly event: CudaEvent;
  /** How many calls had been made: those are not behind it. */
  readonly numBefore: number;
}

/** Whose calls are put on a stream. */
interface Calls extends StreamSource {
  /** Whether all calls taken so far are on their stream. */
  readonly launched: boolean;
}

/** Streams of groups: what comes behind something there are the group's calls. */
const ORDERS = new WeakMap<CudaStream, StreamOrder>();

export class StreamOrder {
  readonly #at: RankDevice;
  readonly #stream: CudaStream;
  /** Whose calls are put on the stream: their queue sets it. */
  calls!: Calls;
  /** What the stream is to be put behind once all calls are on it that were made before; the oldest first. */
  readonly #behind: Behind[] = [];
  /** What the main stream had been given when this one was last put behind it. */
  #mainSeen = 0;
  /** Where the main stream was when the last call was held back. */
  #mainPoint: MainPoint | undefined;

  constructor(at: RankDevice, stream: CudaStream) {
    this.#at = at;
    this.#stream = stream;
    ORDERS.set(stream, this);
  }

  /** Takes down where the main stream is, for a call that goes onto its stream later. @throws NativeError */
  holdBack(call: Held): void {
    const { main, device } = this.#at;
    if (main === this.#stream) return;
    if (this.#mainPoint?.touches !== main.numTouches) {
      const event = main.numTouches === this.#mainSeen ? undefined : CudaEvent.borrow(device);
      event?.record(main);
      this.#mainPoint = { event, touches: main.numTouches, users: 0 };
    }
    this.#mainPoint.users++;
    call.main = this.#mainPoint;
  }

  /** Puts the stream behind what the call comes behind that goes onto it now. */
  place(call: Held): void {
    if (this.#behind.length > 0) this.#comeBehind(call.number);
    if (call.main !== undefined) {
      this.#follow(call.main);
      this.forget(call);
      return;
    }
    const { main } = this.#at;
    if (main.numTouches === this.#mainSeen || main === this.#stream) return;
    this.#chain(main, this.#stream);
    this.#mainSeen = main.numTouches;
  }

  /**
   * Whether `call` may go onto the stream before `earlier`, which is held back: what it comes behind and that one does not
   * has been reached. Otherwise `earlier` would be behind it too, and others may wait for `earlier` before they reach it.
   */
  mayPass(call: Held, earlier: Held): boolean {
    const { main } = call;
    if (main?.event !== undefined && main !== earlier.main && main.touches > this.#mainSeen && !main.event.isDone()) {
      return false;
    }
    return this.#behind.every(
      ({ event, numBefore }) => numBefore < earlier.number || numBefore >= call.number || event.isDone(),
    );
  }

  /** Lets go of a call's place: it is on the stream, or never will be. */
  forget(call: Held): void {
    const point = call.main;
    call.main = undefined;
    if (point === undefined || --point.users > 0) return;
    if (this.#mainPoint === point) this.#mainPoint = undefined;
    point.event?.giveBack();
  }

  /** Puts another stream behind everything on this one, where all calls made so far are. */
  precede(stream: CudaStream): void {
    this.catchUp();
    if (stream === this.#stream) return;
    const order = ORDERS.get(stream);
    if (order === undefined) this.#chain(this.#stream, stream);
    else order.follow(this.#stream);
    stream.follow(this.calls);
    const { main } = this.#at;
    if (stream !== main) return;
    // Other communicators follow the main stream, which now follows this one.
    const followed = this.#mainSeen === main.numTouches;
    main.numTouches++;
    if (followed) this.#mainSeen = main.numTouches;
  }

  /** Puts calls made from now on behind what another stream has been given so far. */
  follow(stream: CudaStream): void {
    if (stream === this.#stream) return;
    const { launched, numTaken } = this.calls;
    if (launched) {
      this.#comeBehind(Number.POSITIVE_INFINITY);
      this.#chain(stream, this.#stream);
      return;
    }
    const event = CudaEvent.borrow(this.#at.device);
    try {
      event.record(stream);
    } catch (error) {
      event.giveBack();
      throw error;
    }
    this.#behind.push({ event, numBefore: numTaken });
  }

  /** Puts the stream behind what waited for calls to go there first, once they all have. */
  catchUp(): void {
    if (this.#behind.length > 0 && this.calls.launched) this.#comeBehind(Number.POSITIVE_INFINITY);
  }

  /** Ends it: no call is held back any more. */
  close(): void {
    if (ORDERS.get(this.#stream) === this) ORDERS.delete(this.#stream);
    for (const { event } of this.#behind.splice(0)) event.giveBack();
  }

  /** Puts a stream behind what another one has been given so far. */
  #chain(earlier: CudaStream, later: CudaStream): void {
    const event = CudaEvent.borrow(this.#at.device);
    try {
      event.record(earlier);
      later.waitFor(event);
    } finally {
      event.giveBack();
    }
  }

  /** Puts the stream behind what call `number` comes behind. */
  #comeBehind(number: number): void {
    for (let first = this.#behind[0]; first !== undefined && first.numBefore < number; first = this.#behind[0]) {
      this.#stream.waitFor(first.event);
      first.event.giveBack();
      this.#behind.shift();
    }
  }

  #follow({ event, touches }: MainPoint): void {
    if (event === undefined || touches <= this.#mainSeen) return;
    this.#stream.waitFor(event);
    this.#mainSeen = touches;
  }
}
