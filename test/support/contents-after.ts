/** Runs a random plan on ranks of one memory and writes what inputs and outputs hold then, as the oracle writes it. */
import { Places } from "../oracle/places.ts";
import { Random } from "../oracle/random.ts";
import type { RanksOfOneMemory } from "./local-ranks.ts";

/** @returns inputs and outputs at the end of one launch, or where the plan is stuck. Elements are u32 */
export function contentsAfter(local: RanksOfOneMemory, contents: number, perChunk: number): string {
  const { buffers, read } = prepareContents(local, contents, perChunk);
  return local.launch(4 * perChunk, buffers) ?? read();
}

/** Buffers of one launch, filled; `read` says what they hold once it has run. */
export function prepareContents(local: RanksOfOneMemory, contents: number, perChunk: number) {
  const { plan } = local;
  const places = new Places(plan, 1, 1);
  const random = new Random(contents);
  const initial = Array.from({ length: places.size }, () => (random.u32() | 1) >>> 0);
  const buffers = plan.ranks.map((rank) => {
    const inputBytes = 4 * perChunk * rank.input.chunks;
    const outputBytes = 4 * perChunk * rank.output.chunks;
    const [input, output] = [local.memory.allocate(inputBytes), local.memory.allocate(outputBytes, false)];
    const values = local.view("u32", input, inputBytes);
    // Output begins as the oracle has it: nobody writes all of it in every plan.
    const before = local.view("u32", output, outputBytes);
    for (let i = 0; i < values.length; i++)
      values[i] = initial[places.place(0, rank.rank, "input", Math.floor(i / perChunk), 0)]!;
    for (let i = 0; i < before.length; i++)
      before[i] = initial[places.place(0, rank.rank, "output", Math.floor(i / perChunk), 0)]!;
    return { input, inputBytes, output, outputBytes };
  });
  const first = (address: number, bytes: number) => {
    const values = local.view("u32", address, bytes);
    for (let i = 0; i < values.length; i++)
      if (values[i] !== values[i - (i % perChunk)]) return [`element ${i} differs from the first of its chunk`];
    return Array.from({ length: values.length / perChunk }, (_, chunk) => values[chunk * perChunk]);
  };
  const read = () =>
    buffers.flatMap((b) => [...first(b.input, b.inputBytes), ...first(b.output, b.outputBytes)]).join();
  return { buffers, read };
}
