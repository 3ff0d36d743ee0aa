/** Programs for as many ranks as are asked for, or as the machine has devices or cores. */
import { InvalidArgumentError } from "../../core/index.ts";
import type { BackendName } from "../../runtime/world/index.ts";
import { defaultRanks } from "../bench/index.ts";
import { MOST_UNASKED } from "./bench-flags.ts";
import { isScript, type ProgramArgs, parseProgramArgs } from "./program-args.ts";

interface RankFlags {
  readonly ranks?: number;
  readonly backend: BackendName;
  readonly arg?: readonly string[];
}

/** Loads FILE by `load`, and tells with which arguments. @throws what `load` throws */
export async function loadForRanks<T>(
  file: string,
  flags: RankFlags,
  load: (args: ProgramArgs) => Promise<T>,
): Promise<{ readonly made: T; readonly args: ProgramArgs }> {
  const args = parseProgramArgs(flags.arg ?? []);
  const asGiven = async () => ({ made: await load(args), args });
  const isPlanFile = /\.(json|xml)$/.test(file);
  if (isPlanFile || (flags.ranks === undefined && "numRanks" in args)) return asGiven();
  const numRanks = flags.ranks ?? (await defaultRanks(flags.backend, MOST_UNASKED));
  const given = { numRanks, ...args };
  try {
    return { made: await load(given), args: given };
  } catch (error) {
    // A program that makes its own number of ranks may know no such argument.
    const isOurs =
      error instanceof InvalidArgumentError && error.argument === "--arg numRanks" && !("numRanks" in args);
    if (!isOurs || !isScript(file)) throw error;
    return asGiven();
  }
}
