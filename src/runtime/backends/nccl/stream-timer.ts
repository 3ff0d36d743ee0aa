/** Times calls on a stream with an event before each and one behind. Nothing waits for an event. */
import { CudaEvent, type CudaStream } from "../../device/index.ts";
import type { CallTimer } from "../../progress/index.ts";
import type { Entry } from "./nccl-entry.ts";

interface Timed {
  readonly start: CudaEvent;
  readonly end: CudaEvent;
  running: boolean;
}

export class StreamTimer implements CallTimer {
  readonly #stream: CudaStream;
  /** Calls that are being timed, in the order of the stream. */
  readonly #timed = new Map<Entry, Timed>();
  readonly #spare: CudaEvent[] = [];
  /** The start of the call that was timed last, and when that was: times grow from call to call, so that none is long. */
  #last: CudaEvent | undefined;
  #lastUs = 0;

  constructor(stream: CudaStream) {
    this.#stream = stream;
  }

  before(entry: Entry): void {
    const timed = { start: this.#event(), end: this.#event(), running: false };
    timed.start.record(this.#stream);
    this.#timed.set(entry, timed);
  }

  behind(entry: Entry): void {
    this.#timed.get(entry)?.end.record(this.#stream);
  }

  look(begun: (entry: Entry) => void): void {
    for (const [entry, timed] of this.#timed) {
      if (timed.running) continue;
      // In order: what is behind one that has not begun has not begun either.
      if (!timed.start.isDone()) return;
      timed.running = true;
      begun(entry);
    }
  }

  ended(entry: Entry, ok: boolean): { readonly startUs: number; readonly durationUs: number } | undefined {
    const timed = this.#timed.get(entry);
    if (timed === undefined) return undefined;
    this.#timed.delete(entry);
    const { start, end } = timed;
    if (!ok || end.closed) {
      // The stream may not have come to them: they are not used again. A lost context takes them with it.
      try {
        end.close();
        start.close();
      } catch {}
      return undefined;
    }
    if (this.#last !== undefined) {
      this.#lastUs += start.elapsedUsSince(this.#last);
      this.#spare.push(this.#last);
    }
    this.#last = start;
    const durationUs = end.elapsedUsSince(start);
    this.#spare.push(end);
    return { startUs: this.#lastUs, durationUs };
  }

  close(): void {
    for (const { start, end } of this.#timed.values()) this.#spare.push(start, end);
    this.#timed.clear();
    for (const event of this.#spare) event.close();
    this.#spare.length = 0;
    this.#last?.close();
    this.#last = undefined;
  }

  #event(): CudaEvent {
    return this.#spare.pop() ?? CudaEvent.create(this.#stream.device, { timing: true });
  }
}
