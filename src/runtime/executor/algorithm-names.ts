/**
 * The algorithms that a choice may name: those of the library, and those that a program registers. The library stands on
 * the language, the compiler and the verifier, which take 50 to 100 ms to load: a rank loads them when a plan is first
 * asked for, inside of a call, which cannot wait for `import()`.
 */
import { createRequire } from "node:module";
import type { CollectiveName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import { isBuilt } from "./built-plans.ts";
import type * as LibraryPlans from "./library-plans.ts";
import { isServed, parseServed, type RegisteredAlgorithm, SERVED_COLLECTIVES, type Served } from "./served.ts";

const registered = new Map<string, RegisteredAlgorithm>();
let library: typeof LibraryPlans | undefined;

/** The library as plans, loaded now if need be. */
export function libraryPlans(): typeof LibraryPlans {
  library ??= createRequire(import.meta.url)("./library-plans.js") as typeof LibraryPlans;
  return library;
}

/** As `libraryPlans`, for whoever can wait; tests that run the sources must. */
export async function loadLibraryPlans(): Promise<typeof LibraryPlans> {
  library ??= await import("./library-plans.ts");
  return library;
}

/**
 * Makes an algorithm of the program's own known by name on this rank: `algorithm:` takes it, and so do tables of choices.
 * Every rank registers the same, before it is named.
 * A name of the library's is refused here or, where the library is not loaded yet, when it is first used.
 * @throws InvalidArgumentError for a name of another form, or one that is taken
 * @example
 * import { registerAlgorithm } from "chorale/executor";
 * import { ringAllReduce } from "chorale/algorithms";
 *
 * registerAlgorithm({ name: "my-ring", collective: "all_reduce", make: ({ numRanks }) => ringAllReduce({ numRanks }) });
 */
export function registerAlgorithm(algorithm: RegisteredAlgorithm): void {
  const { name, collective, make } = Object(algorithm) as RegisteredAlgorithm;
  if (typeof name !== "string" || !/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(name) || name.endsWith("-kernel")) {
    throw new InvalidArgumentError("name", name, "lower-case words joined by hyphens, not ending in -kernel");
  }
  if (typeof make !== "function") throw new InvalidArgumentError("make", make, "a function that makes a program");
  if (!isServed(collective)) {
    throw new InvalidArgumentError("collective", collective, `one of ${SERVED_COLLECTIVES.join(", ")}`);
  }
  const own = registered.get(name);
  if ((own !== undefined && own.make !== make) || library?.libraryEntry(name) !== undefined) throw taken(name);
  registered.set(name, algorithm);
}

function taken(name: string): InvalidArgumentError {
  return new InvalidArgumentError("name", name, "a name that no other algorithm has");
}

export function registeredAlgorithm(name: string): RegisteredAlgorithm | undefined {
  return registered.get(name);
}

/** Whether an algorithm exists, computes `collective`, and is defined for so many ranks. */
export function isAlgorithmFor({ name, chunks, label }: Served, collective: CollectiveName, numRanks: number): boolean {
  const own = registered.get(name);
  if (own === undefined && isBuilt(collective, label, numRanks)) return true;
  const entry = libraryPlans().libraryEntry(name);
  if (own !== undefined && entry !== undefined) throw taken(name);
  if (own !== undefined) return own.collective === collective && (own.numRanks ?? numRanks) === numRanks;
  return (
    entry !== undefined &&
    entry.collective === collective &&
    entry.legal(numRanks) &&
    !entry.needsSwitch &&
    (chunks === undefined || entry.takesChunks)
  );
}

/** The algorithms of a collective, the library's first. */
export function namesOfAlgorithms(collective: CollectiveName, numRanks: number): readonly string[] {
  const own = [...registered.values()]
    .filter((one) => one.collective === collective && (one.numRanks ?? numRanks) === numRanks)
    .map(({ name }) => name);
  return [...libraryPlans().libraryNames(collective, numRanks), ...own];
}

/**
 * Whether a table for these numbers of ranks may name an algorithm.
 * @returns undefined where it is one for some of them; otherwise the names that there are
 */
export function acceptedNames(
  label: string,
  collective: CollectiveName,
  [least, most]: readonly [number, number],
): readonly string[] | undefined {
  const served = parseServed(label, []);
  for (let ranks = least; ranks <= most; ranks++) if (isAlgorithmFor(served, collective, ranks)) return undefined;
  return namesOfAlgorithms(collective, least);
}
