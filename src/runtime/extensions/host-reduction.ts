/**
 * Quantised all-reduces of one group whose tensors are in host memory: an all-to-all of quantised parts, the sums of this rank's part,
 * and an all-gather of those. They run in a group of their own, so that their second collective comes in one order with nothing but
 * other calls like them, whatever the program calls meanwhile.
 */
import { AbortedError, MismatchError, type Tensor } from "../../core/index.ts";
import { type Communicator, type Extension, holdTensors, type Watched, type Work } from "../comm/index.ts";
import { numParts, type QuantizedCall } from "./block-layout.ts";
import { describeCall, HostQuantizer } from "./host-quantizer.ts";
import { LimitedWait } from "./limited-wait.ts";
import type { CheckedQuantizedCall } from "./quantized-options.ts";
import { OpenWorks, StagedWork, type Stages } from "./staged-work.ts";

const OP = "quantized_all_reduce";

export class HostReduction implements Extension {
  readonly #communicator: Communicator;
  readonly #quantizer = new HostQuantizer();
  readonly #opening: Work<Communicator | undefined> | undefined;
  #group: Communicator | undefined;
  #numCalls = 0;
  #last: StagedWork<Tensor> | undefined;
  readonly #open = new OpenWorks();
  #abortedFor: string | undefined;

  readonly #count: (work: Watched) => void;

  /**
   * Every member makes it in the same place among its calls.
   * @param count counts a work among the communicator's calls
   */
  constructor(communicator: Communicator, count: (work: Watched) => void) {
    this.#communicator = communicator;
    this.#count = count;
    const { group, rank, size } = communicator;
    this.#opening = size === 1 ? undefined : communicator.split(0, rank, { name: `${group}/quantized` });
  }

  submit(checked: CheckedQuantizedCall): Work<Tensor> {
    const { group } = this.#communicator;
    const seq = this.#numCalls++;
    const letGo = holdTensors([checked.input, checked.output], `${OP} #${seq} of group ${group}`);
    const work = new StagedWork(
      seq,
      OP,
      group,
      () => this.#stages(checked, letGo),
      this.#last as StagedWork<unknown> | undefined,
    );
    this.#last = work;
    this.#open.add(work as StagedWork<unknown>);
    this.#count(work);
    return work;
  }

  *#stages(checked: CheckedQuantizedCall, letGo: () => void): Stages<Tensor> {
    const { call, input, output } = checked;
    try {
      if (this.#communicator.size > 1) return yield* this.#reduced(checked);
      output.data.set(input.data as never);
      return output;
    } catch (error) {
      throw error instanceof MismatchError ? withOwnCall(error, call, this.#communicator) : error;
    } finally {
      letGo();
    }
  }

  *#reduced({ call, input, output, timeoutMs, signal }: CheckedQuantizedCall): Stages<Tensor> {
    const options = { ...(timeoutMs !== undefined && { timeoutMs }), ...(signal !== undefined && { signal }) };
    const opening = this.#opening as Work<Communicator>;
    try {
      this.#group ??= (yield new LimitedWait(opening, options)) as Communicator;
      const group = this.#group;
      if (this.#abortedFor !== undefined) group.abort(this.#abortedFor);
      const { size, rank, ranks } = group;
      const quantizer = this.#quantizer;
      const { sent, received } = quantizer.buffers(call, size);
      quantizer.quantize(call, size, rank, input);
      const part = sent.length / size;
      const own = sent.subarray(rank * part, (rank + 1) * part);
      if (numParts(size) === 1) {
        yield group.allGather(own, { ...options, output: sent });
        quantizer.checkHeaders(call, size, ranks, rank);
        quantizer.sumAll(call, size, output);
        return output;
      }
      yield group.allToAll(sent, { ...options, output: received });
      quantizer.checkHeaders(call, size, ranks, rank);
      quantizer.sum(call, size, rank);
      yield group.allGather(own, { ...options, output: sent });
      quantizer.restore(call, size, output);
      return output;
    } catch (error) {
      // Members hear of different calls alike. Of everything else they must: this rank's next call would meet their present one.
      if (!(error instanceof MismatchError))
        this.abort(error instanceof AbortedError ? error.reason : (error as Error).message);
      throw error;
    }
  }

  abort(reason: string): void {
    this.#abortedFor ??= reason;
    if (this.#group !== undefined) this.#group.abort(reason);
    else
      this.#opening?.then(
        (group) => group?.abort(reason),
        () => {},
      );
  }

  /** @throws the failure of a call that nobody looked at */
  async close(): Promise<void> {
    await this.#open.end(this.#last as StagedWork<unknown> | undefined);
    const group = this.#group ?? (await this.#opening?.catch(() => undefined));
    await group?.close();
    this.#open.report();
  }
}

/** Ranks whose calls move different numbers of bytes hear of the collective that moves them: says which call of this rank that was. */
function withOwnCall(error: MismatchError, call: QuantizedCall, { ranks, rank }: Communicator): MismatchError {
  const own = describeCall(call);
  const sides = error.sides.map((side) =>
    side.rank === ranks[rank] && side.call !== own ? { ...side, call: `${own}, by ${side.call}` } : side,
  );
  return new MismatchError(error.problem, sides, { cause: error });
}
