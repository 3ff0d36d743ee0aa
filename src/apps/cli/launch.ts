/**
 * `chorale launch`: starts a script on N ranks, prints what they say, starts them again as it was told, and says which
 * rank failed first.
 */
import { constants } from "node:os";
import { type Command, InvalidArgumentError as InvalidOption, Option } from "commander";
import { AbortedError, InvalidArgumentError, RankFailedError } from "../../core/index.ts";
import { exitNow } from "../../foreign/native/index.ts";
import { tlsFiles, tlsIdentity, tlsVariables } from "../../runtime/rendezvous/index.ts";
import {
  type BackendName,
  BINDINGS,
  type Binding,
  backendKind,
  DEFAULT_BACKEND,
  DEFAULT_RESTARTS,
  FAILURE_POLICIES,
  type FailurePolicy,
  ISOLATIONS,
  type Isolation,
  LAUNCH_BACKENDS,
  launch,
  MAX_RANKS,
  parseBackendOptions,
  type WorldEvent,
} from "../../runtime/world/index.ts";
import { checkUnstarted, ignoreDebugSignal, numStoppingThreads, onFlightAsked } from "../../runtime/world/internal.ts";
import { counted } from "./counted.ts";
import { stackOf } from "./error-text.ts";
import { describeLack, EXIT } from "./exit-codes.ts";
import { addHostOptions, parseCount, parseDelay } from "./host-options.ts";
import {
  commandsFor,
  describeHosts,
  type HostFlags,
  hostsOf,
  secretForAll,
  secretFromInput,
  worldsApart,
} from "./launch-hosts.ts";
import { collect, refuseGiven, seconds } from "./option-readers.ts";
import { print, printError, whenPrinted } from "./output.ts";
import { RankOutput } from "./rank-output.ts";
import { RemoteLaunchers } from "./remote-launchers.ts";

/** How long the threads of ranks may take to stop, ms: one that is blocked in a system call does not. */
const THREADS_MS = 500;

