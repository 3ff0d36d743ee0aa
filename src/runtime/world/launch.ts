/**
 * `launch()`: checks what it is asked for, starts a world whose ranks are threads of this process or processes of their
 * own, and waits for it. What happens to the world from then on is the supervisor's.
 */
import { AbortedError, InvalidArgumentError, RankFailedError, traceOfCall } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import {
  type BackendKind,
  checkBackendOptions,
  checkCarried,
  checkIsolation,
  checkRanks,
  type Isolation,
  parseIsolation,
} from "../comm/index.ts";
import {
  SECRET_VARIABLES,
  type TlsFiles,
  type TlsIdentity,
  tlsFiles,
  tlsIdentity,
  tlsVariables,
} from "../rendezvous/index.ts";
import {
  type BackendName,
  type BackendOptionsOf,
  backendKind,
  DEFAULT_BACKEND,
  parseBackend,
} from "./backend-table.ts";
import { type Binding, CpuShares, parseBinding } from "./cpu-binding.ts";
import type { WorldEvent } from "./events.ts";
import { sendingFile } from "./function-origin.ts";
import { serveNode } from "./node-agent.ts";
import type { WorldEnd } from "./node-link.ts";
import { type NodePlan, type NodesOptions, planNodes, sendsInTheClear } from "./node-options.ts";
import type { OutputLine } from "./output.ts";
import { RankGang } from "./rank-gang.ts";
import type { RankHost } from "./rank-host.ts";
import { RankProcess } from "./rank-process.ts";
import { RankWorker } from "./rank-worker.ts";
import { toErrorRecord } from "./remote-error.ts";
import { RemoteNodes, RemoteRank } from "./remote-rank.ts";
import { checkMs, type RestartOptions, restartPolicy } from "./restart-policy.ts";
import { bundleFunction, textOf } from "./sent-function.ts";
import { DEFAULT_GRACE_MS, Supervisor } from "./supervisor.ts";
import { bundleUserModule } from "./user-module.ts";
import type { World } from "./world.ts";

/** More threads than this in one process are taken for a typing error. */
export const MAX_RANKS = 256;

interface CommonOptions<D, B extends BackendName> extends RestartOptions {
  /** Number of ranks; of a world of several hosts, those of this host. */
  readonly ranks: number;
  /**
   * The hosts of the world, where there are several: on each of them a program calls `launch()` alike, but for `nodes.rank`.
   * They know each other by CHORALE_SECRET, or the file CHORALE_SECRET_FILE. What the first host is told of failures, limits,
   * `args` and `data` counts, and it alone gets the results; the others print what their own ranks print, and get an empty list.
   */
  readonly nodes?: NodesOptions;
  /** Words for the script: `world.args`, and the end of `process.argv`. */
  readonly args?: readonly string[];
  /**
   * `world.data`, and the second argument of the rank's function: plain data, also Map, Set, Date, typed arrays and shared
   * memory, but no functions and no instances of classes.
   */
  readonly data?: D;
  readonly backend?: B;
  /**
   * What each rank runs in: a `thread` of this process, or a `process` of its own. By default what the backend
   * names first: threads, and processes with the tcp backend.
   */
  readonly isolation?: Isolation;
  /** Limit of the memory, default deadline of every wait, and what else the backend knows: see docs/nccl.md. */
  readonly backendOptions?: BackendOptionsOf[B];
  /** Receives each line that a rank prints. By default lines are printed as `[rank] text`. */
  readonly onOutput?: (line: OutputLine) => void;
  /** Ends the world when it takes longer than this, ms. No limit by default. */
  readonly timeoutMs?: number;
  /** How long survivors of a failure may clean up before they are ended, ms. */
  readonly graceMs?: number;
  /** Environment variables of the ranks, beside this process's. Native libraries of ranks that are threads see only the latter. */
  readonly env?: Readonly<Record<string, string>>;
  /**
   * With the tcp backend: PEM files by which all connections between launchers and between ranks are over TLS, on both sides with
   * a certificate; CHORALE_TLS_CA, CHORALE_TLS_CERT and CHORALE_TLS_KEY unless given. Every process of the world needs them.
   */
  readonly tls?: TlsFiles;
  /**
   * Which CPUs each rank may run on, of ranks that are processes: an equal share of this host's (`cores`), or those of a NUMA
   * node (`numa`). `none` by default.
   */
  readonly bind?: Binding;
  /** Ends the world. */
  readonly signal?: AbortSignal;
  /** Hears what happens to the world: failures, rebuilds, generations. Also on the diagnostics channel `chorale:world`. */
  readonly onEvent?: (event: WorldEvent) => void;
}

