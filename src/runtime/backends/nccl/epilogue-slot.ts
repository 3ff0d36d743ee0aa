/**
 * An epilogue as a kernel of its own, in one group: loaded by the first call that has it, in its turn, when all members have come.
 * It is loaded also where a plan's kernel has the epilogue in it: NCCL serves calls for which that cannot be opened yet.
 */
import type { ChoraleError, DType } from "../../../core/index.ts";
import type { EpilogueKernel } from "../../comm/index.ts";
import type { CudaDevice } from "../../device/index.ts";
import { LoneEpilogue } from "../../executor/cuda/internal.ts";
import type { CallKind } from "../../progress/index.ts";
import type { CallTarget } from "./nccl-calls.ts";
import { ANSWERS, SAID, tellParts } from "./opening-words.ts";

/** What the slot needs of its group. */
interface EpilogueOwner {
  readonly device: CudaDevice;
  /** Whether calls of other groups run on the device: it takes no code then, and they may wait for this thread. */
  readonly isBusy: () => boolean;
  /** Tells all members the words of each. Blocks until all have come. @throws the group's failure */
  readonly tell: (words: Int32Array, target: CallTarget) => readonly Int32Array[];
}

export class EpilogueSlot {
  readonly kind: CallKind;
  readonly #owner: EpilogueOwner;
  readonly #dtype: DType;
  readonly #kernel: EpilogueKernel;
  /** This member's, while others do not have theirs. */
  #own: LoneEpilogue | undefined;
  #loaded: LoneEpilogue | undefined;
  #refusal: ChoraleError | undefined;
  /** A call may have taken its turn: others count on it from then on, whatever else is put on the device. */
  #isOffered = false;

  constructor(owner: EpilogueOwner, kind: CallKind, dtype: DType, kernel: EpilogueKernel) {
    this.kind = kind;
    this.#owner = owner;
    this.#dtype = dtype;
    this.#kernel = kernel;
  }

  /** The kernel, once all members have loaded it. */
  get loaded(): LoneEpilogue | undefined {
    return this.#loaded;
  }

  /** Why no member can use it, once that is known: calls that have it are not made then, on any member. */
  get refusal(): ChoraleError | undefined {
    return this.#refusal;
  }

  get isSettled(): boolean {
    return this.#loaded !== undefined || this.#refusal !== undefined;
  }

  /** Whether calls that need it take a turn for it. */
  get needsTurn(): boolean {
    return !this.isSettled;
  }

  /** Whether a call that needs it may take its turn. */
  get mayOpen(): boolean {
    this.#isOffered ||= this.#mayLoad;
    return this.#isOffered;
  }

  get #mayLoad(): boolean {
    const { device, isBusy } = this.#owner;
    return (
      this.isSettled || this.#own !== undefined || LoneEpilogue.isLoaded(device, this.#dtype, this.#kernel) || !isBusy()
    );
  }

  /**
   * Loads the kernel, if no member would have to wait for other groups.
   * @returns whether the call goes on, on all members alike: to its refusal, where one of them could not load it
   * @throws the group's failure
   */
  open(target: CallTarget): boolean {
    if (this.isSettled) return true;
    this.#isOffered = false;
    const { device, tell } = this.#owner;
    const words = new Int32Array(SAID.words);
    const mayLoad = this.#mayLoad;
    if (!mayLoad) words[SAID.answer] = ANSWERS.early;
    const load = () => {
      this.#own ??= new LoneEpilogue(device, this.#dtype, this.#kernel);
    };
    const { said, refusal } = tellParts({
      name: this.#kernel.name,
      words,
      make: mayLoad ? load : undefined,
      tell: (told) => tell(told, target),
    });
    if (refusal === undefined && said.some((one) => one[SAID.answer] === ANSWERS.early)) return false;
    if (refusal === undefined) this.#loaded = this.#own;
    else this.#own?.close();
    this.#own = undefined;
    this.#refusal = refusal;
    return true;
  }

  close(): void {
    this.#own?.close();
    this.#own = undefined;
    this.#loaded?.close();
    this.#loaded = undefined;
  }
}

/** Those of one group. */
export class GroupEpilogues {
  readonly #owner: EpilogueOwner & { readonly newKind: () => CallKind };
  readonly #slots = new Map<string, EpilogueSlot>();
  readonly #byKind = new Map<CallKind, EpilogueSlot>();

  constructor(owner: EpilogueOwner & { readonly newKind: () => CallKind }) {
    this.#owner = owner;
  }

  /** The slot of an epilogue, for one element type. */
  of(kernel: EpilogueKernel, dtype: DType): EpilogueSlot {
    const name = `${kernel.name} ${dtype}`;
    let slot = this.#slots.get(name);
    if (slot === undefined) {
      slot = new EpilogueSlot(this.#owner, this.#owner.newKind(), dtype, kernel);
      this.#slots.set(name, slot);
      this.#byKind.set(slot.kind, slot);
    }
    return slot;
  }

  get(kind: CallKind): EpilogueSlot | undefined {
    return this.#byKind.get(kind);
  }

  close(): void {
    for (const slot of this.#slots.values()) slot.close();
    this.#slots.clear();
    this.#byKind.clear();
  }
}
