/**
 * `launch()`: starts a world whose ranks are threads of this process, and waits for it. The first rank that fails
 * ends the world: the others' pending work fails at once, and whoever is still there after a grace period is ended.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  AbortedError,
  InvalidArgumentError,
  type RankActivity,
  RankFailedError,
  TimeoutError,
} from "../../core/index.ts";
import { BootstrapStore } from "./bootstrap.ts";
import {
  type BackendName,
  type BackendOptions,
  checkIsolation,
  createEngine,
  type EngineHandle,
  failEngine,
  parseBackend,
  readFlight,
  releaseEngine,
} from "./engine.ts";
import type { FromRank } from "./messages.ts";
import { type OutputLine, printLine } from "./output.ts";
import { type Isolation, parseIsolation, type RankHost } from "./rank-host.ts";
import { RankProcess } from "./rank-process.ts";
import { RankWorker } from "./rank-worker.ts";
import { type ErrorRecord, fromErrorRecord, plainRecord, toErrorRecord } from "./remote-error.ts";
import { bundleFunction, bundleUserModule } from "./user-module.ts";
import type { World } from "./world.ts";

/** More threads than this in one process is a typing error, not a world. */
export const MAX_RANKS = 256;
/** How long the survivors of a failure may clean up before they are ended, ms. */
export const DEFAULT_GRACE_MS = 2_000;
/** After a rank left with code 0, how long its peers have to complete what it took part in, ms. */
const LEAVE_MS = 500;
/** Generation 0 is private memory's. */
const FIRST_GENERATION = 1;

interface CommonOptions<D> {
  /** Number of ranks. */
  readonly ranks: number;
  /** Words for the script: `world.args`, and the end of `process.argv`. */
  readonly args?: readonly string[];
  /** Any value that structuredClone can copy: `world.data`, and the second argument of the rank's function. */
  readonly data?: D;
  readonly backend?: BackendName;
  /** What each rank runs in: a `thread` of this process (unless given), or a `process` of its own (nccl only). */
  readonly isolation?: Isolation;
  /** Limit of the communication memory, default deadline of every wait, and the like. */
  readonly backendOptions?: BackendOptions;
  /** Receives each line that a rank prints. Unless given, lines are printed as `[rank] text`. */
  readonly onOutput?: (line: OutputLine) => void;
  /** Ends the world when it takes longer than this, ms. No limit unless given. */
  readonly timeoutMs?: number;
  /** How long survivors of a failure may clean up before they are ended, ms. */
  readonly graceMs?: number;
  /** Environment variables of the ranks, beside this process's. */
  readonly env?: Readonly<Record<string, string>>;
  /** Ends the world. */
  readonly signal?: AbortSignal;
}

/** A function that each rank runs. It sees nothing of its surroundings but its arguments and what it imports itself. */
export type RankFunction<R, D> = (world: World, data: D) => R | Promise<R>;

export type LaunchOptions<R, D> = CommonOptions<D> &
  (
    | { readonly module: string | URL; readonly run?: undefined }
    | { readonly run: RankFunction<R, D>; readonly module?: undefined }
  );

/**
 * Starts `ranks` ranks of a module (which calls `joinWorld()`, or exports a default `async (world, data) => result`),
 * or of a function, and waits for all of them. The function is sent as text: it cannot use variables from outside.
 * @returns what the ranks' functions returned, by rank
 * @throws RankFailedError with the first failure as its cause, when a rank throws, exits with a code but 0, or dies
 * @throws TimeoutError after `timeoutMs`, naming the ranks that were not done
 * @throws AbortedError when `signal` is aborted
 * @throws InvalidArgumentError, FormatError when an option is wrong or the module does not load
 * @example
 * import { launch } from "chorale";
 *
 * const sums = await launch({
 *   ranks: 2,
 *   run: async (world) => {
 *     const x = world.tensor("f32", [1]);
 *     x.data[0] = world.rank + 1;
 *     await world.comm.allReduce(x);
 *     return x.data[0];
 *   },
 * });
 * console.log(sums); // [3, 3]
 */
export async function launch<R = unknown, D = undefined>(options: LaunchOptions<R, D>): Promise<R[]> {
  const isolation = parseIsolation(options.isolation ?? "thread");
  return runWorld(options, () => (isolation === "process" ? new RankProcess() : new RankWorker()), false);
}

