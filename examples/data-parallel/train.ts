/**
 * Data-parallel training: every rank has all parameters and a part of each batch; gradients are added up over the ranks.
 * A layer's gradient joins a bucket as soon as it is known, and a full bucket is all-reduced while the layers before it
 * are still being differentiated (Li et al. 2020, https://arxiv.org/abs/2006.15704). Waiting comes once, at the end.
 */
import { InvalidArgumentError, type Tensor, tensor, type Work, type World } from "chorale";
import { Mlp } from "./mlp.ts";
import { randomFrom, type Sample, spirals } from "./spirals.ts";

export interface TrainOptions {
  /** Steps of stochastic gradient descent with momentum. */
  readonly steps?: number;
  /** Samples of a step, all ranks together. */
  readonly batch?: number;
  /** Gradients are added up in buckets of at least this many elements. */
  readonly bucketFloats?: number;
  readonly learningRate?: number;
  readonly seed?: number;
}

export interface TrainResult {
  /** Loss of each step: the mean over the whole batch. */
  readonly losses: readonly number[];
  /** Fraction of the training samples that the trained model classifies rightly. */
  readonly accuracy: number;
  /** All-reduces of a step. */
  readonly numBuckets: number;
  readonly parameters: Float32Array;
}

const MOMENTUM = 0.9;
const SIZES = [2, 32, 32, 3];
const NUM_SAMPLES = 300;

/**
 * Memory that this program reads and writes itself. Where the world's tensors lie on devices it is an ordinary tensor, which
 * the collectives copy there and back; elsewhere it is the world's own, which they use in place.
 */
function hostTensor(world: World, length: number): Tensor<"f32"> {
  return world.comm.capabilities().deviceTensors ? tensor("f32", [length]) : world.tensor("f32", [length]);
}

function freeHostTensor(world: World, made: Tensor): void {
  if (!world.comm.capabilities().deviceTensors) world.free(made);
}

/** One rank's gradient memory and the all-reduces under way. */
class Gradients {
  readonly values: Float32Array;
  readonly #tensor: Tensor<"f32"> | undefined;
  readonly #world: World | undefined;
  readonly #bucketFloats: number;
  #works: Work<unknown>[] = [];
  #end: number;

  /** The last element is the loss: it travels with the first bucket, that of the last layer. */
  constructor(numParameters: number, world: World | undefined, bucketFloats: number) {
    this.#world = world;
    this.#tensor = world === undefined ? undefined : hostTensor(world, numParameters + 1);
    this.values = this.#tensor?.data ?? new Float32Array(numParameters + 1);
    this.#bucketFloats = bucketFloats;
    this.#end = this.values.length;
  }

  /** Everything from `start` on is complete: send it when it fills a bucket, or is the rest. */
  ready(start: number): void {
    if (this.#tensor === undefined || this.#world === undefined) return;
    if (this.#end - start < this.#bucketFloats && start > 0) return;
    this.#works.push(this.#world.comm.allReduce(this.#tensor.slice(start, this.#end)));
    this.#end = start;
  }

  /** Waits for the sums over all ranks. @returns the number of all-reduces */
  async settle(): Promise<number> {
    const count = this.#works.length;
    for (const work of this.#works) await work;
    this.#works = [];
    this.#end = this.values.length;
    return count;
  }

  free(): void {
    if (this.#tensor !== undefined && this.#world !== undefined) freeHostTensor(this.#world, this.#tensor);
  }
}

/**
 * Trains a classifier of three spirals.
 * @param world absent: everything on this one rank, without a communicator
 * @throws InvalidArgumentError when a rank would have no sample of a batch
 */
export async function train(world: World | undefined, options: TrainOptions = {}): Promise<TrainResult> {
  const { steps = 200, batch = 96, bucketFloats = 512, learningRate = 0.05, seed = 7 } = options;
  const [rank, size] = world === undefined ? [0, 1] : [world.rank, world.size];
  if (!Number.isInteger(batch) || batch < size || batch > NUM_SAMPLES) {
    throw new InvalidArgumentError("batch", batch, `an integer from the number of ranks (${size}) to ${NUM_SAMPLES}`);
  }
  const random = randomFrom(seed);
  const samples = spirals(NUM_SAMPLES, random);
  const model = new Mlp(SIZES);
  const { numParameters } = model;
  // The tensor must stay reachable: its memory is given back with it, whoever still holds a view of the elements.
  const shared = world === undefined ? undefined : hostTensor(world, numParameters);
  const parameters = shared?.data ?? new Float32Array(numParameters);
  if (rank === 0) model.initialize(parameters, randomFrom(seed + 1));
  // Ranks start from one model, whatever their random numbers are.
  if (shared !== undefined) await world?.comm.broadcast(shared);

  const gradients = new Gradients(numParameters, world, bucketFloats);
  const velocity = new Float32Array(numParameters);
  const losses: number[] = [];
  let numBuckets = 0;
  for (let step = 0; step < steps; step++) {
    // All ranks draw the same batch; each takes its part. Parts may differ by one sample: the weights are of the whole.
    const drawn = Array.from({ length: batch }, () => samples[Math.floor(random() * NUM_SAMPLES)] as Sample);
    const mine = drawn.slice(Math.floor((rank * batch) / size), Math.floor(((rank + 1) * batch) / size));
    model.backward(parameters, mine, 1 / batch, gradients.values, ({ start, end }, loss) => {
      // With the last layer, before its bucket goes: what was sent must not be touched.
      if (end === numParameters) gradients.values[numParameters] = loss;
      gradients.ready(start);
    });
    numBuckets = await gradients.settle();
    losses.push(gradients.values[numParameters] as number);
    for (let i = 0; i < numParameters; i++) {
      velocity[i] = MOMENTUM * velocity[i]! + gradients.values[i]!;
      parameters[i]! -= learningRate * velocity[i]!;
    }
  }
  const right = samples.filter(({ input, label }) => {
    const logits = model.forward(parameters, input).at(-1) as Float64Array;
    return logits.indexOf(Math.max(...logits)) === label;
  });
  const result = Float32Array.from(parameters);
  gradients.free();
  if (shared !== undefined && world !== undefined) freeHostTensor(world, shared);
  return { losses, accuracy: right.length / samples.length, numBuckets, parameters: result };
}

/** For `launch({ ranks, module: "…/train.ts", data: options })`. */
export default function run(world: World, options: TrainOptions): Promise<TrainResult> {
  return train(world, options);
}
