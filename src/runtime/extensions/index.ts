/**
 * Collectives that the library offers beside the Communicator's own: made of its calls, with local steps between them.
 * Refuses to know a world, and how a backend moves data.
 * Start with quantized-all-reduce.ts, and with all-reduce-residual-rms-norm.ts for one that is a kernel on GPUs.
 */
export { allReduceResidualRmsNorm } from "./all-reduce-residual-rms-norm.ts";
export type { BlockSize, QuantizedFormat } from "./block-layout.ts";
export {
  type QuantizedBoundOptions,
  type QuantizedMagnitudes,
  quantizedAllReduceErrorBound,
} from "./error-bound.ts";
export { NORM_DTYPES, type NormDType, type ResidualRmsNormOptions } from "./norm-call.ts";
export { quantizedAllReduce } from "./quantized-all-reduce.ts";
export type { QuantizedAllReduceOptions } from "./quantized-options.ts";
