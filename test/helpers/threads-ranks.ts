/** Ranks of the threads backend as worker threads. Each runs a function's text, so such functions use only their argument. */
import { Worker } from "node:worker_threads";
import type { ThreadsBackend } from "../../src/runtime/backends/threads/backend.ts";
import { type AttachOptions, createThreadsHost, type ThreadsHandle } from "../../src/runtime/backends/threads/index.ts";
import type { Communicator } from "../../src/runtime/comm/index.ts";

export const THREADS_ENTRY = new URL("../../.cache/dev/runtime/backends/threads/backend.js", import.meta.url).href;

export interface Rank {
  readonly backend: ThreadsBackend;
  readonly comm: Communicator;
  readonly rank: number;
  readonly n: number;
  readonly turn: (ms?: number) => Promise<void>;
  /** Collects garbage now. */
  readonly gc: () => void;
  /** What was given with the ranks. */
  readonly data: readonly unknown[];
  /** A room's module, such as `authoring/algorithms`: the function's text cannot import by itself. */
  readonly load: <T>(room: string) => Promise<T>;
}
export interface Outcome {
  readonly value?: unknown;
  readonly error?: { readonly name: string; readonly message: string; readonly code?: string; readonly rank?: number };
}

const CODE = `
const { parentPort } = require("node:worker_threads");
let isRunning = false;
let hasRejected = false;
const report = (e) => parentPort.postMessage({ error: { name: e.name, message: e.message, code: e.code, rank: e.rank } });
process.on("unhandledRejection", (e) => {
  // Of a world that is over: it must not count against the next one, and ends the tests.
  if (!isRunning) throw e;
  hasRejected = true;
  report({ name: "unhandled", message: String(e) });
});
const turn = (ms) => new Promise((resolve) => (ms === undefined ? setImmediate(resolve) : setTimeout(resolve, ms)));
const collect = () => {
  require("node:v8").setFlagsFromString("--expose-gc");
  require("node:vm").runInNewContext("gc")();
};
parentPort.on("message", async ({ entry, handle, rank, options, firstCall, data, text, isFresh }) => {
  const { ThreadsBackend } = await import(entry);
  const load = (room) => import(new URL("../../../" + room + "/index.js", entry));
  let isIdle = false;
  isRunning = true;
  try {
    const backend = new ThreadsBackend(handle, rank, options, firstCall);
    const fn = (0, eval)("(" + text + ")");
    const value = await fn({ backend, comm: backend.world, rank, n: handle.ranks, turn, gc: collect, load, data });
    // The backend looks at its memory once more in the turns after a call.
    await turn(5);
    isIdle = !isFresh && !hasRejected && process.getActiveResourcesInfo().every((name) => name === "MessagePort");
    if (!hasRejected) parentPort.postMessage({ value, isIdle });
    isRunning = !isIdle;
  } catch (e) {
    report(e);
  }
  // One that left something behind ends when that does.
  if (!isIdle) parentPort.close();
});
`;

/** Threads that wait for another world: starting one takes several times as long as most tests do. */
const idle = new Set<Worker>();

function takeThread(isFresh: boolean): Worker {
  const [waiting] = isFresh ? [] : idle;
  if (waiting !== undefined) {
    idle.delete(waiting);
    return waiting;
  }
  const started = new Worker(CODE, { eval: true, execArgv: [] });
  return started.on("exit", () => idle.delete(started));
}

/** Runs `fn` on every rank of a new world. A rank's throw is its outcome; `onDeath` says what the launcher does then. */
export async function onRanks(
  n: number,
  fn: (rank: Rank) => unknown,
  options: {
    readonly handle?: ThreadsHandle;
    readonly attach?: AttachOptions;
    /** The number that calls and messages begin with. */
    readonly firstCall?: number;
    readonly data?: readonly unknown[];
    /** Whether the threads are started for this world, and end with it: for what a thread remembers, or costs. */
    readonly isFresh?: boolean;
    readonly onError?: (handle: ThreadsHandle, rank: number, message: string) => void;
  } = {},
): Promise<Outcome[]> {
  const { handle = createThreadsHost({ ranks: n }), isFresh = false } = options;
  return Promise.all(
    Array.from({ length: n }, (_, rank) => {
      const worker = takeThread(isFresh);
      worker.ref();
      worker.postMessage({
        entry: THREADS_ENTRY,
        handle,
        rank,
        text: fn.toString(),
        options: { timeoutMs: 20_000, ...options.attach },
        firstCall: options.firstCall,
        data: options.data ?? [],
        isFresh,
      });
      return new Promise<Outcome>((resolve, reject) => {
        let outcome: Outcome = { error: { name: "silent", message: "the rank said nothing" } };
        const onMessage = ({ isIdle, ...message }: Outcome & { readonly isIdle?: boolean }) => {
          outcome = message;
          if (message.error !== undefined) options.onError?.(handle, rank, message.error.message);
          if (isIdle !== true) return;
          worker.off("message", onMessage).off("error", reject).off("exit", onExit).unref();
          idle.add(worker);
          resolve(outcome);
        };
        const onExit = () => resolve(outcome);
        worker.on("message", onMessage).on("error", reject).on("exit", onExit);
      });
    }),
  );
}

/** What the ranks returned, or threw. */
export const valuesOf = (outcomes: Outcome[]) => outcomes.map((o) => (o.error === undefined ? o.value : o.error));
