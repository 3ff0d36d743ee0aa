/**
 * Runs a prepared plan of which some ranks are far. The strand machine stops a strand at what concerns a far rank; here it
 * becomes calls of a `FarPort`, and the strand goes on when they are done. What far ranks do to this one arrives here, too:
 * `place`, `pack` and `raised`. One object for each prepared plan; it allocates nothing but closures as the plan runs.
 */
import type { ExecutorMemory, FarPlace, FarPort, Reach } from "../transport.ts";
import type { WasmFunction } from "../wasm/webassembly.ts";
import { DATA, FAR, RUN, STRAND } from "./image.ts";
import type { FarParts, PreparedPlan } from "./prepared-plan.ts";
import type { FarRecord } from "./records.ts";

/** Of each far source, how much a reduction fetches at a time. */
const PIECE_BYTES = 128 * 1024;

/** The buffers of a launch, in this rank's memory. */
interface FarBuffers {
  readonly input: number;
  readonly inputBytes: number;
  readonly output: number;
  readonly outputBytes: number;
}

interface FarRunParts {
  readonly prepared: PreparedPlan;
  readonly memory: ExecutorMemory;
  readonly port: FarPort;
  readonly isFar: (rank: number) => boolean;
  /** Address of the word in which the transport keeps how often a counter of this rank was raised. */
  readonly counter: (counter: number) => number;
  readonly numCounters: number;
  /** Of `ReduceExports`, on the memory. */
  readonly reduce: WasmFunction;
}

const NO_BUFFERS: FarBuffers = { input: 0, inputBytes: 0, output: 0, outputBytes: 0 };

export class FarRun {
  readonly prepared: PreparedPlan;
  readonly #parts: FarRunParts;
  readonly #far: FarParts;
  /** Signals that far ranks were told of, by the words that count them. */
  readonly #told = new Map<number, number>();
  /** By strand: where pieces of far sources and of the result lie, and the kernels' tables. */
  readonly #pieces = new Map<number, number>();
  #buffers: FarBuffers = NO_BUFFERS;
  #isAdvancing = false;
  #again = false;
  #isOpen = false;
  #onChange: () => void = () => {};

  /** @throws OutOfMemoryError */
  constructor(parts: FarRunParts) {
    const { prepared, memory } = parts;
    this.prepared = prepared;
    this.#parts = parts;
    this.#far = prepared.farParts;
    const most = Math.max(0, ...[...this.#far.records.values()].map((record) => this.#numPieces(record)));
    if (most === 0) return;
    const count = this.#words[this.#far.run / 4 + RUN.numStrands] ?? 0;
    for (let strand = 0; strand < count; strand++) this.#pieces.set(strand, memory.allocate(most * PIECE_BYTES + 4096));
  }

  get #words(): Int32Array {
    return this.#parts.memory.words();
  }

  /** Places that a record needs for pieces: one of each far source, and one of a result that nobody near keeps. */
  #numPieces(record: { readonly code: string } | FarRecord): number {
    if (!("ins" in record)) return 0;
    const far = record.ins.filter(({ rank }) => this.#parts.isFar(rank)).length;
    return this.#isFetch(record) || (far === 0 && record.op === undefined) ? 0 : far + 1;
  }

  /** Whether a record is a copy from a far rank to one place of this one: that goes there directly. */
  #isFetch({ ins, outs, op }: FarRecord): boolean {
    const { isFar } = this.#parts;
    return op === undefined && outs.length === 1 && isFar(ins[0]?.rank ?? 0) && !isFar(outs[0]?.rank ?? 0);
  }

  /** Begins a launch: far ranks may write to this one from now on. */
  launch(buffers: FarBuffers): void {
    this.#buffers = buffers;
    this.#isOpen = false;
    this.prepared.launch();
  }

  /** All ranks have begun the launch: strands may run. @param onChange hears whenever they may have got on */
  open(onChange: () => void): void {
    this.#isOpen = true;
    this.#onChange = onChange;
  }

  /** The launch is over: nothing runs any more. */
  close(): void {
    this.#isOpen = false;
    this.#onChange = () => {};
  }

