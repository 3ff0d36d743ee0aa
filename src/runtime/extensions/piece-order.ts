/** What two streams of a device have to wait for in a call that is made in pieces: one exchanges them, the other makes and sums them. */
import { type CudaDevice, CudaEvent, type CudaStream } from "../device/index.ts";

export class PieceOrder {
  readonly side: CudaStream;
  readonly #device: CudaDevice;
  readonly #stream: CudaStream;
  readonly #marks = new Map<string, CudaEvent>();

  /** @param side the stream itself where there is one piece: then nothing waits */
  constructor(device: CudaDevice, stream: CudaStream, side: CudaStream) {
    this.#device = device;
    this.#stream = stream;
    this.side = side;
  }

  /** Puts the side stream behind what the other one has been given so far. */
  enter(): void {
    if (this.side === this.#stream) return;
    const event = CudaEvent.borrow(this.#device);
    event.record(this.#stream);
    this.side.waitFor(event);
    event.giveBack();
  }

  /** Marks that a step of a piece is on the side stream. */
  mark(step: number, piece: number): void {
    if (this.side === this.#stream) return;
    const event = CudaEvent.borrow(this.#device);
    event.record(this.side);
    this.#marks.set(`${step} ${piece}`, event);
  }

  /** Puts the stream behind a step that was marked; once. */
  waitFor(step: number, piece: number): void {
    const event = this.#marks.get(`${step} ${piece}`);
    if (event === undefined) return;
    this.#marks.delete(`${step} ${piece}`);
    this.#stream.waitFor(event);
    event.giveBack();
  }
}
