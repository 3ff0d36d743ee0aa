/** The kernels of kernels.ts, compiled for a rank's device, as calls with addresses and shapes. All go to one stream. */
import { InvalidArgumentError } from "chorale";
import {
  type CudaKernel,
  CudaModule,
  type CudaStream,
  type KernelArgument,
  KernelArguments,
  type LaunchShape,
  type RankDevice,
  requireNvrtc,
} from "chorale/device";
import { KERNEL_NAMES, MAX_TOKENS_PER_PASS, source, WEIGHT_MACRO } from "./kernels.ts";

/** How the weights lie on the device. */
export type WeightType = keyof typeof WEIGHT_MACRO;
export const WEIGHT_BYTES: Readonly<Record<WeightType, number>> = { bf16: 2, f16: 2, f32: 4 };

const BLOCK = 256;
const WARPS = BLOCK / 32;
const ATTENTION_BLOCK = 1024;
/** Dynamic shared memory that every kernel may use; more has to be asked for. */
const DEFAULT_SHARED_BYTES = 48 * 1024;
const F32 = 4;

const pointer = (value: bigint): KernelArgument => ({ type: "u64", value });
const integer = (value: number): KernelArgument => ({ type: "i32", value });
const real = (value: number): KernelArgument => ({ type: "f32", value });

/** Shape of one rank's attention. */
export interface AttentionShape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Positions that the cache holds. */
  readonly context: number;
  readonly window: number | undefined;
}

export class Launcher implements Disposable {
  readonly stream: CudaStream;
  readonly dtype: WeightType;
  readonly #at: RankDevice;
  readonly #module: CudaModule;
  readonly #kernels = new Map<string, CudaKernel>();
  readonly #args = new Map<string, KernelArguments>();

  /** @throws UnavailableError without NVRTC; NativeError with the compiler's log */
  constructor(at: RankDevice, stream: CudaStream, dtype: WeightType) {
    this.#at = at;
    this.stream = stream;
    this.dtype = dtype;
    this.#module = CudaModule.compile(at.device, requireNvrtc(), source, [`-DWEIGHT=${WEIGHT_MACRO[dtype]}`]);
    // All now: CUDA loads lazily, and may wait for the whole device then, where a collective waits for a peer.
    for (const name of KERNEL_NAMES) this.#kernels.set(name, this.#module.kernel(name));
  }

  embed(out: bigint, table: bigint, tokens: bigint, count: number, hidden: number, first: number, rows: number): void {
    const args = [pointer(out), pointer(table), pointer(tokens), integer(hidden), integer(first), integer(rows)];
    this.#launch("embed", { grid: [count], block: [BLOCK] }, args);
  }

  rmsNorm(out: bigint, x: bigint, weight: bigint, count: number, hidden: number, eps: number): void {
    const args = [pointer(out), pointer(x), pointer(weight), integer(hidden), real(eps)];
    this.#launch("rms_norm", { grid: [count], block: [1024] }, args);
  }

  /** x += y, then as `rmsNorm`. */
  addRmsNorm(out: bigint, x: bigint, y: bigint, weight: bigint, count: number, hidden: number, eps: number): void {
    const args = [pointer(out), pointer(x), pointer(y), pointer(weight), integer(hidden), real(eps)];
    this.#launch("add_rms_norm", { grid: [count], block: [1024] }, args);
  }

