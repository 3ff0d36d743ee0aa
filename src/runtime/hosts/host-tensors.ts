/**
 * Tensors that the ranks of one host can read of each other: a file that their launcher makes, and that each of them maps whole, in
 * which every rank has room for its own. It is opened before the ranks meet, so that afterwards all have come: then its name goes,
 * and what it can hold is shared out among them. A rank alone on its host has no use for it.
 */
import { statfsSync } from "node:fs";
import { addressOf } from "../../foreign/native/index.ts";
import { newSharedMemory, PAGE_BYTES } from "../executor/internal.ts";
import {
  createGrowingArena,
  type GrowingArena,
  type OpenArena,
  openGrowingArena,
  removeGrowingArena,
  type Span,
  TensorRoom,
} from "../memory/index.ts";

/** Most of all tensors of a host: kernels address 4 GiB, of which a group's memory needs some. */
const MAX_BYTES = 3 * 2 ** 30;
/** With less there is no use in it. */
const LEAST_BYTES = 16 * 2 ** 20;
/** Parts from here on are read and written where they lie, if they can be: what it takes to meet counts more with smaller ones. */
const LEAST_LENT_BYTES = 256 * 1024;
/** What stands before the tensors: the word that counts who has come. */
const FIRST_BYTES = PAGE_BYTES;
const COME_WORD = 0;

/**
 * Makes the file of a host's tensors. They may have half of what the folder has room for now: groups need some of it too.
 * @param folder in which others may make files meanwhile
 * @param mostBytes of all of them
 * @returns `undefined` where there is no room
 */
export function createHostTensors(folder: string, mostBytes: number = MAX_BYTES): GrowingArena | undefined {
  try {
    const { bavail, bsize } = statfsSync(folder);
    const limitBytes = PAGE_BYTES * Math.floor(Math.min(mostBytes, (bavail * bsize) / 2) / PAGE_BYTES);
    return limitBytes < LEAST_BYTES ? undefined : createGrowingArena(FIRST_BYTES, limitBytes, folder);
  } catch {
    // Tensors are in the ranks' own memory then.
    return undefined;
  }
}

export class HostTensors {
  readonly limitBytes: number;
  /** Parts from here on are read where they lie. */
  readonly leastBytes: number;
  readonly #arena: GrowingArena;
  readonly #open: OpenArena;
  readonly #memory: SharedArrayBuffer;
  readonly #address: number;
  /** This rank's place among those that have come. */
  readonly #nth: number;
  #room: TensorRoom | undefined;
  #isKept = false;

  /** @throws FormatError, NativeError, UnavailableError, RangeError where no address space is left */
  constructor(arena: GrowingArena, leastBytes: number = LEAST_LENT_BYTES) {
    const numPages = arena.limitBytes / PAGE_BYTES;
    this.limitBytes = arena.limitBytes;
    this.leastBytes = leastBytes;
    this.#arena = arena;
    this.#memory = newSharedMemory(numPages, numPages).buffer;
    this.#open = openGrowingArena(arena, this.#memory);
    this.#address = Number(addressOf(new Uint8Array(this.#memory)));
    this.#nth = Atomics.add(new Int32Array(this.#memory), COME_WORD, 1);
  }

  /** The same as another rank's where both have opened one file. */
  get name(): string {
    return this.#arena.path;
  }

  /** For this rank's tensors, once all have come and others have. */
  get room(): TensorRoom | undefined {
    return this.#room;
  }

  /** All ranks of this host have come. @returns whether this one has others here; it may be used then */
  share(): boolean {
    removeGrowingArena(this.#arena);
    const numHere = Atomics.load(new Int32Array(this.#memory), COME_WORD);
    if (numHere === 1) {
      this.#open.release();
      return false;
    }
    const roomBytes = PAGE_BYTES * Math.floor((this.limitBytes - FIRST_BYTES) / numHere / PAGE_BYTES);
    const from = FIRST_BYTES + this.#nth * roomBytes;
    this.#room = new TensorRoom({
      memory: this.#memory,
      address: this.#address,
      arena: this.#open,
      from,
      to: from + roomBytes,
      leastBytes: this.leastBytes,
    });
    return true;
  }

  /** Whether `keep` was called. */
  get isKept(): boolean {
    return this.#isKept;
  }

  /**
   * Takes this rank's tensors out of the others' reach, as they are: they stay where they are for this process, and new ones are
   * its own. For the case that another rank was stopped in the midst of writing into one of them.
   */
  keep(): void {
    if (this.#isKept) return;
    this.#isKept = true;
    this.#room?.keep();
  }

  /** Where the others find a tensor of this rank, from the beginning of the file; 0 where they cannot. */
  offsetOf({ address, bytes }: Span): number {
    const at = address - this.#address;
    return bytes.length > 0 && this.#room?.holds(at, bytes.length) === true ? at : 0;
  }

  /** Maps all ranks' tensors over a memory, from a byte of that on. @returns lets them go there @throws NativeError */
  mapOver(memory: SharedArrayBuffer, atByte: number): () => void {
    return this.#open.mapOver(memory, atByte);
  }

  /** Lets no more tensors in; those that are there stay. Idempotent. */
  close(): void {
    removeGrowingArena(this.#arena);
    this.#open.close();
  }
}
