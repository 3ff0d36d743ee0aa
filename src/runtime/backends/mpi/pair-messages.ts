/**
 * Sends and receives. Outside of a batch a send copies its data and is done, as the contract has it: two ranks that both
 * send first complete, whatever the size. MPI keeps the messages of a pair in order; a receive is given to it when the
 * sender has published its send and both agree.
 */
import { AbortedError, sizeOf } from "../../../core/index.ts";
import { asTensor, type TensorCall } from "../../comm/index.ts";
import type { RankDevice } from "../../device/index.ts";
import { part, pauseUntil, type Span } from "../../memory/index.ts";
import type { Arrival, CallSequence } from "../../progress/index.ts";
import { moveType, PIECE_BYTES } from "./move-calls.ts";
import { type Activity, type EntryParts, SingleCall, SteppedCall } from "./mpi-entry.ts";
import type { MpiProcess } from "./mpi-process.ts";
import { givingBack, StagedCall, StagedTensor } from "./staged-calls.ts";

/** Of all messages: a communicator has no others. */
const TAG = 7;
/** Messages to one peer that may be under way: more wait in the queue. */
const MAX_UNDER_WAY = 64;
/** A message longer than this goes in several, since MPI counts with 32 bits and a look at it must be short. */
const MESSAGE_BYTES = 8 * PIECE_BYTES;

interface Outgoing {
  readonly peer: number;
  readonly activity: Activity;
  /** Held until MPI has sent it. */
  readonly data: Span;
}

export class PairMessages {
  readonly #mpi: MpiProcess;
  readonly #at: RankDevice | undefined;
  readonly #sequence: CallSequence;
  readonly #allAgree: (arrivals: readonly Arrival[]) => boolean;
  readonly #goOn: () => void;
  readonly #outgoing: Outgoing[] = [];
  /** By operation and peer: how many were issued, and how many MPI has. Those of a pair go in order. */
  readonly #issued = new Map<string, number>();
  readonly #begun = new Map<string, number>();

  /** @param at the rank's device, if it has one @param goOn has `sweep` called from now on, for a while */
  constructor(
    mpi: MpiProcess,
    at: RankDevice | undefined,
    sequence: CallSequence,
    allAgree: (arrivals: readonly Arrival[]) => boolean,
    goOn: () => void,
  ) {
    this.#mpi = mpi;
    this.#at = at;
    this.#goOn = goOn;
    this.#sequence = sequence;
    this.#allAgree = allAgree;
  }

  /** A call's fingerprint. */
  arrival({ call, input }: TensorCall, peer: number): Arrival {
    return this.#sequence.of(call.op, input.dtype, input.count, { peer });
  }

  /** A call of a batch: the caller's memory is MPI's until it has ended. What stands for a tensor on the device is to be given back. */
  activity(
    checked: TensorCall,
    peer: number,
  ): { readonly activity: Activity; readonly staged: readonly StagedTensor[] } {
    const { call, input } = checked;
    const { span, staged } = this.#memory(checked);
    const moved = message(call.op === "send", span, sizeOf(input.dtype), call.dtype, peer);
    const [one] = staged;
    return {
      activity: call.op === "send" || one === undefined ? moved : new StagedCall(moved, undefined, one),
      staged,
    };
  }

