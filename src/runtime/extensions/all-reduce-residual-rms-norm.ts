/**
 * All-reduce, residual add and RMSNorm as one call: what a tensor-parallel layer does behind each of its row-parallel products. The
 * operation is that of TensorRT-LLM's and FlashInfer's all-reduce fusion (RESIDUAL_RMS_NORM), and of vLLM's all_reduce with
 * fused_add_rms_norm behind it; RMSNorm is Zhang and Sennrich, 2019. It refuses quantised outputs and biases.
 */
import { InvalidArgumentError, sizeOf, type Tensor, UnsupportedError } from "../../core/index.ts";
import {
  allReduceWith,
  type CallEpilogue,
  type Communicator,
  type Extension,
  extensionOf,
  GroupCommunicator,
  holdTensors,
  takesEpilogues,
  type Watched,
  type Work,
} from "../comm/index.ts";
import { checkNormCall, type NormCall, type ResidualRmsNormOptions } from "./norm-call.ts";
import { addAndNormalize } from "./residual-rms-norm-host.ts";
import { residualRmsNorm } from "./residual-rms-norm-kernel.ts";
import { OpenWorks, StagedWork, type Stages } from "./staged-work.ts";

const NAME = "allReduceResidualRmsNorm";

/**
 * Adds up `input` over all ranks, adds the result to `residual`, and normalizes each row of that:
 * `residualOutput = sum(input) + residual`, `output = residualOutput / sqrt(mean(residualOutput ** 2) + eps) * weight`. Shapes are
 * [rows, hidden], that of `weight` is [hidden]; a call that names no output has it in the input's place, and the new residual in the
 * old one's. On GPUs with the cuda backend it is one launch of one kernel, whatever the size, where a plan of ours serves all-reduces
 * of that size; otherwise a kernel of ours stands behind NCCL's. Elsewhere each rank does its step on its CPU when the sum is
 * there. The results are the same on all ranks, bit for bit, where residuals and weights are.
 * Errors: see docs/extensions.md.
 * @returns the output; it and the new residual are there once the work has settled
 * @throws InvalidArgumentError for shapes, types and memory that do not fit, UnsupportedError inside a batch and for device tensors on
 *   backends of CPUs; what `allReduce` throws. Its work ends with MismatchError where ranks give other shapes, types or `eps`
 * @example
 * import { launch } from "chorale";
 * import { allReduceResidualRmsNorm } from "chorale/extensions";
 *
 * const rows = await launch({
 *   ranks: 2,
 *   run: async (world) => {
 *     const { allReduceResidualRmsNorm } = await import("chorale/extensions");
 *     const input = Float32Array.of(1, 2, 0, 0); // two rows of two: this rank's part
 *     const residual = Float32Array.of(1, 4, 3, 4);
 *     const { data } = await allReduceResidualRmsNorm(world.comm, { input, residual, weight: Float32Array.of(1, 2), eps: 0 });
 *     return { normed: [...data].map((v) => Math.round(100 * Number(v)) / 100), residual: [...residual] };
 *   },
 * });
 * console.log(rows[0]?.residual); // [3, 8, 3, 4]
 * console.log(rows[1]?.normed); // [0.5, 2.65, 0.85, 2.26]
 */
export function allReduceResidualRmsNorm(communicator: Communicator, options: ResidualRmsNormOptions): Work<Tensor> {
  if (!(communicator instanceof GroupCommunicator)) {
    throw new InvalidArgumentError("communicator", communicator, "a communicator of a world");
  }
  const call = checkNormCall(options);
  // Also where the device does it all: this refuses the call inside of a batch.
  const steps = extensionOf(communicator, NAME, (count) => new HostSteps(count));
  const isWhole = takesEpilogues(communicator);
  if (!isWhole) checkOnHost(call, communicator.backend);
  const sum = allReduceWith(communicator, options.input, call.options, epilogueOf(call));
  if (isWhole) return sum;
  const letGo = holdTensors(tensorsOf(call), `${NAME} #${sum.seq} of group ${sum.group}`);
  const work = new StagedWork<Tensor>(sum.seq, sum.op, sum.group, () => normalized(sum, call, letGo), undefined);
  steps.works.add(work as StagedWork<unknown>);
  steps.count(work);
  return work;
}

/** @throws UnsupportedError */
function checkOnHost(call: NormCall, backend: string): void {
  if (!tensorsOf(call).some(({ storage }) => storage.kind === "device")) return;
  throw new UnsupportedError(
    `${NAME} of device tensors on ${backend}`,
    "use nccl or cuda, or copy them to the host first",
  );
}

function tensorsOf({ input, output, residual, residualOutput, weight }: NormCall): readonly Tensor[] {
  return [input, output, residual, residualOutput, weight].flatMap(({ tensor }) => tensor ?? []);
}

/** Calls whose steps are done on CPUs: their sums have ended when their communicator closes, and end with it when it is aborted. */
class HostSteps implements Extension {
  readonly works = new OpenWorks();
  /** Counts a work among the communicator's calls. */
  readonly count: (work: Watched) => void;

  constructor(count: (work: Watched) => void) {
    this.count = count;
  }

  async close(): Promise<void> {
    await this.works.endAll();
    this.works.report();
  }
  abort(): void {}
}

function* normalized(sum: Work<Tensor>, call: NormCall, letGo: () => void): Stages<Tensor> {
  try {
    const output = yield sum;
    addAndNormalize(call);
    return output as Tensor;
  } finally {
    letGo();
  }
}

function epilogueOf({ rows, hidden, eps, fuse, dtype, weightDType, ...buffers }: NormCall): CallEpilogue {
  const { residual, residualOutput, weight } = buffers;
  const isInPlace = residualOutput === residual;
  const bits = new Uint32Array(Float32Array.of(eps).buffer)[0] as number;
  return {
    kernel: residualRmsNorm(weightDType),
    operands: [
      { operand: residual, reads: true, writes: isInPlace },
      { operand: weight, reads: true, writes: false },
      ...(isInPlace ? [] : [{ operand: residualOutput, reads: false, writes: true }]),
    ],
    words: (output, [from = 0, weights = 0, to = from]) => [output, from, to, weights, rows, hidden, bits].map(BigInt),
    numUnits: rows,
    unitBytes: hidden * sizeOf(dtype),
    agreed: `residual + RMSNorm (rows of ${hidden}, weight ${weightDType}, eps ${eps}${fuse ? "" : ", fuse false"})`,
    fuses: fuse,
  };
}