/** A function that each rank runs. It sees nothing of its surroundings but its arguments and what it imports itself. */
export type RankFunction<R, D> = (world: World, data: D) => R | Promise<R>;

export type LaunchOptions<R, D, B extends BackendName = BackendName> = CommonOptions<D, B> &
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
export async function launch<R = unknown, D = undefined, B extends BackendName = BackendName>(
  options: LaunchOptions<R, D, B>,
): Promise<R[]> {
  let shares: CpuShares | undefined;
  const newHost = (isolation: Isolation) => {
    if (isolation !== "process") return new RankWorker();
    const { bind = "none" } = options;
    if (bind !== "none") shares ??= new CpuShares(bind, options.ranks);
    const tls = tlsVariables(tlsFiles(options.tls, process.env));
    return new RankProcess({ ...options.env, ...withoutSecret(options), ...tls }, shares?.take());
  };
  return runWorld(options, newHost, false);
}

/** Runs a world on hosts that `hostFor` gives. With `reused`, a rank ends with its function and gives its host back. */
export async function runWorld<R, D>(
  options: LaunchOptions<R, D>,
  hostFor: (isolation: Isolation) => RankHost,
  reused: boolean,
  giveBack: (host: RankHost) => void = () => {},
): Promise<R[]> {
  checkOptions(options);
  const trace = traceOfCall();
  const { ranks, timeoutMs, signal } = options;
  const kind = await backendKind(parseBackend(options.backend ?? DEFAULT_BACKEND));
  // Ranks that are kept for other worlds are threads, those of several hosts processes.
  const usual = options.nodes !== undefined && kind.isolations.includes("process") ? "process" : kind.isolations[0];
  const isolation = parseIsolation(options.isolation ?? (reused ? undefined : usual) ?? "thread");
  const takeHost = () => hostFor(isolation);
  checkIsolation(kind, isolation);
  if (
    parseBinding(options.bind ?? "none") !== "none" &&
    (isolation !== "process" || kind.startTogether !== undefined)
  ) {
    const who = isolation === "thread" ? "ranks that are threads" : `${kind.name}, whose own launcher binds ranks`;
    throw new InvalidArgumentError("bind", options.bind, `"none" with ${who}`);
  }
  checkCarried(options.data, "data", isolation === "thread");
  checkRanks(kind, ranks);
  checkBackendOptions(kind, options.backendOptions ?? {}, ranks);
  const tls = tlsOf(options, kind, isolation);
  const plan = options.nodes === undefined ? undefined : planNodes(options.nodes, kind, isolation, tls);
  const limits = limitsOf(options, plan);
  const checked = restartPolicy(limits, plan === undefined ? ranks : MAX_RANKS);
  if (checked.onFailure !== "end" && kind.rebuildRefusal !== undefined) {
    throw new InvalidArgumentError(
      "onFailure",
      checked.onFailure,
      `"end" with the ${kind.name} backend: ${kind.rebuildRefusal}`,
    );
  }
  if (signal?.aborted) throw new AbortedError(String(signal.reason));
  // Threads take long to start; the module and the shared memory are made meanwhile.
  const bundling =
    options.run === undefined
      ? bundleUserModule(options.module)
      : bundleFunction(textOf(options.run), sendingFile(trace));
  // Looked at below, unless a host cannot be had.
  bundling.catch(() => {});
  const hosts: RankHost[] = [];
  let supervisor: Supervisor | undefined;
  let remote: RemoteNodes | undefined;
  try {
    if (plan !== undefined && plan.rank > 0) {
      const { backendOptions = {}, graceMs = DEFAULT_GRACE_MS, onOutput } = options;
      const module = await bundling;
      await serveNode({ plan, kind, ranks, backendOptions, module, graceMs, signal, onOutput, startRank: takeHost });
      return [];
    }
    if (plan !== undefined) {
      await bundling;
      remote = await RemoteNodes.gather(plan, ranks, signal);
    }
    const numRanks = ranks + (remote?.numRanks ?? 0);
    checkRanks(kind, numRanks, "ranks of all hosts");
    const policy = remote === undefined ? checked : restartPolicy(limits, numRanks);
    const gang = kind.startTogether === undefined ? undefined : await RankGang.start(kind, ranks, options.env);
    while (hosts.length < ranks) hosts.push(gang?.member(hosts.length) ?? takeHost());
    hosts.push(...(remote?.admit() ?? []));
    const module = await bundling;
    // A signal that came meanwhile fires no event any more.
    if (signal?.aborted) throw new AbortedError(String(signal.reason));
    const isFunction = options.run !== undefined;
    const job = { module, isFunction, args: options.args ?? [], data: options.data, reused };
    const { graceMs, env, onOutput, onEvent } = options;
    const { backendOptions: given } = options;
    const backendOptions = plan?.across.optionsAt(given ?? {}, remote?.address ?? "") ?? given;
    supervisor = new Supervisor({
      ranks: numRanks,
      kind,
      backendOptions,
      isolation,
      worldSecret: plan?.secret,
      mirrors: remote,
      policy,
      timeoutMs,
      graceMs,
      signal,
      hosts: plan?.minCount === undefined ? undefined : remote,
      env,
      onOutput,
      onEvent,
      job,
      takeHost: (instead) => (instead instanceof RemoteRank ? instead.again() : takeHost()),
    });
    supervisor.start(hosts);
  } catch (error) {
    for (const host of hosts) {
      host.listen(undefined);
      host.terminate();
    }
    supervisor?.close();
    void remote?.end({ error: toErrorRecord(error), generation: 0 });
    // Ctrl-C ends the bundler as well: its failure is a consequence.
    if (signal?.aborted) throw new AbortedError(String(signal.reason));
    throw isCloneError(error)
      ? new InvalidArgumentError("data", options.data, "a value that structuredClone can copy", { cause: error })
      : error;
  }
  try {
    const results = (await supervisor.finish()) as R[];
    await remote?.end();
    return results;
  } catch (error) {
    await remote?.end(worldEnd(error));
    throw error;
  } finally {
    // Ranks that were started together end together.
    for (const host of supervisor.reusable()) kind.startTogether === undefined ? giveBack(host) : host.terminate();
    supervisor.close();
  }
}