/** Runs a world on workers that `takeWorker` gives. With `reused`, a rank ends with its function and gives its worker back. */
export async function runWorld<R, D>(
  options: LaunchOptions<R, D>,
  takeWorker: () => RankHost,
  reused: boolean,
  giveBack: (worker: RankHost) => void = () => {},
): Promise<R[]> {
  const { ranks, timeoutMs } = options;
  if (!Number.isInteger(ranks) || ranks < 1 || ranks > MAX_RANKS) {
    throw new InvalidArgumentError("ranks", ranks, `an integer from 1 to ${MAX_RANKS}`);
  }
  if (timeoutMs !== undefined && !(timeoutMs > 0)) {
    throw new InvalidArgumentError("timeoutMs", timeoutMs, "a number of milliseconds above 0");
  }
  if ((options.module === undefined) === (options.run === undefined)) {
    const given = options.run === undefined ? "neither" : "both";
    throw new InvalidArgumentError("module and run", given, "one of them: a file, or a function that each rank runs");
  }
  const backend = parseBackend(options.backend ?? "threads");
  const isolation = parseIsolation(options.isolation ?? "thread");
  checkIsolation(backend, isolation);
  if (options.signal?.aborted) throw new AbortedError(String(options.signal.reason));
  // Threads take long to start; the module and the shared memory are made meanwhile.
  const bundling =
    options.run === undefined ? bundleUserModule(options.module) : bundleFunction(options.run.toString());
  const workers = Array.from({ length: ranks }, takeWorker);
  let run: WorldRun | undefined;
  try {
    const module = await bundling;
    // A signal that came meanwhile fires no event any more.
    if (options.signal?.aborted) throw new AbortedError(String(options.signal.reason));
    const engine = createEngine(backend, ranks, FIRST_GENERATION, options.backendOptions, isolation);
    run = new WorldRun(engine, ranks, options);
    for (const [rank, worker] of workers.entries()) {
      run.addRank(rank, worker, reused);
      worker.run({
        rank,
        worldSize: ranks,
        generation: FIRST_GENERATION,
        engine,
        module,
        isFunction: options.run !== undefined,
        args: options.args ?? [],
        data: options.data,
        env: { ...options.env, CHORALE_RANK: String(rank), CHORALE_WORLD_SIZE: String(ranks) },
        reused,
      });
    }
  } catch (error) {
    run?.close();
    for (const worker of workers) {
      worker.listen(undefined);
      worker.terminate();
    }
    // Ctrl-C ends the bundler as well: its failure is a consequence.
    if (options.signal?.aborted) throw new AbortedError(String(options.signal.reason));
    throw isCloneError(error)
      ? new InvalidArgumentError("data", options.data, "a value that structuredClone can copy", { cause: error })
      : error;
  }
  try {
    return (await run.finish()) as R[];
  } finally {
    for (const worker of run.reusable()) giveBack(worker);
    run.close();
  }
}

function isCloneError(error: unknown): boolean {
  return error instanceof Error && error.name === "DataCloneError";
}

interface RankState {
  readonly worker: RankHost;
  done: boolean;
  over: boolean;
  failed: boolean;
  exiting?: { readonly exitCode: number; readonly worldOpen: boolean };
  value?: unknown;
}

interface Failure {
  readonly rank: number;
  readonly error: ErrorRecord;
}

/** One life of one world, from the launcher's side. */
class WorldRun {
  readonly #engine: EngineHandle;
  readonly #size: number;
  readonly #options: CommonOptions<unknown>;
  readonly #ranks: RankState[] = [];
  readonly #store = new BootstrapStore();
  readonly #finished: Promise<void>;
  #finish: () => void = () => {};
  #failures: Failure[] = [];
  #ended: Error | undefined;
  #recorded = false;
  #grace: NodeJS.Timeout | undefined;