  #memory({ input }: TensorCall): { readonly span: Span; readonly staged: readonly StagedTensor[] } {
    const given = asTensor(input);
    if (this.#at === undefined || given.storage.kind !== "device") {
      return { span: this.#mpi.addresses.span(given.data), staged: [] };
    }
    const staged = new StagedTensor(this.#at, given);
    return { span: staged.span, staged: [staged] };
  }

  send(checked: TensorCall, peer: number): EntryParts {
    const { input } = checked;
    const { span: own, staged } = this.#memory(checked);
    const turn = this.#turn("send", peer);
    // Not before its turn: an earlier call may have yet to write the tensor.
    const isHere = () => staged.every((one) => one.bring());
    const handOver: Activity = {
      stepped: false,
      begin: (target) => {
        turn.taken();
        const data = this.#mpi.addresses.span(own.bytes.slice());
        const activity = message(true, data, sizeOf(input.dtype), input.dtype, peer);
        activity.begin(target);
        this.#outgoing.push({ peer, activity, data });
        this.#goOn();
      },
      advance: () => true,
    };
    return {
      op: "send",
      arrivals: [this.arrival(checked, peer)],
      ready: () => turn.isNext() && this.#isRoom(peer) && isHere(),
      regions: [input.region],
      activities: [handOver],
      sizeBytes: own.bytes.length,
      value: () => undefined,
      finish: givingBack(staged),
    };
  }

  recv(checked: TensorCall, peer: number): EntryParts {
    const output = asTensor(checked.input);
    const arrivals = [this.arrival(checked, peer)];
    const turn = this.#turn("recv", peer);
    const { activity, staged } = this.activity(checked, peer);
    const inOrder: Activity = {
      stepped: false,
      begin: (target) => {
        turn.taken();
        activity.begin(target);
      },
      advance: () => activity.advance(),
      stop: () => activity.stop?.(),
    };
    return {
      op: "recv",
      arrivals,
      ready: () => turn.isNext() && this.#allAgree(arrivals),
      regions: [checked.input.region],
      activities: [inOrder],
      sizeBytes: output.sizeBytes,
      result: output,
      finish: givingBack(staged),
    };
  }

  /** Lets go of what MPI has sent. @returns how many messages are still under way */
  sweep(): number {
    for (let i = this.#outgoing.length - 1; i >= 0; i--) {
      if (this.#outgoing[i]?.activity.advance() === true) this.#outgoing.splice(i, 1);
    }
    return this.#outgoing.length;
  }

  /** Waits until what was sent was received. @returns what is to be said of those who never will */
  async drain(group: string, timeoutMs: number, over: () => boolean): Promise<AbortedError | undefined> {
    await pauseUntil(() => this.sweep() === 0 || over(), timeoutMs);
    if (this.#outgoing.length === 0) return undefined;
    this.#mpi.abandoned.push(...this.#outgoing);
    this.#mpi.gaveUp = true;
    const peers = [...new Set(this.#outgoing.map(({ peer }) => peer))].sort((a, b) => a - b);
    this.#outgoing.length = 0;
    return new AbortedError(`${group} was closed, and rank ${peers.join(", ")} never received what was sent to it`);
  }

  /** The turn of the next message to, or from, a peer. */
  #turn(op: "send" | "recv", peer: number): { readonly isNext: () => boolean; readonly taken: () => void } {
    const key = `${op} ${peer}`;
    const number = this.#issued.get(key) ?? 0;
    this.#issued.set(key, number + 1);
    return {
      isNext: () => (this.#begun.get(key) ?? 0) === number,
      taken: () => void this.#begun.set(key, number + 1),
    };
  }

  #isRoom(peer: number): boolean {
    const toPeer = () => this.#outgoing.filter((one) => one.peer === peer).length;
    if (toPeer() < MAX_UNDER_WAY) return true;
    this.sweep();
    return toPeer() < MAX_UNDER_WAY;
  }
}

/** One message, or one end of it. */
function message(
  sends: boolean,
  span: Span,
  width: number,
  dtype: TensorCall["call"]["dtype"],
  peer: number,
): Activity {
  const symbol = sends ? "MPI_Isend" : "MPI_Irecv";
  const issue =
    (piece: Span) =>
    ({ mpi, comm }: { readonly mpi: MpiProcess; readonly comm: number }, request: number) => {
      const type = moveType(mpi.library.handles, dtype);
      return mpi.library.api[symbol](piece.address, piece.bytes.length / width, type, peer, TAG, comm, request);
    };
  if (span.bytes.length <= MESSAGE_BYTES) return new SingleCall(symbol, issue(span));
  const pieces = new SteppedCall(function* (steps) {
    for (let at = 0; at < span.bytes.length; at += MESSAGE_BYTES) {
      steps.issue(symbol, issue(part(span, at, Math.min(MESSAGE_BYTES, span.bytes.length - at))));
    }
    yield;
  });
  // It holds up no collective: all its pieces are MPI's at once.
  return { stepped: false, begin: (target) => pieces.begin(target), advance: () => pieces.advance() };
}
