/**
 * Small collectives as messages: where the rings of a group lie, and what each member sends, receives and does in every
 * collective (eager-code.ts runs it). Rings are made when the first message is sent. Roots, and everybody who only sends,
 * are done when their data is in a ring, so a member may be several calls ahead of others. Who passes on what others sent
 * (relay-tree.ts) waits for them.
 */
import { WIRE_OPS } from "../../comm/index.ts";
import { directLimitBytes, eagerLimitBytes, laneRoomBytes } from "./collective-path.ts";
import { FINISH } from "./eager-call.ts";
import type { Heap } from "./heap.ts";
import { BOX_BYTES, COPY_ENTRY, DIRECT, GROUP, LINE, MEMBER, type memberLayout, RING, TASK, WAY } from "./layout.ts";
import { childrenOf, fitsRelays, heldBy, LEAST_TREE_RANKS, parentOf, RELAYED_KERNELS } from "./relay-tree.ts";
import type { ThreadsWork } from "./threads-work.ts";

/** What the rings need of the group's engine. */
interface RingEngine {
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

/** Messages of more have so many lines that one of them makes no difference. */
const SHORT_BYTES = 256;

/**
 * The last word of a short message, from its flag on. Polled with the flag, its line is on the way when the flag comes, where it
 * would be asked for afterwards.
 */
function polledToo(dataBytes: number): number {
  const last = (RING.data + dataBytes - 1) & ~7;
  return last < SHORT_BYTES ? last : 0;
}

/** A small collective. */
interface SmallCall {
  readonly op: string;
  readonly code: number;
  /** The fingerprint. */
  readonly call: number;
  readonly count: number;
  readonly extra: number;
  readonly input: number;
  readonly output: number;
  readonly bytes: number;
  readonly root: number;
  readonly kernel: number;
}

/** What a member's calls of one operation do: where that stands, and for which call it was set up last. */
export interface Task {
  readonly at: number;
  /** How often it was set up. */
  version: number;
  bytes: number;
  root: number;
  kernel: number;
  numCopies: number;
}

export class EagerRings {
  readonly #engine: RingEngine;
  readonly #inner: ReturnType<typeof memberLayout>;
  /** All other members, from the next one on. */
  readonly #others: readonly number[];
  readonly #at: number;
  /** Up to how many bytes a part goes in messages, or its place does, by the operation's code. */
  readonly #limits: readonly number[];
  readonly #eagerLimits: readonly number[];
  #isOpen = false;
  /** By the operation's code. */
  readonly #tasks: readonly (Task | undefined)[];
  /** There is no room for them. */
  #isRefused = false;

  constructor(engine: RingEngine, inner: ReturnType<typeof memberLayout>) {
    this.#engine = engine;
    this.#inner = inner;
    const { member, words, size, me } = engine;
    this.#others = Array.from({ length: size - 1 }, (_, i) => (me + i + 1) % size);
    this.#at = member / 4;
    this.#eagerLimits = WIRE_OPS.map((op) => eagerLimitBytes(op, size));
    this.#limits = WIRE_OPS.map((op, code) => Math.max(this.#eagerLimits[code]!, directLimitBytes(op, size)));
    words.set(this.#others, (member + inner.others) / 4);
    let at = member + inner.tasks;
    this.#tasks = this.#limits.map((limit) => {
      if (limit < 0) return undefined;
      const task = { at, version: 0, bytes: -1, root: -1, kernel: -1, numCopies: 0 };
      at += inner.taskBytes;
      return task;
    });
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

  /** What a member's calls of an operation do; undefined for one that is never small. */
  taskOf(code: number): Task | undefined {
    return this.#tasks[code];
  }