  constructor(engine: EngineHandle, size: number, options: CommonOptions<unknown>) {
    this.#engine = engine;
    this.#size = size;
    this.#options = options;
    this.#finished = new Promise((resolve) => {
      this.#finish = resolve;
    });
  }

  addRank(rank: number, worker: RankHost, reused: boolean): void {
    const state: RankState = { worker, done: false, over: false, failed: false };
    const emit = this.#options.onOutput ?? printLine;
    this.#ranks[rank] = state;
    this.#store.addRank((message) => worker.send(message));
    worker.listen({
      line: (stream, text) => emit({ rank, stream, text }),
      message: (message) => this.#onMessage(rank, state, message, reused),
      crash: (error) => this.#fail(rank, state, toErrorRecord(error)),
      exit: (exitCode, reason) => this.#onExit(rank, state, exitCode, reason),
    });
  }

  /** Waits for every rank. */
  async finish(): Promise<unknown[]> {
    const { timeoutMs, signal } = this.#options;
    const onAbort = () => this.#end(new AbortedError(String(signal?.reason ?? "the caller gave up")));
    signal?.addEventListener("abort", onAbort);
    const timer =
      timeoutMs === undefined
        ? undefined
        : setTimeout(() => this.#end(new TimeoutError("the world", timeoutMs, this.#activity())), timeoutMs);
    try {
      await this.#finished;
    } finally {
      clearTimeout(timer);
      clearTimeout(this.#grace);
      signal?.removeEventListener("abort", onAbort);
    }
    if (this.#ended !== undefined) throw this.#ended;
    // A failure that only reports another rank's is a consequence.
    const first = this.#failures.find(({ error }) => error.failedRank === undefined) ?? this.#failures[0];
    if (first !== undefined) {
      const { rank, error } = first;
      const origin = error.failedRank === undefined ? error : (error.cause ?? error);
      throw new RankFailedError(error.failedRank ?? rank, FIRST_GENERATION, fromErrorRecord(origin));
    }
    return this.#ranks.map((state) => state.value);
  }

  /** Workers that can serve another world: their rank ended well, and so did everybody else's. */
  reusable(): RankHost[] {
    const clean = this.#ended === undefined && this.#failures.length === 0;
    if (!clean) for (const { worker } of this.#ranks) worker.terminate();
    return clean ? this.#ranks.filter(({ worker }) => !worker.exited).map(({ worker }) => worker) : [];
  }

  /** Gives back what the ranks shared. */
  close(): void {
    releaseEngine(this.#engine);
  }

  #onMessage(rank: number, state: RankState, message: FromRank, reused: boolean): void {
    switch (message.kind) {
      case "done":
        state.done = true;
        state.value = message.value;
        if (reused) this.#over(state);
        return;
      case "failed":
        this.#fail(rank, state, message.error);
        if (reused) state.worker.terminate();
        return;
      case "exiting":
        state.exiting = message;
        if (state.failed) return;
        if (message.exitCode !== 0) failEngine(this.#engine, rank, `called process.exit(${message.exitCode})`);
        else if (message.worldOpen) this.#leave(rank, "called process.exit(0) with its world open");
        return;
      case "output":
        return;
      default:
        this.#store.handle(message, (reply) => state.worker.send(reply));
    }
  }

  #onExit(rank: number, state: RankState, exitCode: number, reason: string): void {
    if (state.over) return;
    if (!state.failed && this.#ended === undefined && (exitCode !== 0 || !state.done)) {
      const left = state.exiting === undefined ? reason : `called process.exit(${exitCode})`;
      if (exitCode !== 0) this.#fail(rank, state, plainRecord(left));
      else this.#leave(rank, left);
    }
    this.#over(state);
  }

  #fail(rank: number, state: RankState, error: ErrorRecord): void {
    if (state.failed || this.#ended !== undefined) return;
    state.failed = true;
    this.#failures.push({ rank, error });
    this.#recordFlight();
    failEngine(this.#engine, rank, `${error.name}: ${error.message}`);
    this.#store.fail({ rank, message: error.message });
    const graceMs = this.#options.graceMs ?? DEFAULT_GRACE_MS;
    this.#grace ??= setTimeout(() => {
      for (const { worker, over } of this.#ranks) if (!over) worker.terminate();
    }, graceMs);
  }

  /**
   * A rank left early with code 0. That is no failure of its own: whoever still waits for it after a while fails. At
   * once would be too soon, for the rank's last data may be on its way out of shared memory.
   */
  #leave(rank: number, how: string): void {
    const timer = setTimeout(() => failEngine(this.#engine, rank, how), LEAVE_MS);
    void this.#finished.then(() => clearTimeout(timer));
  }

  /** Ends the world from outside: no grace. */
  #end(error: Error): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#recordFlight();
    this.#store.fail({ rank: -1, message: error.message });
    for (const { worker } of this.#ranks) worker.terminate();
  }

  #over(state: RankState): void {
    if (state.over) return;
    state.over = true;
    state.worker.flush();
    if (this.#ranks.length === this.#size && this.#ranks.every(({ over }) => over)) this.#finish();
  }

  /** Who is done, and what each rank did last. */
  #activity(): RankActivity[] {
    const flight = readFlight(this.#engine);
    return this.#ranks.map((state, rank) => {
      const last = flight.ranks.find((entry) => entry.rank === rank)?.entries.at(-1);
      const arrived = state.over || state.done;
      return { rank, arrived, ...(last === undefined ? {} : { lastOp: last.op, lastSeq: last.seq }) };
    });
  }

  /** Writes what every rank did last to the folder that CHORALE_FLIGHT_DIR names, for `chorale doctor --flight`. */
  #recordFlight(): void {
    const folder = process.env["CHORALE_FLIGHT_DIR"];
    if (folder === undefined || folder === "" || this.#recorded) return;
    this.#recorded = true;
    try {
      mkdirSync(folder, { recursive: true });
      const name = `flight-${Date.now()}-${process.pid}-${FIRST_GENERATION}.json`;
      writeFileSync(join(folder, name), JSON.stringify(readFlight(this.#engine)));
    } catch (error) {
      process.stderr.write(`chorale: cannot write to CHORALE_FLIGHT_DIR: ${String(error)}\n`);
    }
  }
}
