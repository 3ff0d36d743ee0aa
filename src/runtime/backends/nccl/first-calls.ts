/**
 * When a call may be made that NCCL has to connect peers for. It connects them inside the first call of a kind, and that
 * call blocks until the peers make it too. A call whose kind (operation, size class, peer) was not seen before therefore
 * waits, without blocking, until every member has issued it and it is this group's turn to block; after that NCCL only
 * enqueues calls of its kind.
 */
import { type GroupControl, sameLane } from "../../memory/index.ts";
import { type Agreement, ALWAYS_COLD, type CallKind, type Poller, type QueueEntry } from "../../progress/index.ts";

interface FirstCallsOptions {
  readonly control: GroupControl;
  /** World ranks of the members. */
  readonly ranks: readonly number[];
  readonly poller: Poller;
}

export class FirstCalls {
  readonly #agreement: Agreement;
  readonly #control: GroupControl;
  readonly #ranks: readonly number[];
  readonly #poller: Poller;
  readonly #warm = new Set<CallKind>();
  /** The list that was found warm last: calls that are alike share one. */
  #found: readonly CallKind[] | undefined;
  /** The call whose turn this rank has taken. */
  #turnOf: QueueEntry | undefined;

  constructor(agreement: Agreement, { control, ranks, poller }: FirstCallsOptions) {
    this.#agreement = agreement;
    this.#control = control;
    this.#ranks = ranks;
    this.#poller = poller;
  }

  /** Whether a call of this kind can be issued without NCCL connecting anybody. */
  isWarm(kind: CallKind): boolean {
    return this.#warm.has(kind);
  }

  allWarm(kinds: readonly CallKind[]): boolean {
    if (kinds === this.#found) return true;
    for (const kind of kinds) if (!this.#warm.has(kind)) return false;
    this.#found = kinds;
    return true;
  }

  /** Whether all members have reached a call and it is their turn: make the call then, and call `made`. */
  takesTurn(entry: QueueEntry): boolean {
    if (!this.#agreement.complete(entry.arrivals)) return false;
    if (!this.#turnOfEntry(entry)) return false;
    this.#turnOf = entry;
    this.connects(entry.kinds);
    return true;
  }

  /** Says that the call whose turn it is makes these kinds warm. */
  connects(kinds: readonly CallKind[]): void {
    for (const kind of kinds) if (kind !== ALWAYS_COLD) this.#warm.add(kind);
  }

  /** Says that NCCL has come back from a call. */
  made(entry: QueueEntry): void {
    if (this.#turnOf !== entry) return;
    this.#turnOf = undefined;
    this.endTurn();
  }

  /** Says that the next call of a kind needs a turn again. */
  forget(kind: CallKind): void {
    this.#warm.delete(kind);
    this.#found = undefined;
  }

  /** Whether it is this group's turn to make a call that blocks until all its members make it. */
  turn(seq: number): boolean {
    if (this.#control.size === 1 || this.#control.turn(seq, this.#ranks)) return true;
    this.#poller.hurry();
    return false;
  }

  endTurn(): void {
    this.#control.endTurn(this.#ranks);
  }

  /** A call of sends and receives alone takes its turn with the members that are in it. */
  #turnOfEntry({ arrivals, kinds }: QueueEntry): boolean {
    const collective = arrivals.find(({ lane }) => lane.kind === "collective");
    if (collective !== undefined) return this.turn(collective.seq);
    if (this.#control.size === 1) return true;
    // Peers that are connected already are not asked for: for them the call may be under way. Here a call has one kind.
    const cold = arrivals.filter((_, i) => !this.#warm.has(kinds[i] ?? ALWAYS_COLD));
    const first = cold.filter(({ lane }, i) => i === cold.findIndex((other) => sameLane(lane, other.lane)));
    if (this.#control.turnOfPairs(first, this.#ranks)) return true;
    this.#poller.hurry();
    return false;
  }
}