interface Flags extends HostFlags {
  readonly backend: BackendName;
  readonly isolation?: Isolation;
  readonly timeout?: number;
  readonly restarts?: number;
  readonly onFailure?: FailurePolicy;
  readonly rebuildTimeout?: number;
  readonly restartDelay?: number;
  readonly minRanks?: number;
  readonly backendOption?: readonly string[];
  readonly logDir?: string;
  readonly prefix: boolean;
  readonly bind?: Binding;
  readonly dryRun?: boolean;
  readonly tlsCa?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .configureOutput({
      outputError: (text, write) =>
        write(
          /unknown option '--(?:ranks|np|nproc|nproc[-_]per[-_]node|world[-_]size)'|<ranks>' argument 'p'/.test(text)
            ? `${text}The number of ranks is -n: chorale launch -n 4 train.ts\n`
            : text.includes("unknown option")
              ? `${text}Options of the script stand after --: chorale launch -n 4 train.ts -- --epochs 3\n`
              : text,
        ),
    })
    .argument(
      "<script>",
      "TypeScript or JavaScript file: calls joinWorld(), or exports default async (world) => result",
    )
    .argument("[args...]", "words for the script, after --")
    .option("-n <ranks>", `number of ranks (of each host, where there are several), 1 to ${MAX_RANKS}`, parseRanks)
    .addOption(
      new Option("--backend <backend>", "how the ranks communicate").choices(LAUNCH_BACKENDS).default(DEFAULT_BACKEND),
    )
    .addOption(
      new Option("--isolation <isolation>", "what a rank runs in (thread; process with shm, tcp and mpi)").choices(
        ISOLATIONS,
      ),
    )
    .option("--timeout <seconds>", "end the world when it takes longer", seconds)
    .option(
      "--restarts <n>",
      `rebuild the world after at most this many failures (0; ${DEFAULT_RESTARTS} with --on-failure)`,
      parseCount,
    )
    .addOption(
      new Option(
        "--on-failure <policy>",
        "when a rank fails: end the world, respawn it, or shrink to the survivors (end; respawn with --restarts)",
      ).choices(FAILURE_POLICIES),
    )
    .option("--rebuild-timeout <seconds>", "end survivors that take longer to rebuild (60)", seconds)
    .option("--restart-delay <seconds>", "wait before a rebuild, doubled with each (0)", parseDelay)
    .option("--min-ranks <n>", "with shrink: end the world when fewer are left (1)", parseRanks)
    .option(
      "--backend-option <key=value>",
      "an option of the backend, as in launch()'s backendOptions (nccl: devices=[0,2] flightTimings=true ...)",
      collect,
    );
  addHostOptions(command, true)
    .option(
      "--last-call <seconds>",
      "with MIN:MAX hosts: how long to wait for more once MIN have come (10)",
      parseDelay,
    )
    .option(
      "--tls-ca <file>",
      "with tcp: connect over TLS, to peers with certificates of this authority (PEM; CHORALE_TLS_CA)",
    )
    .option("--tls-cert <file>", "the certificate of this host (PEM; CHORALE_TLS_CERT)")
    .option("--tls-key <file>", "its key, a file of mode 600 (PEM; CHORALE_TLS_KEY)")
    .addOption(
      new Option(
        "--bind <how>",
        "bind each rank that is a process to a share of the CPUs, or to a NUMA node's (none)",
      ).choices(BINDINGS),
    )
    .option(
      "--hostfile <file>",
      "hosts, one per line (NAME slots=RANKS): starts a launcher on each by ssh; the first is this one",
    )
    .option("--ssh <command>", "command that runs words on another host, called as COMMAND HOST WORDS (ssh)")
    .option("--dry-run", "say what would be started where, and start nothing")
    .addOption(new Option("--secret-stdin", "read the secret from standard input, and end with it").hideHelp())
    .option("--log-dir <folder>", "also write what each rank prints to FOLDER/rank-R.out and rank-R.err")
    .option("--no-prefix", "print the lines of ranks as they are, without `[rank]`")
    .usage("-n N [--backend B] [--isolation I] [--timeout S] [--restarts K] [--on-failure P] SCRIPT [-- args]")
    .addHelpText(
      "after",
      `
Words for the script stand after --: chorale launch -n 4 train.ts -- --epochs 3. On threads, the tensors of all ranks
together have 4 GiB; --backend-option memoryLimitBytes=1.5G sets less.

Each line that a rank prints comes out as \`[rank] line\`, or as it is with --no-prefix. Unless told otherwise, the first
rank that fails ends the world: exit code 1. Bad usage ends with 2, and what a backend lacks on this machine (no NCCL, or
one that is too old) with 3. With --restarts K the world is rebuilt up to K times: ranks that died, or did not call
world.rebuild() in time, run the script from its start with world.generation above 1; stderr says what happened.

Several hosts (--backend tcp): run the same command on each, with its own --node-rank; the launchers know each other by
CHORALE_SECRET, or by the file of mode 600 that CHORALE_SECRET_FILE names. Host 0 supervises all ranks. Each launcher prints
what its own ranks print, and all end with the same code, except one that a signal ended:
  host 0: chorale launch -n 4 --backend tcp --nnodes 2 --node-rank 0 --rdzv 10.0.0.1:29517 train.ts
  host 1: chorale launch -n 4 --backend tcp --nnodes 2 --node-rank 1 --rdzv 10.0.0.1:29517 train.ts
Or let ssh do it, from host 0, with chorale, Node and the script at the same places everywhere:
  chorale launch --hostfile hosts.txt --backend tcp train.ts     # lines such as: gpu-1 slots=4
With --tls-ca, --tls-cert and --tls-key on every host, all that goes between hosts is encrypted.
With --nnodes MIN:MAX the world begins with the hosts that have come, goes on without lost ones while MIN are left
(--on-failure respawn, or shrink), and is formed anew when a host comes, or comes back: scripts need world.rebuild().`,
    )
    .action(async (script: string, args: readonly string[], flags: Flags) => {
      exit(await runLaunch(script, args, flags));
    });
}