  /** Gives back what it allocated. */
  free(): void {
    for (const address of this.#pieces.values()) this.#parts.memory.free(address);
    this.#pieces.clear();
  }

  /** Gets on as far as other ranks allow. @returns whether all strands have ended */
  advance(): boolean {
    if (!this.#isOpen) return false;
    if (this.#isAdvancing) {
      this.#again = true;
      return false;
    }
    this.#isAdvancing = true;
    try {
      for (;;) {
        this.#again = false;
        const hasEnded = this.prepared.run(0);
        this.#tellSignals();
        if (hasEnded) return true;
        this.#begin();
        if (!this.#again) return false;
      }
    } finally {
      this.#isAdvancing = false;
    }
  }

  #tellSignals(): void {
    const words = this.#words;
    for (const [word, { rank, counter }] of this.#far.signals) {
      const now = words[word / 4] ?? 0;
      const before = this.#told.get(word) ?? 0;
      if (now === before) continue;
      this.#told.set(word, now);
      this.#parts.port.signal(rank, counter, (now - before) >>> 0);
    }
  }

  /** Begins what strands have asked for. */
  #begin(): void {
    const { run, strands } = this.#far;
    const count = this.#words[run / 4 + RUN.numStrands] ?? 0;
    for (let strand = 0; strand < count; strand++) {
      const at = strands / 4 + STRAND.words * strand;
      const words = this.#words;
      if (words[at + STRAND.far] !== FAR.asked) continue;
      words[at + STRAND.far] = FAR.begun;
      const pc = (words[at + STRAND.pc] ?? 0) >>> 0;
      const record = this.#far.records.get(pc);
      const done = () => {
        this.#words[at + STRAND.far] = FAR.done;
        this.#again = true;
        if (!this.#isAdvancing) this.#onChange();
      };
      if (record === undefined) done();
      else if (record.code === "fence") this.#fence(record.ranks, done);
      else this.#move(record, strand, pc / 4, at, done);
    }
  }

  #fence(ranks: readonly number[], done: () => void): void {
    const one = countdown(ranks.length, done);
    for (const rank of ranks) this.#parts.port.fence(rank, one);
  }

  #move(record: FarRecord, strand: number, pc: number, at: number, done: () => void): void {
    const { begin, end } = this.#limits(pc, at);
    if (end <= begin) done();
    else if (this.#isFetch(record))
      this.#parts.port.get(this.#farPlace(record, pc, 0, begin), this.#near(pc, 1, begin, 1), end - begin, done);
    else if (record.ins.some(({ rank }) => this.#parts.isFar(rank)) || record.op !== undefined)
      new PieceWise(this.#pieceParts(record, strand, pc, begin, end, done)).next();
    else this.#putAll(record, pc, begin, end - begin, done);
  }

  /** Which bytes a record moves now, as strand-limits.ts finds it. */
  #limits(pc: number, at: number): { begin: number; end: number } {
    const words = this.#words;
    const of = (index: number) => (words[index] ?? 0) >>> 0;
    const length = of(pc + DATA.length);
    const unit = words[at + STRAND.unit] ?? -1;
    if (unit === -1 || words[pc + DATA.windowed] === 0) return { begin: 0, end: length };
    const lead = of(pc + DATA.lead);
    const start = of(at + STRAND.unitStart);
    return { begin: Math.max(0, start - lead), end: Math.min(length, Math.max(0, start + (unit >>> 0) - lead)) };
  }

  #putAll(record: FarRecord, pc: number, begin: number, bytes: number, done: () => void): void {
    const { port } = this.#parts;
    const from = this.#near(pc, 0, begin, record.form === "raw" ? 2 : 1);
    const one = countdown(record.outs.length, done);
    for (let i = 0; i < record.outs.length; i++) {
      port.put(this.#farPlace(record, pc, record.ins.length + i, begin), record.form, from, bytes, one);
    }
  }

  /** The address of a near range of a record. */
  #near(pc: number, range: number, begin: number, scale: number): number {
    const words = this.#words;
    const at = pc + DATA.ranges + 2 * range;
    const base = (words[((words[at] ?? 0) >>> 0) / 4] ?? 0) >>> 0;
    return base + scale * (((words[at + 1] ?? 0) >>> 0) + begin);
  }

  /** The place of a far range of a record. */
  #farPlace({ ins, outs }: FarRecord, pc: number, range: number, begin: number): FarPlace {
    const { rank, buffer, packets } = (range < ins.length ? ins[range] : outs[range - ins.length]) ?? {
      rank: 0,
      buffer: "scratch",
      packets: false,
    };
    const offset = ((this.#words[pc + DATA.ranges + 2 * range + 1] ?? 0) >>> 0) + begin;
    return { rank, buffer: packets ? "packets" : buffer, offset };
  }

  #pieceParts(record: FarRecord, strand: number, pc: number, begin: number, end: number, done: () => void): PieceParts {
    const { isFar, port, reduce } = this.#parts;
    const { ins, outs } = record;
    const room = this.#pieces.get(strand) ?? 0;
    const kernel = this.#words[pc + DATA.kernel] ?? 0;
    const context = (this.#words[this.#far.run / 4 + RUN.kernelContext] ?? 0) >>> 0;
    const farIns = ins.flatMap(({ rank }, i) => (isFar(rank) ? [i] : []));
    const nearOuts = outs.flatMap(({ rank }, i) => (isFar(rank) ? [] : [ins.length + i]));
    const farOuts = outs.flatMap(({ rank }, i) => (isFar(rank) ? [ins.length + i] : []));
    const pieceAt = (nth: number) => room + 4096 + nth * PIECE_BYTES;
    return {
      begin,
      end,
      done,
      numFetched: farIns.length,
      fetch: (from, bytes, one) => {
        for (const [nth, range] of farIns.entries()) {
          port.get(this.#farPlace(record, pc, range, from), pieceAt(nth), bytes, one);
        }
      },
      combine: (from, bytes) => {
        const table: number[] = [];
        for (const [i, { rank }] of ins.entries()) {
          table.push(isFar(rank) ? pieceAt(farIns.indexOf(i)) : this.#near(pc, i, from, 1));
        }
        const outsAt = nearOuts.map((range) => this.#near(pc, range, from, 1));
        if (outsAt.length === 0) outsAt.push(pieceAt(farIns.length));
        this.#words.set([...table, ...outsAt], room / 4);
        reduce(kernel, room, table.length, room + 4 * table.length, outsAt.length, 0, bytes, context);
        return outsAt[0] as number;
      },
      numPut: farOuts.length,
      put: (from, at, bytes, one) => {
        for (const range of farOuts) port.put(this.#farPlace(record, pc, range, from), "plain", at, bytes, one);
      },
    };
  }

  // What far ranks do to this one.

  /** The address of a place of this rank in the launch that runs; undefined for one that is not in its buffer. */
  place(buffer: Reach, offset: number, bytes: number): number | undefined {
    const { input, inputBytes, output, outputBytes } = this.#buffers;
    const isIn = (size: number) => offset >= 0 && bytes >= 0 && offset + bytes <= size;
    if (buffer === "input") return isIn(inputBytes) ? input + offset : undefined;
    if (buffer === "output") return isIn(outputBytes) ? output + offset : undefined;
    const words = this.#words;
    const base = (words[this.#far.bases[buffer] / 4] ?? 0) >>> 0;
    const flag = words[this.#far.run / 4 + RUN.flag] ?? 0;
    // Launches take the halves in turn, the first one the first.
    const half = ((flag - 1) & 1) * ((words[this.#far.run / 4 + RUN.half] ?? 0) >>> 0);
    if (base === 0 || !isIn(this.prepared.halfBytes)) return undefined;
    return buffer === "scratch" ? base + half + offset : base + 2 * (half + offset);
  }

  /** Stores data as packets of this launch. @param at as `place` gave it */
  pack(at: number, data: Uint8Array): void {
    const words = this.#words;
    const flag = words[this.#far.run / 4 + RUN.flag] ?? 0;
    const numWords = Math.ceil(data.length / 4);
    for (let i = 0, to = at / 4; i < numWords; i++, to += 2) {
      const from = 4 * i;
      words[to] =
        (data[from] ?? 0) |
        ((data[from + 1] ?? 0) << 8) |
        ((data[from + 2] ?? 0) << 16) |
        ((data[from + 3] ?? 0) << 24);
      words[to + 1] = flag;
    }
  }

  /** A counter of this rank was raised. @returns false for one that it does not have */
  raised(counter: number, times: number): boolean {
    if (!(counter >= 0 && counter < this.#parts.numCounters)) return false;
    const at = this.#parts.counter(counter) / 4;
    const words = this.#words;
    words[at] = (words[at] ?? 0) + times;
    return true;
  }

  /** Something has arrived. */
  changed(): void {
    this.#again = true;
    if (this.#isOpen && !this.#isAdvancing) this.#onChange();
  }
}

interface PieceParts {
  readonly begin: number;
  readonly end: number;
  readonly numFetched: number;
  readonly fetch: (from: number, bytes: number, one: () => void) => void;
  /** Combines a piece. @returns the address of the result */
  readonly combine: (from: number, bytes: number) => number;
  readonly numPut: number;
  readonly put: (from: number, at: number, bytes: number, one: () => void) => void;
  readonly done: () => void;
}

/** A copy or reduction from far ranks, piece by piece: fetched, combined, and put at far ranks where they get it too. */
class PieceWise {
  readonly #parts: PieceParts;
  #at: number;
  #isTurning = false;
  #isDue = true;

  constructor(parts: PieceParts) {
    this.#parts = parts;
    this.#at = parts.begin;
  }

  /** A loop, for pieces may end within their own start. */
  next(): void {
    if (this.#isTurning) {
      this.#isDue = true;
      return;
    }
    this.#isTurning = true;
    for (this.#isDue = true; this.#isDue; ) {
      this.#isDue = false;
      if (this.#at >= this.#parts.end) {
        this.#isTurning = false;
        this.#parts.done();
        return;
      }
      const from = this.#at;
      const bytes = Math.min(PIECE_BYTES, this.#parts.end - from);
      this.#at += bytes;
      const { numFetched, numPut, fetch, combine, put } = this.#parts;
      const combined = () => {
        const result = combine(from, bytes);
        if (numPut === 0) this.next();
        else
          put(
            from,
            result,
            bytes,
            countdown(numPut, () => this.next()),
          );
      };
      if (numFetched === 0) combined();
      else fetch(from, bytes, countdown(numFetched, combined));
    }
    this.#isTurning = false;
  }
}

/** Calls `done` when it was called `count` times. */
function countdown(count: number, done: () => void): () => void {
  let left = count;
  return () => {
    if (--left === 0) done();
  };
}
