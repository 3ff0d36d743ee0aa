/** The words of a launch, and how large windows are: what the host computes for a size. */
import { chunkBytesOf, type PlanShape } from "../../../authoring/plan/index.ts";
import type { GeneratedKernel, PacketFormat } from "./generate.ts";
import { LAUNCH_WORDS, type LaunchWord } from "./launch-layout.ts";
import { SHEET } from "./prelude-sheets.ts";

const roundUp = (value: number, unit: number) => Math.ceil(value / unit) * unit;

/** Bytes that the packets of a chunk take. */
function packetChunkBytes(format: PacketFormat, chunkBytes: number): number {
  if (format === "words") return 2 * chunkBytes;
  if (format === "sheets") return SHEET.bytes * Math.ceil(chunkBytes / SHEET.dataBytes);
  return 128 * Math.ceil(Math.ceil(chunkBytes / 16) / 7);
}

/** Where scratch and packets lie in every rank's window, and how large the window has to be. */
export interface WindowSizes {
  readonly scratch: number;
  readonly packets: number;
  /** How far the slots of scratch and of packets are apart: launches that follow each other take one after the other. */
  readonly scratchSlot: number;
  readonly packetsSlot: number;
  /** A power of two. */
  readonly slots: number;
  /** Packets of the largest chunk. */
  readonly packetChunk: number;
  readonly bytes: number;
}

/** Bytes that a chunk takes as packets; none where the kernel sends none. */
export const packetBytes = ({ packets }: GeneratedKernel, chunkBytes: number) =>
  packets === undefined ? 0 : packetChunkBytes(packets, chunkBytes);

/**
 * Computes where scratch and packets lie in each rank's window, and how large windows have to be, all in bytes. They lie there in
 * launches of every size: a rank that has begun the next launch writes into another slot, while its peers may still read this
 * one. And where the number of a packet stands, nothing else is ever written.
 * @param maxChunkBytes size of one chunk of the plan in the largest launch
 */
export function windowBytes(kernel: GeneratedKernel, maxChunkBytes: number): WindowSizes {
  const { scratchChunks, usesScratch } = kernel;
  const scratchSlot = usesScratch ? roundUp(scratchChunks * maxChunkBytes, 128) : 0;
  const packetChunk = packetBytes(kernel, maxChunkBytes);
  const packetsSlot = roundUp(scratchChunks * packetChunk, 128);
  const slots = slotsOf(kernel, scratchSlot + packetsSlot);
  const scratch = kernel.window.bytes;
  const packets = scratch + slots * scratchSlot;
  return { scratch, packets, scratchSlot, packetsSlot, slots, packetChunk, bytes: packets + slots * packetsSlot };
}

/** How many slots a window has, where the kernel leaves it open: as many as pay and take at most so many bytes together. */
const SLOTS_BY_BYTES = [
  [4, 64 * 1024 ** 2],
  [2, 256 * 1024 ** 2],
] as const;

function slotsOf({ numSlots, runsAhead }: GeneratedKernel, slotBytes: number): number {
  const [more = numSlots] = runsAhead ? (SLOTS_BY_BYTES.find(([slots, most]) => slots * slotBytes <= most) ?? []) : [];
  return Math.max(numSlots, more);
}

/** What a launch is told. Addresses are as the launching device sees them. */
interface LaunchValues {
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
  /** What the epilogue is given: nothing yet, unless told. */
  readonly epilogue?: LaunchEpilogue;
}

/** What a launch gives a kernel's epilogue. */
export interface LaunchEpilogue {
  readonly words: readonly bigint[];
  /**
   * Bytes of the result that one block must have made all of, where blocks should not meet: a strand makes whole units then, if strands of
   * the kernel make a chunk each (`ownsChunks`). A multiple of 16; 0: blocks meet.
   */
  readonly unitBytes: number;
}

/** The chunk of a launch, bytes: as the plan has it, or as many units of its epilogue as that takes. */
export function chunkOfLaunch(
  { ownsChunks }: GeneratedKernel,
  shape: PlanShape,
  partBytes: number,
  unitBytes: number,
): number {
  if (!ownsChunks || unitBytes === 0) return chunkBytesOf(shape, partBytes);
  return unitBytes * Math.ceil(partBytes / shape.chunksPerPart / unitBytes);
}

const WORD_AT = Object.fromEntries(LAUNCH_WORDS.map((name, i) => [name, 2 * i])) as Readonly<
  Record<LaunchWord, number>
>;

/** Writes a whole number below 2^53 as a word of 8 bytes, given as pairs of 4, without making a BigInt. */
export function writeWord(halves: Uint32Array, name: LaunchWord, value: number): void {
  const at = WORD_AT[name];
  halves[at] = value >>> 0;
  halves[at + 1] = Math.floor(value / 2 ** 32);
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
    scratchSlot: BigInt(sizes.scratchSlot),
    packetsSlot: BigInt(sizes.packetsSlot),
    slots: BigInt(sizes.slots),
    packetChunk: BigInt(packetBytes(kernel, chunkBytes)),
    scalar: 0n,
    rank: BigInt(values.rank),
    done: 0n,
  };
  const shifts = kernel.shiftsAddresses ? values.windows.flatMap(() => [0n, 0n]) : [];
  const { epilogueWords, ownsChunks } = kernel;
  const { unitBytes = 0, words: given = [] } = values.epilogue ?? {};
  const unitsOfStrand = ownsChunks && unitBytes > 0 ? BigInt(Math.floor(chunkBytes / unitBytes)) : 0n;
  const behind =
    epilogueWords === 0 ? [] : [unitsOfStrand, ...Array.from({ length: epilogueWords }, (_, i) => given[i] ?? 0n)];
  return [...LAUNCH_WORDS.map((name) => words[name]), ...values.windows, ...shifts, ...behind];
}

/**
 * Writes what a launch adds to the addresses that ranks tell, of every rank's input and then of every rank's output. They may be
 * negative, and are nearer to 0 than 2^53.
 * @returns whether any has changed
 */
export function writeShifts(halves: Uint32Array, shifts: readonly number[]): boolean {
  // Of every rank a window stands before them.
  const first = LAUNCH_WORDS.length + shifts.length / 2;
  let changed = false;
  for (let i = 0; i < shifts.length; i++) {
    const at = 2 * (first + i);
    const shift = shifts[i] as number;
    const [low, high] = [shift >>> 0, Math.floor(shift / 2 ** 32) >>> 0];
    changed ||= halves[at] !== low || halves[at + 1] !== high;
    halves[at] = low;
    halves[at + 1] = high;
  }
  return changed;
}
