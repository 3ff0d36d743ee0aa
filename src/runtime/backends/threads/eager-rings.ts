/**
 * Small collectives as messages: where the rings of a group lie, and what each member sends, receives and does in every
 * collective (eager-code.ts runs it). Rings are made when the first message is sent. Roots, and everybody who only sends,
 * are done when their data is in a ring, so a member may be several calls ahead of others.
 */
import { WIRE_OPS } from "../../comm/index.ts";
import { eagerLimitBytes, laneRoomBytes, ROOM_BYTES } from "./collective-path.ts";
import { FINISH } from "./eager-code.ts";
import type { Heap } from "./heap.ts";
import { GROUP, LINE, MEMBER, type memberLayout, RING, WAY } from "./layout.ts";
import type { ThreadsWork } from "./threads-work.ts";

/** What the rings need of the group's engine. */
export interface RingEngine {
  readonly size: number;
  readonly me: number;
  readonly block: number;
  readonly member: number;
  readonly heap: Heap;
  readonly words: Int32Array;
}

/** The part of a heap that the rings of one group may take: small heaps do without. */
const MOST_OF_HEAP = 1 / 16;

/** Kinds of rings: from each member to each other one; from each to all; from each to all, who all answer. */
const LANES = 0;
const RINGS = 1;
const BOXES = 2;

const roundUp = (bytes: number) => Math.ceil(bytes / LINE) * LINE;

export class EagerRings {
  readonly #engine: RingEngine;
  readonly #inner: ReturnType<typeof memberLayout>;
  readonly #others: number;
  readonly #only: number;
  readonly #at: number;
  /** Up to how many bytes a part is eager, by the operation's code. */
  readonly #limits: readonly number[];
  #isOpen = false;
  /** The call that the member's block is set up for: programs repeat themselves. */
  #code = -1;
  #bytes = -1;
  #root = -1;
  #kernel = -1;
  /** There is no room for them. */
  #isRefused = false;

