/**
 * One rank's plan, ready to run: its records lie in memory, its scratch is allocated, its counters are connected. Sizes
 * are arguments: `bind` writes the lengths and offsets of a size into the records and compiles nothing. `launch` and
 * `run` allocate nothing.
 */
import {
  checkPartBytes,
  chunkBytesOf,
  type ExecutionPlan,
  type PlanShape,
  shapeOf,
} from "../../../authoring/plan/index.ts";
import { type DType, InvalidArgumentError, invariant, sizeOf } from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import type { ExecutorMemory, Transport } from "../transport.ts";
import { initContext, setParameter } from "../wasm/kernel-context.ts";
import type { KernelOp } from "../wasm/reduce-kernels.ts";
import { findTables } from "./direct-tables.ts";
import { withFarRanks } from "./far-records.ts";
import { BODIES, COUNTER_BYTES, DATA, LOOP, RECORD, RUN, STRAND } from "./image.ts";
import type { CounterRef } from "./leading-sync.ts";
import { type LoweredRank, lowerRank, sendsPackets } from "./lower.ts";
import { onePassOps } from "./one-pass-plan.ts";
import { blockOf, type PlanBlock, roundUp } from "./plan-block.ts";
import { RecordWriter, wordsOf } from "./record-writer.ts";
import type { DataRecord, FarRecord, FenceRecord, PartedRecord } from "./records.ts";
import type { MachineExports } from "./strand-machine.ts";

interface PreparedPlanParts {
  readonly plan: ExecutionPlan;
  /** Group rank. */
  readonly rank: number;
  readonly dtype: DType;
  /** Takes the place of the collective's operator, which is the default. */
  readonly op?: KernelOp;
  readonly memory: ExecutorMemory;
  readonly transport: Transport;
  readonly machine: MachineExports;
  /** What is passed to the machine's `ring`. */
  readonly bell?: number;
  /** The ranks can meet after a launch as well: what a plan of one pass does to meet is left to them. See `endsTogether`. */
  readonly meets?: boolean;
}

/** What of a prepared plan is left to JavaScript, and where. */
export interface FarParts {
  readonly records: ReadonlyMap<number, FarRecord | FenceRecord>;
  /** By the word that counts them. */
  readonly signals: ReadonlyMap<number, CounterRef>;
  /** Addresses of the context and of the strands. */
  readonly run: number;
  readonly strands: number;
  /** Addresses of the words that hold where this rank's scratch and packets begin. */
  readonly bases: { readonly scratch: number; readonly packets: number };
}

/** Where a strand stands. */
export interface StrandPosition {
  readonly strand: number;
  /** Index of the operation, and of the one within when that is a pipeline. `undefined` once the strand has ended. */
  readonly op: number | undefined;
  readonly body: number | undefined;
}

/** What `bind` needs of a data record, as numbers: one row each. */
const ROW = { at: 0, chunks: 1, from: 2, to: 3, part: 4, parts: 5, numRanges: 6, ranges: 7 } as const;
/** Of each range: 1 when it is scratch, whose chunks are never short; its part and chunk within. */
const RANGE_WORDS = 3;

/** Of `Transport.state`: the number of launches; then how often each counter was waited for. */
const STATE_BYTES = 16;

export class PreparedPlan {
  readonly plan: ExecutionPlan;
  readonly rank: number;
  readonly dtype: DType;
  readonly shape: PlanShape;
  /** True when the caller's buffers of other ranks are touched: they must be known, and free, before the launch. */
  readonly reachesBuffers: boolean;
  /** The ranks have to meet after every launch: the plan's own meeting was left out. The same on all ranks. */
  readonly endsTogether: boolean;
  readonly #memory: ExecutorMemory;
  readonly #machine: MachineExports;
  readonly #transport: Transport;
  /** What is left to a `FarRun`, by the addresses of records; and the words that count signals to far ranks. */
  readonly #far = new Map<number, FarRecord | FenceRecord>();
  readonly #farSignals = new Map<number, CounterRef>();
  readonly #block: number;
  readonly #run: number;
  readonly #context: number;
  readonly #rows: Int32Array;
  readonly #loops: Int32Array;
  readonly #strands: number;
  readonly #numHalves: number;
  readonly #sendsPackets: boolean;
  /** See `RUN.straight`. */
  readonly #isStraight: boolean;
  /** Chunks of the largest scratch of any rank: all ranks grow theirs at the same call. */
  readonly #scratchChunks: number;
  #words: Int32Array;
  #partBytes = -1;
  #capacity = 0;
  #scratch = 0;
  #packets = 0;
  #wasGrown = false;
  /** Scratch that was too small: other ranks may use it until all have come to the next launch. */
  readonly #outgrown: number[] = [];
  #closed = false;

