/** What the behaviour cases say with one line: an error of a class, equal values, a group of one's own. */
import { type ChoraleError, type ErrorCode, show } from "../../core/index.ts";
import type { Communicator, Work } from "../../runtime/comm/index.ts";
import type { RankContext } from "./rank-context.ts";

/** Deadline of calls that must complete: far beyond what they need, far below the default. */
export const SOON = { timeoutMs: 15_000 } as const;

const LIMIT_MS = 14_000;

/** Runs `attempt`, which must fail with one of `codes` either when called or when awaited. @returns the error */
export async function fails(
  context: RankContext,
  what: string,
  codes: readonly ErrorCode[],
  attempt: () => unknown,
): Promise<ChoraleError | undefined> {
  let timer: NodeJS.Timeout | undefined;
  try {
    // A call that is taken although it should not be would wait for peers that never come.
    const limit = new Promise((resolve) => {
      timer = setTimeout(resolve, LIMIT_MS);
    });
    await Promise.race([(async () => attempt())(), limit]);
  } catch (error) {
    // Not instanceof: two copies of the class may be loaded, and the code is what programs go by.
    const code = (error as Partial<ChoraleError>).code;
    if (code !== undefined && codes.includes(code)) return error as ChoraleError;
    context.fail(
      `${what}: expected ${codes.join(" or ")}, got ${error instanceof Error ? (error.stack ?? error.message) : show(error)}`,
    );
    return undefined;
  } finally {
    clearTimeout(timer);
  }
  context.fail(`${what}: expected ${codes.join(" or ")}, but it was accepted`);
  return undefined;
}

export function equal(context: RankContext, what: string, actual: unknown, expected: unknown): void {
  const text = (value: unknown) =>
    ArrayBuffer.isView(value) ? show(Array.from(value as Uint8Array)) : value === undefined ? "undefined" : show(value);
  if (text(actual) !== text(expected)) context.fail(`${what} is ${text(actual)}, expected ${text(expected)}`);
}

export function holds(context: RankContext, what: string, condition: boolean): void {
  if (!condition) context.fail(what);
}

/** A group of all ranks that a case may ruin. */
export async function ownGroup(context: RankContext, name: string): Promise<Communicator> {
  const group = await context.comm.split(0, context.comm.rank, { name });
  if (group === undefined) throw new Error("split with color 0 gave no group");
  return group;
}

/** Shows that the group works: an all-reduce of rank + 1. */
export async function works(context: RankContext, what: string, comm: Communicator): Promise<void> {
  const n = comm.size;
  const result = await comm.allReduce(new Float32Array([comm.rank + 1]), SOON);
  equal(context, `${what}: the sum over the ranks`, result.data[0], (n * (n + 1)) / 2);
}

/** Drives work by `wait()` on even ranks and by the event loop on odd ones. */
export async function finish<T>(comm: Communicator, work: Work<T>): Promise<T> {
  return comm.rank % 2 === 0 ? work.wait() : await work;
}

/** Lets the event loop turn once. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Of four ranks, the row of two and the column of two that this one is in. */
export async function rowAndColumn(comm: Communicator): Promise<readonly [row: Communicator, column: Communicator]> {
  const row = await comm.split(comm.rank >> 1, comm.rank, { name: "row" });
  const column = await comm.split(comm.rank & 1, comm.rank, { name: "column" });
  if (row === undefined || column === undefined) throw new Error("split gave no group");
  return [row, column];
}
