/**
 * Plans on the devices of one group: those that its tables of choices name for a collective and size, and those that programs
 * run themselves. They are launched on the group's stream, in the order of its calls, between calls of NCCL. What ranks tell
 * each other when a plan is opened goes by way of NCCL.
 */
import { chunkBytesOf, type ExecutionPlan, proofOf, type RankPlan, shapeOf } from "../../../authoring/plan/index.ts";
import { type CollectiveName, reportedCount } from "../../../collectives/index.ts";
import { type DType, InvalidArgumentError, sizeOf, UnsupportedError } from "../../../core/index.ts";
import type { NcclLibrary } from "../../../foreign/nccl/index.ts";
import { packCall } from "../../comm/index.ts";
import { type Allocation, CudaStream, type PeerMemory, type RankDevice } from "../../device/index.ts";
import {
  cubinLimitBytes,
  debugTurns,
  FEWEST_BLOCK_THREADS,
  foldsSizes,
  type KernelShape,
  kernelFor,
  LoadedPlan,
  meetingOf,
  untunedShape,
} from "../../executor/cuda/internal.ts";
import {
  type Choice,
  type Choices,
  isServed,
  libraryPlans,
  registeredAlgorithm,
  type ServingPlan,
} from "../../executor/internal.ts";
import type { CallKind } from "../../progress/index.ts";
import { apartServing } from "./apart-serving.ts";
import { CopyServing, copiesOf } from "./copy-serving.ts";
import { apartShape } from "./epilogue-shape.ts";
import { type EpilogueSlot, GroupEpilogues } from "./epilogue-slot.ts";
import type { CapturedGraphs } from "./graphs.ts";
import { GroupCopies } from "./group-copies.ts";
import type { KernelRoom } from "./kernel-room.ts";
import type { CallPlans, CallTarget, PlannedCall, Serving } from "./nccl-calls.ts";
import type { Entry } from "./nccl-entry.ts";
import { othersSettle } from "./others-settle.ts";
import { PlanServing } from "./plan-serving.ts";
import { PlanSlot, type SlotOwner } from "./plan-slot.ts";
import { tellAll } from "./plan-words.ts";
import { kindOf } from "./prepare.ts";
import type { CommQueue } from "./queue.ts";
import type { PlanOpenings } from "./queue-options.ts";
import { ReusedMemory } from "./reused-memory.ts";
import { classOf, type Range, rangesOf, servingIn } from "./size-ranges.ts";
import type { SlotServing } from "./slot-serving.ts";
import { ToldBuffers } from "./told-buffers.ts";

/** Kinds of calls that open plans go down from here, below those of others: small integers like NCCL's (`kindOf`), for V8's sake. */
const FIRST_PLAN_KIND = -2;
/** Calls of one root have keys of their own: above the words of a packed call. */
const ROOTS = 2 ** 32;
/** Plans of programs that a group keeps open; the one that was not run for longest makes room, on all members alike. */
const MAX_PROGRAMS = 64;

/** Element types that move like others: kernels that only copy need not be compiled for each. */
const CARRIERS: { readonly [size: number]: DType } = { 1: "u8", 2: "f16", 4: "u32", 8: "u64" };

/** What calls name with `algorithm:`, of one collective, element type, operator and root. */
interface NamedPlan extends ServingPlan {
  /** By the largest size that they are for, and by the kernel's shape where the label does not say it. */
  readonly servings: Map<string, SlotServing>;
}

/** The rank's device, and how its memory is reached. */
interface PlanRank {
  readonly library: NcclLibrary;
  readonly at: RankDevice;
  readonly peers: PeerMemory;
  /** The group whose calls go into a graph now. */
  readonly capturing: object | undefined;
  readonly endings: {
    /** Whether calls of other groups of this rank run on its device. */
    runsBeside(queue: CommQueue): boolean;
  };
  readonly settings: {
    readonly interprocess: boolean;
    /** Whether kernels here can use the memory of every other rank's device. */
    readonly reachesPeers: boolean;
    /** Ranks on other hosts. */
    readonly remote: ReadonlySet<number>;
  };
}

interface GroupPlansParts {
  readonly rank: PlanRank;
  readonly queue: CommQueue;
  readonly member: number;
  readonly size: number;
  readonly room: KernelRoom;
  /** Those of the group, which plans may be part of. */
  readonly graphs: Pick<CapturedGraphs, "uses">;
  /** Absent where NCCL serves every collective. */
  readonly choices: Choices | undefined;
}

