/**
 * Where the buffers of a group's members are. Members tell each other, by a notice in the control segment, before every call for
 * which hosts must know it: one that copy engines do, and among processes one whose kernels reach buffers of other ranks. A call that
 * is captured meets in the capture, once, and its graph replays with no host work.
 */
import { invariant, MismatchError } from "../../../core/index.ts";
import type { Allocation, CudaStream, PeerMemory } from "../../device/index.ts";
import type { BufferReach } from "../../executor/cuda/internal.ts";
import type { Bulletin } from "../../memory/index.ts";
import type { CallTarget } from "./nccl-calls.ts";
import type { CommQueue } from "./queue.ts";
import { StandIns } from "./stand-ins.ts";

/**
 * Words of a notice: what the call is, whether it goes into a graph, bytes of a part (2), the notes of both buffers, and where the
 * member itself has them (2 each).
 */
const TOLD = { call: 0, isCaptured: 1, part: 2, input: 4, output: 25, addresses: 46, words: 50 } as const;
const NOTE_WORDS = TOLD.output - TOLD.input;

/** A call before which members tell each other where their buffers are. */
export interface ToldCall {
  /** What it is, for people, and as a number that members compare. */
  readonly label: string;
  readonly hash: number;
  /** This member's buffers, and how large they are. */
  readonly input: number;
  readonly output: number;
  readonly inputBytes: number;
  readonly outputBytes: number;
  readonly partBytes: number;
  /** What it does to the buffers of each rank. */
  readonly reached: readonly BufferReach[];
}

/** Where the buffers of a member are for this rank, and what lies between that and where the member says that they are. */
export interface BufferPlace {
  readonly input: number;
  readonly output: number;
  readonly inputShift: number;
  readonly outputShift: number;
}

type Copies = readonly (readonly [to: number, from: number, sizeBytes: number])[];

/** What a call uses for this member's buffers, and what is to be copied before and behind it where that is other memory. */
interface OwnBuffers {
  readonly input: number;
  readonly output: number;
  readonly before: Copies;
  readonly behind: Copies;
}

interface ToldBuffersParts {
  readonly peers: PeerMemory;
  readonly bulletin: Bulletin;
  readonly member: number;
  /** The group's: its calls run there. */
  readonly stream: CudaStream;
  /** How far those are. */
  readonly calls: Pick<CommQueue, "numTaken" | "firstOpen">;
}

const NOWHERE: BufferPlace = Object.freeze({ input: 0, output: 0, inputShift: 0, outputShift: 0 });
const NO_COPIES: Copies = Object.freeze([]);

export class ToldBuffers {
  readonly #parts: ToldBuffersParts;
  readonly #standIns: StandIns;
  /** Calls before which members have met, on all alike. */
  #numMet = 0;
  /** Of the call that has met and is to be launched next. */
  #places: readonly BufferPlace[] | undefined;
  #own: OwnBuffers | undefined;

  constructor(parts: ToldBuffersParts) {
    this.#parts = parts;
    this.#standIns = new StandIns(parts.peers, parts.stream, parts.calls);
  }

  /** Gives out what stands in for buffers of calls that were captured since this was last asked. */
  takeCaptured(): readonly Allocation[] {
    return this.#standIns.takeCaptured();
  }