  constructor(parts: PreparedPlanParts) {
    const { plan, rank, dtype, memory, transport } = parts;
    invariant(plan.ranks[rank] !== undefined, `the plan has no rank ${rank}`);
    this.plan = plan;
    this.rank = rank;
    this.dtype = dtype;
    this.shape = shapeOf(plan);
    this.#memory = memory;
    this.#machine = parts.machine;
    this.#transport = transport;
    const isFar = transport.isFar?.bind(transport);
    const onePass = parts.meets === true && isFar === undefined ? onePassOps(plan) : undefined;
    this.endsTogether = onePass !== undefined;
    const lowered = lowerRank(plan, rank, { met: true, together: isFar === undefined, onePass });
    const all: readonly (readonly PartedRecord[])[] =
      isFar === undefined ? lowered.strands : withFarRanks(lowered.strands, isFar);
    this.#sendsPackets = sendsPackets(plan);
    this.#numHalves = plan.options.useDoubleScratchBuffer ? 2 : 1;
    this.#scratchChunks = Math.max(0, ...plan.ranks.map((r) => r.scratch.chunks));
    const block = blockOf(lowered, all, plan.ranks.length);
    this.#block = memory.allocate(block.bytes);
    this.#words = memory.words(this.#block + block.bytes);
    const at = (offset: number) => this.#block + offset;
    this.#run = at(block.run);
    this.#strands = at(block.strands);
    this.#context = at(block.context);
    this.#writeRun(lowered, block, parts.bell ?? 0);

    const scratchRanks = new Set<number>();
    const baseOf = (of: number) => at(block.bases) + 8 * of;
    let reachesBuffers = false;
    const writer = new RecordWriter(this.#words, {
      dtype,
      op: (own) => (own === (plan.collective.reduceOp ?? "sum") ? (parts.op ?? own) : own),
      base: ({ rank: of, buffer, packets }) => {
        if (isFar?.(of) === true) return 0;
        if (buffer !== "scratch") {
          if (of !== rank) reachesBuffers = true;
          return transport.map(of, buffer);
        }
        scratchRanks.add(of);
        return baseOf(of) + (packets ? 4 : 0);
      },
      signal: (ref) => {
        const word = transport.signal(ref.rank, ref.counter);
        if (isFar?.(ref.rank) === true) this.#farSignals.set(word, ref);
        return word;
      },
      wait: (counter) => transport.wait(counter),
      taken: (counter) => transport.state + STATE_BYTES + 4 * counter,
      semaphore: (id) => at(block.semaphores) + 4 * id,
      barrier: (id) => at(block.barriers) + 8 * id,
    });
    const { rows, loops } = this.#writeStrands(all, writer, at(block.code));
    // Of a plan of one pass a rank has one strand at the most.
    this.#isStraight = this.endsTogether && all.length > 0 && scratchRanks.size === 0;
    if (this.#isStraight) this.#words[this.#run / 4 + RUN.straight] = this.#words[this.#strands / 4 + STRAND.first]!;
    this.#rows = Int32Array.from(rows);
    this.#loops = Int32Array.from(loops);
    this.#words[this.#run / 4 + RUN.numBases] = scratchRanks.size;
    const found = [...scratchRanks].flatMap((of) => [
      baseOf(of),
      transport.map(of, "scratch"),
      transport.map(of, "packets"),
    ]);
    this.#words.set(found, at(block.entries) / 4);
    this.reachesBuffers = reachesBuffers;
  }

