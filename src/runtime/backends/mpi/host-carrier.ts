/** Carries the messages of collectives that ranks make host by host: MPI's own sends and receives, on the group's communicator. */
import type { Carrier } from "../../hosts/index.ts";
import { emptyAddress } from "../../memory/index.ts";
import type { MpiProcess } from "./mpi-process.ts";

/**
 * Tags: above those of the program's messages. Two messages of one pair that are under way together have different slots,
 * and of those with one tag MPI keeps the order.
 */
const FIRST_TAG = 4096;
const NUM_TAGS = 8192;

export class HostCarrier implements Carrier {
  readonly #mpi: MpiProcess;
  readonly #comm: number;
  /** What MPI has, and what follows when it is done; the memory is kept until then. */
  #open: { readonly request: number; readonly bytes: Uint8Array; readonly done: () => void }[] = [];

  constructor(mpi: MpiProcess, comm: number) {
    this.#mpi = mpi;
    this.#comm = comm;
  }

  send(to: number, slot: number, payload: Uint8Array, _extra: number, done: () => void): void {
    this.#start("MPI_Isend", to, slot, payload, done);
  }

  receive(from: number, slot: number, into: Uint8Array, _extra: number, done: () => void): void {
    this.#start("MPI_Irecv", from, slot, into, done);
  }

  #start(call: "MPI_Isend" | "MPI_Irecv", peer: number, slot: number, bytes: Uint8Array, done: () => void): void {
    const { library, requests } = this.#mpi;
    const request = requests.take();
    const place = [this.#addressOf(bytes), bytes.length, library.handles.byte, peer, tagOf(slot)] as const;
    library.check(call, library.api[call](...place, this.#comm, request));
    this.#open.push({ request, bytes, done });
  }

  /** Has MPI go on, and says what has ended. @returns whether something has */
  advance(): boolean {
    const { requests } = this.#mpi;
    const before = this.#open;
    if (before.length === 0) return false;
    const ended = before.filter(({ request }) => requests.done(request));
    if (ended.length === 0) return false;
    // What follows may send and receive.
    this.#open = before.filter((one) => !ended.includes(one));
    for (const { request, done } of ended) {
      requests.give(request);
      done();
    }
    return true;
  }

  /** Whether MPI has nothing of it. */
  get isIdle(): boolean {
    return this.#open.length === 0;
  }

  /** What MPI may read and write yet. */
  get pending(): readonly unknown[] {
    return this.#open;
  }

  #addressOf({ buffer, byteOffset, length }: Uint8Array): number {
    return length === 0 ? emptyAddress : this.#mpi.addresses.at(buffer, byteOffset);
  }
}

const tagOf = (slot: number): number => FIRST_TAG + (slot % NUM_TAGS);
