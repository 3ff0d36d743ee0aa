/**
 * Collectives of one group that copy engines do (executor/cuda/plan-copies.ts): every rank copies from its input straight into its
 * peers' outputs. The host must know the peers' addresses for that: see told-buffers.ts. On the stream stand the copies between two
 * kernels in which ranks meet: before, that outputs may be written; behind, that all has come.
 */
import { CudaEvent, CudaStream, type RankDevice } from "../../device/index.ts";
import { type LoadedPlan, LocalCopy, type LocalCopyShape, type PlanCopies } from "../../executor/cuda/internal.ts";
import type { CallTarget } from "./nccl-calls.ts";
import type { BufferPlace, ToldBuffers, ToldCall } from "./told-buffers.ts";

/** A call that copy engines do. */
export interface CopiedCall extends ToldCall {
  readonly copies: PlanCopies;
  /** How a kernel copies what a rank keeps to itself; absent: a copy engine does. */
  readonly kept: LocalCopyShape | undefined;
}

interface GroupCopiesParts {
  readonly at: RankDevice;
  readonly told: ToldBuffers;
  readonly member: number;
}

export class GroupCopies {
  readonly #parts: GroupCopiesParts;
  /** What a rank keeps to itself is copied beside what it sends and gets. */
  #beside: CudaStream | undefined;
  #local: LocalCopy | undefined;

  constructor(parts: GroupCopiesParts) {
    this.#parts = parts;
  }

  /** Makes what calls may need, at a moment when kernels may be loaded: calls may be captured. */
  load(): void {
    const { device } = this.#parts.at;
    this.#local ??= new LocalCopy(device);
    this.#beside ??= CudaStream.create(device);
  }

  /** Puts a call on the stream before which all have met. */
  launch(call: CopiedCall, meeting: LoadedPlan, target: CallTarget): void {
    this.#parts.told.launch(target, (_, places, ends) => this.#launch(call, places, meeting, { ...target, ends }));
  }

  #launch(
    { copies, partBytes, kept: shape }: CopiedCall,
    places: readonly BufferPlace[],
    meeting: LoadedPlan,
    { owner: stream, ends }: CallTarget,
  ): void {
    const { at, member } = this.#parts;
    const sent: (readonly [to: number, from: number, sizeBytes: number])[] = [];
    const kept: typeof sent = [];
    for (const { from, to, sizeBytes } of copies.of(member, partBytes)) {
      const [source, goal] = [places[from.rank]!.input + from.offset, places[to.rank]!.output + to.offset];
      if (source !== goal) (from.rank === to.rank ? kept : sent).push([goal, source, sizeBytes]);
    }
    const copy = (list: typeof sent, on: CudaStream, blocks?: LocalCopyShape) => {
      for (const [to, from, sizeBytes] of list) {
        if (blocks !== undefined && LocalCopy.takes(to, from)) this.#local?.launch(on, [to, from, sizeBytes], blocks);
        else at.device.call("cuMemcpyDtoDAsync_v2", "copies of a call", to, from, sizeBytes, on.handle);
      }
    };
    const beside = kept.length > 0 ? this.#beside : undefined;
    if (beside !== undefined) {
      this.#behind(stream, beside);
      copy(kept, beside, shape);
    }
    meeting.launch(stream, 0, 0, 0);
    copy(sent, stream);
    if (beside !== undefined) this.#behind(beside, stream);
    meeting.launch(stream, 0, 0, 0, ends);
  }

  close(): void {
    this.#beside?.close();
    this.#local?.close();
  }

  #behind(earlier: CudaStream, later: CudaStream): void {
    const event = CudaEvent.borrow(this.#parts.at.device);
    try {
      event.record(earlier);
      later.waitFor(event);
    } finally {
      event.giveBack();
    }
  }
}
