/**
 * Trains a small model on all ranks, and on one for comparison:
 *
 *   chorale launch -n 4 examples/data-parallel/main.ts -- --steps 200 --batch 96
 */
import { parseArgs } from "node:util";
import { InvalidArgumentError, type World } from "chorale";
import { train } from "./train.ts";

export default async function main(world: World): Promise<void> {
  const { values } = parseArgs({
    args: [...world.args],
    options: { steps: { type: "string", default: "200" }, batch: { type: "string", default: "96" } },
  });
  const number = (name: "steps" | "batch") => {
    const value = Number(values[name]);
    if (!Number.isInteger(value) || value < 1)
      throw new InvalidArgumentError(`--${name}`, values[name], "an integer of 1 or more");
    return value;
  };
  const options = { steps: number("steps"), batch: number("batch") };
  const { losses, accuracy, numBuckets } = await train(world, options);
  if (world.rank !== 0) return;
  const alone = await train(undefined, options);
  const difference = Math.max(...losses.map((loss, i) => Math.abs(loss - alone.losses[i]!)));
  for (let step = 0; step < losses.length; step += Math.ceil(losses.length / 10)) {
    console.log(`step ${String(step).padStart(5)}  loss ${losses[step]!.toFixed(6)}`);
  }
  console.log(`last loss ${losses.at(-1)!.toFixed(6)}, ${(100 * accuracy).toFixed(1)} % right`);
  console.log(
    `${numBuckets} all-reduces a step on ${world.size} ranks; losses differ from one rank's by at most ${difference.toExponential(1)}`,
  );
}
