/**
 * Collectives of one group that copy engines do (executor/cuda/plan-copies.ts): every rank copies from its input straight into its
 * peers' outputs. The host must know the peers' addresses for that, so members tell each other, by a notice in the control segment
 * before every such call; a call that is captured meets in the capture, once, and its graph replays with no host work. On the stream
 * stand the copies between two kernels in which ranks meet: before, that outputs may be written; behind, that all has come.
 */
import { MismatchError } from "../../../core/index.ts";
import { CudaEvent, CudaStream, type PeerMemory, type RankDevice } from "../../device/index.ts";
import type { LoadedPlan, PlanCopies } from "../../executor/index.ts";
import type { Bulletin } from "../../memory/index.ts";
import type { CallTarget } from "./nccl-calls.ts";

/** Words of a notice: what the call is, whether it goes into a graph, bytes of a part (2), and the notes of both buffers. */
const TOLD = { call: 0, isCaptured: 1, part: 2, input: 4, output: 25, words: 46 } as const;
const NOTE_WORDS = TOLD.output - TOLD.input;

/** A call that copy engines do. */
export interface CopiedCall {
  readonly copies: PlanCopies;
  /** What it is, for people, and as a number that members compare. */
  readonly label: string;
  readonly hash: number;
  readonly input: number;
  readonly output: number;
  readonly partBytes: number;
}

/** Where the buffers of a member are, for this rank's copies. */
interface Place {
  readonly input: number;
  readonly output: number;
}

export interface GroupCopiesParts {
  readonly at: RankDevice;
  readonly peers: PeerMemory;
  readonly bulletin: Bulletin;
  readonly member: number;
}

export class GroupCopies {
  readonly #parts: GroupCopiesParts;
  /** Calls before which members have met, on all alike. */
  #numMet = 0;
  /** Of the call that has met and is to be launched next. */
  #places: readonly Place[] | undefined;
  /** What a rank keeps to itself is copied beside what it sends. */
  #beside: CudaStream | undefined;

  constructor(parts: GroupCopiesParts) {
    this.#parts = parts;
  }

  /** Tells the other members where this one's buffers are. @returns whether all have told @throws MismatchError */
  meets(call: CopiedCall): boolean {
    if (this.#places !== undefined) return true;
    const { bulletin } = this.#parts;
    const number = this.#numMet;
    if (!bulletin.tell(number, () => this.#tell(call))) return false;
    const told = bulletin.read(number);
    if (told === undefined) return false;
    this.#numMet++;
    this.#places = this.#placesOf(call, told);
    return true;
  }

  /** Puts a call on the stream before which all have met. */
  launch({ copies, input, output, partBytes }: CopiedCall, meeting: LoadedPlan, target: CallTarget): void {
    const { at, member } = this.#parts;
    const places = (this.#places ?? []).with(member, { input, output });
    this.#places = undefined;
    const stream = target.owner;
    const sent: (readonly [to: number, from: number, sizeBytes: number])[] = [];
    const kept: typeof sent = [];
    for (const { from, to, sizeBytes } of copies.of(member, partBytes)) {
      const [source, goal] = [places[from.rank]!.input + from.offset, places[to.rank]!.output + to.offset];
      if (source !== goal) (from.rank === to.rank ? kept : sent).push([goal, source, sizeBytes]);
    }
    const copy = (list: typeof sent, on: CudaStream) => {
      for (const [to, from, sizeBytes] of list)
        at.device.call("cuMemcpyDtoDAsync_v2", "copies of a call", to, from, sizeBytes, on.handle);
    };
    const beside = kept.length > 0 && sent.length > 0 ? this.#besideStream() : undefined;
    if (beside !== undefined) this.#behind(stream, beside);
    copy(kept, beside ?? stream);
    meeting.launch(stream, 0, 0, 0);
    copy(sent, stream);
    if (beside !== undefined) this.#behind(beside, stream);
    meeting.launch(stream, 0, 0, 0, target.ends);
  }

  close(): void {
    this.#beside?.close();
  }

  #besideStream(): CudaStream {
    this.#beside ??= CudaStream.create(this.#parts.at.device);
    return this.#beside;
  }

  #behind(earlier: CudaStream, later: CudaStream): void {
    const event = CudaEvent.borrow(this.#parts.at.device);
    try {
      event.record(earlier);
      later.waitFor(event);
    } finally {
      event.giveBack();
    }
  }

  #tell({ copies, hash, input, output, partBytes }: CopiedCall): Int32Array {
    const { at, peers, member } = this.#parts;
    const words = new Int32Array(TOLD.words);
    words.set([hash, Number(at.device.numCaptures > 0), partBytes | 0, Math.floor(partBytes / 2 ** 32)]);
    const reached = copies.reached(member);
    if (reached.input) words.set(peers.describe(BigInt(input), 0), TOLD.input);
    if (reached.output) words.set(peers.describe(BigInt(output), 0), TOLD.output);
    return words;
  }

  #placesOf({ copies, label, hash }: CopiedCall, told: readonly Int32Array[]): readonly Place[] {
    const { peers, member } = this.#parts;
    const own = told[member]!;
    const other = told.findIndex((words) => words.subarray(0, TOLD.input).some((word, i) => word !== own[i]));
    if (other >= 0) {
      const what = (words: Int32Array) =>
        `${words[TOLD.call] === hash ? label : "another call"}${words[TOLD.isCaptured] === 1 ? " in a capture" : ""}`;
      throw new MismatchError(
        "members make different calls that copy engines serve",
        told.map((words, rank) => ({ rank, call: what(words) })),
      );
    }
    return told.map((words, rank) => {
      const reached = copies.reached(rank);
      const find = (at: number) => Number(peers.locate(words.subarray(at, at + NOTE_WORDS)).address);
      return rank === member
        ? { input: 0, output: 0 }
        : { input: reached.input ? find(TOLD.input) : 0, output: reached.output ? find(TOLD.output) : 0 };
    });
  }
}
