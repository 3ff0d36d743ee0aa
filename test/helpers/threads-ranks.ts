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
const { parentPort, workerData } = require("node:worker_threads");
process.on("unhandledRejection", (e) => { parentPort.postMessage({ error: { name: "unhandled", message: String(e) } }); });
(async () => {
  const { ThreadsBackend } = await import(workerData.entry);
  const { handle, rank, options, firstCall, data } = workerData;
  const backend = new ThreadsBackend(handle, rank, options, firstCall);
  const turn = (ms) => new Promise((resolve) => (ms === undefined ? setImmediate(resolve) : setTimeout(resolve, ms)));
  const gc = () => { require("node:v8").setFlagsFromString("--expose-gc"); require("node:vm").runInNewContext("gc")(); };
  const load = (room) => import(new URL("../../../" + room + "/index.js", workerData.entry));
  try {
    const fn = (0, eval)("(" + workerData.text + ")");
    const value = await fn({ backend, comm: backend.world, rank, n: handle.ranks, turn, gc, load, data });
    parentPort.postMessage({ value });
  } catch (e) {
    parentPort.postMessage({ error: { name: e.name, message: e.message, code: e.code, rank: e.rank } });
  }
})();
`;

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
    readonly onError?: (handle: ThreadsHandle, rank: number, message: string) => void;
  } = {},
): Promise<Outcome[]> {
  const handle = options.handle ?? createThreadsHost({ ranks: n });
  return Promise.all(
    Array.from({ length: n }, (_, rank) => {
      const worker = new Worker(CODE, {
        eval: true,
        workerData: {
          entry: THREADS_ENTRY,
          handle,
          rank,
          text: fn.toString(),
          options: { timeoutMs: 20_000, ...options.attach },
          firstCall: options.firstCall,
          data: options.data ?? [],
        },
        execArgv: [],
      });
      return new Promise<Outcome>((resolve, reject) => {
        let outcome: Outcome = { error: { name: "silent", message: "the rank said nothing" } };
        worker.on("message", (message: Outcome) => {
          outcome = message;
          if (message.error !== undefined) options.onError?.(handle, rank, message.error.message);
        });
        worker.on("error", reject);
        worker.on("exit", () => resolve(outcome));
      });
    }),
  );
}

/** What the ranks returned, or threw. */
export const valuesOf = (outcomes: Outcome[]) => outcomes.map((o) => (o.error === undefined ? o.value : o.error));
