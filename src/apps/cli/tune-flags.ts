/** What `chorale tune` is told, for operations and for programs alike. */
import { parseDType } from "../../core/index.ts";
import type { Isolation } from "../../runtime/comm/index.ts";
import type { BackendName } from "../../runtime/world/index.ts";
import type { MeasuredHostFlags } from "./host-options.ts";
import type { DefaultSizes, SizeFlags } from "./size-options.ts";

export interface TuneHereFlags extends MeasuredHostFlags, SizeFlags {
  readonly backend?: BackendName;
  readonly isolation?: Isolation;
  readonly dtype?: string;
  readonly budget?: number;
  readonly arg?: readonly string[];
  readonly try?: readonly string[];
  /** On which machine variants of a program are ranked. */
  readonly topology?: string;
  readonly dryRun?: boolean;
  readonly show?: boolean;
  readonly reset?: boolean;
  readonly json?: boolean;
}

export const DEFAULT_SIZES: DefaultSizes = { min: 64, max: 16 * 2 ** 20 };

/** How it is measured, as far as that is asked for. @throws InvalidArgumentError for an element type that there is not */
export const measuringOf = ({ isolation, dtype, budget }: TuneHereFlags) => ({
  ...(isolation === undefined ? {} : { isolation }),
  ...(dtype === undefined ? {} : { dtype: parseDType(dtype, "--dtype") }),
  ...(budget === undefined ? {} : { budgetSeconds: budget }),
});

/** A time, as tables show it. */
export const us = (time: number): string => (time >= 100 ? time.toFixed(0) : time.toPrecision(3));