  constructor(engine: RingEngine, inner: ReturnType<typeof memberLayout>) {
    this.#engine = engine;
    this.#inner = inner;
    const { member, words, size, me } = engine;
    this.#others = member + inner.others;
    this.#only = member + inner.only;
    this.#at = member / 4;
    this.#limits = WIRE_OPS.map((op) => eagerLimitBytes(op, size));
    for (let i = 1; i < size; i++) words[this.#others / 4 + i - 1] = (me + i) % size;
  }

  /** Makes the rings, if the call would use them. @returns whether there are any @throws OutOfMemoryError */
  open(work: ThreadsWork<unknown>): boolean {
    if (!this.#isOpen && work.bytes <= this.#limits[work.code]!) this.#open();
    return this.#isOpen;
  }

  /** Whether calls of this code and size go as messages. */
  isEager(code: number, bytes: number): boolean {
    return bytes <= this.#limits[code]! && !this.#isRefused;
  }

  /** Sets up what this member does in a small collective. @returns false when the call goes the other way */
  prepare(op: string, code: number, bytes: number, root: number, kernel: number): boolean {
    const { size: n, me, words } = this.#engine;
    if (!this.#isOpen || bytes === 0 || bytes > this.#limits[code]!) return false;
    words[this.#at + MEMBER.stage / 4] = 0;
    if (code === this.#code && bytes === this.#bytes && root === this.#root && kernel === this.#kernel) return true;
    this.#code = code;
    this.#bytes = bytes;
    this.#root = root;
    this.#kernel = kernel;
    const isRoot = root === me;
    const others = this.#others;
    words[this.#at + MEMBER.partBytes / 4] = bytes;
    switch (op) {
      case "all_reduce":
        this.#set(BOXES, 0, bytes, others, n - 1, 0, 0, kernel, 1);
        return true;
      case "reduce_scatter":
        this.#set(BOXES, 0, n * bytes, others, n - 1, bytes, 0, kernel, 1);
        return true;
      case "all_gather":
        this.#set(BOXES, 0, bytes, others, n - 1, 0, bytes, FINISH.copies, 1);
        return true;
      case "all_to_all":
        this.#set(BOXES, 0, n * bytes, others, n - 1, bytes, bytes, FINISH.copies, 1);
        return true;
      case "broadcast":
        if (isRoot) this.#set(RINGS, 0, bytes, others, 0, 0, 0, FINISH.copies, 1);
        else this.#set(RINGS, 0, 0, this.#list(root), 1, 0, 0, FINISH.copies, 0);
        return true;
      case "scatter":
        // Between two a lane holds the part that is sent alone; more read theirs from one message for all.
        if (n === 2 && isRoot) this.#set(LANES, this.#list(1 - me), 0, others, 0, bytes, 0, FINISH.copies, 1);
        else if (n === 2) this.#set(LANES, 0, 0, others, 1, 0, 0, FINISH.copies, 0);
        else if (isRoot) this.#set(RINGS, 0, n * bytes, others, 0, bytes, 0, FINISH.copies, 1);
        else this.#set(RINGS, 0, 0, this.#list(root), 1, bytes, 0, FINISH.copies, 0);
        return true;
      case "gather":
        if (isRoot) this.#set(LANES, 0, 0, others, n - 1, 0, bytes, FINISH.copies, 1);
        else this.#set(LANES, this.#list(root), 0, others, 0, 0, 0, FINISH.nothing, 0);
        return true;
      case "reduce":
        if (isRoot) this.#set(LANES, 0, 0, others, n - 1, 0, 0, kernel, 1);
        else this.#set(LANES, this.#list(root), 0, others, 0, 0, 0, FINISH.nothing, 0);
        return true;
      default:
        return false;
    }
  }

  /** A list of one member. */
  #list(rank: number): number {
    this.#engine.words[this.#only / 4] = rank;
    return this.#only;
  }

  /** @param sendTo a list of one member, 0 for nobody: who writes for all others has `postBytes` */
  #set(
    way: number,
    sendTo: number,
    postBytes: number,
    receiveList: number,
    numReceives: number,
    inputStride: number,
    outputStride: number,
    finish: number,
    ownPart: 0 | 1,
  ): void {
    const { words, me } = this.#engine;
    const at = this.#at;
    words[at + MEMBER.way / 4] = this.#engine.member + this.#inner.ways + way * WAY.sizeBytes;
    words[at + MEMBER.sendList / 4] = sendTo === 0 ? this.#others : sendTo;
    words[at + MEMBER.numSends / 4] = sendTo === 0 ? 0 : 1;
    words[at + MEMBER.postBytes / 4] = postBytes;
    words[at + MEMBER.receiveList / 4] = receiveList;
    words[at + MEMBER.numReceives / 4] = numReceives;
    words[at + MEMBER.ownOffset / 4] = me * inputStride;
    words[at + MEMBER.inputStride / 4] = inputStride;
    words[at + MEMBER.outputStride / 4] = outputStride;
    words[at + MEMBER.finish / 4] = finish;
    words[at + MEMBER.ownPart / 4] = ownPart;
  }

  /** Finds the group's rings, or makes them. All members come to the same ones. */
  #open(): void {
    const { size: n, me, block, heap, words, member } = this.#engine;
    const slotBytes = roundUp(RING.data + ROOM_BYTES);
    const laneSlotBytes = roundUp(RING.data + laneRoomBytes(n));
    const laneBytes = RING.numMessages * laneSlotBytes;
    const sizes = {
      lanes: n * n * laneBytes,
      rings: n * RING.numMessages * slotBytes,
      boxes: n * RING.numBoxes * slotBytes,
      acks: n * n * LINE,
    };
    const bytes = sizes.lanes + sizes.rings + sizes.boxes + 2 * sizes.acks;
    // The limit is the same for all ranks, which must choose alike.
    this.#isRefused = bytes > heap.limitBytes * MOST_OF_HEAP;
    if (this.#isRefused) return;
    const place = (block + GROUP.rings) / 4;
    let lanes = Atomics.load(words, place) >>> 0;
    if (lanes === 0) {
      const made = heap.allocate(bytes);
      lanes = Atomics.compareExchange(words, place, 0, made) >>> 0;
      if (lanes === 0) lanes = made;
      else heap.free(made);
    }
    // Makes this thread see all of it: another one may have grown the memory for it.
    heap.words(lanes + bytes);
    const rings = lanes + sizes.lanes;
    const boxes = rings + sizes.rings;
    const laneAcks = boxes + sizes.boxes;
    const ringAcks = laneAcks + sizes.acks;
    const describe = (
      way: number,
      fields: { readonly [K in Exclude<keyof typeof WAY, "sizeBytes" | "state">]: number },
    ) => {
      const at = (member + this.#inner.ways + way * WAY.sizeBytes) / 4;
      for (const [name, value] of Object.entries(fields)) words[at + WAY[name as keyof typeof WAY] / 4] = value;
      words[at + WAY.state / 4] = member + this.#inner.ringStates + way * n * RING.stateBytes;
    };
    const acks = (from: number) => ({ acksIn: from + me * n * LINE, acksOut: from + me * LINE, ackStride: n * LINE });
    describe(LANES, {
      in: lanes + me * n * laneBytes,
      inStride: laneBytes,
      out: lanes + me * laneBytes,
      outStride: n * laneBytes,
      slotBytes: laneSlotBytes,
      mask: RING.numMessages - 1,
      ...acks(laneAcks),
    });
    const ownRing = (from: number, numSlots: number) => {
      const ringBytes = numSlots * slotBytes;
      return { in: from, inStride: ringBytes, out: from + me * ringBytes, outStride: 0, slotBytes, mask: numSlots - 1 };
    };
    describe(RINGS, { ...ownRing(rings, RING.numMessages), ...acks(ringAcks) });
    describe(BOXES, { ...ownRing(boxes, RING.numBoxes), acksIn: 0, acksOut: 0, ackStride: 0 });
    this.#isOpen = true;
  }
}
