/**
 * Training that outlives its ranks: a line is fitted by data-parallel gradient descent, ranks are killed on the way, and
 * the result is that of a run in which nobody died.
 *
 *   chorale launch -n 4 --restarts 3 examples/rebuild/main.ts -- --kill 1:20 --kill 3:50
 *   chorale launch -n 4 --on-failure shrink examples/rebuild/main.ts -- --kill 1:20
 *
 * `--kill R:S` ends the rank that is R in generation 1 (the second `--kill`: in generation 2, and so on) before step S.
 */
import { parseArgs } from "node:util";
import { InvalidArgumentError, RankFailedError, TimeoutError, tensor, type World } from "chorale";
import { shareState } from "chorale/world";

interface State {
  step: number;
  /** Slope and intercept. */
  readonly weights: Float64Array;
}

export default async function main(first: World): Promise<State> {
  const { values } = parseArgs({
    args: [...first.args],
    options: { steps: { type: "string", default: "200" }, kill: { type: "string", multiple: true, default: [] } },
  });
  const steps = Number(values.steps);
  if (!Number.isSafeInteger(steps) || steps < 1) {
    throw new InvalidArgumentError("--steps", values.steps, "an integer of 1 or more");
  }
  const kills = values.kill.map((text) => killOf(text, first.size, steps));
  const state: State = { step: 0, weights: new Float64Array(2) };
  let world = first;
  for (;;) {
    try {
      await train(world, state, steps, kills[world.generation - 1]);
      break;
    } catch (error) {
      // Another rank is gone, or does not answer: everything of this generation is refused from now on.
      if (!(error instanceof RankFailedError || error instanceof TimeoutError)) throw error;
      world = await world.rebuild();
    }
  }
  if (world.rank === 0) {
    const [slope = 0, intercept = 0] = state.weights;
    console.log(
      `y = ${slope.toFixed(6)} x + ${intercept.toFixed(6)} after ${state.step} steps, on ${world.size} ranks of generation ${world.generation}`,
    );
  }
  return state;
}

/** Reads R:S. A rank or a step that the run does not have would kill nobody. */
function killOf(text: string, numRanks: number, steps: number): readonly [rank: number, step: number] {
  const [, rank, step] = /^(\d+):(\d+)$/.exec(text) ?? [];
  if (!(Number(rank) < numRanks && Number(step) < steps)) {
    throw new InvalidArgumentError(
      "--kill",
      text,
      `RANK:STEP, with a rank from 0 to ${numRanks - 1} and a step from 0 to ${steps - 1}`,
    );
  }
  return [Number(rank), Number(step)];
}

async function train(world: World, state: State, steps: number, kill: readonly number[] | undefined): Promise<void> {
  const { comm, rank, size } = world;
  // Who was started again knows nothing, and a survivor may be a step behind: whoever is furthest tells the others.
  state.step = (await shareState(world, { weights: state.weights }, state.step)).progress;

  // The world's tensors belong to a generation: they are made anew after each rebuild. Where they lie on devices, which this
  // program cannot write to itself, an ordinary tensor does.
  const gradient = comm.capabilities().deviceTensors ? tensor("f64", [2]) : world.tensor("f64", [2]);
  for (; state.step < steps; state.step++) {
    if (rank === kill?.[0] && state.step === kill[1])
      throw new Error(`killed before step ${state.step}, as was asked for`);
    gradient.data.fill(0);
    for (let i = rank; i < NUM_POINTS; i += size) {
      const x = i / NUM_POINTS;
      const error = (state.weights[0] ?? 0) * x + (state.weights[1] ?? 0) - (3 * x - 1);
      gradient.data[0]! += (2 * error * x) / NUM_POINTS;
      gradient.data[1]! += (2 * error) / NUM_POINTS;
    }
    await comm.allReduce(gradient);
    for (let k = 0; k < 2; k++) state.weights[k]! -= 0.5 * gradient.data[k]!;
  }
  // Nobody leaves before all are done: a rank that has returned is not there for a rebuild.
  await comm.barrier();
}

const NUM_POINTS = 64;
