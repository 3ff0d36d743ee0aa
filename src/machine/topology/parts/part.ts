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
  /** What the machine is sold with, where its accelerator may take a part of it alone. */
  readonly installedBytes?: number;
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

/** Dense TFLOP/s of f32, of 16-bit floats, of FP8 and of int8; 0 for what the part does not have. */
export type Tflops = readonly [f32: number, half: number, f8: number, i8: number];

/** @param more those that do not follow from the four, such as f64 where it is more than a fraction of f32 */
export function peaksOf(
  [f32, half, f8, i8]: Tflops,
  hasBf16: boolean,
  more: { readonly f64?: number | undefined; readonly bf16?: number | undefined } = {},
): Part["peakTflops"] {
  return {
    ...(more.f64 !== undefined && { f64: more.f64 }),
    f32,
    ...(half > 0 && { f16: half }),
    ...(half > 0 && hasBf16 && { bf16: more.bf16 ?? half }),
    ...(f8 > 0 && { f8e4m3: f8, f8e5m2: f8 }),
    ...(i8 > 0 && { i8 }),
  };
}
