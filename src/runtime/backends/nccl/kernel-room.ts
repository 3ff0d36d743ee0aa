/**
 * Room for kernels whose blocks wait for each other: all of them must be on the device at once, whatever other groups of
 * the rank run meanwhile. Each group holds what its largest plan needs; a plan that might not find its place is refused.
 */
import { UnsupportedError } from "../../../core/index.ts";

/** What a kernel takes of its device. */
interface KernelDemand {
  readonly blocks: number;
  /** Of a multiprocessor's threads or registers that a block takes, whichever is more: from 0 to 1. */
  readonly share: number;
}

export class KernelRoom {
  readonly #numMultiprocessors: number;
  readonly #held = new Map<object, KernelDemand>();

  constructor(numMultiprocessors: number) {
    this.#numMultiprocessors = numMultiprocessors;
  }

  /**
   * Takes room for a group's kernel. What the group held before stays if that was more: its kernels run one after another.
   * @throws UnsupportedError when the kernels of all groups could not be there at once
   */
  take(group: object, demand: KernelDemand): void {
    const others = [...this.#held].filter(([one]) => one !== group).map(([, held]) => held);
    const most = Math.floor(1 / demand.share);
    const fits =
      demand.blocks <= this.#numMultiprocessors * most && (others.length === 0 || this.#fitBeside([...others, demand]));
    if (!fits) {
      const held = others.reduce((sum, { blocks }) => sum + blocks, 0);
      throw new UnsupportedError(
        `${demand.blocks} blocks that wait for each other, beside ${held} of other groups`,
        `they might not all be on the ${this.#numMultiprocessors} multiprocessors at once: use fewer instances, or close a group`,
      );
    }
    const own = this.#held.get(group);
    if (own === undefined || own.blocks * own.share < demand.blocks * demand.share) this.#held.set(group, demand);
  }

  release(group: object): void {
    this.#held.delete(group);
  }

  /**
   * A block finds no place only when every multiprocessor is filled to more than 1 - share. So all of them find theirs when
   * together they take less than that, without the last one; or when there are no more of them than multiprocessors.
   */
  #fitBeside(all: readonly KernelDemand[]): boolean {
    if (all.reduce((sum, { blocks }) => sum + blocks, 0) <= this.#numMultiprocessors) return true;
    const taken = all.reduce((sum, { blocks, share }) => sum + blocks * share, 0);
    const largest = Math.max(...all.map(({ share }) => share));
    return taken - largest <= this.#numMultiprocessors * (1 - largest);
  }
}
