/**
 * Collectives that the library offers beside the Communicator's own: made of its calls, with local steps between them.
 * Refuses to know a world, and how a backend moves data.
 * Start with quantized-all-reduce.ts.
 */
export type { BlockSize, QuantizedFormat } from "./block-layout.ts";
export {
  type QuantizedBoundOptions,
  type QuantizedMagnitudes,
  quantizedAllReduceErrorBound,
} from "./error-bound.ts";
export { quantizedAllReduce } from "./quantized-all-reduce.ts";
export type { QuantizedAllReduceOptions } from "./quantized-options.ts";
