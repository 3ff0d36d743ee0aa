/** What a rank's part of a model does, wherever it computes: `ModelPart` on the host, `GpuModelPart` on a GPU. */
import type { Communicator } from "chorale";

/** Logits after one position, [vocabSize]. Valid until the part's next call. */
export interface Logits {
  /** Brings them to the host where they are not. */
  values(): Float32Array;
  /** The most likely token: the first of equals. */
  mostLikely(): number;
}

export interface Part {
  /** Most tokens of one `forward`. */
  readonly batch: number;
  /** Puts the tokens' embeddings into the residual stream. Called on the first stage. */
  embed(tokens: readonly number[]): void;
  /** Receives the residual stream of `count` tokens from the stage before. */
  receive(from: Communicator, count: number): void;
  /** Sends the residual stream of `count` tokens to the next stage. */
  send(to: Communicator, count: number): void;
  /** Passes `count` tokens, the first of them at `position`, through this rank's layers. */
  forward(count: number, position: number): void;
  /** The logits of the last of `count` tokens, on every rank of the last stage. */
  logits(count: number): Logits;
  /**
   * A whole step of greedy decoding where one rank has all stages: the token that the last `mostLikely` gave stands at
   * `position`, the next one comes out. Parts that have nothing faster than the calls above leave it out.
   */
  readonly decode?: (position: number) => number;
  /** Gives back what the garbage collector does not. */
  free(): void;
}

/** Logits in host memory. */
export class HostLogits implements Logits {
  readonly #values: Float32Array;

  constructor(values: Float32Array) {
    this.#values = values;
  }

  values(): Float32Array {
    return this.#values;
  }

  mostLikely(): number {
    let best = 0;
    for (let i = 1; i < this.#values.length; i++) if (this.#values[i]! > this.#values[best]!) best = i;
    return best;
  }
}