/** Checks the files before anything starts. @throws InvalidArgumentError */
function tlsOf<R, D>(options: LaunchOptions<R, D>, kind: BackendKind, isolation: Isolation): TlsIdentity | undefined {
  const files = tlsFiles(options.tls, process.env);
  if (kind.encrypts !== true) {
    // Of one host nothing leaves it.
    if (options.tls !== undefined || (files !== undefined && options.nodes !== undefined)) throw sendsInTheClear(kind);
    return undefined;
  }
  if (options.tls !== undefined && isolation !== "process") {
    throw new InvalidArgumentError("isolation", isolation, '"process" with tls');
  }
  return files === undefined ? undefined : tlsIdentity(files);
}

/** The limits of rebuilds; where the number of hosts may change, a world is rebuilt unless told otherwise. @throws InvalidArgumentError */
function limitsOf<R, D>(options: LaunchOptions<R, D>, plan: NodePlan | undefined): RestartOptions {
  if (plan?.minCount === undefined) return options;
  if (options.onFailure !== "end") return { onFailure: "respawn", ...definedOf(options) };
  throw new InvalidArgumentError("onFailure", "end", `"respawn" or "shrink" where the number of hosts may change`);
}

/** The restart options that were given. */
function definedOf(options: RestartOptions): RestartOptions {
  const names = ["onFailure", "restarts", "restartWindowMs", "restartDelayMs", "rebuildTimeoutMs", "minRanks"] as const;
  return Object.fromEntries(names.flatMap((name) => (options[name] === undefined ? [] : [[name, options[name]]])));
}

