/**
 * How the members of a group come to share memory with those on their hosts: all tell all where they are, the first of each
 * host makes a file, and the others map it. All do, or none: afterwards every member knows which it is, so that all make
 * their collectives the same way. It is part of the group's first call that may use it, and the file has lost its name then.
 */
import { createHash } from "node:crypto";
import {
  createHostMemory,
  HOST_MARK_BYTES,
  type HostLayout,
  HostMemory,
  type HostTensors,
  hostMemoryAt,
  layoutOf,
  ownRow,
  pieceBytesFor,
  type ReduceHelper,
  roomOf,
} from "../../hosts/index.ts";
import type { SharedArena } from "../../memory/index.ts";
import { removeSharedArena } from "../../memory/index.ts";
import type { Place } from "./algorithms.ts";
import { gatherInRounds } from "./gather-rounds.ts";
import type { Schedule } from "./schedule.ts";
import { HIERARCHY_MODES, type HierarchyMode } from "./tcp-handle.ts";

/** Slots of the three rounds: behind those of exchanges in two parts. */
const SLOTS = 2 ** 25;
const SLOTS_OF_ROUND = 2 ** 20;
const PATH_BYTES = 256;
/** Of the name of what its tensors lie in. */
const NAME_BYTES = 16;
/** Where the name stands in what a rank says of itself, and behind it how much room its folder has. */
const NAME_AT = 1 + HOST_MARK_BYTES;
const ROOM_AT = NAME_AT + NAME_BYTES;
/** What a rank says of the memory. */
const MAPPED = { none: 0, memory: 1, tensors: 2 } as const;

/** Runs a schedule of the group. */
export type RunGathering = (
  schedule: Schedule,
  buffers: { readonly input: Uint8Array; readonly output: Uint8Array; readonly operator: undefined },
  firstSlot: number,
  done: () => void,
) => void;

interface SetupParts {
  readonly rank: number;
  readonly size: number;
  /** Of this rank's host. */
  readonly mark: Buffer | undefined;
  readonly mode: HierarchyMode;
  readonly folder: string | undefined;
  readonly tensors: HostTensors | undefined;
  readonly helper: ReduceHelper;
}

/** What came of it: no memory where none is shared, with the reason. */
export interface Setup {
  readonly layout: HostLayout;
  readonly mode: HierarchyMode;
  readonly memory: HostMemory | undefined;
  readonly why: string;
}

export class HostSetup {
  readonly #parts: SetupParts;
  readonly #run: RunGathering;
  #arena: SharedArena | undefined;
  #memory: HostMemory | undefined;
  #isOver = false;

  constructor(parts: SetupParts, run: RunGathering) {
    this.#parts = parts;
    this.#run = run;
  }

  start(done: (setup: Setup) => void): void {
    const { rank, size, mark, mode, folder, tensors } = this.#parts;
    const own = new Uint8Array(ROOM_AT + 1);
    own[0] = HIERARCHY_MODES.indexOf(mode);
    // Who is nowhere is alone.
    own.set(mark ?? Buffer.from(`nowhere ${rank}`.padEnd(HOST_MARK_BYTES)), 1);
    own.set(nameOf(tensors), NAME_AT);
    own[ROOM_AT] = roomOf(folder);
    this.#gather(0, own, (all) => {
      const modes = all.map(([first = 0]) => HIERARCHY_MODES[first] ?? "off");
      const agreed = modes.includes("off") ? "off" : modes.includes("on") ? "on" : "auto";
      const marks = all.map((bytes) => Buffer.from(bytes.subarray(1, 1 + HOST_MARK_BYTES)).toString("hex"));
      const layout = layoutOf(marks, rank);
      const isSame = (member: number) =>
        all[member]?.subarray(NAME_AT, ROOM_AT).every((byte, i) => byte === own[NAME_AT + i]);
      const row = ownRow(layout);
      const shared = row.length > 1 && row.every(isSame) ? tensors : undefined;
      const flat = (why: string) => this.#end(done, { layout, mode: agreed, memory: undefined, why });
      if (agreed === "off") flat("it is switched off");
      else if (layout.hosts.length === size) flat("no two ranks share a host");
      else {
        const rooms = all.map((bytes) => bytes[ROOM_AT] ?? 0);
        this.#share(layout, pieceBytesFor(layout, rooms), shared, (memory, why) =>
          this.#end(done, { layout, mode: agreed, memory, why }),
        );
      }
    });
  }

  /** @param tensors that all of this host have opened */
  #share(
    layout: HostLayout,
    pieceBytes: number,
    tensors: HostTensors | undefined,
    done: (memory: HostMemory | undefined, why: string) => void,
  ): void {
    const row = ownRow(layout);
    const { size, folder } = this.#parts;
    const path = new Uint8Array(PATH_BYTES);
    let problem = "";
    if (layout.column === 0) {
      try {
        this.#arena = createHostMemory(row.length, pieceBytes, folder);
        path.set(Buffer.from(this.#arena.path).subarray(0, PATH_BYTES));
      } catch (error) {
        problem = (error as Error).message;
      }
    }
    this.#gather(1, path, (paths) => {
      const made = Buffer.from(paths[row[0] ?? 0] ?? []).toString();
      const name = made.slice(0, Math.max(0, made.indexOf("\0")));
      if (name.length > 0) {
        try {
          this.#arena = hostMemoryAt(name, row.length, pieceBytes);
          this.#memory = new HostMemory({
            arena: this.#arena,
            members: row.length,
            me: layout.column,
            maxInputs: Math.max(row.length, layout.hosts.length),
            pieceBytes,
            tensors,
            helper: this.#parts.helper,
          });
        } catch (error) {
          problem = (error as Error).message;
        }
      }
      const memory = this.#memory;
      const has = memory === undefined ? MAPPED.none : memory.hasTensors ? MAPPED.tensors : MAPPED.memory;
      this.#gather(2, Uint8Array.of(has), (mapped) => {
        const without = mapped.findIndex(([theirs]) => theirs === MAPPED.none);
        if (without < 0) {
          if (memory !== undefined)
            memory.sharesTensors = row.every((member) => mapped[member]?.[0] === MAPPED.tensors);
          done(memory, "");
          return;
        }
        this.#memory?.close();
        this.#memory = undefined;
        done(undefined, problem || `rank ${without} of ${size} has no memory for it`);
      });
    });
  }

  #end(done: (setup: Setup) => void, setup: Setup): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (setup.memory === undefined) this.#remove();
    done(setup);
  }

  /** The group has failed: nothing is left behind. */
  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#memory?.close();
    this.#remove();
  }

  #remove(): void {
    if (this.#arena !== undefined) removeSharedArena(this.#arena);
  }

  #gather(round: number, own: Uint8Array, done: (all: readonly Uint8Array[]) => void): void {
    const { rank, size } = this.#parts;
    const place: Place = { rank, size, elementBytes: 1 };
    const all = new Uint8Array(own.length * size);
    const buffers = { input: own, output: all, operator: undefined };
    this.#run(gatherInRounds(place, own.length), buffers, SLOTS + round * SLOTS_OF_ROUND, () => {
      if (this.#isOver) return;
      done(Array.from({ length: size }, (_, member) => all.subarray(member * own.length, (member + 1) * own.length)));
    });
  }
}

function nameOf(tensors: HostTensors | undefined): Uint8Array {
  if (tensors === undefined) return new Uint8Array(NAME_BYTES);
  return createHash("sha256").update(tensors.name).digest().subarray(0, NAME_BYTES);
}
