/** What is known of an accelerator before one is seen. */
import type { DType } from "../../../core/index.ts";
import type { Family } from "../inventory.ts";

export const GIB = 1024 ** 3;
export const MIB = 1024 ** 2;

export interface Part {
  readonly key: string;
  readonly family: Family;
  readonly vendor: string;
  readonly name: string;
  /** As the driver reports it where that is known (H100: 81559 MiB), else the data sheet's. */
  readonly memoryBytes: number;
  readonly memoryBandwidthGBps: number;
  readonly peakTflops: Partial<Record<DType, number>>;
  readonly arch: string;
  readonly unifiedMemory?: true;
  readonly powerLimitWatts?: number;
  /** Recognises the vendor's device name. */
  readonly match: RegExp;
  readonly source: string;
}

type Maker = Pick<Part, "family" | "vendor">;

/** The parts of one family and vendor. */
export const partsOf = (maker: Maker, parts: readonly Omit<Part, keyof Maker>[]): Part[] =>
  parts.map((one) => ({ ...maker, ...one }));