  /** Sets up what this member does in a small collective; undefined when the call goes the other way. */
  prepare(given: SmallCall): Task | undefined {
    const { op, code, bytes, root, kernel } = given;
    const task = this.#tasks[code];
    if (task === undefined || !this.#isOpen || bytes === 0 || bytes > this.#limits[code]!) return undefined;
    const { words } = this.#engine;
    words[this.#at + MEMBER.stage / 4] = 0;
    const at = task.at / 4;
    words[at + TASK.call / 4] = given.call;
    words[at + TASK.count / 4] = given.count;
    words[at + TASK.extra / 4] = given.extra;
    words[at + TASK.input / 4] = given.input;
    words[at + TASK.output / 4] = given.output;
    task.version = (task.version + 1) | 0;
    if (bytes === task.bytes && root === task.root && kernel === task.kernel) return task;
    task.bytes = bytes;
    task.root = root;
    task.kernel = kernel;
    task.numCopies = 0;
    return this.#describe(task, op, code, bytes, root, kernel) ? task : undefined;
  }

  #describe(task: Task, op: string, code: number, bytes: number, root: number, kernel: number): boolean {
    const { size: n, me, words } = this.#engine;
    const isRoot = root === me;
    const isDirect = bytes > this.#eagerLimits[code]!;
    words[(task.at + TASK.direct) / 4] = isDirect ? (op === "gather" ? DIRECT.bring : DIRECT.take) : DIRECT.no;
    switch (op) {
      case "all_reduce":
        this.#exchange(task, bytes, 0, kernel);
        return true;
      case "reduce_scatter":
        this.#exchange(task, n * bytes, bytes, kernel);
        return true;
      case "all_gather":
        for (let r = 0; r < n; r++) this.#copy(task, r, 0, r * bytes, bytes);
        this.#exchange(task, bytes, 0, FINISH.copies);
        return true;
      case "all_to_all":
        for (let r = 0; r < n; r++) this.#copy(task, r, 0, r * bytes, bytes);
        this.#exchange(task, n * bytes, bytes, FINISH.copies);
        return true;
      case "broadcast":
        this.#copy(task, root, 0, 0, bytes);
        this.#fan(task, isRoot ? bytes : 0, root, 0);
        return true;
      case "scatter":
        this.#copy(task, root, 0, 0, bytes);
        // Between two a lane holds the part that is sent alone; more read theirs from one message for all.
        if (n > 2) this.#fan(task, isRoot ? n * bytes : 0, root, bytes);
        else
          this.#set(task, {
            way: LANES,
            sendTo: isRoot ? 1 - me : -1,
            from: isRoot ? [] : [root],
            stride: isRoot ? bytes : 0,
          });
        return true;
      case "gather":
        if (isDirect) this.#bring(task, root);
        else this.#collect(task, root, FINISH.copies);
        return true;
      case "reduce":
        this.#collect(task, root, kernel);
        return true;
      default:
        return false;
    }
  }

