/**
 * One plan on the devices of a group, for one element type and operator: opened by the first call that needs it, when all
 * members have come and it is their turn, and launched by it and by those that follow. Either every member opens it or
 * none does: they tell each other.
 */
import { createHash } from "node:crypto";
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";
import { ChoraleError, type DType, UnsupportedError } from "../../../core/index.ts";
import type { GeneratedKernel, LoadedPlan } from "../../executor/index.ts";
import type { CallKind } from "../../progress/index.ts";
import type { CallTarget } from "./nccl-calls.ts";

/** What a member says when it has its part, in words of 4 bytes: whether it has, of which kernel, where, and why not. */
const SAID = { answer: 0, kernel: 1, note: 2, text: 24, words: 24 + 64 } as const;
/** `early`: not while calls of other groups run on its device. `late`: nor has it any more patience. */
const ANSWERS = { ready: 0, failed: 1, early: 2, late: 3 } as const;
/** How long a call waits for a moment to open its plan before NCCL serves it, where NCCL can, ms. */
const PATIENCE_MS = 50;

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
  readonly plan: ExecutionPlan;
  readonly dtype: DType;
  readonly kernel: GeneratedKernel;
  /** The largest size, bytes of the larger of a rank's two buffers. */
  readonly maxBytes: number;
  /** Whether NCCL can serve its calls too. */
  readonly isReplaceable: boolean;
  readonly #owner: SlotOwner;
  /** This member's part, while others do not have theirs. */
  #own: LoadedPlan | undefined;
  #loaded: LoadedPlan | undefined;
  /** When members first came to open it. */
  #firstTried: number | undefined;
  #refusal: ChoraleError | undefined;
  #closed = false;

  constructor(
    owner: SlotOwner,
    parts: Pick<PlanSlot, "kind" | "plan" | "dtype" | "kernel" | "maxBytes" | "isReplaceable">,
  ) {
    this.#owner = owner;
    this.kind = parts.kind;
    this.plan = parts.plan;
    this.dtype = parts.dtype;
    this.kernel = parts.kernel;
    this.maxBytes = parts.maxBytes;
    this.isReplaceable = parts.isReplaceable;
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

  /**
   * Opens the plan, if that may be done now: all members come to it together.
   * @returns whether the call goes on: with the plan, or without it where NCCL serves it. On no member otherwise
   * @throws the group's failure
   */
  open(target: CallTarget): boolean {
    if (this.isSettled) return true;
    const { member } = this.#owner;
    this.#firstTried ??= performance.now();
    const own = new Int32Array(SAID.words);
    own[SAID.kernel] = createHash("sha256").update(this.kernel.source).digest().readInt32LE(0);
    let error: ChoraleError | undefined;
    if (this.#own === undefined && !this.#owner.mayLoad(this)) {
      const isLate = this.isReplaceable && performance.now() - this.#firstTried > PATIENCE_MS;
      own[SAID.answer] = isLate ? ANSWERS.late : ANSWERS.early;
    } else {
      error = attempt(own, () => {
        this.#own ??= this.#owner.load(this);
        own.set(this.#own.describe(), SAID.note);
      });
    }
    const said = this.#owner.tell(own, target);
    this.#owner.met();
    const others = said.findIndex((words) => words[SAID.kernel] !== own[SAID.kernel]);
    let failed = said.findIndex((words) => words[SAID.answer] === ANSWERS.failed);
    const answers = said.map((words) => words[SAID.answer]);
    if (failed < 0 && others < 0 && Math.max(...(answers as number[])) >= ANSWERS.early)
      return answers.includes(ANSWERS.late);
    const loaded = this.#own;
    this.#own = undefined;
    if (failed < 0 && others >= 0) {
      failed = others;
      error = new UnsupportedError(`a plan of other choices than rank ${others}'s`, "all ranks must have the same");
    }
    if (failed < 0) {
      const connected = new Int32Array(SAID.words);
      error = attempt(connected, () => loaded?.connect(said.map((words) => words.slice(SAID.note, SAID.text))));
      // Nobody launches before everybody can.
      const again = this.#owner.tell(connected, target);
      failed = again.findIndex((words) => words[SAID.answer] === ANSWERS.failed);
      if (failed >= 0 && failed !== member) error ??= toldBy(failed, again[failed] as Int32Array, this.plan);
    } else if (failed !== member) error ??= toldBy(failed, said[failed] as Int32Array, this.plan);
    if (failed < 0 && !this.#closed) {
      this.#loaded = loaded;
      return true;
    }
    loaded?.close();
    this.#refusal = error ?? new UnsupportedError(this.plan.name ?? "the plan", "its group was closed");
    return true;
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