  /**
   * Tells the other members where this one's buffers are.
   * @param callOf describes the call: asked as often as there is something to tell or to compare
   * @param isCaptured whether the call goes into a graph
   * @returns whether all have told
   * @throws MismatchError
   */
  meets(callOf: () => ToldCall, isCaptured: boolean): boolean {
    if (this.#places !== undefined) return true;
    const { bulletin } = this.#parts;
    const number = this.#numMet;
    if (!bulletin.tell(number, () => this.#tell(callOf(), isCaptured))) return false;
    const told = bulletin.read(number);
    if (told === undefined) return false;
    this.#numMet++;
    this.#places = this.#placesOf(callOf(), told);
    return true;
  }

  /** Whether a member has told the others of the call that is next. */
  hasTold(member: number): boolean {
    return this.#parts.bulletin.hasTold(member, this.#numMet);
  }

  /**
   * Launches the call before which all have met, between copies to and from what stands in for its buffers.
   * @param launch is given what it uses for this member's buffers, where every member's are, and what is told of its end where nothing
   *   is behind it
   */
  launch(
    target: CallTarget,
    launch: (
      own: Pick<OwnBuffers, "input" | "output">,
      places: readonly BufferPlace[],
      ends: CallTarget["ends"],
    ) => void,
  ): void {
    const [places, own] = [this.#places, this.#own];
    invariant(places !== undefined && own !== undefined, "buffers are reached by a call that has met");
    this.#places = undefined;
    for (const [to, from, sizeBytes] of own.before) target.copy(to, from, sizeBytes);
    launch(own, places, own.behind.length === 0 ? target.ends : undefined);
    for (const [to, from, sizeBytes] of own.behind) target.copy(to, from, sizeBytes);
  }

  close(): void {
    this.#standIns.close();
  }

  #tell(call: ToldCall, isCaptured: boolean): Int32Array {
    const { hash, partBytes, reached } = call;
    const { peers, member } = this.#parts;
    const words = new Int32Array(TOLD.words);
    words.set([hash, Number(isCaptured), ...halvesOf(partBytes)]);
    const own = this.#ownBuffers(call, isCaptured);
    this.#own = own;
    for (const buffer of ["input", "output"] as const) {
      if (reached[member]?.[buffer] === true) words.set(peers.describe(BigInt(own[buffer]), 0), TOLD[buffer]);
    }
    words.set([...halvesOf(own.input), ...halvesOf(own.output)], TOLD.addresses);
    return words;
  }

  /** What the call uses here: its own buffers, where others can be told of those that they reach. */
  #ownBuffers(call: ToldCall, isCaptured: boolean): OwnBuffers {
    const { input, output, inputBytes, outputBytes } = call;
    const { peers, member } = this.#parts;
    const reach = call.reached[member];
    const standsIn = (buffer: "input" | "output") => reach?.[buffer] === true && !peers.names(BigInt(call[buffer]));
    const [forInput, forOutput] = [standsIn("input"), standsIn("output")];
    if (!forInput && !forOutput) return { input, output, before: NO_COPIES, behind: NO_COPIES };
    const make = (buffer: "input" | "output", bytes: number) =>
      this.#standIns.of(buffer, call[buffer], bytes, isCaptured);
    if (input < output + outputBytes && output < input + inputBytes) {
      // What one buffer has of the other it must have of what stands in.
      const first = Math.min(input, output);
      const sizeBytes = Math.max(input + inputBytes, output + outputBytes) - first;
      const made = make("output", sizeBytes);
      return {
        input: made + input - first,
        output: made + output - first,
        before: [[made, first, sizeBytes]],
        behind: [[first, made, sizeBytes]],
      };
    }
    const own = {
      input: forInput ? make("input", inputBytes) : input,
      output: forOutput ? make("output", outputBytes) : output,
    };
    const before: Copies[number][] = [];
    const behind: Copies[number][] = [];
    if (forInput) before.push([own.input, input, inputBytes]);
    if (forInput && reach?.writesInput === true) behind.push([input, own.input, inputBytes]);
    // Nobody may write all of it.
    if (forOutput) before.push([own.output, output, outputBytes]);
    if (forOutput) behind.push([output, own.output, outputBytes]);
    return { ...own, before, behind };
  }

  #placesOf({ reached, label, hash }: ToldCall, told: readonly Int32Array[]): readonly BufferPlace[] {
    const { peers, member } = this.#parts;
    const own = told[member]!;
    const other = told.findIndex((words) => words.subarray(0, TOLD.input).some((word, i) => word !== own[i]));
    if (other >= 0) {
      const what = (words: Int32Array) =>
        `${words[TOLD.call] === hash ? label : "another call"}${words[TOLD.isCaptured] === 1 ? " in a capture" : ""}`;
      throw new MismatchError(
        "members make different calls that reach each other's buffers",
        told.map((words, rank) => ({ rank, call: what(words) })),
      );
    }
    return told.map((words, rank) => {
      const find = (buffer: "input" | "output") => {
        const said = addressIn(words, TOLD.addresses + (buffer === "input" ? 0 : 2));
        if (rank === member) return [said, 0] as const;
        if (reached[rank]?.[buffer] !== true) return [0, 0] as const;
        const found = Number(peers.locate(words.subarray(TOLD[buffer], TOLD[buffer] + NOTE_WORDS)).address);
        return [found, found - said] as const;
      };
      const reach = reached[rank];
      if (rank !== member && reach?.input !== true && reach?.output !== true) return NOWHERE;
      const [[input, inputShift], [output, outputShift]] = [find("input"), find("output")];
      return { input, output, inputShift, outputShift };
    });
  }
}

const halvesOf = (value: number): readonly [number, number] => [value | 0, Math.floor(value / 2 ** 32)];
const addressIn = (words: Int32Array, at: number) => (words[at]! >>> 0) + words[at + 1]! * 2 ** 32;
