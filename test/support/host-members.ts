/** Ranks of several hosts in one thread: the memory and the tensors of each host are real, and messages are handed over. */
import { expect } from "vitest";
import type { DType } from "../../src/core/index.ts";
import { ColumnMessages } from "../../src/runtime/hosts/column-messages.ts";
import { type HostLayout, layoutOf, ownRow } from "../../src/runtime/hosts/host-layout.ts";
import { createHostMemory, HostMemory, PIECE_BYTES, type ReduceHelper } from "../../src/runtime/hosts/host-memory.ts";
import { HostPlace } from "../../src/runtime/hosts/host-place.ts";
import { createHostTensors, HostTensors } from "../../src/runtime/hosts/host-tensors.ts";
import type { PieceCallParts } from "../../src/runtime/hosts/piece-call.ts";
import { allGatherPieces, broadcastPieces } from "../../src/runtime/hosts/piece-moves.ts";
import { allReducePieces, reducePieces, reduceScatterPieces } from "../../src/runtime/hosts/piece-reductions.ts";
import { PieceRun, type PieceWork } from "../../src/runtime/hosts/piece-run.ts";
import { type WorldTerm, worldTensor } from "../../src/runtime/memory/index.ts";
import { scratchFolder } from "../helpers/scratch.ts";
import type { Random } from "../oracle/random.ts";
import { MessageExchange } from "./message-exchange.ts";

const folder = scratchFolder("hierarchy");
/** Parts are read where they lie from here on: sooner than in a world, whose are large. */
const LEAST_BYTES = 256 * 1024;
/** Of all tensors of a host. */
const TENSOR_BYTES = 128 * 2 ** 20;
export const PRINT = { call: 3, count: 4, hash: 5 };
/** What calls are refused with that all make alike, and whose tensors stay lent. */
export const AGREED = {
  print: PRINT,
  disagree: () => expect.unreachable("all make the same call"),
  lost: () => expect.unreachable("none takes its tensors back"),
};
export const WORKS: Readonly<Record<string, (parts: PieceCallParts) => PieceWork>> = {
  all_reduce: allReducePieces,
  reduce: reducePieces,
  reduce_scatter: reduceScatterPieces,
  broadcast: broadcastPieces,
  all_gather: allGatherPieces,
};

/** Members on hosts: the mark of each one's host, by group rank. */
export class Members {
  readonly layouts: readonly HostLayout[];
  readonly places: readonly HostPlace[];
  readonly paths: string[] = [];
  readonly tensors: readonly HostTensors[];
  readonly #areShared: readonly boolean[];
  readonly #memories: HostMemory[] = [];

  constructor(marks: readonly string[], pieceBytes: number = PIECE_BYTES.plain) {
    this.layouts = marks.map((_, me) => layoutOf(marks, me));
    const files = (this.layouts[0]?.hosts ?? []).map(() => createHostTensors(folder, TENSOR_BYTES));
    const tensors = this.layouts.map(
      ({ host }) => new HostTensors(files[host] as NonNullable<(typeof files)[number]>, LEAST_BYTES),
    );
    this.#areShared = tensors.map((one) => one.share());
    this.tensors = tensors;
    this.places = this.group(pieceBytes);
  }

  /** One more group of the same ranks. @param helper of all of them */
  group(pieceBytes: number = PIECE_BYTES.plain, helper?: ReduceHelper): readonly HostPlace[] {
    const arenas = (this.layouts[0]?.hosts ?? []).map((row) => createHostMemory(row.length, pieceBytes, folder));
    this.paths.push(...arenas.map(({ path }) => path));
    return this.layouts.map((layout, rank) => {
      const arena = arenas[layout.host] as (typeof arenas)[number];
      const memory = new HostMemory({
        arena,
        members: ownRow(layout).length,
        me: layout.column,
        maxInputs: this.layouts.length,
        pieceBytes,
        tensors: this.#areShared[rank] === true ? this.tensors[rank] : undefined,
        helper,
      });
      memory.sharesTensors = memory.hasTensors;
      this.#memories.push(memory);
      return new HostPlace({ layout, memory, activities: new Set() });
    });
  }

  /** Memory of a rank: a tensor that the others of its host can read, or not. */
  array(rank: number, dtype: DType, count: number, isShared: boolean) {
    const room = isShared ? this.tensors[rank]?.room : undefined;
    const term: WorldTerm = { generation: 1, closed: undefined, room };
    return worldTensor(term, dtype, [count]).data;
  }

  get size(): number {
    return this.places.length;
  }

  /** Runs what each rank does in a random order. @returns how many ended */
  run(make: (rank: number, messages: ColumnMessages) => PieceWork, random: Random, except = -1): number {
    const exchange = new MessageExchange(random);
    let done = 0;
    const runs = this.places.map((place, rank) => {
      const work = make(rank, new ColumnMessages(exchange.of(rank), place.layout));
      return new PieceRun(place, work, { ...AGREED, done: () => done++ });
    });
    for (const [rank, run] of runs.entries()) if (rank !== except) run.start();
    const others = runs.filter((_, rank) => rank !== except);
    const goOn = () => {
      const first = random.below(others.length);
      return others.some((_, i) => others[(first + i) % others.length]?.advance());
    };
    while (random.chance(0.5) ? exchange.step() || goOn() : goOn() || exchange.step());
    if (except < 0) expect(exchange.left).toBe(0);
    for (const run of runs) run.stop();
    return done;
  }

  close(): void {
    for (const memory of this.#memories) memory.close();
    for (const one of this.tensors) one.close();
  }
}
