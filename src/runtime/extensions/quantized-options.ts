/** What a caller of `quantizedAllReduce` gives, checked before anything is sent. */
import { InvalidArgumentError, show, type Tensor, UnsupportedError } from "../../core/index.ts";
import { asTensor, type CallOptions, type Communicator, checkArguments, type Data, optionsOf } from "../comm/index.ts";
import {
  BLOCK_SIZES,
  type BlockSize,
  QUANTIZED_DTYPES,
  QUANTIZED_FORMATS,
  QUANTIZED_OPS,
  type QuantizedCall,
  type QuantizedFormat,
  type QuantizedOp,
} from "./block-layout.ts";

export interface QuantizedAllReduceOptions extends CallOptions {
  /** `e4m3` by default, which is twice as fine; `e5m2` keeps elements that are far smaller than the largest of their block. */
  readonly format?: QuantizedFormat;
  /** Elements that share a scale; 128 by default. */
  readonly blockSize?: BlockSize;
  /** `sum` by default. */
  readonly op?: QuantizedOp;
  /** Where the result goes. Absent: in place. */
  readonly output?: Data;
  /**
   * Of device tensors: into how many pieces it is cut, one of which is on the links while others are quantised and summed; by the size, by
   * default. Results are the same. It is for measuring.
   */
  readonly pieces?: number;
}

const MOST_PIECES = 64;
const NAMES = ["format", "blockSize", "op", "output", "pieces", "dtype", "timeoutMs", "signal"];

/** A call whose arguments are right. */
export interface CheckedQuantizedCall {
  readonly call: QuantizedCall;
  readonly input: Tensor;
  readonly output: Tensor;
  readonly pieces: number | undefined;
  readonly timeoutMs: number | undefined;
  readonly signal: AbortSignal | undefined;
}

/** @throws InvalidArgumentError naming what is accepted */
export function checkOneOf<T>(name: string, value: unknown, accepted: readonly T[]): asserts value is T {
  if ((accepted as readonly unknown[]).includes(value)) return;
  throw new InvalidArgumentError(name, value, `one of ${accepted.join(", ")}`);
}

/** @throws InvalidArgumentError, UnsupportedError, ClosedError, AbortedError */
export function checkQuantizedCall(
  communicator: Communicator,
  data: Data,
  options: QuantizedAllReduceOptions,
): CheckedQuantizedCall {
  for (const [name, value] of Object.entries(optionsOf(options))) {
    if (value === undefined) continue;
    if (!NAMES.includes(name)) {
      throw new InvalidArgumentError("options of quantizedAllReduce", name, `one of ${NAMES.join(", ")}`);
    }
    if (value === null) throw new InvalidArgumentError(name, null, "a value, or the option left out");
  }
  const { format = "e4m3", blockSize = 128, op = "sum", pieces, timeoutMs, signal } = options;
  if (pieces !== undefined && !(Number.isInteger(pieces) && pieces > 0 && pieces <= MOST_PIECES)) {
    throw new InvalidArgumentError("pieces", pieces, `an integer from 1 to ${MOST_PIECES}`);
  }
  checkOneOf("format", format, QUANTIZED_FORMATS);
  checkOneOf("blockSize", blockSize, BLOCK_SIZES);
  const { rank, size } = communicator;
  const { input, output } = checkArguments({ op: "all_reduce", numRanks: size, rank, data, options, redop: "sum" });
  const { dtype, count } = input;
  if (!(QUANTIZED_OPS as readonly unknown[]).includes(op)) {
    throw new UnsupportedError(`quantizedAllReduce of ${show(op)}`, `it has ${QUANTIZED_OPS.join(" and ")}`);
  }
  const known = QUANTIZED_DTYPES.find((one) => one === dtype);
  if (known === undefined) {
    throw new UnsupportedError(`quantizedAllReduce of ${dtype}`, `use one of ${QUANTIZED_DTYPES.join(", ")}`);
  }
  const source = asTensor(input);
  const target = output === undefined ? source : asTensor(output);
  const [from, to] = [source, target].map(({ storage }) => (storage.kind === "device" ? "device" : "host"));
  if (from !== to) {
    const accepted = "give both on the device, or both on the host";
    throw new UnsupportedError(`quantizedAllReduce from ${from} memory to ${to} memory`, accepted);
  }
  return {
    call: { dtype: known, format, blockSize, op, count },
    input: source,
    output: target,
    pieces,
    timeoutMs,
    signal,
  };
}
