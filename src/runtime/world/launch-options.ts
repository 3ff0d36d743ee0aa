/**
 * What `launch()` can be asked for, and whether it makes sense together: all of it is checked before anything starts. What the
 * options mean stands with them; what a backend is told is checked by that backend's kind.
 */
import { InvalidArgumentError } from "../../core/index.ts";
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
import { type TlsFiles, type TlsIdentity, tlsFiles, tlsIdentity } from "../rendezvous/index.ts";
import type { BackendName, BackendOptionsOf } from "./backend-table.ts";
import { type Binding, parseBinding } from "./cpu-binding.ts";
import type { WorldEvent } from "./events.ts";
import { type NodePlan, type NodesOptions, planNodes, sendsInTheClear } from "./node-options.ts";
import type { OutputLine } from "./output.ts";
import { checkMs, type RestartOptions, restartPolicy } from "./restart-policy.ts";
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
 * Checks what a world of a backend is asked for, once `checkOptions` has.
 * @param reused whether its ranks are kept for other worlds
 * @throws InvalidArgumentError, UnsupportedError
 */
export function checkLaunch<R, D>(
  options: LaunchOptions<R, D>,
  kind: BackendKind,
  reused: boolean,
  secretOf?: () => string,
) {
  const { ranks } = options;
  // Ranks that are kept for other worlds are threads, those of several hosts processes.
  const usual = options.nodes !== undefined && kind.isolations.includes("process") ? "process" : kind.isolations[0];
  const isolation = parseIsolation(options.isolation ?? (reused ? undefined : usual) ?? "thread");
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
  const plan = options.nodes === undefined ? undefined : planNodes(options.nodes, kind, isolation, tls, secretOf);
  const limits = limitsOf(options, plan);
  const policy = restartPolicy(limits, plan === undefined ? ranks : MAX_RANKS);
  if (policy.onFailure !== "end" && kind.rebuildRefusal !== undefined) {
    throw new InvalidArgumentError(
      "onFailure",
      policy.onFailure,
      `"end" with the ${kind.name} backend: ${kind.rebuildRefusal}`,
    );
  }
  return { isolation, plan, limits, policy };
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
export function checkOptions<R, D>(options: LaunchOptions<R, D>): void {
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
