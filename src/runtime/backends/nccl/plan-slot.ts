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
const SAID = { failed: 0, kernel: 1, note: 2, text: 24, words: 24 + 64 } as const;

/** What a slot needs of its group. */
export interface SlotOwner {
  readonly member: number;
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
  readonly #owner: SlotOwner;
  #loaded: LoadedPlan | undefined;
  #refusal: ChoraleError | undefined;
  #closed = false;

  constructor(owner: SlotOwner, parts: Pick<PlanSlot, "kind" | "plan" | "dtype" | "kernel" | "maxBytes">) {
    this.#owner = owner;
    this.kind = parts.kind;
    this.plan = parts.plan;
    this.dtype = parts.dtype;
    this.kernel = parts.kernel;
    this.maxBytes = parts.maxBytes;
  }

  /** Why no member could open it, once that is known. */
  get refusal(): ChoraleError | undefined {
    return this.#refusal;
  }

  /** The plan, opened now if need be; `undefined` when a member could not open it. @throws the group's failure */
  opened(target: CallTarget): LoadedPlan | undefined {
    if (this.#loaded === undefined && this.#refusal === undefined) this.#open(target);
    return this.#loaded;
  }

  #open(target: CallTarget): void {
    const { member } = this.#owner;
    const own = new Int32Array(SAID.words);
    own[SAID.kernel] = createHash("sha256").update(this.kernel.source).digest().readInt32LE(0);
    let loaded: LoadedPlan | undefined;
    let error = attempt(own, () => {
      loaded = this.#owner.load(this);
      own.set(loaded.describe(), SAID.note);
    });
    const said = this.#owner.tell(own, target);
    this.#owner.met();
    const others = said.findIndex((words) => words[SAID.kernel] !== own[SAID.kernel]);
    let failed = said.findIndex((words) => words[SAID.failed] === 1);
    if (failed < 0 && others >= 0) {
      failed = others;
      error = new UnsupportedError(`a plan of other choices than rank ${others}'s`, "all ranks must have the same");
    }
    if (failed < 0) {
      const connected = new Int32Array(SAID.words);
      error = attempt(connected, () => loaded?.connect(said.map((words) => words.slice(SAID.note, SAID.text))));
      // Nobody launches before everybody can.
      const again = this.#owner.tell(connected, target);
      failed = again.findIndex((words) => words[SAID.failed] === 1);
      if (failed >= 0 && failed !== member) error ??= toldBy(failed, again[failed] as Int32Array, this.plan);
    } else if (failed !== member) error ??= toldBy(failed, said[failed] as Int32Array, this.plan);
    if (failed < 0 && !this.#closed) {
      this.#loaded = loaded;
      return;
    }
    loaded?.close();
    this.#refusal = error ?? new UnsupportedError(this.plan.name ?? "the plan", "its group was closed");
  }

  /** Ends launches on all members: see `LoadedPlan.abort`. */
  abort(stream: Parameters<LoadedPlan["abort"]>[0]): void {
    this.#loaded?.abort(stream);
  }

  /** Gives back what it holds. No member may be running it, nor will. */
  close(): void {
    this.#closed = true;
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
    words[SAID.failed] = 1;
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
