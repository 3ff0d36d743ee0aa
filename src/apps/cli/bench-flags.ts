/** What `chorale bench` is told, for operations and for programs alike. */
import { InvalidArgumentError, REDUCE_OPS } from "../../core/index.ts";
import type { BackendName, Isolation } from "../../runtime/world/index.ts";
import type { BenchRedop, Drive } from "../bench/index.ts";
import type { MeasuredHostFlags } from "./host-options.ts";
import type { DefaultSizes, SizeFlags } from "./size-options.ts";

export const DEFAULT_SIZES: DefaultSizes = { min: 2 ** 10, max: 16 * 2 ** 20 };
/** More ranks than this must be asked for. */
export const MOST_UNASKED = 8;

export interface Flags extends MeasuredHostFlags, SizeFlags {
  readonly backend: BackendName | "all";
  readonly isolation?: Isolation;
  readonly dtype: string;
  readonly redop?: string;
  readonly root: number;
  readonly drive?: Drive;
  readonly arg?: readonly string[];
  readonly algorithm?: string;
  readonly iterations?: number;
  readonly repeats?: number;
  readonly warmup?: number;
  readonly graph?: number | true;
  readonly backendOption?: readonly string[];
  readonly check?: boolean;
  readonly json?: boolean;
}

/** Reads an operator. @throws InvalidArgumentError */
export function redop(text: string): BenchRedop {
  const found = [...REDUCE_OPS, "preMulSum" as const].find((name) => name === text);
  if (found !== undefined) return found;
  throw new InvalidArgumentError("--redop", text, `one of ${REDUCE_OPS.join(", ")}, preMulSum`);
}