  /** Writes what launches begin with. */
  #writeRun(lowered: LoweredRank, block: PlanBlock, bell: number): void {
    const at = (offset: number) => this.#block + offset;
    const words = this.#words.subarray(this.#run / 4);
    words[RUN.strands] = this.#strands;
    words[RUN.numStrands] = lowered.strands.length;
    words[RUN.bell] = bell;
    words[RUN.inTable] = at(block.inTable);
    words[RUN.outTable] = at(block.outTable);
    words[RUN.kernelContext] = this.#context;
    words[RUN.tiles] = at(block.tiles);
    words[RUN.state] = this.#transport.state;
    words[RUN.bases] = at(block.entries);
    words[RUN.semaphores] = at(block.semaphores);
    words[RUN.initial] = at(block.initial);
    words[RUN.numSemaphores] = lowered.semaphores.length;
    this.#words.set(lowered.semaphores, at(block.initial) / 4);
    initContext(this.#words.buffer, this.#context);
  }

  /** Writes the records of all strands, one behind the other from an address on. @returns what `bind` needs of them */
  #writeStrands(strands: readonly (readonly PartedRecord[])[], writer: RecordWriter, address: number) {
    const rows: number[] = [];
    const loops: number[] = [];
    let next = address;
    strands.forEach((records, strand) => {
      const starts = records.map(({ record, op, body }) => {
        const address = next;
        next += 4 * wordsOf(record);
        return { address, op, body, record };
      });
      starts.forEach(({ address, record, op, body }, i) => {
        const after = record.code === "loop" ? i + record.length + 2 : record.code === "repeat" ? i - record.length : 0;
        writer.write(address, address + 4 * wordsOf(record), record, starts[after]?.address ?? 0);
        this.#words[address / 4 + RECORD.place] = op * BODIES + (body === undefined ? 0 : body + 1);
        if (record.code === "far" || record.code === "fence") this.#far.set(address, record);
        if ("ins" in record) pushRow(rows, address / 4, record);
        else if (record.code === "loop") {
          const { numChunks, unitBytes } = record;
          if (unitBytes % sizeOf(this.dtype) !== 0) {
            const accepted = `elements that divide the pipeline's unit of ${unitBytes} bytes`;
            throw new InvalidArgumentError("dtype", this.dtype, accepted);
          }
          loops.push(address / 4, starts[i + record.length + 1]!.address / 4, numChunks, unitBytes);
        }
      });
      const own = (this.#strands + 4 * STRAND.words * strand) / 4;
      this.#words[own + STRAND.first] = starts[0]!.address;
      // Until it is launched, it waits for nothing.
      this.#words[own + STRAND.done] = 1;
    });
    return { rows, loops };
  }

  /** Bytes that `Transport.state` needs. */
  static stateBytes(plan: ExecutionPlan): number {
    return STATE_BYTES + 4 * Math.max(1, ...plan.ranks.map((r) => r.channels.memory.length + r.channels.port.length));
  }

  /** Bytes that the counters of a rank of a plan need. */
  static counterBytes(plan: ExecutionPlan): number {
    return COUNTER_BYTES * Math.max(1, ...plan.ranks.map((r) => r.channels.memory.length + r.channels.port.length));
  }

