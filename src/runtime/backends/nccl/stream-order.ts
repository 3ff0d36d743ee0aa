/**
 * What a group's stream comes behind on the device, and what comes behind it. It guarantees that
 *
 * - a call runs behind everything that the rank's main stream had been given when the call was made;
 * - a call that is held back runs behind that too, and not behind what the main stream was given until it went onto its
 *   stream: that may wait for a call that members make after this one, and both would wait for ever;
 * - another stream, and calls that follow it, come behind each other only where the program asks for it.
 *
 * This thread waits for nothing here, and a call costs no event while the main stream is given nothing new.
 */
import type { RankDevice } from "../cuda/rank-device.ts";
import { CudaEvent, type CudaStream } from "../cuda/stream.ts";
import type { StreamSource } from "../cuda/waiting.ts";

/** A point of the main stream that calls which are held back come after. */
export interface MainPoint {
  /** Left out where the calls' stream is behind it already. */
  readonly event: CudaEvent | undefined;
  /** What the main stream had been given. */
  readonly touches: number;
  /** Calls that refer to it. */
  users: number;
}

/** A call, as far as its place behind the main stream is concerned. */
export interface Held {
  /** Where the main stream was when the call was made, of one that is held back. */
  main: MainPoint | undefined;
}

export class StreamOrder {
  readonly #at: RankDevice;
  readonly #stream: CudaStream;
  readonly #mainDone: CudaEvent;
  readonly #asked: CudaEvent;
  /** What the main stream had been given when this one was last put behind it. */
  #mainSeen = 0;
  /** Where the main stream was when the last call was held back. */
  #mainPoint: MainPoint | undefined;

  constructor(at: RankDevice, stream: CudaStream) {
    this.#at = at;
    this.#stream = stream;
    this.#mainDone = CudaEvent.create(at.device);
    this.#asked = CudaEvent.create(at.device);
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

  /** Puts the stream behind what the main stream had been given when the call was made that goes onto it now. */
  place(call: Held): void {
    if (call.main !== undefined) {
      this.#follow(call.main);
      this.forget(call);
      return;
    }
    const { main } = this.#at;
    if (main.numTouches === this.#mainSeen || main === this.#stream) return;
    this.#mainDone.record(main);
    this.#stream.waitFor(this.#mainDone);
    this.#mainSeen = main.numTouches;
  }

  /** Lets go of a call's place: it is on the stream, or never will be. */
  forget(call: Held): void {
    const point = call.main;
    call.main = undefined;
    if (point === undefined || --point.users > 0) return;
    if (this.#mainPoint === point) this.#mainPoint = undefined;
    point.event?.giveBack();
  }

  /** Puts another stream behind everything on this one. @param source whose calls those are */
  precede(stream: CudaStream, source: StreamSource): void {
    if (stream === this.#stream) return;
    this.#asked.record(this.#stream);
    stream.waitFor(this.#asked);
    stream.follow(source);
    const { main } = this.#at;
    if (stream !== main) return;
    // Other communicators follow the main stream, which now follows this one.
    const followed = this.#mainSeen === main.numTouches;
    main.numTouches++;
    if (followed) this.#mainSeen = main.numTouches;
  }

  /** Puts the stream behind what another one has been given so far. */
  follow(stream: CudaStream): void {
    if (stream === this.#stream) return;
    this.#asked.record(stream);
    this.#stream.waitFor(this.#asked);
  }

  /** Ends it: no call is held back any more. */
  close(): void {
    this.#mainDone.close();
    this.#asked.close();
  }

  #follow({ event, touches }: MainPoint): void {
    if (event === undefined || touches <= this.#mainSeen) return;
    this.#stream.waitFor(event);
    this.#mainSeen = touches;
  }
}
