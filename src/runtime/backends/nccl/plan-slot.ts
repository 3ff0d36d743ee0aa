/**
 * One plan on the devices of a group, for one element type and operator: opened by the first call that needs it, when all
 * members have come and it is their turn, and launched by it and by those that follow. Either every member opens it or
 * none does: they tell each other.
 */
import { createHash } from "node:crypto";
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";
import { type ChoraleError, type DType, UnsupportedError } from "../../../core/index.ts";
import type { GeneratedKernel, LoadedPlan } from "../../executor/cuda/internal.ts";
import type { CallKind } from "../../progress/index.ts";
import type { CallTarget } from "./nccl-calls.ts";
import { ANSWERS, SAID, tellParts } from "./opening-words.ts";

/** How long a call waits for a moment to open its plan before NCCL serves it, where NCCL can, ms. */
const PATIENCE_MS = 50;
/**
 * How many calls NCCL serves before one waits for such a moment again: none after the first that waited in vain, then one, and
 * twice as many each time, up to this.
 */
const MOST_REST_CALLS = 4096;

/** What a slot needs of its group. */
export interface SlotOwner {
  readonly member: number;
  /** Whether the kernel can be loaded without waiting for calls of other groups, which may wait for this thread. */
  mayLoad(slot: PlanSlot): boolean;
  /** Loads the plan's kernel here, and takes room for it. */
  load(slot: PlanSlot): LoadedPlan;
  /** Tells all members the words of each. Blocks until all have come. @throws the group's failure */
  tell(words: Int32Array, target: CallTarget): readonly Int32Array[];
  /** Is told that all members have come to the opening of a slot: whatever they launched before is done. */
  met(): void;
}

export class PlanSlot {
  /** The calls that open it are of this kind: see first-calls.ts. */
  readonly kind: CallKind;
  /** That one alone, as calls have it. */
  readonly kinds: readonly CallKind[];
  readonly plan: ExecutionPlan;
  readonly dtype: DType;
  /** The largest size, bytes of the larger of a rank's two buffers. */
  readonly maxBytes: number;
  /** Whether NCCL can serve its calls too. */
  readonly isReplaceable: boolean;
  readonly #owner: SlotOwner;
  #kernel: GeneratedKernel;
  /** Makes a kernel for which there may be room where there is none for the first. */
  #smaller: (() => GeneratedKernel) | undefined;
  /** What is tried first, each time. */
  readonly #first: { readonly kernel: GeneratedKernel; readonly smaller: (() => GeneratedKernel) | undefined };
  /** This member's part, while others do not have theirs. */
  #own: LoadedPlan | undefined;
  #loaded: LoadedPlan | undefined;
  /** Since when a call waits for a moment to open it. */
  #waitsSince: number | undefined;
  /** The call may have taken its turn: others count on it from then on, whatever else is put on the device. */
  #isOffered = false;
  /** How many calls NCCL is still to serve before the next one waits, and how many it is given the next time. */
  #rest = 0;
  #nextRest = 0;
  #refusal: ChoraleError | undefined;
  #closed = false;

  constructor(
    owner: SlotOwner,
    parts: Pick<PlanSlot, "kind" | "plan" | "dtype" | "kernel" | "maxBytes" | "isReplaceable"> & {
      readonly smaller?: (() => GeneratedKernel) | undefined;
    },
  ) {
    this.#owner = owner;
    this.kind = parts.kind;
    this.kinds = [parts.kind];
    this.plan = parts.plan;
    this.dtype = parts.dtype;
    this.#kernel = parts.kernel;
    this.#smaller = parts.smaller;
    this.#first = { kernel: parts.kernel, smaller: parts.smaller };
    this.maxBytes = parts.maxBytes;
    this.isReplaceable = parts.isReplaceable;
  }

  /** What its calls launch: another one than at first where a member had no room for that. */
  get kernel(): GeneratedKernel {
    return this.#kernel;
  }

  /** Why no member could open it when it was last tried. */
  get refusal(): ChoraleError | undefined {
    return this.#refusal;
  }

  /** The plan, once all members have opened it. */
  get loaded(): LoadedPlan | undefined {
    return this.#loaded;
  }

  /** Whether it was opened, or refused for good: for calls that NCCL cannot serve, each call tries again. */
  get isSettled(): boolean {
    return this.#loaded !== undefined || (this.#refusal !== undefined && this.isReplaceable);
  }

  /** Whether its calls take a turn: while it is shut NCCL may serve them, and have to connect peers for that. */
  get needsTurn(): boolean {
    return this.#loaded === undefined;
  }

