/** Runs one rank's schedule: starts strands as others end, posts receives, sends, and takes the local steps between. */
import type { Carrier } from "../../hosts/index.ts";
import type { BufferPlace, Operator, Reducer } from "./reducer.ts";
import { type LocalStep, type Round, type Schedule, type Span, type Strand, slotOf } from "./schedule.ts";

export interface CallBuffers {
  readonly input: Uint8Array;
  readonly output: Uint8Array;
  readonly operator: Operator | undefined;
}

const NOTHING = new Uint8Array(0);

export class ScheduleRun {
  readonly #schedule: Schedule;
  readonly #buffers: CallBuffers;
  readonly #reducer: Reducer;
  readonly #carrier: Carrier;
  readonly #onDone: () => void;
  readonly #scratch: number;
  #started = 0;
  #running = 0;
  readonly #places: number[];
  #isStarting = false;
  #isClosing = false;
  #isOver = false;

  /** @throws OutOfMemoryError for its scratch; nothing has begun then */
  constructor(schedule: Schedule, buffers: CallBuffers, reducer: Reducer, carrier: Carrier, onDone: () => void) {
    this.#schedule = schedule;
    this.#buffers = buffers;
    this.#reducer = reducer;
    this.#carrier = carrier;
    this.#onDone = onDone;
    const { window, numStrands } = schedule;
    this.#places = Array.from({ length: Math.min(window, numStrands) }, (_, i) => Math.min(window, numStrands) - 1 - i);
    this.#scratch = this.#scratchBytes === 0 ? 0 : reducer.allocate(this.#scratchBytes);
  }

  get #scratchBytes(): number {
    const { scratchBytes, window, numStrands } = this.#schedule;
    return scratchBytes * Math.min(window, numStrands);
  }

  start(): void {
    const { opening } = this.#schedule;
    // Counted as one that runs, so that nothing ends before all have begun.
    this.#running = 1;
    if (opening !== undefined) this.#run(opening, "opening", 0);
    this.#startStrands();
    this.#ended();
  }

  /** Gives its memory back. Nothing may arrive any more. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#scratchBytes > 0) this.#reducer.free(this.#scratch, this.#scratchBytes);
  }

  /** Starts strands while there are places. A loop, for a strand may end as it begins. */
  #startStrands(): void {
    if (this.#isStarting) return;
    this.#isStarting = true;
    this.#carrier.hold?.();
    const { numStrands, strand } = this.#schedule;
    try {
      while (this.#started < numStrands && !this.#isOver) {
        const place = this.#places.pop();
        if (place === undefined) break;
        const index = this.#started++;
        this.#run(strand(index), index, place);
      }
    } finally {
      // All groups of the rank share what is held: a call that throws must not leave the others without their grants.
      this.#carrier.release?.();
      this.#isStarting = false;
    }
  }

  #run(strand: Strand, number: number | "opening" | "closing", place: number): void {
    this.#running++;
    /** Receives of each round that are not there. */
    const missing = strand.map(({ recvs }) => recvs.length);
    let unsent = 0;
    let round = -1;
    let isTurning = false;
    const ended = () => {
      if (round < strand.length || unsent > 0) return;
      if (typeof number === "number") {
        this.#places.push(place);
        this.#startStrands();
      }
      this.#ended();
    };
    // Its scratch is in use until what is sent from there has left.
    const sent = () => {
      unsent--;
      ended();
    };
    const receive = ({ recvs }: Round, of: number) => {
      const arrived = () => {
        missing[of]!--;
        advance();
      };
      const slot = slotOf(number, of);
      for (const { from, into, extra } of recvs) {
        this.#carrier.receive(from, slot, this.#bytes(into, place), extra ?? 0, arrived);
      }
    };
    // Rounds may end within their own start: a loop, where each would call the next.
    const advance = () => {
      if (isTurning) return;
      isTurning = true;
      while ((round < 0 || missing[round] === 0) && !this.#isOver) {
        for (const step of strand[round]?.then ?? []) this.#take(step, place);
        const next: Round | undefined = strand[++round];
        if (next === undefined) {
          ended();
          return;
        }
        unsent += next.sends.length;
        if (next.isEarly !== true) receive(next, round);
        // What came may say that the ranks disagree.
        if (this.#isOver) return;
        const slot = slotOf(number, round);
        for (const { to, from, extra } of next.sends) {
          this.#carrier.send(to, slot, this.#bytes(from, place), extra ?? 0, sent);
        }
      }
      isTurning = false;
    };
    isTurning = true;
    for (const [index, one] of strand.entries()) if (one.isEarly === true) receive(one, index);
    isTurning = false;
    advance();
  }

  #ended(): void {
    if (--this.#running > 0 || this.#isOver) return;
    const { closing } = this.#schedule;
    if (closing !== undefined && !this.#isClosing) {
      this.#isClosing = true;
      this.#run(closing, "closing", 0);
      return;
    }
    this.end();
    this.#onDone();
  }

  #take(step: LocalStep, place: number): void {
    if (step.kind === "copy") {
      const [from, to] = [this.#bytes(step.from, place), this.#bytes(step.to, place)];
      const isSame = from.buffer === to.buffer && from.byteOffset === to.byteOffset;
      if (!isSame) to.set(from);
      return;
    }
    const { operator } = this.#buffers;
    if (operator === undefined || step.output.bytes === 0) return;
    const inputs = step.inputs.map((span) => this.#place(span, place));
    this.#reducer.reduce(operator, inputs, this.#place(step.output, place), step.output.bytes);
  }

  #address({ at }: Span, place: number): number {
    return this.#scratch + place * this.#schedule.scratchBytes + at;
  }

  #place(span: Span, place: number): BufferPlace {
    return span.buffer === "scratch" ? this.#address(span, place) : this.#bytes(span, place);
  }

  #bytes(span: Span, place: number): Uint8Array {
    if (span.bytes === 0) return NOTHING;
    if (span.buffer === "scratch") return this.#reducer.bytes(this.#address(span, place), span.bytes);
    return this.#buffers[span.buffer].subarray(span.at, span.at + span.bytes);
  }
}
