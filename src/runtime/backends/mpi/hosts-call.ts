/** One collective of a group that spans hosts, made host by host (runtime/hosts). */
import { invariant } from "../../../core/index.ts";
import { type HostPlace, PieceRun, type PieceWork } from "../../hosts/index.ts";
import type { HostCarrier } from "./host-carrier.ts";
import type { Activity } from "./mpi-entry.ts";

/** The ranks have compared their calls before any of them brings a piece. */
const AGREED = { call: 0, count: 0, hash: 0 } as const;

export class HostsCall implements Activity {
  /** Later collectives must wait: they use the same memory. */
  readonly stepped = true;
  readonly #carrier: HostCarrier;
  readonly #run: PieceRun;
  #isOver = false;

  constructor(place: HostPlace, carrier: HostCarrier, work: PieceWork) {
    this.#carrier = carrier;
    this.#run = new PieceRun(place, work, {
      print: AGREED,
      disagree: () => invariant(false, "calls are compared before they begin"),
      done: () => {
        this.#isOver = true;
      },
      lost: () => invariant(false, "nothing is lent over MPI"),
    });
  }

  begin(): void {
    this.#run.start();
  }

  advance(): boolean {
    if (!this.#isOver) {
      this.#carrier.advance();
      this.#run.advance();
    }
    // The last messages may leave after everything has arrived here.
    if (this.#isOver && !this.#carrier.isIdle) this.#carrier.advance();
    return this.#isOver && this.#carrier.isIdle;
  }

  stop(): void {
    this.#run.stop();
  }
}
