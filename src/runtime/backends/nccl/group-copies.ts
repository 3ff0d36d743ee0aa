/**
 * Collectives of one group that copy engines do (executor/cuda/plan-copies.ts): every rank copies from its input straight into its
 * peers' outputs. The host must know the peers' addresses for that, so members tell each other, by a notice in the control segment
 * before every such call; a call that is captured meets in the capture, once, and its graph replays with no host work. On the stream
 * stand the copies between two kernels in which ranks meet: before, that outputs may be written; behind, that all has come.
 */
import { invariant, MismatchError } from "../../../core/index.ts";
import { type Allocation, CudaEvent, CudaStream, type PeerMemory, type RankDevice } from "../../device/index.ts";
import { type LoadedPlan, LocalCopy, type LocalCopyShape, type PlanCopies } from "../../executor/cuda/internal.ts";
import type { Bulletin } from "../../memory/index.ts";
import type { CallTarget } from "./nccl-calls.ts";
import { StandIns } from "./stand-ins.ts";

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
  /** How a kernel copies what a rank keeps to itself; absent: a copy engine does. */
  readonly kept: LocalCopyShape | undefined;
}

/** Where the buffers of a member are, for this rank's copies. */
interface Place {
  readonly input: number;
  readonly output: number;
}

/** What the others were told of this member's buffers. */
interface OwnPlace extends Place {
  readonly inputBytes: number;
  readonly outputBytes: number;
}

interface GroupCopiesParts {
  readonly at: RankDevice;
  readonly peers: PeerMemory;
  readonly bulletin: Bulletin;
  readonly member: number;
  /** The group's: its calls run there. */
  readonly stream: CudaStream;
}

export class GroupCopies {
  readonly #parts: GroupCopiesParts;
  /** Calls before which members have met, on all alike. */
  #numMet = 0;
  /** Of the call that has met and is to be launched next. */
  #places: readonly Place[] | undefined;
  #own: OwnPlace | undefined;
  /** What a rank keeps to itself is copied beside what it sends and gets. */
  #beside: CudaStream | undefined;
  #local: LocalCopy | undefined;
  readonly #standIns: StandIns;

  constructor(parts: GroupCopiesParts) {
    this.#parts = parts;
    this.#standIns = new StandIns(parts.peers, parts.stream);
  }

  /** Makes what calls may need, at a moment when kernels may be loaded: calls may be captured. */
  load(): void {
    const { device } = this.#parts.at;
    this.#local ??= new LocalCopy(device);
    this.#beside ??= CudaStream.create(device);
  }

  /** Gives out what stands in for buffers of calls that were captured since this was last asked. */
  takeCaptured(): readonly Allocation[] {
    return this.#standIns.takeCaptured();
  }

  /**
   * Tells the other members where this one's buffers are.
   * @param isCaptured whether the call goes into a graph
   * @returns whether all have told
   * @throws MismatchError
   */
  meets(call: CopiedCall, isCaptured: boolean): boolean {
    if (this.#places !== undefined) return true;
    const { bulletin } = this.#parts;
    const number = this.#numMet;
    if (!bulletin.tell(number, () => this.#tell(call, isCaptured))) return false;
    const told = bulletin.read(number);
    if (told === undefined) return false;
    this.#numMet++;
    this.#places = this.#placesOf(call, told);
    return true;
  }

  /** Whether a member has told the others of the call that is next. */
  hasTold(member: number): boolean {
    return this.#parts.bulletin.hasTold(member, this.#numMet);
  }

  /** Puts a call on the stream before which all have met. */
  launch({ copies, input, output, partBytes, kept: shape }: CopiedCall, meeting: LoadedPlan, target: CallTarget): void {
    const { at, member } = this.#parts;
    const [places, own] = [this.#places, this.#own];
    invariant(places !== undefined && own !== undefined, "copies are launched of a call that has met");
    this.#places = undefined;
    const stream = target.owner;
    if (own.input !== input) target.copy(own.input, input, own.inputBytes);
    const sent: (readonly [to: number, from: number, sizeBytes: number])[] = [];
    const kept: typeof sent = [];
    for (const { from, to, sizeBytes } of copies.of(member, partBytes)) {
      const [source, goal] = [places[from.rank]!.input + from.offset, places[to.rank]!.output + to.offset];
      if (source !== goal) (from.rank === to.rank ? kept : sent).push([goal, source, sizeBytes]);
    }
    const copy = (list: typeof sent, on: CudaStream, blocks?: LocalCopyShape) => {
      for (const [to, from, sizeBytes] of list) {
        if (blocks !== undefined && LocalCopy.takes(to, from)) this.#local?.launch(on, [to, from, sizeBytes], blocks);
        else at.device.call("cuMemcpyDtoDAsync_v2", "copies of a call", to, from, sizeBytes, on.handle);
      }
    };
    const beside = kept.length > 0 ? this.#beside : undefined;
    if (beside !== undefined) {
      this.#behind(stream, beside);
      copy(kept, beside, shape);
    }
    meeting.launch(stream, 0, 0, 0);
    copy(sent, stream);
    if (beside !== undefined) this.#behind(beside, stream);
    meeting.launch(stream, 0, 0, 0, own.output === output ? target.ends : undefined);
    if (own.output !== output) target.copy(output, own.output, own.outputBytes);
  }

  close(): void {
    this.#standIns.close();
    this.#beside?.close();
    this.#local?.close();
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

  #tell({ copies, hash, input, output, partBytes }: CopiedCall, isCaptured: boolean): Int32Array {
    const { peers, member } = this.#parts;
    const words = new Int32Array(TOLD.words);
    words.set([hash, Number(isCaptured), partBytes | 0, Math.floor(partBytes / 2 ** 32)]);
    const reached = copies.reached(member);
    const [inputBytes, outputBytes] = [
      copies.sizeOf(member, "input", partBytes),
      copies.sizeOf(member, "output", partBytes),
    ];
    const named = (buffer: "input" | "output", address: number, sizeBytes: number) => {
      if (!reached[buffer]) return address;
      const told = this.#standIns.of(buffer, address, sizeBytes, isCaptured);
      words.set(peers.describe(BigInt(told), 0), TOLD[buffer]);
      return told;
    };
    this.#own = {
      input: named("input", input, inputBytes),
      output: named("output", output, outputBytes),
      inputBytes,
      outputBytes,
    };
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
      if (rank === member) return this.#own as Place;
      return { input: reached.input ? find(TOLD.input) : 0, output: reached.output ? find(TOLD.output) : 0 };
    });
  }
}