/** Ranks of several hosts get their world from their launcher, and need no secret. */
function withoutSecret({ nodes }: Pick<CommonOptions<unknown, BackendName>, "nodes">): Record<string, string> {
  return nodes === undefined ? {} : Object.fromEntries(SECRET_VARIABLES.map((name) => [name, ""]));
}

/** How the world ended, for the launchers of other hosts. */
function worldEnd(error: unknown): WorldEnd {
  if (!(error instanceof RankFailedError)) return { error: toErrorRecord(error), generation: 1 };
  const { rank, generation, cause } = error;
  return { error: toErrorRecord(cause), rank, generation };
}

/** Every option; the compiler says when one is missing here. */
const OPTIONS: Readonly<Record<keyof CommonOptions<unknown, BackendName> | "module" | "run", true>> = {
  ranks: true,
  run: true,
  module: true,
  data: true,
  args: true,
  backend: true,
  isolation: true,
  backendOptions: true,
  nodes: true,
  env: true,
  tls: true,
  bind: true,
  timeoutMs: true,
  graceMs: true,
  signal: true,
  onOutput: true,
  onEvent: true,
  onFailure: true,
  restarts: true,
  restartWindowMs: true,
  restartDelayMs: true,
  rebuildTimeoutMs: true,
  minRanks: true,
};
const OPTION_NAMES: ReadonlySet<string> = new Set(Object.keys(OPTIONS));

/** Programs in JavaScript have nobody else who looks at their options. @throws InvalidArgumentError */
function checkOptions<R, D>(options: LaunchOptions<R, D>): void {
  if (typeof options !== "object" || options === null) {
    throw new InvalidArgumentError("options of launch()", options, "an object: { ranks, run } or { ranks, module }");
  }
  const unknown = Object.keys(options).find((name) => !OPTION_NAMES.has(name));
  if (unknown !== undefined) {
    throw new InvalidArgumentError(
      "options of launch()",
      unknown,
      `one of ${[...OPTION_NAMES].join(", ")}; what the backend is told stands in backendOptions: { ... }`,
    );
  }
  const { ranks, module, run, args, env, signal, backendOptions } = options;
  const check = (name: string, value: unknown, isGood: boolean, accepted: string) => {
    if (value !== undefined && !isGood) throw new InvalidArgumentError(name, value, accepted);
  };
  if (!Number.isInteger(ranks) || ranks < 1 || ranks > MAX_RANKS) {
    throw new InvalidArgumentError("ranks", ranks, `an integer from 1 to ${MAX_RANKS}`);
  }
  checkMs("timeoutMs", options.timeoutMs, 1);
  checkMs("graceMs", options.graceMs, 0);
  if ((module === undefined) === (run === undefined)) {
    const given = run === undefined ? "missing, and so is module" : "given with module";
    throw new InvalidArgumentError("run", described(given), "either run, a function, or module, a file");
  }
  check("run", run, typeof run === "function", "a function that each rank runs");
  check("module", module, typeof module === "string" || module instanceof URL, "a path, or a file: URL");
  check("args", args, Array.isArray(args) && args.every(isText), "a list of strings");
  const variables = typeof env === "object" && env !== null ? Object.entries(env) : undefined;
  const accepted = "an object of strings, whose names are not empty and hold no =";
  check("env", env, variables?.every(([name, value]) => /^[^=\0]+$/.test(name) && isText(value)) === true, accepted);
  check("signal", signal, typeof signal?.addEventListener === "function", "an AbortSignal");
  for (const name of ["onOutput", "onEvent"] as const) {
    check(name, options[name], typeof options[name] === "function", "a function");
  }
  check("backendOptions", backendOptions, typeof backendOptions === "object" && backendOptions !== null, "an object");
}

function isText(value: unknown): boolean {
  return typeof value === "string" && !value.includes("\0");
}

function isCloneError(error: unknown): boolean {
  return error instanceof Error && error.name === "DataCloneError";
}
