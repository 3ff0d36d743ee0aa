/** Packets of a run: which have begun to come, which are all there, and who waits for them. */
import type { BufferKind, PipelineOp, SimpleOp } from "../plan/index.ts";
import { PacketBoard } from "./packets.ts";
import type { RunCore } from "./run-core.ts";
import { packetSources, type Strand } from "./run-state.ts";

export class Packets {
  readonly #core: RunCore;
  readonly #boards: readonly { readonly begun: PacketBoard; readonly done: PacketBoard }[];

  constructor(core: RunCore) {
    this.#core = core;
    this.#boards = core.plan.ranks.map(() => ({ begun: new PacketBoard(), done: new PacketBoard() }));
  }

  /** Whether the first packets of every source have come. */
  begun(strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined): number | undefined {
    const board = this.#boards[strand.rank]!.begun;
    let cause = -1;
    for (const { begin, end } of packetSources(strand, this.#core.chunkBytes, op, pipeline)) {
      const record = board.covers(begin, end, () => {
        strand.time = Math.max(strand.startedAt, this.#core.net.now);
        this.#core.advance(strand);
      });
      if (record === undefined) {
        strand.waitingFor = { why: `packets in scratch[${begin}] of rank ${strand.rank}`, ranks: [] };
        return undefined;
      }
      cause = Math.max(cause, record);
    }
    return cause;
  }

  /** Calls `then` when all packets that the operation reads are there. */
  whenArrived(strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined, then: (cause: number) => void): void {
    const board = this.#boards[strand.rank]!.done;
    let cause = -1;
    for (const { begin, end } of packetSources(strand, this.#core.chunkBytes, op, pipeline)) {
      const record = board.covers(begin, end, () => this.whenArrived(strand, op, pipeline, then));
      if (record === undefined) return;
      cause = Math.max(cause, record);
    }
    then(cause);
  }

  /** Packets come at `at`: the first of them (`begun`), or the last. */
  post(rank: number, buffer: BufferKind, begin: number, end: number, at: number, record: number, begun: boolean): void {
    if (buffer !== "scratch") return;
    const board = begun ? this.#boards[rank]!.begun : this.#boards[rank]!.done;
    this.#core.net.at(at, () => board.add(begin, end, record));
  }
  /** Packets come at `at`, all at once. */
  postAll(rank: number, buffer: BufferKind, begin: number, end: number, at: number, record: number): void {
    this.post(rank, buffer, begin, end, at, record, true);
    this.post(rank, buffer, begin, end, at, record, false);
  }
}
