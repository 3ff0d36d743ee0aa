/**
 * Quantised all-reduces of one group whose tensors are in host memory: an all-to-all of quantised parts, the sums of this rank's part,
 * and an all-gather of those. They run in a group of their own, so that their second collective comes in one order with nothing but
 * other calls like them, whatever the program calls meanwhile.
 */
import type { Tensor } from "../../core/index.ts";
import type { Communicator, Extension, Work } from "../comm/index.ts";
import { numParts } from "./block-layout.ts";
import { HostQuantizer } from "./host-quantizer.ts";
import type { CheckedQuantizedCall } from "./quantized-options.ts";
import { OpenWorks, StagedWork, type Stages } from "./staged-work.ts";

export class HostReduction implements Extension {
  readonly #communicator: Communicator;
  readonly #quantizer = new HostQuantizer();
  readonly #opening: Work<Communicator | undefined> | undefined;
  #group: Communicator | undefined;
  #numCalls = 0;
  #last: StagedWork<Tensor> | undefined;
  readonly #open = new OpenWorks();
  #abortedFor: string | undefined;

  /** Every member makes it in the same place among its calls. */
  constructor(communicator: Communicator) {
    this.#communicator = communicator;
    const { group, rank, size } = communicator;
    this.#opening = size === 1 ? undefined : communicator.split(0, rank, { name: `${group}/quantized` });
  }

  submit(checked: CheckedQuantizedCall): Work<Tensor> {
    const { group } = this.#communicator;
    const work = new StagedWork(
      this.#numCalls++,
      "quantized_all_reduce",
      group,
      () => this.#stages(checked),
      this.#last as StagedWork<unknown> | undefined,
    );
    this.#last = work;
    this.#open.add(work as StagedWork<unknown>);
    return work;
  }

  *#stages({ call, input, output, timeoutMs, signal }: CheckedQuantizedCall): Stages<Tensor> {
    if (this.#communicator.size === 1) {
      output.data.set(input.data as never);
      return output;
    }
    this.#group ??= (yield this.#opening as Work<Communicator | undefined>) as Communicator;
    const group = this.#group;
    if (this.#abortedFor !== undefined) group.abort(this.#abortedFor);
    const { size, rank, ranks } = group;
    const quantizer = this.#quantizer;
    const { sent, received } = quantizer.buffers(call, size);
    const options = { ...(timeoutMs !== undefined && { timeoutMs }), ...(signal !== undefined && { signal }) };
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
  }

  abort(reason: string): void {
    this.#abortedFor = reason;
    this.#group?.abort(reason);
  }

  /** @throws the failure of a call that nobody looked at */
  async close(): Promise<void> {
    await this.#open.end(this.#last as StagedWork<unknown> | undefined);
    const group = this.#group ?? (await this.#opening?.catch(() => undefined));
    await group?.close();
    this.#open.report();
  }
}