  /** For a call that is the next to go, once: whether it leaves the plan shut. On all members alike. */
  takesRest(): boolean {
    if (this.isSettled) return this.#loaded === undefined;
    if (this.#rest === 0) return false;
    this.#rest--;
    return true;
  }

  /** Whether a call that needs the plan may take its turn: it costs all members some time, and would be for nothing. */
  get mayOpen(): boolean {
    this.#waitsSince ??= performance.now();
    this.#isOffered ||= this.isSettled || this.#mayLoad || this.#isLate;
    return this.#isOffered;
  }

  get #mayLoad(): boolean {
    return this.#own !== undefined || this.#owner.mayLoad(this);
  }

  get #isLate(): boolean {
    return this.isReplaceable && performance.now() - (this.#waitsSince ?? 0) > PATIENCE_MS;
  }

  /**
   * Opens the plan, if that may be done now: all members come to it together.
   * @returns whether the call goes on: with the plan, or without it where NCCL serves it. On no member otherwise
   * @throws the group's failure
   */
  open(target: CallTarget): boolean {
    if (this.isSettled) return true;
    this.#isOffered = false;
    const { words, mayLoad } = this.#say();
    const load = () => {
      this.#own ??= this.#owner.load(this);
      words.set(this.#own.describe(), SAID.note);
    };
    const tell = (told: Int32Array) => this.#owner.tell(told, target);
    const { said, refusal: why } = tellParts({ name: this.#name, words, make: mayLoad ? load : undefined, tell });
    this.#owner.met();
    const outcome = why ?? this.#decide(said, words);
    if (outcome === "early" || outcome === "late") return outcome === "late";
    const loaded = this.#own;
    this.#own = undefined;
    if (outcome !== "ready" && this.#smaller !== undefined) {
      loaded?.close();
      this.#kernel = this.#smaller();
      this.#smaller = undefined;
      return false;
    }
    const refusal = outcome === "ready" ? this.#connect(loaded, said, tell) : outcome;
    if (refusal === undefined && !this.#closed) {
      this.#loaded = loaded;
      this.#refusal = undefined;
    } else {
      loaded?.close();
      this.#refusal = refusal ?? new UnsupportedError(this.#name, "its group was closed");
      this.#kernel = this.#first.kernel;
      this.#smaller = this.#first.smaller;
    }
    return true;
  }

  get #name(): string {
    return this.plan.name ?? "the plan";
  }

  /** What this member says, unless it fails, and whether it makes its part now. */
  #say(): { readonly words: Int32Array; readonly mayLoad: boolean } {
    const words = new Int32Array(SAID.words);
    words[SAID.kernel] = createHash("sha256").update(this.kernel.source).digest().readInt32LE(0);
    const mayLoad = this.#mayLoad;
    if (!mayLoad) words[SAID.answer] = this.#isLate ? ANSWERS.late : ANSWERS.early;
    return { words, mayLoad };
  }

  /** What follows from what all members said, none of which failed. */
  #decide(said: readonly Int32Array[], own: Int32Array): "ready" | "early" | "late" | ChoraleError {
    const answers = said.map((words) => words[SAID.answer]);
    const other = said.findIndex((words) => words[SAID.kernel] !== own[SAID.kernel]);
    if (other >= 0) {
      const what = `a plan of other choices than rank ${other}'s`;
      return new UnsupportedError(what, "all ranks must have the same");
    }
    const isLate = answers.includes(ANSWERS.late);
    if (!isLate && !answers.includes(ANSWERS.early)) return "ready";
    if (!isLate) return "early";
    this.#waitsSince = undefined;
    this.#rest = this.#nextRest;
    this.#nextRest = Math.min(MOST_REST_CALLS, Math.max(1, 2 * this.#nextRest));
    return "late";
  }

  /** Gives this member's part those of the others. @returns why one of them cannot use them: nobody launches then */
  #connect(
    loaded: LoadedPlan | undefined,
    said: readonly Int32Array[],
    tell: (words: Int32Array) => readonly Int32Array[],
  ): ChoraleError | undefined {
    const make = () => loaded?.connect(said.map((one) => one.slice(SAID.note, SAID.text)));
    return tellParts({ name: this.#name, words: new Int32Array(SAID.words), make, tell }).refusal;
  }

  /** Ends launches on all members: see `LoadedPlan.abort`. */
  abort(stream: Parameters<LoadedPlan["abort"]>[0]): void {
    this.#loaded?.abort(stream);
  }

  /** Gives back what it holds. No member may be running it, nor will. */
  close(): void {
    this.#closed = true;
    this.#own?.close();
    this.#own = undefined;
    this.#loaded?.close();
    this.#loaded = undefined;
  }
}
