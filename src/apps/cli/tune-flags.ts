/** What `chorale tune` is told, for operations and for programs alike. */
import { parseSize } from "../../core/index.ts";
import type { Isolation } from "../../runtime/comm/index.ts";
import type { BackendName } from "../../runtime/world/index.ts";
import { sizeRange } from "../bench/index.ts";

export interface TuneHereFlags {
  readonly backend?: BackendName;
  readonly isolation?: Isolation;
  readonly ranks?: number;
  readonly min?: string;
  readonly max?: string;
  readonly factor: number;
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

const DEFAULT_MIN = 64;
const DEFAULT_MAX = 16 * 2 ** 20;

/** The sizes that are asked for. */
export function sizesOf({ min, max, factor }: TuneHereFlags): number[] {
  const first = min === undefined ? DEFAULT_MIN : parseSize(min, "-b");
  return sizeRange(first, max === undefined ? Math.max(DEFAULT_MAX, first) : parseSize(max, "-e"), factor);
}
