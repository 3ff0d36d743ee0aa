/**
 * What a library extension has the device of each rank do behind an all-reduce, on the result that is there: CUDA C++ which a
 * backend appends to the kernel that reduces, or launches as a kernel of its own behind it. Backends on CPUs only compare what ranks
 * have to agree on: extensions do their step themselves there.
 */
import type { Operand } from "./call.ts";

/** The code. */
export interface EpilogueKernel {
  /** Names the source: where that differs, the name does. */
  readonly name: string;
  /**
   * Stands behind the declarations of a generated kernel, in which `Element` is the call's element type and `Wide` what it is
   * computed in. It declares a struct `Epilogue` of `numWords` words of 8 bytes, and
   * `unitsOf(const Epilogue&)`, into how many units the result falls, each of which one block does;
   * `prepareEpilogue(const Epilogue&, i64 unit)`, before the call begins, for the block's first;
   * `runEpilogue(const Epilogue&, const char* result, i64 first, i64 end, i64 step, Meet meet)`, which all threads of a block come
   * to that has any, and which calls `meet()` once before it reads the result or overwrites anything.
   */
  readonly source: string;
  readonly numWords: number;
}

/** An epilogue of one call. */
export interface CallEpilogue {
  readonly kernel: EpilogueKernel;
  /** Buffers beside the call's own. */
  readonly operands: readonly EpilogueOperand[];
  /** The struct's words, of the addresses of the call's output and of the operands. */
  readonly words: (output: number, operands: readonly number[]) => readonly bigint[];
  /** Into how many units of how many bytes the result falls. */
  readonly numUnits: number;
  readonly unitBytes: number;
  /** What all ranks agree on beside the call itself, in words: ranks whose words differ get a MismatchError that has them. */
  readonly agreed: string;
  /** Whether it may be part of the kernel that reduces. */
  readonly fuses: boolean;
}

export interface EpilogueOperand {
  readonly operand: Operand;
  readonly reads: boolean;
  readonly writes: boolean;
}