export class GroupPlans implements SlotOwner, CallPlans, PlanOpenings {
  readonly member: number;
  readonly choices: Choices | undefined;
  readonly #parts: GroupPlansParts;
  /** Of calls with an epilogue by its name too. */
  readonly #ranges = new Map<number | string, readonly Range[]>();
  readonly #named = new Map<string, NamedPlan>();
  readonly #programs = new Map<string, PlanSlot>();
  readonly #slots = new Map<CallKind, PlanSlot>();
  readonly epilogues: GroupEpilogues;
  /** Slots that made room: members may still be running them until all have met. */
  readonly #retired: PlanSlot[] = [];
  #told: ToldBuffers | undefined;
  #copies: GroupCopies | undefined;
  /** Has results that may not go where calls want them before a plan has ended. */
  #apart: ReusedMemory | undefined;
  readonly #meetings: PlanSlot[] = [];
  /** Nothing waits on it: what ends launches goes there. */
  #aside: CudaStream | undefined;
  #numKinds = 0;
  /** After so many turns waits of kernels end, and say so. */
  readonly #debugTurns: number | undefined;

  constructor(parts: GroupPlansParts) {
    this.#parts = parts;
    this.#debugTurns = debugTurns();
    // Found when a plan is opened, a wrong word would have NCCL serve everything, and nobody would hear why.
    foldsSizes();
    cubinLimitBytes();
    this.member = parts.member;
    this.choices = parts.choices;
    const { rank, queue } = parts;
    this.epilogues = new GroupEpilogues({
      device: rank.at.device,
      isBusy: () => rank.endings.runsBeside(queue),
      tell: (words, target) => this.tell(words, target),
      newKind: () => this.#newKind(),
    });
  }