  /** Everybody hears of everybody. */
  #exchange(task: Task, postBytes: number, stride: number, finish: number): void {
    this.#set(task, { way: BOXES, postBytes, from: this.#others, stride, finish });
  }

  /** A root writes for all. */
  #fan(task: Task, postBytes: number, root: number, stride: number): void {
    this.#set(task, { way: RINGS, postBytes, from: postBytes > 0 ? [] : [root], stride });
  }

  /** A root hears of all: through others where there are many, or else it has to read from each of them in each call. */
  #collect(task: Task, root: number, finish: number): void {
    const { size: n, me } = this.#engine;
    const { bytes } = task;
    const isTree =
      n >= LEAST_TREE_RANKS && (finish === FINISH.copies ? fitsRelays(bytes, n) : RELAYED_KERNELS.has(finish));
    // Counted from the root.
    const own = (me - root + n) % n;
    const rankOf = (place: number) => (place + root) % n;
    const children = isTree ? childrenOf(own, n) : own === 0 ? this.#others.map((r) => (r - root + n) % n) : [];
    const relays = own > 0 && children.length > 0;
    if (finish === FINISH.copies && (own === 0 || relays)) {
      this.#copy(task, me, 0, own === 0 ? me * bytes : 0, bytes);
      for (const child of children) {
        const held = isTree ? heldBy(child, n) : 1;
        if (relays) this.#copy(task, rankOf(child), 0, (child - own) * bytes, held * bytes);
        else {
          // Up to the last rank, and on from rank 0.
          const first = Math.min(held, n - rankOf(child));
          this.#copy(task, rankOf(child), 0, rankOf(child) * bytes, first * bytes);
          if (first < held) this.#copy(task, rankOf(child), first * bytes, 0, (held - first) * bytes);
        }
      }
    }
    this.#set(task, {
      way: LANES,
      sendTo: own === 0 ? -1 : rankOf(isTree ? parentOf(own) : 0),
      from: children.map(rankOf),
      finish: own === 0 || relays ? finish : FINISH.nothing,
      relays,
      isDense: isTree && finish !== FINISH.copies,
    });
  }

  /** A root says where its result is, and all others write their parts there. */
  #bring(task: Task, root: number): void {
    const { me } = this.#engine;
    const { bytes } = task;
    const isRoot = me === root;
    this.#copy(task, me, 0, (isRoot ? me : 0) * bytes, bytes);
    this.#set(task, {
      way: isRoot ? RINGS : LANES,
      wayIn: isRoot ? LANES : RINGS,
      postBytes: isRoot ? bytes : 0,
      sendTo: isRoot ? -1 : root,
      from: isRoot ? this.#others : [root],
      ownOffset: isRoot ? 0 : me * bytes,
      relays: !isRoot,
    });
  }

  #copy(task: Task, place: number, from: number, to: number, bytes: number): void {
    const at = (task.at + this.#inner.taskCopies + task.numCopies++ * COPY_ENTRY.sizeBytes) / 4;
    this.#engine.words.set([place, from, to, bytes], at);
  }

  #set(
    task: Task,
    call: {
      readonly way: number;
      readonly wayIn?: number;
      readonly sendTo?: number;
      readonly postBytes?: number;
      readonly from: readonly number[];
      readonly stride?: number;
      readonly ownOffset?: number;
      readonly finish?: number;
      readonly relays?: boolean;
      readonly isDense?: boolean;
    },
  ): void {
    const { words, me, member, size } = this.#engine;
    const { way, sendTo = -1, postBytes = 0, from, stride = 0, finish = FINISH.copies, relays = false } = call;
    const set = (field: number, value: number) => {
      words[(task.at + field) / 4] = value;
    };
    const wayAt = (kind: number) => member + this.#inner.ways + kind * WAY.sizeBytes;
    set(TASK.way, wayAt(way));
    const isExchange = way === BOXES && size === 2;
    const boxes = (field: number) => (isExchange ? words[(wayAt(BOXES) + field) / 4]! : 0);
    set(TASK.myBoxes, boxes(WAY.out));
    set(TASK.theirBoxes, isExchange ? boxes(WAY.in) + (1 - me) * boxes(WAY.inStride) : 0);
    set(TASK.myState, boxes(WAY.state) + me * RING.stateBytes);
    set(TASK.theirState, boxes(WAY.state) + (1 - me) * RING.stateBytes);
    set(TASK.wayIn, wayAt(call.wayIn ?? way));
    set(TASK.sendTo, sendTo);
    set(TASK.sendsOwn, Number(sendTo >= 0 && !relays));
    set(TASK.relays, Number(relays));
    // Who writes for all looks at everybody's acknowledgements.
    const isSome = from.length > 0 && from !== this.#others;
    const list = isSome ? task.at + this.#inner.taskList : member + this.#inner.others;
    if (isSome) words.set(from, list / 4);
    set(TASK.receiveList, list);
    set(TASK.numReceives, from.length);
    set(TASK.postBytes, postBytes);
    const ownOffset = call.ownOffset ?? me * stride;
    set(TASK.ownOffset, ownOffset);
    const isDirect = words[(task.at + TASK.direct) / 4] !== DIRECT.no;
    set(TASK.polledToo, isDirect ? 0 : polledToo(ownOffset + task.bytes));
    set(TASK.inputStride, stride);
    set(TASK.partBytes, task.bytes);
    set(TASK.finish, finish);
    set(TASK.isDense, Number(call.isDense ?? false));
    set(TASK.copies, task.at + this.#inner.taskCopies);
    set(TASK.numCopies, task.numCopies);
  }

  /** Finds the group's rings, or makes them. All members come to the same ones. */
  #open(): void {
    const { size: n, me, block, heap, words, member } = this.#engine;
    const slotBytes = BOX_BYTES;
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
