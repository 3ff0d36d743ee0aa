/**
 * A call of which it is decided when it begins what serves it: all ranks begin a group's calls in one order, so a measurement
 * that precedes one of them precedes it on every rank.
 */
import { type Activity, type CallTarget, SteppedCall, type Steps } from "./mpi-entry.ts";

interface Chooser {
  /** What serves the call; `undefined` where that is to be measured first. */
  choose(): Activity | undefined;
  measure(steps: Steps): Generator<void>;
}

export class ChosenCall implements Activity {
  readonly #chooser: Chooser;
  #measuring: SteppedCall | undefined;
  #chosen: Activity | undefined;
  #target: CallTarget | undefined;

  constructor(chooser: Chooser) {
    this.#chooser = chooser;
  }

  get stepped(): boolean {
    return this.#chosen?.stepped ?? true;
  }

  begin(target: CallTarget): void {
    this.#target = target;
    this.#chosen = this.#chooser.choose();
    if (this.#chosen !== undefined) {
      this.#chosen.begin(target);
      return;
    }
    this.#measuring = new SteppedCall((steps) => this.#chooser.measure(steps));
    this.#measuring.begin(target);
  }

  advance(): boolean {
    if (this.#measuring !== undefined) {
      if (!this.#measuring.advance()) return false;
      this.#measuring = undefined;
      if (this.#target !== undefined) this.begin(this.#target);
    }
    return this.#chosen?.advance() ?? true;
  }

  stop(): void {
    this.#measuring?.stop();
    this.#chosen?.stop?.();
  }
}
