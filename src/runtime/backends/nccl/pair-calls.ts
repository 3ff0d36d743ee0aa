/** Sends and receives by mail (see pair-mail.ts) as entries of a communicator's queue. */
import type { Operand } from "../../comm/index.ts";
import type { EntryParts } from "./nccl-entry.ts";
import type { PairMail } from "./pair-mail.ts";
import type { PrepareContext } from "./prepare.ts";
import { stage } from "./staging.ts";

/** Makes the entries of one communicator, numbering the messages of each pair. */
export class PairCalls {
  readonly #context: PrepareContext;
  readonly #mail: PairMail;
  readonly #mailed: number[];
  readonly #fetched: number[];
  /** Messages of a pair are posted and fetched in order, whatever arrives between two looks at the queue. */
  readonly #nextPost: number[];
  readonly #nextFetch: number[];

  constructor(context: PrepareContext, mail: PairMail) {
    this.#context = context;
    this.#mail = mail;
    this.#mailed = Array(context.size).fill(0);
    this.#fetched = Array(context.size).fill(0);
    this.#nextPost = Array(context.size).fill(0);
    this.#nextFetch = Array(context.size).fill(0);
  }

  /** A send: copies into a buffer of its own and is done. @throws OutOfMemoryError, with nothing changed */
  send(input: Operand, peer: number): EntryParts {
    const { at, stream, sequence } = this.#context;
    const sizeBytes = input.region.sizeBytes;
    const { pool } = this.#mail;
    const buffer = pool.allocate(sizeBytes, stream, "send");
    let from: ReturnType<typeof stage>;
    try {
      from = stage(input, at, stream, { reads: true, writes: false });
    } catch (error) {
      pool.free(buffer);
      throw error;
    }
    const number = this.#mailed[peer] ?? 0;
    this.#mailed[peer] = number + 1;
    return {
      op: "send",
      arrivals: [sequence.of("send", input.dtype, input.count, { peer, outsideBatch: true })],
      source: from.storage,
      ready: () => this.#nextPost[peer] === number && this.#mail.hasRoom(peer, number),
      regions: [input.region],
      run: () => {
        this.#nextPost[peer] = number + 1;
        if (sizeBytes > 0) {
          const { handle } = stream;
          at.device.call("cuMemcpyDtoDAsync_v2", "send", buffer.address, from.address, sizeBytes, handle);
        }
        return 0;
      },
      finish: [
        (ok) => {
          if (ok) this.#mail.post(peer, number, buffer, sizeBytes);
          else pool.free(buffer);
          from.finish?.(ok);
        },
      ],
      sizeBytes,
      value: () => undefined,
    };
  }

  /** A receive: waits, in the queue and not on the stream, until the message is there. @throws OutOfMemoryError */
  recv(output: Operand, peer: number): EntryParts {
    const { at, stream, sequence } = this.#context;
    const sizeBytes = output.region.sizeBytes;
    const to = stage(output, at, stream, { reads: false, writes: true });
    const number = this.#fetched[peer] ?? 0;
    this.#fetched[peer] = number + 1;
    return {
      op: "recv",
      arrivals: [sequence.of("recv", output.dtype, output.count, { peer, outsideBatch: true })],
      target: to.storage,
      ready: () => this.#nextFetch[peer] === number && this.#mail.has(peer, number),
      regions: [output.region],
      run: () => {
        this.#nextFetch[peer] = number + 1;
        this.#mail.fetch(peer, number, to.address, sizeBytes, stream.handle);
        to.after?.();
        return 0;
      },
      finish: [
        (ok) => {
          if (ok) this.#mail.acknowledge(peer, number);
          to.finish?.(ok);
        },
      ],
      sizeBytes,
      value: () => to.tensor,
    };
  }
}
