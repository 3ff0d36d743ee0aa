/** What can serve a call, by name: `NAME[*INSTANCES][/CHUNKS][@SHAPE]`, and algorithms of a program's own. */
import { MAX_INSTANCES } from "../../authoring/plan/index.ts";
import type { CollectiveName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import type { Runnable } from "../comm/index.ts";
import type { PacketFormat } from "./cuda/generate.ts";

/** Collectives whose calls need no more than a count, which is what an algorithm is made for. */
export const SERVED_COLLECTIVES = [
  "all_reduce",
  "broadcast",
  "reduce",
  "all_gather",
  "reduce_scatter",
  "all_to_all",
  "gather",
  "scatter",
] as const satisfies readonly CollectiveName[];

/** Whether an algorithm can serve a collective. */
export function isServed(collective: string): boolean {
  return (SERVED_COLLECTIVES as readonly string[]).includes(collective);
}

/** What serves a call. `kernel`: code that a backend has by hand; `plan`: an algorithm, compiled and run by an executor. */
export interface Served {
  readonly kind: "kernel" | "plan";
  readonly name: string;
  /** Replicas of the algorithm, each on its share of every chunk. Only of plans. */
  readonly instances: number;
  /** Chunks that a pipeline cuts its buffer into; the algorithm's own number when absent. Only of plans. */
  readonly chunks: number | undefined;
  /** How it becomes a kernel; what the executor does by itself when absent. Only of plans, on devices, and of kernels that are named with one. */
  readonly shape: ServedShape | undefined;
  /** All of it in one word: `NAME[*INSTANCES][/CHUNKS][@SHAPE]`. */
  readonly label: string;
}

/** What `@` of a label says, separated by points: `512`, `lines`, `u8`, `b4`, `unit128K`; `copies`, or `copies.512`. */
interface ServedShape {
  /** Of a block. */
  readonly threads?: number;
  /** How packets lie in memory. */
  readonly packets?: PacketFormat;
  /** Units of 16 bytes that a thread loads before it stores. */
  readonly unroll?: number;
  /** Blocks that do a strand together. */
  readonly blocksPerStrand?: number;
  /** What a streaming algorithm sends before it says so. */
  readonly unitBytes?: number;
  /**
   * Copy engines do it: of algorithms that only copy from inputs to outputs. With `threads` a kernel copies what each rank keeps to
   * itself, of as many blocks as there are instances.
   */
  readonly copies?: true;
}

/** What an algorithm is made for. */
export interface AlgorithmRequest {
  readonly numRanks: number;
  /** Rank within the group; only of rooted collectives. */
  readonly root?: number;
  readonly instances?: number;
  readonly chunks?: number;
}

/** An algorithm of the program's own, as `algorithm:` and tables of choices may name it. */
export interface RegisteredAlgorithm {
  /** Lower-case words joined by hyphens, none of the library's. */
  readonly name: string;
  readonly collective: CollectiveName;
  /** Groups of so many ranks alone; of any number when absent. */
  readonly numRanks?: number;
  /** Makes the program, out of place. Called once for each set of arguments. */
  readonly make: (request: AlgorithmRequest) => Runnable;
}

const MAX_CHUNKS = 1024;

/** The words of a shape. @returns undefined for a word that is none, or one that comes twice */
function parseShape(text: string): ServedShape | undefined {
  const shape: { -readonly [K in keyof ServedShape]: ServedShape[K] } = {};
  for (const word of text.split(".")) {
    const [, threads, unroll, blocks, packets, unit, scale, copies] =
      /^(?:([1-9]\d{1,3})|u([1-9]\d?)|b([1248])|(lines|sheets|words)|unit([1-9]\d{0,3})([KM])|(copies))$/.exec(word) ??
      [];
    const found: ServedShape | undefined =
      threads !== undefined && Number(threads) % 32 === 0 && Number(threads) <= 1024
        ? { threads: Number(threads) }
        : unroll !== undefined && Number(unroll) <= 16
          ? { unroll: Number(unroll) }
          : blocks !== undefined
            ? { blocksPerStrand: Number(blocks) }
            : packets !== undefined
              ? { packets: packets as PacketFormat }
              : unit !== undefined
                ? { unitBytes: Number(unit) * (scale === "M" ? 1 << 20 : 1 << 10) }
                : copies !== undefined
                  ? { copies: true }
                  : undefined;
    if (found === undefined || Object.keys(found).some((key) => key in shape)) return undefined;
    Object.assign(shape, found);
  }
  const { copies, threads: _, ...ofKernels } = shape;
  return copies === true && Object.keys(ofKernels).length > 0 ? undefined : shape;
}

/**
 * Reads `NAME[*INSTANCES][/CHUNKS][@SHAPE]`. @throws InvalidArgumentError for another form
 * @example
 * import { parseServed } from "chorale/executor";
 *
 * parseServed("chain-broadcast*2/16", []).instances // 2
 */
export function parseServed(label: string, kernels: readonly string[], argument = "algorithm"): Served {
  const match = /^([a-z][a-z0-9-]*)(?:\*([1-9]\d*))?(?:\/([1-9]\d*))?(?:@([a-z0-9.]+))?$/i.exec(label);
  const instances = Number(match?.[2] ?? 1);
  const chunks = match?.[3] === undefined ? undefined : Number(match[3]);
  const shape = match?.[4] === undefined ? undefined : parseShape(match[4]);
  const isShaped = match?.[4] !== undefined;
  if (match === null || instances > MAX_INSTANCES || (chunks ?? 1) > MAX_CHUNKS || isShaped !== (shape !== undefined)) {
    const accepted = `a name such as ring-all-reduce, with *2 for 2 instances (at most ${MAX_INSTANCES}), /8 for 8 chunks (at most ${MAX_CHUNKS}), and on devices @512.u8.lines.unit64K for a kernel's shape, or @copies.512 for copy engines`;
    throw new InvalidArgumentError(argument, label, accepted);
  }
  const name = match[1] as string;
  const kind = kernels.includes(name) ? "kernel" : "plan";
  if (kind === "kernel" && !kernels.includes(label)) {
    const forms = kernels.filter((kernel) => kernel.startsWith(`${name}@`));
    const accepted =
      forms.length > 0
        ? `${name}, or one of ${forms.join(", ")}`
        : `${name} alone: a kernel has neither instances, chunks nor a shape`;
    throw new InvalidArgumentError(argument, label, accepted);
  }
  return Object.freeze({ kind, name, instances, chunks, shape, label });
}