async function runLaunch(script: string, args: readonly string[], flags: Flags): Promise<number> {
  const tls = tlsOf(flags, process.env);
  if (tls !== undefined) tlsIdentity(tls);
  const hosts = hostsOf(flags);
  // Launchers that ssh starts have the same files at the same places.
  const commands = (port: number | string) =>
    commandsFor(hosts, port, flags, flags.backendOption ?? [], script, { ...process.env, ...tlsVariables(tls) });
  if (flags.hostfile === undefined) refuseGiven({ "--ssh": flags.ssh }, "--hostfile");
  const world = {
    ranks: hosts.ranks,
    module: script,
    args,
    backend: flags.backend,
    ...given("tls", tls, (files) => files),
    ...given("isolation", flags.isolation, (how) => how),
    ...given("bind", flags.bind, (how) => how),
    ...given("backendOptions", flags.backendOption, (words) => parseBackendOptions(words)),
    ...given("timeoutMs", flags.timeout, toMs),
    ...given("restarts", flags.restarts, (count) => count),
    ...given("onFailure", flags.onFailure, (policy) => policy),
    ...given("rebuildTimeoutMs", flags.rebuildTimeout, toMs),
    ...given("restartDelayMs", flags.restartDelay, toMs),
    ...given("minRanks", flags.minRanks, (count) => count),
  };
  if (flags.dryRun === true) {
    await checkUnstarted({ ...world, ...given("nodes", hosts.nodes, (nodes) => nodes) });
    const how = `${flags.backend}${flags.isolation === undefined ? "" : ` in a ${flags.isolation} each`}, ${script}`;
    const port = hosts.nodes?.rendezvous.replace(/^.*:/, "") ?? "";
    print(`${describeHosts(hosts, commands(port === "0" ? "PORT" : port), how).join("\n")}\n`);
    return EXIT.done;
  }
  const apart = hosts.nodes === undefined ? worldsApart(process.env) : undefined;
  if (apart !== undefined) printError(`chorale launch: ${apart}\n`);
  // Ranks may be threads of this process.
  ignoreDebugSignal();
  // `launch()` hears of it once it has loaded the backend; until then nobody has done anything.
  const stopAsking = onFlightAsked(() => {});
  const controller = new AbortController();
  let caught: NodeJS.Signals | undefined;
  const onSignal = (signal: NodeJS.Signals) => {
    caught = signal;
    controller.abort(signal);
  };
  process.once("SIGINT", onSignal).once("SIGTERM", onSignal);
  let output: RankOutput | undefined;
  const remote = new RemoteLaunchers();
  let unreachable: Error | undefined;
  let hasBegun = false;
  const onLost = (error: Error) => {
    // Later the heartbeat says it, and the world may go on without that host.
    if (hasBegun) return;
    unreachable ??= error;
    controller.abort(error.message);
  };
  try {
    if (flags.secretStdin === true) await secretFromInput(() => controller.abort("whoever started it is gone"));
    const secret = hosts.listed === undefined ? "" : secretForAll();
    const onListening = (port: number) => remote.start(commands(port), secret, onLost);
    const nodes = hosts.nodes && { ...hosts.nodes, ...(hosts.listed === undefined ? {} : { onListening }) };
    output = new RankOutput({ folder: flags.logDir, isPrefixed: flags.prefix });
    await launch({
      ...world,
      signal: controller.signal,
      onEvent: (event) => {
        hasBegun = true;
        if (event.kind === "world-ended" && event.unjoined !== undefined) tellUnjoined(event.unjoined);
        const text = describeEvent(event);
        const mayRebuild =
          (flags.restarts ?? 0) > 0 || flags.onFailure !== undefined || typeof hosts.nodes?.count === "object";
        if (text !== undefined && mayRebuild) {
          printError(`chorale launch: ${text}\n`);
        }
      },
      ...given("nodes", nodes, (options) => options),
      onOutput: output.take,
    });
    return 0;
  } catch (error) {
    if (unreachable !== undefined) throw unreachable;
    if (error instanceof RankFailedError) {
      await refuseTooMany(flags.backend, hosts.ranks, error);
      const { words, exitCode } = describeEnd(error);
      printError(`chorale launch: ${words}\n`);
      return exitCode;
    }
    if (error instanceof AbortedError && caught !== undefined) {
      printError(`chorale launch: ended by ${caught}; all ranks are stopped\n`);
      return 128 + (constants.signals[caught] ?? 0);
    }
    throw error;
  } finally {
    await remote.end(hasBegun);
    stopAsking();
    output?.close();
    leaveWithoutStuckThreads();
    process.removeListener("SIGINT", onSignal).removeListener("SIGTERM", onSignal);
  }
}

/** Ends the process when threads of ranks do not stop: they would keep it for as long as they are blocked. */
function leaveWithoutStuckThreads(): void {
  const since = performance.now();
  const poll = () => {
    if (numStoppingThreads() === 0) return;
    if (performance.now() - since < THREADS_MS) setTimeout(poll, 20);
    // Its caller has set the exit code by now.
    else whenPrinted(() => exitNow(Number(process.exitCode ?? EXIT.checkFailed)));
  };
  poll();
}

const toMs = (time: number): number => time * 1000;

/** The files that the flags name, and the environment beside them; nothing without a flag. @throws InvalidArgumentError */
export function tlsOf(
  { tlsCa, tlsCert, tlsKey }: Pick<Flags, "tlsCa" | "tlsCert" | "tlsKey">,
  env: Readonly<Record<string, string | undefined>>,
): ReturnType<typeof tlsFiles> {
  const named = definedIn({ CHORALE_TLS_CA: tlsCa, CHORALE_TLS_CERT: tlsCert, CHORALE_TLS_KEY: tlsKey });
  if (Object.keys(named).length === 0) return undefined;
  return tlsFiles(undefined, { ...env, ...named }, { ca: "--tls-ca", cert: "--tls-cert", key: "--tls-key" });
}

/** `{ [name]: of(flag) }`, or nothing for a flag that was not given. */
function given<const N extends string, F, V>(name: N, flag: F | undefined, of: (flag: F) => V): { [K in N]?: V } {
  return (flag === undefined ? {} : { [name]: of(flag) }) as { [K in N]?: V };
}

function definedIn(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
}

