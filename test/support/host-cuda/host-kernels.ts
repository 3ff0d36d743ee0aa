/**
 * Generated CUDA kernels on the CPU: many of them compiled by g++ into one program over a shim, each run over memory in a
 * file. `HostRanks` looks like `LocalRanks`, so that the same cases run on both executors.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chunkBytesOf, type ExecutionPlan, shapeOf } from "../../../src/authoring/plan/index.ts";
import { type DType, sizeOf, viewAs } from "../../../src/core/index.ts";
import { type CudaOptions, type GeneratedKernel, generateCuda } from "../../../src/runtime/executor/cuda/generate.ts";
import {
  chunkOfLaunch,
  type LaunchEpilogue,
  launchWords,
  packetBytes,
  type WindowSizes,
  windowBytes,
} from "../../../src/runtime/executor/cuda/launch-words.ts";
import type { LocalBuffers } from "../local-ranks.ts";

const HERE = fileURLToPath(new URL(".", import.meta.url));

/** Whether there is a compiler for the host build. */
export function hasHostCompiler(): boolean {
  return spawnSync("g++", ["--version"]).status === 0;
}

/** A program of several kernels. Add all of them, then run any. */
export class HostKernels {
  readonly #folder = mkdtempSync(join(tmpdir(), "chorale-host-cuda-"));
  readonly #sources: string[] = [];
  #isBuilt = false;

  add(source: string): number {
    this.#sources.push(source);
    return this.#sources.length - 1;
  }