  /** y[t] = W x[t] (+ bias), or y[t] += ... with `accumulate`. W is [rows, columns]; a `bias` of 0 means none. */
  matmul(
    y: bigint,
    weight: bigint,
    x: bigint,
    bias: bigint,
    count: number,
    rows: number,
    columns: number,
    accumulate: boolean,
  ): void {
    if (rows === 0) return;
    const shape: LaunchShape = { grid: [Math.ceil(rows / WARPS)], block: [BLOCK] };
    const more = accumulate ? 1 : 0;
    if (count === 1) {
      const buffers = [y, weight, x, bias].map(pointer);
      this.#launch("matmul_one", shape, [...buffers, ...[rows, columns, more].map(integer)]);
      return;
    }
    for (let t = 0; t < count; t += MAX_TOKENS_PER_PASS) {
      this.#launch("matmul", shape, [
        pointer(y + BigInt(t * rows * F32)),
        pointer(weight),
        pointer(x + BigInt(t * columns * F32)),
        pointer(bias),
        integer(Math.min(MAX_TOKENS_PER_PASS, count - t)),
        integer(rows),
        integer(columns),
        integer(more),
      ]);
    }
  }

  ropeAndCache(
    buffers: { readonly qkv: bigint; readonly keys: bigint; readonly values: bigint },
    angles: { readonly cos: bigint; readonly sin: bigint },
    position: bigint,
    count: number,
    { heads, kvHeads, headDim }: AttentionShape,
  ): void {
    const { qkv, keys, values } = buffers;
    const shape: LaunchShape = {
      grid: [count, heads + 2 * kvHeads],
      block: [Math.max(1, Math.min(1024, headDim / 2))],
    };
    this.#launch("rope_and_cache", shape, [
      ...[qkv, keys, values, angles.cos, angles.sin, position].map(pointer),
      ...[heads, kvHeads, headDim].map(integer),
    ]);
  }

  /** @throws InvalidArgumentError when the context does not fit the multiprocessor's shared memory */
  attention(
    out: bigint,
    buffers: { readonly qkv: bigint; readonly keys: bigint; readonly values: bigint },
    position: bigint,
    count: number,
    { heads, kvHeads, headDim, context, window }: AttentionShape,
  ): void {
    const sharedBytes = attentionSharedBytes(context);
    const shape: LaunchShape = { grid: [count, heads], block: [ATTENTION_BLOCK], sharedBytes };
    const args = [
      ...[out, buffers.qkv, buffers.keys, buffers.values, position].map(pointer),
      ...[heads, kvHeads, headDim, context, window ?? 0].map(integer),
      real(1 / Math.sqrt(headDim)),
    ];
    this.#launch("attention", shape, args, sharedBytes);
  }

  siluMul(out: bigint, gateUp: bigint, count: number, inner: number): void {
    const total = count * inner;
    const args = [pointer(out), pointer(gateUp), integer(inner), integer(total)];
    this.#launch("silu_mul", { grid: [Math.ceil(total / BLOCK)], block: [BLOCK] }, args);
  }

  add(x: bigint, y: bigint, total: number): void {
    this.#launch("add", { grid: [Math.ceil(total / BLOCK)], block: [BLOCK] }, [pointer(x), pointer(y), integer(total)]);
  }

  /** The first of the largest; adds 1 to `position` unless that is 0. */
  argmax(token: bigint, logits: bigint, length: number, position: bigint): void {
    const args = [pointer(token), pointer(logits), integer(length), pointer(position)];
    this.#launch("argmax", { grid: [1], block: [1024] }, args);
  }

  advance(position: bigint, by: number): void {
    this.#launch("advance", { grid: [1], block: [1] }, [pointer(position), integer(by)]);
  }

  /** Uniform in [-scale, scale), the same for the same seed. */
  fillRandom(weight: bigint, count: number, seed: number, scale: number): void {
    const args: KernelArgument[] = [
      pointer(weight),
      { type: "u64", value: BigInt(count) },
      { type: "u32", value: seed },
      real(scale),
    ];
    this.#launch("fill_random", { grid: [Math.min(4096, Math.ceil(count / BLOCK))], block: [BLOCK] }, args);
  }

  close(): void {
    this.#module.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #launch(name: string, shape: LaunchShape, args: readonly KernelArgument[], sharedBytes = 0): void {
    const kernel = this.#kernels.get(name) as CudaKernel;
    let known = this.#args.get(name);
    if (known === undefined) {
      if (sharedBytes > DEFAULT_SHARED_BYTES) kernel.allowSharedBytes(sharedBytes);
      known = new KernelArguments(this.#at.device, args);
      this.#args.set(name, known);
    }
    // The driver copies the values during the launch: one set of arguments a kernel is enough.
    for (let i = 0; i < args.length; i++) known.set(i, args[i] as KernelArgument);
    kernel.launch(this.stream, shape, known);
  }
}

/** Most dynamic shared memory of a block on GPUs since 2017's, bytes; newer ones have more. */
const LEAST_SHARED_BYTES = 96 * 1024;

function attentionSharedBytes(context: number): number {
  return (32 + context + ATTENTION_BLOCK) * F32;
}

/** Checks what the kernels can do. @throws InvalidArgumentError */
export function checkAttention({ headDim, context }: AttentionShape): void {
  if (headDim > ATTENTION_BLOCK || headDim % 2 !== 0) {
    throw new InvalidArgumentError("head_dim", headDim, `an even number up to ${ATTENTION_BLOCK}`);
  }
  if (attentionSharedBytes(context) > LEAST_SHARED_BYTES) {
    const most = LEAST_SHARED_BYTES / F32 - 32 - ATTENTION_BLOCK;
    throw new InvalidArgumentError("positions", context, `at most ${most} on GPUs: attention keeps a score of each`);
  }
}
