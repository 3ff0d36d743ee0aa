/** The words of a launch, and how large windows are: what the host computes for a size. */
import type { GeneratedKernel, PacketFormat } from "./generate.ts";
import { LAUNCH_WORDS, type LaunchWord } from "./launch-layout.ts";

const roundUp = (value: number, unit: number) => Math.ceil(value / unit) * unit;

/** Bytes that the packets of a chunk take. */
export function packetChunkBytes(format: PacketFormat, chunkBytes: number): number {
  return format === "words" ? 2 * chunkBytes : 128 * Math.ceil(Math.ceil(chunkBytes / 16) / 7);
}

/** Where scratch and packets lie in every rank's window, and how large the window has to be. */
export interface WindowSizes {
  readonly scratch: number;
  readonly scratchHalf: number;
  readonly packets: number;
  readonly packetsHalf: number;
  /** Packets of the largest chunk. */
  readonly packetChunk: number;
  readonly bytes: number;
}

const packetBytes = ({ packets }: GeneratedKernel, chunkBytes: number) =>
  packets === undefined ? 0 : packetChunkBytes(packets, chunkBytes);

/**
 * Computes where scratch and packets lie in each rank's window, and how large windows have to be, all in bytes. They lie there in
 * launches of every size: a rank that has begun the next launch writes into the other half, while its peers may still read this
 * one. And where the number of a packet stands, nothing else is ever written.
 * @param maxChunkBytes size of one chunk of the plan in the largest launch
 */
export function windowBytes(kernel: GeneratedKernel, maxChunkBytes: number): WindowSizes {
  const { scratchChunks, numHalves } = kernel;
  const scratchHalf = roundUp(scratchChunks * maxChunkBytes, 128);
  const packetChunk = packetBytes(kernel, maxChunkBytes);
  const packetsHalf = roundUp(scratchChunks * packetChunk, 128);
  const scratch = kernel.window.bytes;
  const packets = scratch + (kernel.usesScratch ? numHalves * scratchHalf : 0);
  return { scratch, scratchHalf, packets, packetsHalf, packetChunk, bytes: packets + numHalves * packetsHalf };
}

/** What a launch is told. Addresses are as the launching device sees them. */
export interface LaunchValues {
  readonly rank: number;
  readonly input: bigint;
  readonly output: bigint;
  readonly state: bigint;
  readonly abort: bigint;
  readonly partBytes: number;
  readonly chunkBytes: number;
  /** Where things lie in windows: of all launches over them. */
  readonly sizes: WindowSizes;
  /** Of every rank. */
  readonly windows: readonly bigint[];
  /** What preMulSum multiplies with, as the bits of the type that elements are combined in. */
  readonly scalar?: bigint;
}

/** The kernel's parameter, word by word. @returns words of 8 bytes */
export function launchWords(kernel: GeneratedKernel, values: LaunchValues): bigint[] {
  const { sizes, chunkBytes } = values;
  const words: { readonly [W in LaunchWord]: bigint } = {
    input: values.input,
    output: values.output,
    state: values.state,
    abort: values.abort,
    part: BigInt(values.partBytes),
    chunk: BigInt(chunkBytes),
    scratch: BigInt(sizes.scratch),
    packets: BigInt(sizes.packets),
    scratchHalf: BigInt(sizes.scratchHalf),
    packetsHalf: BigInt(sizes.packetsHalf),
    packetChunk: BigInt(packetBytes(kernel, chunkBytes)),
    scalar: values.scalar ?? 0n,
    rank: BigInt(values.rank),
  };
  return [...LAUNCH_WORDS.map((name) => words[name]), ...values.windows];
}
