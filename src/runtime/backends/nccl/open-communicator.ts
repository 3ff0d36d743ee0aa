/** How communicators are made: from a fresh unique id and by splitting. A group that shrinks gets
 * a fresh id too: ncclCommShrink needs a parent that was not aborted, and after a failure it is. */
import { FormatError, MismatchError } from "../../../core/index.ts";
import { decodeVersion, NCCL_RESULT, SPLIT_NO_COLOR, UNIQUE_ID_BYTES } from "../../../foreign/nccl/index.ts";
import { COLLECTIVE, type GroupControl } from "../../memory/index.ts";
import { JOIN_SEQ } from "../../progress/index.ts";
import type { NcclContext } from "./nccl-context.ts";
import type { Opening } from "./nccl-entry.ts";
import type { CommQueue } from "./queue.ts";
import { mixedRegistrations } from "./registrations.ts";

/** Call 0 of every group is its members' joining; its count word is NCCL's version, its hash word `registersOf`. */
const JOIN_CALL = 0x3f;

/** What a rank says of its registrations when it joins. */
const registersOf = (rank: NcclContext): number => (rank.settings.registrations === undefined ? 0 : 1);

/**
 * Opens with the group's unique id, when all members have joined and it is their turn. Member 0 draws the id unless the
 * program brought one.
 */
export class IdOpening implements Opening {
  readonly #rank: NcclContext;
  readonly #control: GroupControl;
  readonly #ranks: readonly number[];
  readonly #drawn: Uint8Array | undefined;
  handle: bigint | undefined;

  constructor(rank: NcclContext, control: GroupControl, ranks: readonly number[], ownId?: Uint8Array) {
    if (ownId !== undefined && ownId.length !== UNIQUE_ID_BYTES) {
      throw new FormatError("uniqueId", `${ownId.length} bytes; an ncclUniqueId has ${UNIQUE_ID_BYTES}`);
    }
    this.#rank = rank;
    this.#control = control;
    this.#ranks = ranks;
    if (control.member === 0) this.#drawn = ownId ?? rank.library.uniqueId();
  }

  /** Tells the other members that this one has joined. */
  join(): void {
    const [rank, control] = [this.#rank, this.#control];
    const print = { call: JOIN_CALL, count: rank.library.versionCode, hash: registersOf(rank) };
    control.join(JOIN_SEQ, print, this.#drawn);
  }

  advance(): bigint | undefined {
    if (this.handle !== undefined) return this.#rank.isReady(this.handle) ? this.handle : undefined;
    const [rank, control] = [this.#rank, this.#control];
    const id = control.blob;
    if (id === undefined || !allJoined(rank, control)) return undefined;
    if (control.size > 1 && !control.turn(JOIN_SEQ, this.#ranks)) {
      rank.poller.hurry();
      return undefined;
    }
    const { library, at } = rank;
    at.device.activate();
    let status: number = NCCL_RESULT.success;
    try {
      // NCCL writes the handle before it begins: a thread that is killed meanwhile leaves it in the ledger.
      this.handle = at.device.make("communicator", (out) => {
        const init = library.api.ncclCommInitRankConfig;
        status = init(out, control.size, { internal: id }, control.member, rank.settings.config);
        library.check("ncclCommInitRankConfig", status);
      });
    } finally {
      control.endTurn(this.#ranks);
    }
    return status === NCCL_RESULT.success ? this.handle : undefined;
  }
}

/** Says whether all members have joined. @throws MismatchError when their NCCL versions differ, or `registerBuffers` */
function allJoined(rank: NcclContext, control: GroupControl): boolean {
  const versions: number[] = [];
  const registers: number[] = [];
  for (let member = 0; member < control.size; member++) {
    const print = control.read(member, COLLECTIVE, JOIN_SEQ);
    if (print === undefined) {
      // A member that is far ahead has overwritten its joining: it has joined.
      if (control.issued(member, COLLECTIVE) === 0) return false;
      continue;
    }
    versions[member] = print.count;
    registers[member] = print.hash;
  }
  if (versions.some((version) => version !== rank.library.versionCode)) {
    throw new MismatchError(
      "the ranks of a communicator must load the same NCCL",
      versions.map((version, member) => ({ rank: member, call: `NCCL ${decodeVersion(version).join(".")}` })),
    );
  }
  if (registers.some((one) => one !== registersOf(rank))) {
    throw mixedRegistrations(registers.map((hash, rank) => ({ rank, hash })));
  }
  return true;
}

/**
 * Splits natively (2.18): every parent rank calls it, also those of no color. A non-blocking parent gives the handle
 * only when it is done.
 * @returns the new communicator's opening, undefined for no color
 */
export function splitNatively(
  rank: NcclContext,
  parentQueue: CommQueue,
  color: number,
  key: number,
): Opening | undefined {
  const { device } = rank.at;
  const parent = parentQueue.handle.comm ?? 0n;
  const split = rank.library.require("ncclCommSplit");
  device.activate();
  const scratch = () => new BigUint64Array(new ArrayBuffer(8));
  const out = (color < 0 ? undefined : device.ledger?.open("communicator", device.ordinal)) ?? scratch();
  const status = split(parent, color < 0 ? SPLIT_NO_COLOR : color, key, out, rank.settings.config);
  if (status !== NCCL_RESULT.success && status !== NCCL_RESULT.inProgress) device.ledger?.cancel(out);
  rank.library.check("ncclCommSplit", status, parent);
  if (color >= 0) return new SplitOpening(rank, out, parentQueue);
  if (!rank.settings.blocking) keepUntilDone(rank, parentQueue, out);
  return undefined;
}

/** Keeps what NCCL may write to until the parent is done with its call. */
function keepUntilDone({ handles, poller }: NcclContext, parent: CommQueue, out: BigUint64Array): void {
  handles.push(out);
  const poll = () => {
    if (!parent.handle.accepts) return true;
    handles.splice(handles.indexOf(out), 1);
    return false;
  };
  if (poll()) poller.add({ poll });
}

/** A communicator whose handle NCCL writes when it has it. */
class SplitOpening implements Opening {
  readonly #rank: NcclContext;
  readonly #out: BigUint64Array;
  readonly #parent: CommQueue;
  #kept = false;

  constructor(rank: NcclContext, out: BigUint64Array, parent: CommQueue) {
    this.#rank = rank;
    this.#out = out;
    this.#parent = parent;
    rank.handles.push(out);
    this.#keep();
  }

  get handle(): bigint | undefined {
    return this.#keep();
  }

  advance(): bigint | undefined {
    // The split is the parent's call, and goes on when the parent is asked for it.
    if (!this.#parent.handle.accepts) return undefined;
    const handle = this.#keep();
    return handle !== undefined && this.#rank.isReady(handle) ? handle : undefined;
  }

  #keep(): bigint | undefined {
    const handle = this.#out[0] ?? 0n;
    if (handle === 0n) return undefined;
    if (!this.#kept) {
      this.#kept = true;
      this.#rank.at.device.ledger?.keep("communicator", this.#out);
      const { handles } = this.#rank;
      handles.splice(handles.indexOf(this.#out), 1);
    }
    return handle;
  }
}