function tellUnjoined(ranks: readonly number[]): void {
  const who = ranks.length === 1 ? `rank ${ranks[0]}` : `${ranks.length} ranks`;
  const how = "a script takes part by joinWorld(), or by export default async (world) => result";
  printError(`chorale launch: ${who} ended without joining the world: ${how}\n`);
}

/** What somebody who watches a world's restarts wants to read. */
function describeEvent(event: WorldEvent): string | undefined {
  switch (event.kind) {
    case "rank-failed":
      return describeFailed(event);
    case "rebuild-started": {
      // That of a failure is told with the rank that failed.
      const why = /^rank \d+ /.test(event.because) ? "" : ` (${event.because})`;
      return `rebuild ${event.restart} begins${why}: survivors have ${event.timeoutMs} ms${event.delayMs > 0 ? `, the next generation waits ${event.delayMs} ms` : ""}`;
    }
    case "generation-started": {
      if (event.generation === 1) return undefined;
      const fresh = event.ranks.filter(({ was }) => was === undefined).map(({ rank }) => rank);
      const started = fresh.length === 0 ? "" : `; started again: ${fresh.join(", ")}`;
      return `generation ${event.generation} has ${counted(event.worldSize, "rank")}${started}`;
    }
    case "rebuild-refused":
      return `no further rebuild: ${event.because}`;
    default:
      return undefined;
  }
}

/** How a rank failed. One that reports another's failure, or the end of its own generation, has said who and when itself. */
export function describeFailed(event: Extract<WorldEvent, { kind: "rank-failed" }>): string {
  const { rank, how, generation, message, becauseOfRank } = event;
  const others = `rank ${becauseOfRank} failed (generation ${generation}): `;
  const known = [others, `generation ${generation} ends: `].find((words) => message.startsWith(words)) ?? "";
  const because = known === others && becauseOfRank !== rank ? ` because rank ${becauseOfRank} did` : "";
  return `rank ${rank} ${how} (generation ${generation})${because}: ${message.slice(known.length)}`;
}

/** The first failure with its stack, and the chain of what caused it. */
function describeFailure(failure: RankFailedError): string {
  const lines = [`rank ${failure.rank} failed first:`];
  let cause: unknown = failure.cause;
  for (let depth = 0; cause instanceof Error && depth < 8; depth++) {
    lines.push(`${depth === 0 ? "" : "caused by: "}${stackOf(cause)}`);
    cause = cause.cause;
  }
  return lines.join("\n");
}

/** How a rank begins to say that another one does not connect to it. */
const REFUSED_BY_RANK = /^rank \d+ is refused; expected one that rank \d+ /;

/** A line of a stack that is the program's or chorale's; those of Node itself are not. */
const FRAME_OF_FILES = /^\s+at (?!.*node:)/m;

/**
 * What a world that a rank ended says, and the exit code: that of the environment where the machine lacks something, such as the
 * rank's engine or descriptors for its modules; that of bad usage where the ranks of two hosts were given what differs.
 */
export function describeEnd(failure: RankFailedError): { readonly words: string; readonly exitCode: number } {
  const { rank, cause } = failure;
  if (!(cause instanceof Error)) return { words: describeFailure(failure), exitCode: EXIT.checkFailed };
  const { code } = cause as { readonly code?: unknown };
  // What the program itself was refused is told with its stack.
  const lack = FRAME_OF_FILES.test(cause.stack ?? "") ? undefined : describeLack(cause);
  const words = code === "UNAVAILABLE" ? cause.message : lack;
  if (words !== undefined) return { words: `rank ${rank} failed first: ${words}`, exitCode: EXIT.environment };
  const isRefused = code === "INVALID_ARGUMENT" && REFUSED_BY_RANK.test(cause.message);
  return isRefused
    ? { words: `rank ${rank} failed first: ${cause.message}`, exitCode: EXIT.usage }
    : { words: describeFailure(failure), exitCode: EXIT.checkFailed };
}

/** Refuses more ranks than this host has devices for, where a rank that found none has failed. @throws InvalidArgumentError */
async function refuseTooMany(backend: BackendName, ranks: number, { cause }: RankFailedError): Promise<void> {
  const { usesDevices, availableRanks } = await backendKind(backend);
  if (!usesDevices || (cause as { code?: unknown } | undefined)?.code !== "INVALID_ARGUMENT") return;
  // What is wrong with an engine the rank has said.
  const most = await Promise.resolve()
    .then(() => availableRanks())
    .catch(() => ranks);
  if (ranks > most)
    throw new InvalidArgumentError("-n", ranks, `at most ${most}, the visible devices: one for each rank`);
}

function parseRanks(text: string): number {
  const ranks = Number(text);
  if (!/^\d+$/.test(text) || ranks < 1 || ranks > MAX_RANKS) {
    throw new InvalidOption(`expected an integer from 1 to ${MAX_RANKS}`);
  }
  return ranks;
}