  /** Sets what `avg` divides by, or `preMulSum` multiplies with. */
  parameter(op: KernelOp, value: number | bigint): void {
    setParameter(this.#words.buffer, this.#context, this.dtype, op, value);
  }

  /** Whether `bind` has nothing to do for this size. */
  isBoundTo(partBytes: number): boolean {
    return partBytes === this.#partBytes;
  }

  /**
   * Sets the size of the launches that follow: bytes of a part of the collective's buffers (see `partBytesOf`). Returns
   * whether scratch was moved, which the other ranks have to see before they launch; all do at the same call.
   * @throws InvalidArgumentError for a size that the plan cannot do, OutOfMemoryError for scratch
   */
  bind(partBytes: number): boolean {
    if (partBytes === this.#partBytes) return false;
    const chunkBytes = chunkBytesOf(this.shape, partBytes);
    checkPartBytes(this.shape, partBytes);
    if (this.shape.exact) this.#checkExact(chunkBytes);
    this.#grow(chunkBytes);
    const { exact } = this.shape;
    const rows = this.#rows;
    const words = this.#words;
    for (let r = 0; r < rows.length; ) {
      const at = rows[r + ROW.at]!;
      const begin = rows[r + ROW.from]! * chunkBytes;
      const end = rows[r + ROW.to]! * chunkBytes;
      const parts = rows[r + ROW.parts]!;
      let low = begin;
      let high = end;
      let origin = 0;
      if (parts > 1) {
        const whole = rows[r + ROW.chunks]! * chunkBytes;
        origin = this.#cut(whole, rows[r + ROW.part]!, parts);
        low = Math.max(low, origin);
        high = Math.min(high, this.#cut(whole, rows[r + ROW.part]! + 1, parts));
      }
      let length = Math.max(0, high - low);
      const numRanges = rows[r + ROW.numRanges]!;
      let range = r + ROW.ranges;
      for (let i = 0; i < numRanges; i++, range += RANGE_WORDS) {
        const isScratch = rows[range] === 1;
        const segment = isScratch || exact ? 0 : rows[range + 1]! * partBytes;
        const start = rows[range + 2]! * chunkBytes + (low - begin);
        if (!isScratch && !exact) length = Math.max(0, Math.min(length, partBytes - start));
        words[at + DATA.ranges + 2 * i + 1] = segment + start;
      }
      words[at + DATA.length] = length;
      words[at + DATA.lead] = low - origin;
      if (this.#isStraight) findTables(words, at);
      r = range;
    }
    for (let i = 0; i < this.#loops.length; i += 4) {
      const unit = this.#loops[i + 3]!;
      const rounds = Math.ceil((this.#loops[i + 2]! * chunkBytes) / unit);
      for (const at of [this.#loops[i]!, this.#loops[i + 1]!]) {
        words[at + LOOP.rounds] = rounds;
        words[at + LOOP.unit] = unit;
      }
    }
    this.#partBytes = partBytes;
    const moved = this.#wasGrown;
    this.#wasGrown = false;
    return moved;
  }

  /** Where part `index` of `parts` of a range begins: parts are whole vectors where chunks are. */
  #cut(bytes: number, index: number, parts: number): number {
    if (index === parts) return bytes;
    const granule = this.shape.exact ? Math.max(sizeOf(this.dtype), this.#sendsPackets ? 4 : 1) : 16;
    // The first parts have one more where they do not divide it: docs/semantics.md, section 2.
    const granules = Math.floor(bytes / granule);
    return (index * Math.floor(granules / parts) + Math.min(index, granules % parts)) * granule;
  }

  #checkExact(chunkBytes: number): void {
    if (this.#sendsPackets && chunkBytes % 4 !== 0) {
      throw new InvalidArgumentError(
        "chunk",
        described(`${chunkBytes} bytes`),
        "a multiple of 4 bytes: the plan sends packets",
      );
    }
  }

  #grow(chunkBytes: number): void {
    const needed = roundUp(this.#scratchChunks * chunkBytes, 128);
    if (needed <= this.#capacity) return;
    const memory = this.#memory;
    // One half beside the other; a quarter more than is needed, so that slowly growing sizes do not move it each time.
    const capacity = this.#capacity === 0 ? needed : roundUp(needed + needed / 4, 128);
    const scratch = memory.allocate(capacity * this.#numHalves, false);
    const packets = this.#sendsPackets ? memory.allocate(2 * capacity * this.#numHalves) : 0;
    if (this.#capacity > 0) this.#outgrown.push(this.#scratch, this.#packets);
    this.#scratch = scratch;
    this.#packets = packets;
    this.#capacity = capacity;
    this.#words = memory.words(
      Math.max(scratch + capacity * this.#numHalves, packets + 2 * capacity * this.#numHalves),
    );
    this.#words[this.#transport.map(this.rank, "scratch") / 4] = scratch;
    this.#words[this.#transport.map(this.rank, "packets") / 4] = packets;
    this.#words[this.#run / 4 + RUN.half] = this.#numHalves === 2 ? capacity : 0;
    this.#wasGrown = true;
  }

  /**
   * Puts every strand at its beginning. The ranks have met for this launch: each has named its buffers and bound the size,
   * and plans need not say so again (leading-sync.ts).
   */
  launch(): void {
    this.giveBackOutgrown();
    this.#machine.launch(this.#run);
  }

  /** Whether `giveBackOutgrown` has anything to do. */
  get hasOutgrown(): boolean {
    return this.#outgrown.length > 0;
  }

  /** Frees scratch that was too small: the ranks have come to the launch that follows the `bind` that moved it. */
  giveBackOutgrown(): void {
    while (this.#outgrown.length > 0) this.#giveBack(this.#outgrown.pop() ?? 0);
  }

  /** Gets on as far as the other ranks allow, polling at most `spins` times. @returns whether the rank is done */
  run(spins: number): boolean {
    return this.#machine.runStrands(this.#run, spins) === 0;
  }

  /** Where every strand stands: for reports of what a rank waits for. */
  positions(): StrandPosition[] {
    return strandPositions(this.#words, this.#run);
  }

  /** Address of the context: for `strandPositions`, and for code that calls the machine itself. */
  get context(): number {
    return this.#run;
  }

  /** What a `FarRun` needs: see there. */
  get farParts(): FarParts {
    const words = (buffer: "scratch" | "packets") => this.#transport.map(this.rank, buffer);
    return {
      records: this.#far,
      signals: this.#farSignals,
      run: this.#run,
      strands: this.#strands,
      bases: { scratch: words("scratch"), packets: words("packets") },
    };
  }

  /** Bytes of a half of scratch: where packets lie, twice as many. */
  get halfBytes(): number {
    return this.#capacity;
  }

  #giveBack(address: number): void {
    if (address !== 0) this.#memory.free(address);
  }

  /**
   * Gives back what only this rank uses. Its scratch stays, at the addresses that the transport's words have, until no rank
   * runs the plan any more.
   * @param failed some ranks may not have come to the launch of which this rank outgrew its scratch: then that stays, too
   */
  leave(failed = false): void {
    if (this.#closed) return;
    this.#closed = true;
    if (!failed) for (const address of this.#outgrown) this.#giveBack(address);
    this.#memory.free(this.#block);
  }

  /** Gives everything back. No rank may be running the plan. */
  close(): void {
    if (this.#closed) return;
    this.leave();
    for (const buffer of ["scratch", "packets"] as const) {
      const at = this.#transport.map(this.rank, buffer) / 4;
      this.#giveBack(this.#words[at]! >>> 0);
      this.#words[at] = 0;
    }
  }
}

/** Where the strands stand whose context lies at `run`: also of another rank, where its memory is this one's. */
export function strandPositions(words: Int32Array, run: number): StrandPosition[] {
  const first = (words[run / 4 + RUN.strands]! >>> 0) / 4;
  return Array.from({ length: words[run / 4 + RUN.numStrands]! }, (_, strand) => {
    const at = first + STRAND.words * strand;
    if (words[at + STRAND.done] === 1) return { strand, op: undefined, body: undefined };
    const place = words[(words[at + STRAND.pc]! >>> 0) / 4 + RECORD.place] ?? 0;
    const body = (place % BODIES) - 1;
    return { strand, op: Math.floor(place / BODIES), body: body < 0 ? undefined : body };
  });
}

function pushRow(rows: number[], at: number, record: DataRecord | FarRecord): void {
  const { chunks, from, to, tbg, ins, outs } = record;
  rows.push(at, chunks, from, to, tbg?.index ?? 0, tbg?.size ?? 1, ins.length + outs.length);
  for (const { buffer, segment, chunk } of [...ins, ...outs]) rows.push(buffer === "scratch" ? 1 : 0, segment, chunk);
}