  /** The plan that serves a call, if one does. All members ask the same and get the same answer. */
  serving(asked: PlannedCall): Serving | undefined {
    const { choices } = this;
    const { size } = this.#parts;
    const { op, dtype, part, redop, root, epilogue } = asked;
    if (choices === undefined || size === 1 || part === 0) return undefined;
    const call = packCall(op, dtype, redop, 0) + root * ROOTS;
    const key = epilogue === undefined ? call : `${call} ${epilogue.kernel.name}`;
    let ranges = this.#ranges.get(key);
    if (ranges === undefined) {
      ranges = isServed(op) ? rangesOf(choices.ranges(op as CollectiveName, dtype), epilogue !== undefined) : [];
      this.#ranges.set(key, ranges);
    }
    if (ranges.length === 0) return undefined;
    const bytes = reportedCount(op as CollectiveName, size, part) * sizeOf(dtype);
    if (choices.isHeard) choices.choose(op as CollectiveName, dtype, bytes);
    for (const range of ranges) {
      if (bytes < range.fromBytes || bytes >= range.toBytes) continue;
      const serving = epilogue && apartServing(range, size, epilogue, (label) => this.named(asked, label));
      if (serving !== undefined) return serving;
      const isCaptured = this.#parts.rank.capturing !== undefined;
      return servingIn(range, isCaptured, (one) => this.#serve(one, range.toBytes, asked));
    }
    return undefined;
  }

  /**
   * What a call names with `algorithm:`. Where no member can open it, NCCL serves the call: members may not all know yet.
   * @throws InvalidArgumentError, UnsupportedError for what cannot be made at all
   */
  named(asked: PlannedCall, label: string): Serving | undefined {
    const { choices } = this;
    const { size } = this.#parts;
    const { op, dtype, part, redop, root, epilogue } = asked;
    if (choices === undefined || !isServed(op)) {
      const accepted =
        choices === undefined ? "nothing: NCCL serves every call" : "nothing: NCCL serves this operation";
      throw new InvalidArgumentError("algorithm", label, accepted);
    }
    const collective = op as CollectiveName;
    const bytes = reportedCount(collective, size, part) * sizeOf(dtype);
    const choice = choices.named(collective, dtype, bytes, label);
    if (choice.served.kind === "kernel" || size === 1 || part === 0) return undefined;
    const key = `${label} ${packCall(op, dtype, redop, 0)} ${root} ${epilogue?.kernel.name}`;
    let named = this.#named.get(key);
    if (named === undefined) {
      named = { ...this.#planOf(choice, asked), servings: new Map() };
      this.#named.set(key, named);
    }
    // Strands that are no more than there must be make whole units of what an epilogue takes.
    const apart = epilogue && apartShape(choice.served, size, epilogue.numUnits, epilogue.unitBytes);
    const isApart = apart?.instances === choice.served.instances;
    const maxBytes = classOf(isApart ? apart.maxBytes : bytes);
    const shape = this.kernelShape(choice, named.plan, part * sizeOf(dtype));
    const of = `${maxBytes} ${shape.threads} ${shape.blocksPerStrand} ${isApart}`;
    let serving = named.servings.get(of);
    if (serving === undefined) {
      serving = this.#servingOf(choice, named, shape, asked, maxBytes, isApart);
      named.servings.set(of, serving);
    }
    return serving;
  }

  /**
   * The slot of a program's own plan.
   * @throws UnsupportedError, InvalidArgumentError for a plan that cannot be a kernel here: on all members alike
   */
  program(plan: ExecutionPlan, hash: string, shape: KernelShape, part: number): PlanSlot {
    // Of the largest buffer of any rank: all members need the same slot, though some have smaller buffers than others.
    const maxBytes = classOf(part * shapeOf(plan).mostParts);
    const name = `${hash} ${proofOf(plan)?.ok === true} ${JSON.stringify(shape)} ${maxBytes}`;
    const known = this.#programs.get(name);
    this.#programs.delete(name);
    if (known !== undefined) {
      // The last one of a Map is the one used last.
      this.#programs.set(name, known);
      return known;
    }
    const slot = this.#slot(plan, shape, maxBytes, false);
    this.#programs.set(name, slot);
    if (this.#programs.size > MAX_PROGRAMS) {
      const [oldest] = this.#programs;
      if (oldest !== undefined) {
        this.#programs.delete(oldest[0]);
        this.#retired.push(oldest[1]);
      }
    }
    return slot;
  }

  /** What a choice says of a plan's kernel, and for what it does not say what fits a call whose parts have `partBytes`. */
  kernelShape(choice: Choice | undefined, plan: ExecutionPlan, partBytes: number): Omit<KernelShape, "dtype" | "op"> {
    const { unitBytes: _, copies: __, ...told } = choice?.served.shape ?? {};
    const untuned = untunedShape(plan, chunkBytesOf(shapeOf(plan), partBytes), this.#parts.rank.at.device.info);
    // Who says how many threads a block has means strands of one block, unless told.
    return { ...untuned, ...(told.threads !== undefined && { blocksPerStrand: 1 }), ...told };
  }

  kindsNow({ kinds, arrivals }: Entry, isOpened = false): readonly CallKind[] {
    return kinds.flatMap((kind, i) => {
      const slot = this.#slots.get(kind);
      if (slot === undefined || !(isOpened ? slot.loaded === undefined : slot.takesRest())) return kind;
      return i === 0 ? arrivals.map(({ print }) => kindOf(print.call, print.count >>> 0)) : [];
    });
  }

  mayOpen(kinds: readonly CallKind[]): boolean {
    return kinds.every((kind) => this.#openable(kind)?.mayOpen !== false);
  }

  /**
   * Opens what calls of these kinds need, in their turn. A kind whose plan stays shut needs a turn again.
   * @returns whether the call goes on; on all members alike
   */
  open(kinds: readonly CallKind[], target: CallTarget): boolean {
    for (const kind of kinds) {
      const slot = this.#openable(kind);
      if (slot === undefined) continue;
      const goesOn = slot.open(target);
      if (slot.needsTurn) this.#parts.queue.firstCalls.forget(kind);
      if (!goesOn) return false;
    }
    return true;
  }

  #openable(kind: CallKind): PlanSlot | EpilogueSlot | undefined {
    return this.#slots.get(kind) ?? this.epilogues.get(kind);
  }

  #newKind(): CallKind {
    return FIRST_PLAN_KIND - this.#numKinds++;
  }

  mayLoad({ kernel }: PlanSlot): boolean {
    const { rank, queue } = this.#parts;
    return LoadedPlan.isKernelLoaded(rank.at.device, kernel) || !rank.endings.runsBeside(queue);
  }

  load(slot: PlanSlot): LoadedPlan {
    const { rank, queue, room, member } = this.#parts;
    const { reachesPeers, remote } = rank.settings;
    const spansHosts = queue.options.ranks.some((other) => remote.has(other));
    if (!reachesPeers || spansHosts) {
      const why = spansHosts ? "its ranks are on several hosts" : "no peer access";
      throw new UnsupportedError(
        slot.plan.name ?? "the plan",
        `devices of the group cannot reach each other's memory (${why})`,
      );
    }
    const { plan, dtype, kernel, maxBytes } = slot;
    this.#aside ??= CudaStream.create(rank.at.device);
    const { at, peers } = rank;
    const loaded = new LoadedPlan({
      plan,
      rank: member,
      dtype,
      kernel,
      maxBytes,
      at,
      peers,
      stream: queue.options.stream,
      isQuiet: () => this.#isQuiet,
    });
    try {
      room.take(this, loaded.demand);
      if (this.#meetings.includes(slot)) this.copies.load();
      return loaded;
    } catch (error) {
      loaded.close();
      throw error;
    }
  }

  /** Whether nothing of this rank is on its device, as far as it knows, nor is anything captured. */
  get #isQuiet(): boolean {
    const { rank, queue } = this.#parts;
    if (queue.cause !== undefined || queue.closed || rank.capturing !== undefined) return false;
    return !queue.inFlight && !rank.endings.runsBeside(queue) && rank.at.main.isDone();
  }

  /** Brings kernels of sizes that were called last, where those have been compiled: for what is captured next. */
  beforeCapture(): void {
    for (const { loaded } of this.#slots.values()) loaded?.beforeCapture();
  }

  tell(words: Int32Array, target: CallTarget): readonly Int32Array[] {
    const { rank, queue, member, size } = this.#parts;
    return tellAll(words, { rank, queue, member, size, target });
  }

  met(): void {
    // Those launches have all ended, and are seen to: what tells of their ends goes with a slot, and then tells of others.
    const { completion } = this.#parts.queue.options;
    completion.reached(completion.lastOfKernel);
    for (const slot of this.#retired.splice(0)) {
      // Calls of it that were taken earlier may stand behind the call that is being opened: they still need it, as graphs do.
      const { queue, graphs } = this.#parts;
      if (queue.waitsWith(slot.kind) || graphs.uses(slot.kind)) this.#retired.push(slot);
      else {
        this.#slots.delete(slot.kind);
        slot.close();
      }
    }
  }

  /**
   * Ends launches that wait for members: the group has failed. That cuts short whatever runs, on all members, and a call of
   * which one member's kernel is cut short may seem to end well on another. So the others first settle what has ended.
   * @param othersMs how long they may take; calls that they have not settled by then fail there
   */
  abort(othersMs: number): void {
    const { control, ranks } = this.#parts.queue.options;
    control.finish();
    if (this.#aside === undefined) return;
    const { failure } = control;
    const dead = failure?.code === "RANK_FAILED" ? failure.rank : undefined;
    const others = ranks.flatMap((rank, member) => (member === control.member || rank === dead ? [] : member));
    if (!othersSettle(control, others, othersMs)) control.cutShort();
    for (const slot of this.#slots.values()) slot.abort(this.#aside);
  }

  /** Which strand of a launch that has ended gave up waiting, where kernels say so. */
  gaveUp(): string | undefined {
    if (this.#debugTurns === undefined) return undefined;
    for (const { plan, loaded } of this.#slots.values()) {
      const report = loaded?.gaveUp;
      if (report !== undefined) return `${plan.name ?? "a plan"}, rank ${this.member}: ${report}`;
    }
    return undefined;
  }

  /** Gives back everything, when all members are done with the group. */
  close(): void {
    for (const slot of this.#slots.values()) slot.close();
    this.#slots.clear();
    this.epilogues.close();
    this.#retired.length = 0;
    this.#copies?.close();
    this.#told?.close();
    this.#apart?.close();
    this.#aside?.close();
    this.#parts.room.release(this);
  }

  #kernelOf(plan: ExecutionPlan, shape: KernelShape) {
    const { at, settings } = this.#parts.rank;
    const debug = this.#debugTurns === undefined ? {} : { debugTurns: this.#debugTurns };
    return kernelFor(plan, at.device.info, { ...shape, ...debug }, settings.interprocess);
  }

  #slot(plan: ExecutionPlan, shape: KernelShape, maxBytes: number, isReplaceable: boolean): PlanSlot {
    const kernelOf = (one: KernelShape) => this.#kernelOf(plan, one);
    const kernel = kernelOf(shape);
    const kind = this.#newKind();
    // Kernels of other groups may leave no room for a block of many threads, or for clusters of blocks.
    const isSmallest = kernel.threads <= FEWEST_BLOCK_THREADS && kernel.blocksPerStrand === 1;
    const threads = Math.min(kernel.threads, FEWEST_BLOCK_THREADS);
    const smaller = isSmallest ? undefined : () => kernelOf({ ...shape, threads, blocksPerStrand: 1 });
    const slot = new PlanSlot(this, { kind, plan, dtype: shape.dtype, kernel, maxBytes, isReplaceable, smaller });
    this.#slots.set(kind, slot);
    return slot;
  }

  #serve(choice: Choice, toBytes: number, asked: PlannedCall): SlotServing | undefined {
    if (choice.served.kind === "kernel") return undefined;
    try {
      const serving = this.#planOf(choice, asked);
      const shape = this.kernelShape(choice, serving.plan, asked.part * sizeOf(asked.dtype));
      return this.#servingOf(choice, serving, shape, asked, toBytes - 1);
    } catch (error) {
      if (!(error instanceof UnsupportedError || error instanceof InvalidArgumentError)) throw error;
      // On all members alike: the table is for other ranks than these.
      this.choices?.refused(choice, error.message);
      return undefined;
    }
  }

  #planOf({ served }: Choice, { op, root }: PlannedCall): ServingPlan {
    const request = { served, collective: op as CollectiveName, numRanks: this.#parts.size, root };
    return libraryPlans().servingPlan(request, registeredAlgorithm(served.name));
  }

  #servingOf(
    choice: Choice,
    { plan, worksInPlace }: ServingPlan,
    kernelShape: Omit<KernelShape, "dtype" | "op">,
    { dtype, redop, epilogue }: PlannedCall,
    maxBytes: number,
    isApart = false,
  ): SlotServing {
    if (choice.served.shape?.copies === true) return this.#copyServing(choice, plan);
    const { rank } = this.#parts;
    const carrier = redop === undefined ? (CARRIERS[sizeOf(dtype)] ?? dtype) : dtype;
    const shape = { dtype: carrier, ...(redop === undefined ? {} : { op: redop }), ...kernelShape };
    // Among processes, what a kernel reaches may be a copy of the call's buffers: what is behind it cannot be part of it.
    const fuses = epilogue !== undefined && !this.#kernelOf(plan, shape).shiftsAddresses;
    const slot = this.#slot(plan, fuses ? { ...shape, epilogue: epilogue.kernel } : shape, maxBytes, true);
    return new PlanServing({
      slot,
      choice,
      member: this.member,
      told: slot.kernel.shiftsAddresses ? this.told : undefined,
      rank: plan.ranks[this.member] as RankPlan,
      worksInPlace,
      isApart,
      refused: this.#refusedOf(choice),
      apart: (sizeBytes) => this.#memoryApart.of(sizeBytes, rank.capturing !== undefined),
    });
  }

  #copyServing(choice: Choice, plan: ExecutionPlan): SlotServing {
    const copies = copiesOf(choice.served, plan);
    const { member, told, copies: group } = this;
    const refused = this.#refusedOf(choice);
    return new CopyServing({ slot: this.meeting(true), group, told, member, choice, copies, refused });
  }

  #refusedOf(choice: Choice): (why: string) => void {
    return (why) => this.choices?.refused(choice, why);
  }

  /** Where members' buffers are. */
  get told(): ToldBuffers {
    const { rank, member, queue } = this.#parts;
    const { control, stream } = queue.options;
    this.#told ??= new ToldBuffers({ peers: rank.peers, bulletin: control.bulletin, member, stream, calls: queue });
    return this.#told;
  }

  get #memoryApart(): ReusedMemory {
    const { rank, queue } = this.#parts;
    const { pool } = rank.peers;
    this.#apart ??= new ReusedMemory({ pool, stream: queue.options.stream, label: "result of a plan", calls: queue });
    return this.#apart;
  }

  /** Gives out what calls use beside their tensors that were captured since this was last asked: their graph has it. */
  takeCaptured(): readonly Allocation[] {
    return [...(this.#told?.takeCaptured() ?? []), ...(this.#apart?.takeCaptured() ?? [])];
  }

  /** What copy engines do in this group. */
  get copies(): GroupCopies {
    this.#copies ??= new GroupCopies({ at: this.#parts.rank.at, told: this.told, member: this.member });
    return this.#copies;
  }

  /** Where members meet before and behind copies: of calls that NCCL can serve too, or of others. */
  meeting(isReplaceable: boolean): PlanSlot {
    const which = isReplaceable ? 0 : 1;
    let slot = this.#meetings[which];
    if (slot === undefined) {
      const kind = this.#newKind();
      slot = new PlanSlot(this, { kind, ...meetingOf(this.#parts.size), dtype: "u8", maxBytes: 0, isReplaceable });
      this.#meetings[which] = slot;
      this.#slots.set(kind, slot);
    }
    return slot;
  }
}
