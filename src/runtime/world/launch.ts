/**
 * `launch()`: checks what it is asked for, starts a world whose ranks are threads of this process or processes of their
 * own, and waits for it. What happens to the world from then on is the supervisor's.
 */
import { AbortedError, InvalidArgumentError, RankFailedError, traceOfCall } from "../../core/index.ts";
import { checkRanks, type Isolation } from "../comm/index.ts";
import { SECRET_VARIABLES, tlsFiles, tlsVariables } from "../rendezvous/index.ts";
import { onFlightAsked } from "./asked-flight.ts";
import { type BackendName, backendKind, DEFAULT_BACKEND, parseBackend } from "./backend-table.ts";
import { CpuShares } from "./cpu-binding.ts";
import { sendingFile } from "./function-origin.ts";
import { checkLaunch, checkOptions, type LaunchOptions } from "./launch-options.ts";
import { serveNode } from "./node-agent.ts";
import type { WorldEnd } from "./node-link.ts";
import { RankGang } from "./rank-gang.ts";
import type { RankHost } from "./rank-host.ts";
import { RankProcess } from "./rank-process.ts";
import { RankWorker } from "./rank-worker.ts";
import { toErrorRecord } from "./remote-error.ts";
import { RemoteNodes, RemoteRank } from "./remote-rank.ts";
import { restartPolicy } from "./restart-policy.ts";
import { bundleFunction, textOf } from "./sent-function.ts";
import { DEFAULT_GRACE_MS, Supervisor } from "./supervisor.ts";
import { bundleUserModule } from "./user-module.ts";

/**
 * Checks what `launch()` checks before it starts anything, but for the secret of several hosts and the script, which may be
 * elsewhere.
 * @throws InvalidArgumentError
 */
export async function checkUnstarted<D>(options: LaunchOptions<unknown, D>): Promise<void> {
  checkOptions(options);
  checkLaunch(options, await backendKind(parseBackend(options.backend ?? DEFAULT_BACKEND)), false, () => "");
}

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
  const { isolation, plan, limits, policy: ofThisHost } = checkLaunch(options, kind, reused);
  const takeHost = () => hostFor(isolation);
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
  // From now on, for whoever asks before the ranks have started is not to end the launcher.
  const stopAsking = onFlightAsked(() => {
    supervisor?.recordFlight();
    if (supervisor !== undefined) remote?.askFlight();
  });
  try {
    if (plan !== undefined && plan.rank > 0) {
      const { backendOptions = {}, graceMs = DEFAULT_GRACE_MS, onOutput } = options;
      const module = await bundling;
      await serveNode({ plan, kind, ranks, backendOptions, module, graceMs, signal, onOutput, startRank: takeHost });
      stopAsking();
      return [];
    }
    if (plan !== undefined) {
      await bundling;
      remote = await RemoteNodes.gather(plan, ranks, signal);
    }
    const numRanks = ranks + (remote?.numRanks ?? 0);
    checkRanks(kind, numRanks, "ranks of all hosts");
    const policy = remote === undefined ? ofThisHost : restartPolicy(limits, numRanks);
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
    stopAsking();
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
  const world = supervisor;
  try {
    const results = (await world.finish()) as R[];
    await remote?.end();
    return results;
  } catch (error) {
    await remote?.end(worldEnd(error));
    throw error;
  } finally {
    stopAsking();
    // Ranks that were started together end together.
    for (const host of world.reusable()) kind.startTogether === undefined ? giveBack(host) : host.terminate();
    world.close();
  }
}

/** Ranks of several hosts get their world from their launcher, and need no secret. */
function withoutSecret({ nodes }: Pick<LaunchOptions<unknown, unknown>, "nodes">): Record<string, string> {
  return nodes === undefined ? {} : Object.fromEntries(SECRET_VARIABLES.map((name) => [name, ""]));
}

/** How the world ended, for the launchers of other hosts. */
function worldEnd(error: unknown): WorldEnd {
  if (!(error instanceof RankFailedError)) return { error: toErrorRecord(error), generation: 1 };
  const { rank, generation, cause } = error;
  return { error: toErrorRecord(cause), rank, generation };
}

function isCloneError(error: unknown): boolean {
  return error instanceof Error && error.name === "DataCloneError";
}
