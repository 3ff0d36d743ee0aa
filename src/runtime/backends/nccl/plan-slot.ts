/**
 * One plan on the devices of a group, for one element type and operator: opened by the first call that needs it, when all
 * members have come and it is their turn, and launched by it and by those that follow. Either every member opens it or
 * none does: they tell each other.
 */
import { createHash } from "node:crypto";
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";
import { ChoraleError, type DType, UnsupportedError } from "../../../core/index.ts";
import type { GeneratedKernel, LoadedPlan } from "../../executor/cuda/internal.ts";
import type { CallKind } from "../../progress/index.ts";
import type { CallTarget } from "./nccl-calls.ts";

/** What a member says when it has its part, in words of 4 bytes: whether it has, of which kernel, where, and why not. */
const SAID = { answer: 0, kernel: 1, note: 2, text: 24, words: 24 + 64 } as const;
/** `early`: not while calls of other groups run on its device. `late`: nor has it any more patience. */
const ANSWERS = { ready: 0, failed: 1, early: 2, late: 3 } as const;
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
    this.maxBytes = parts.maxBytes;
    this.isReplaceable = parts.isReplaceable;
  }

  /** What its calls launch: another one than at first where a member had no room for that. */
  get kernel(): GeneratedKernel {
    return this.#kernel;
  }

  /** Why no member could open it, once that is known. */
  get refusal(): ChoraleError | undefined {
    return this.#refusal;
  }

  /** The plan, once all members have opened it. */
  get loaded(): LoadedPlan | undefined {
    return this.#loaded;
  }

  /** Whether it was opened, or refused. */
  get isSettled(): boolean {
    return this.#loaded !== undefined || this.#refusal !== undefined;
  }

  /** For a call that is the next to go, once: whether it leaves the plan shut. On all members alike. */
  takesRest(): boolean {
    if (this.isSettled || this.#rest === 0) return false;
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
    const { words, error } = this.#say();
    const said = this.#owner.tell(words, target);
    this.#owner.met();
    const outcome = this.#decide(said, words, error);
    if (outcome === "early" || outcome === "late") return outcome === "late";
    const loaded = this.#own;
    this.#own = undefined;
    if (outcome !== "ready" && this.#smaller !== undefined) {
      loaded?.close();
      this.#kernel = this.#smaller();
      this.#smaller = undefined;
      return false;
    }
    const refusal = outcome === "ready" ? this.#connect(loaded, said, target) : outcome;
    if (refusal === undefined && !this.#closed) this.#loaded = loaded;
    else {
      loaded?.close();
      this.#refusal = refusal ?? new UnsupportedError(this.plan.name ?? "the plan", "its group was closed");
    }
    return true;
  }

  /** Makes this member's part, if that may be done now. @returns what it says of that, and why it could not */
  #say(): { readonly words: Int32Array; readonly error: ChoraleError | undefined } {
    const words = new Int32Array(SAID.words);
    words[SAID.kernel] = createHash("sha256").update(this.kernel.source).digest().readInt32LE(0);
    if (!this.#mayLoad) {
      words[SAID.answer] = this.#isLate ? ANSWERS.late : ANSWERS.early;
      return { words, error: undefined };
    }
    const error = attempt(words, () => {
      this.#own ??= this.#owner.load(this);
      words.set(this.#own.describe(), SAID.note);
    });
    return { words, error };
  }

  /** What follows from what all members said: on all alike, but for the words of a refusal. */
  #decide(
    said: readonly Int32Array[],
    own: Int32Array,
    error: ChoraleError | undefined,
  ): "ready" | "early" | "late" | ChoraleError {
    const answers = said.map((words) => words[SAID.answer]);
    const failed = answers.indexOf(ANSWERS.failed);
    if (failed >= 0) return error ?? toldBy(failed, said[failed] as Int32Array, this.plan);
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
  #connect(loaded: LoadedPlan | undefined, said: readonly Int32Array[], target: CallTarget): ChoraleError | undefined {
    const words = new Int32Array(SAID.words);
    const error = attempt(words, () => loaded?.connect(said.map((one) => one.slice(SAID.note, SAID.text))));
    const again = this.#owner.tell(words, target);
    const failed = again.findIndex((one) => one[SAID.answer] === ANSWERS.failed);
    return failed < 0 ? undefined : (error ?? toldBy(failed, again[failed] as Int32Array, this.plan));
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

/** Runs `fn`; what it throws goes into the words, for the others, and is returned. */
function attempt(words: Int32Array, fn: () => void): ChoraleError | undefined {
  try {
    fn();
    return undefined;
  } catch (error) {
    if (!(error instanceof ChoraleError)) throw error;
    words[SAID.answer] = ANSWERS.failed;
    const room = new Uint8Array(words.buffer, 4 * SAID.text);
    new TextEncoder().encodeInto(error.message, room);
    return error;
  }
}

function toldBy(rank: number, words: Int32Array, plan: ExecutionPlan): ChoraleError {
  const bytes = new Uint8Array(words.slice(SAID.text).buffer);
  const end = bytes.indexOf(0);
  const text = new TextDecoder().decode(bytes.subarray(0, end < 0 ? bytes.length : end));
  return new UnsupportedError(plan.name ?? "the plan", `rank ${rank} cannot run it: ${text}`);
}