  #build(): void {
    const text = [
      `#include "${HERE}shim.hpp"`,
      ...this.#sources.map((source, i) => `namespace kernel_${i} {\n${source}\n}`),
      ...this.#sources.map(
        (_, i) => `static void call_${i}(const void* l) { kernel_${i}::chorale_plan(*(const kernel_${i}::Launch*)l); }`,
      ),
      `static void (*const KERNELS[])(const void*) = {${this.#sources.map((_, i) => `call_${i}`).join(", ")}};`,
      `#include "${HERE}main.hpp"`,
    ].join("\n");
    writeFileSync(join(this.#folder, "kernels.cpp"), text);
    const args = ["-std=c++17", "-O0", "-w", "-fno-strict-aliasing", "-o", "kernels", "kernels.cpp"];
    const { status, stderr } = spawnSync("g++", args, { cwd: this.#folder, encoding: "utf8" });
    if (status !== 0) throw new Error(`g++ refuses the generated source:\n${stderr.slice(0, 4000)}`);
    this.#isBuilt = true;
  }

  /** Runs a kernel over `memory`, which it changes. @returns what went wrong, or nothing */
  run(memory: Uint8Array, parameters: readonly (number | bigint)[]): string | undefined {
    if (!this.#isBuilt) this.#build();
    const [data, words] = [join(this.#folder, "memory"), join(this.#folder, "words")];
    writeFileSync(data, memory);
    writeFileSync(words, new Uint8Array(BigInt64Array.from(parameters, BigInt).buffer));
    const { status, signal, stdout } = spawnSync(join(this.#folder, "kernels"), [data, words], { encoding: "utf8" });
    if (status !== 0) return stdout.trim() || `the host build ended with ${signal ?? status}`;
    memory.set(readFileSync(data));
    return undefined;
  }

  close(): void {
    rmSync(this.#folder, { recursive: true });
  }
}

/** Words of a launch that hold addresses: input, output, state and abort. The windows' all do, too. */
const ADDRESSES = 0b1111n;

class HostMemory {
  readonly memory = { buffer: new ArrayBuffer(1 << 20) };
  #top = 1024;
  allocate(bytes: number, zeroed = true): number {
    const at = this.#top;
    this.#top = Math.ceil((at + bytes) / 128 + 1) * 128;
    if (this.#top > this.memory.buffer.byteLength) {
      const larger = new ArrayBuffer(2 * this.#top);
      new Uint8Array(larger).set(new Uint8Array(this.memory.buffer));
      this.memory.buffer = larger;
    }
    new Uint8Array(this.memory.buffer, at, bytes).fill(zeroed ? 0 : 0xa5);
    return at;
  }
  get used(): Uint8Array {
    return new Uint8Array(this.memory.buffer, 0, this.#top);
  }
}

/** One launch of a plan on all ranks. */
export interface HostLaunch {
  readonly partBytes: number;
  readonly buffers: readonly LocalBuffers[];
  /** What the kernel's epilogue is given, by rank. */
  readonly epilogues?: readonly LaunchEpilogue[];
}

export interface HostOptions extends CudaOptions {
  /** Words of the epilogue, from the first on, that are addresses. */
  readonly epilogueAddresses?: number;
  readonly seed?: number;
  /** Slots of scratch, of a kernel that runs ahead: at most as many as windows would have. */
  readonly slots?: number;
  /**
   * Sizes of parts, bytes, that have kernels of their own, which ranks launch by turns with the one whose sizes are arguments, each at
   * another time. No launch may be larger than the largest.
   */
  readonly foldedSizes?: readonly number[];
}

/** All ranks of a plan over one memory, by its generated kernel. */
export class HostRanks {
  readonly plan: ExecutionPlan;
  readonly memory = new HostMemory();
  readonly kernel: GeneratedKernel;
  readonly #kernels: HostKernels;
  readonly #index: number;
  #seed: number;
  readonly #slots: number | undefined;
  readonly #epilogueAddresses: number;
  /** Kernels by the size that they are for. */
  readonly #folded = new Map<number, number>();
  #numLaunched = 0;
  readonly #state: readonly number[];
  readonly #abort: number;
  #windows: readonly number[] = [];
  #sizes: WindowSizes | undefined;

  constructor(plan: ExecutionPlan, kernels: HostKernels, options: HostOptions) {
    this.plan = plan;
    this.#kernels = kernels;
    const { seed = 1, slots, epilogueAddresses = 0, foldedSizes = [], ...shape } = options;
    this.#epilogueAddresses = epilogueAddresses;
    this.#seed = seed;
    this.#slots = slots;
    this.kernel = generateCuda(plan, { threads: 32, unroll: 2, debugTurns: 1_000_000, ...shape });
    this.#index = kernels.add(this.kernel.source);
    if (foldedSizes.length > 0) this.#fold(foldedSizes);
    this.#abort = this.memory.allocate(4);
    this.#state = plan.ranks.map((_, rank) => {
      const at = this.memory.allocate(4 * this.kernel.state.words);
      const words = new Uint32Array(this.memory.memory.buffer, at, this.kernel.state.words);
      words.set(this.kernel.semaphores[rank]!, this.kernel.state.semaphores);
      return at;
    });
  }

  #fold(sizes: readonly number[]): void {
    const shape = shapeOf(this.plan);
    const { foldedSource } = this.kernel;
    if (foldedSource === undefined) throw new Error("this kernel is for all sizes");
    this.#grow(chunkBytesOf(shape, Math.max(...sizes)));
    for (const part of sizes) {
      const chunk = chunkBytesOf(shape, part);
      const words = { ...(this.#sizes as WindowSizes), part, chunk, packetChunk: packetBytes(this.kernel, chunk) };
      this.#folded.set(part, this.#kernels.add(foldedSource(words)));
    }
  }

  /** Makes windows for a chunk of this size, where they are too small. Counters go on. */
  #grow(chunkBytes: number): WindowSizes {
    const { kernel, memory, plan } = this;
    const most = windowBytes(kernel, chunkBytes);
    const wanted = { ...most, slots: this.#slots ?? most.slots };
    if (this.#sizes !== undefined && wanted.bytes <= this.#sizes.bytes) return this.#sizes;
    const old = this.#windows;
    this.#windows = plan.ranks.map((_, rank) => {
      const at = memory.allocate(wanted.bytes);
      const bytes = new Uint8Array(memory.memory.buffer);
      if (old[rank] !== undefined) bytes.copyWithin(at, old[rank], old[rank] + kernel.window.bytes);
      return at;
    });
    this.#sizes = wanted;
    return wanted;
  }

  /** Runs the plan once on every rank. @returns undefined, or what went wrong */
  launch(partBytes: number, buffers: readonly LocalBuffers[]): string | undefined {
    return this.launchAll([{ partBytes, buffers }]);
  }

  /** Has launches end at once, those of all ranks. */
  end(): void {
    this.view("u32", this.#abort, 4)[0] = 1;
  }

  /**
   * Runs the plan several times, with nothing between a rank's launches.
   * @param running the ranks that do so
   * @returns undefined, or what went wrong
   */
  launchAll(
    launches: readonly HostLaunch[],
    running: readonly number[] = this.plan.ranks.map(({ rank }) => rank),
  ): string | undefined {
    const { kernel, memory, plan } = this;
    const shape = shapeOf(plan);
    const chunks = launches.map(({ partBytes, epilogues }) =>
      chunkOfLaunch(kernel, shape, partBytes, epilogues?.[0]?.unitBytes ?? 0),
    );
    const sizes = this.#grow(Math.max(...chunks));
    const kernelOf = (rank: number, partBytes: number) =>
      (this.#numLaunched++ + rank) % 3 === 0 ? this.#index : (this.#folded.get(partBytes) ?? this.#index);
    const rows = running.map((rank) =>
      launches.flatMap(({ partBytes, buffers, epilogues }, i) => [
        kernelOf(rank, partBytes),
        ...launchWords(kernel, {
          rank,
          input: BigInt(buffers[rank]!.input),
          output: BigInt(buffers[rank]!.output),
          state: BigInt(this.#state[rank]!),
          abort: BigInt(this.#abort),
          partBytes,
          chunkBytes: chunks[i]!,
          sizes,
          windows: this.#windows.map(BigInt),
          ...(epilogues && { epilogue: epilogues[rank] as LaunchEpilogue }),
        }),
      ]),
    );
    const size = rows[0]!.length / launches.length - 1;
    const numWords = kernel.epilogueWords;
    const behind = numWords === 0 ? 0 : numWords + 1;
    const windows = ((1n << BigInt(plan.ranks.length)) - 1n) << BigInt(size - behind - plan.ranks.length);
    const ofEpilogue = ((1n << BigInt(this.#epilogueAddresses)) - 1n) << BigInt(size - numWords);
    const head = [this.#seed++, launches.length, rows.length, kernel.threads, size, ADDRESSES | windows | ofEpilogue];
    const all = [...head, ...rows.flatMap((row, i) => [kernel.blocks[running[i]!]!, ...row])];
    const wrong = this.#kernels.run(
      memory.used,
      all.map((word) => BigInt.asIntN(64, BigInt(word))),
    );
    if (wrong !== undefined) return wrong;
    const at = this.#state.find((state) => this.view("u32", state + 4 * kernel.state.report, 4)[0] !== 0);
    if (at === undefined) return undefined;
    return `gave up: ${this.view("u32", at + 4 * kernel.state.report, 24).join(" ")}`;
  }

  /** Views `bytes` of memory as elements. */
  view<D extends DType>(dtype: D, address: number, bytes: number) {
    return viewAs(dtype, this.memory.memory.buffer, address, bytes / sizeOf(dtype));
  }
}
