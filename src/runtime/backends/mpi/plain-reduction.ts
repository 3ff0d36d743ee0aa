/** An all-reduce that is one call of MPI, by addresses: what the short way (quick-calls.ts) gives the queue. */
import type { Activity, CallTarget } from "./mpi-entry.ts";
import type { MpiProcess } from "./mpi-process.ts";

export class PlainReduction implements Activity {
  readonly stepped = false;
  readonly #send: number;
  readonly #recv: number;
  readonly #count: number;
  readonly #type: number;
  readonly #op: number;
  #mpi: MpiProcess | undefined;
  #request = 0;

  /** @param send another address than `recv`: see reduce-calls.ts for calls in place @param type MPI's handle, as `op` is */
  constructor(send: number, recv: number, count: number, type: number, op: number) {
    this.#send = send;
    this.#recv = recv;
    this.#count = count;
    this.#type = type;
    this.#op = op;
  }

  begin({ mpi, comm }: CallTarget): void {
    const request = mpi.requests.take();
    const { api } = mpi.library;
    const status = api.MPI_Iallreduce(this.#send, this.#recv, this.#count, this.#type, this.#op, comm, request);
    if (status !== 0) {
      mpi.requests.give(request);
      throw mpi.library.error("MPI_Iallreduce", status);
    }
    this.#mpi = mpi;
    this.#request = request;
  }

  advance(): boolean {
    const mpi = this.#mpi;
    if (mpi === undefined) return true;
    if (!mpi.requests.done(this.#request)) return false;
    mpi.requests.give(this.#request);
    this.#mpi = undefined;
    return true;
  }
}
