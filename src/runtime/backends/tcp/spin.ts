/**
 * Whether a thread that waits looks again and again before it blocks in the kernel. Where ranks have cores of their own a
 * frame comes within microseconds, and to be woken takes longer. Where they share cores, whoever spins keeps the peer from
 * running that it waits for, and the kernel lets it wait for longer afterwards: so this learns from what the last spins
 * brought. Frames themselves tell nothing of it: the number of ranks of a host may be small and its cores be busy.
 */

/** How long a spin takes at most, ms. */
const SPIN_MS = 0.05;
/** After spins in vain, as many waits as a power of two up to this one begin without. */
const MAX_DOUBLINGS = 7;

export class SpinBudget {
  #doublings = 0;
  #without = 0;

  /** Called as a wait begins. @returns how long it may spin, ms; it says afterwards what came of it, unless this is 0 */
  take(): number {
    if (this.#without === 0) return SPIN_MS;
    this.#without--;
    return 0;
  }

  /** A spin has ended. @param isInTime whether what was waited for came while it lasted */
  tell(isInTime: boolean): void {
    this.#doublings = isInTime ? Math.max(0, this.#doublings - 2) : Math.min(MAX_DOUBLINGS, this.#doublings + 1);
    this.#without = 2 ** this.#doublings - 1;
  }
}
