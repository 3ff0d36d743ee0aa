/** Where the hosts of a launch come from: a file of hosts, the flags, or the environment of another starter. */
import { randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { foreignPlace, rendezvousSecret, SECRET_VARIABLES } from "../../runtime/rendezvous/internal.ts";
import {
  type HostRange,
  type NodesOptions,
  nodePlace,
  nodeRendezvous,
  packageRoot,
} from "../../runtime/world/index.ts";
import { counted } from "./counted.ts";
import { type ListedHost, readHostFile } from "./host-file.ts";
import { quoted, type RemoteCommand, remoteCommands } from "./remote-launchers.ts";

/** A secret that comes by standard input is no longer than this, characters. */
const MAX_SECRET_CHARS = 4096;

export interface HostFlags {
  readonly n?: number;
  readonly nnodes?: number | HostRange | "env";
  readonly nodeRank?: number | "env";
  readonly rdzv?: string;
  readonly joinTimeout?: number;
  readonly hostTimeout?: number;
  readonly lastCall?: number;
  readonly hostfile?: string;
  readonly ssh?: string;
  readonly secretStdin?: boolean;
}

export interface LaunchHosts {
  /** Of this host. */
  readonly ranks: number;
  /** `undefined` for a world of one host that no flag spoke of. */
  readonly nodes: NodesOptions | undefined;
  /** The variables that say where the hosts meet, where no flag does. */
  readonly rendezvousFrom?: string;
  /** Of a file: all of them, the first being this one. */
  readonly listed: readonly ListedHost[] | undefined;
}

/** @throws InvalidArgumentError, UnavailableError */
export function hostsOf(flags: HostFlags): LaunchHosts {
  if (flags.hostfile === undefined) {
    if (flags.n === undefined) throw new InvalidArgumentError("-n", described("not given"), "the number of ranks");
    return { ranks: flags.n, ...nodesOf(flags), listed: undefined };
  }
  if (flags.nnodes !== undefined || flags.nodeRank !== undefined) {
    throw new InvalidArgumentError("--hostfile", flags.hostfile, "no --nnodes and no --node-rank beside it");
  }
  if (flags.ssh?.trim() === "") throw new InvalidArgumentError("--ssh", flags.ssh, "a command, such as ssh -p 2222");
  const listed = readHostFile(flags.hostfile, flags.n);
  if (flags.n !== undefined && listed.every(({ hasSlots }) => hasSlots)) {
    throw new InvalidArgumentError("-n", flags.n, `no -n where ${flags.hostfile} says how many ranks each host has`);
  }
  const [first] = listed;
  const name = first?.name ?? "";
  const isLoopback = (one: string) => /^(localhost|127\.[\d.]+|::1)$/.test(one);
  if (flags.rdzv === undefined && isLoopback(name) && listed.some((host) => !isLoopback(host.name))) {
    throw new InvalidArgumentError(
      "the first host",
      name,
      "a name by which the others reach it, or --rdzv ADDRESS:PORT (port 0: the system's choice)",
    );
  }
  const rendezvous = flags.rdzv ?? `${name.includes(":") ? `[${name}]` : name}:0`;
  return {
    ranks: first?.ranks ?? 1,
    nodes: { count: listed.length, rank: 0, rendezvous, ...timesOf(flags, listed.length) },
    listed,
  };
}

/** The commands for the other hosts of a file. @param port at which this one listens @param env what they are told of it */
export function commandsFor(
  { listed = [], nodes }: LaunchHosts,
  port: number | string,
  flags: HostFlags & {
    readonly backend: string;
    readonly isolation?: string;
    readonly bind?: string;
    readonly logDir?: string;
    readonly prefix: boolean;
  },
  backendOptions: readonly string[],
  script: string,
  env: NodeJS.ProcessEnv,
): readonly RemoteCommand[] {
  const given = (name: string, value: string | number | undefined) =>
    value === undefined ? [] : [name, String(value)];
  return remoteCommands(listed, {
    ssh: flags.ssh ?? "ssh",
    rendezvous: (nodes?.rendezvous ?? "").replace(/:\d+$/, `:${port}`),
    flags: [
      ...given("--backend", flags.backend),
      ...given("--isolation", flags.isolation),
      ...given("--join-timeout", flags.joinTimeout),
      ...given("--host-timeout", flags.hostTimeout),
      ...given("--log-dir", flags.logDir),
      ...(flags.prefix ? [] : ["--no-prefix"]),
      ...given("--bind", flags.bind),
      // An address to listen on is of one host.
      ...backendOptions.flatMap((option) => (/^host=/.test(option) ? [] : given("--backend-option", option))),
    ],
    script,
    program: [process.execPath, fileURLToPath(new URL("bin/chorale.mjs", packageRoot))],
    env,
  });
}

/** Of several launchers that another program started, each of which forms a world of its own: what to tell of it. */
export function worldsApart(env: NodeJS.ProcessEnv): string | undefined {
  let place: ReturnType<typeof foreignPlace>;
  try {
    place = foreignPlace(env);
  } catch {
    // What the variables say is of no use to a world of one host.
    return undefined;
  }
  if (place === undefined) return undefined;
  const { launcher, rank, size, variables } = place;
  return `${launcher} started this launcher as number ${rank} of ${size} (${variables}), and each forms a world of its own; one world of all: --backend tcp --nnodes env --node-rank env`;
}

/** What a launch would do, a line for each host. */
export function describeHosts(
  { ranks, nodes, rendezvousFrom, listed }: LaunchHosts,
  commands: readonly RemoteCommand[],
  how: string,
): readonly string[] {
  const numbered = (from: number, count: number) =>
    count === 1 ? `rank ${from}` : `ranks ${from} to ${from + count - 1}`;
  if (nodes === undefined) return [`this host: ${numbered(0, ranks)}, ${how}`];
  if (listed === undefined) {
    const { rank, rendezvous } = nodes;
    const count = typeof nodes.count === "number" ? nodes.count : `${nodes.count.min} to ${nodes.count.max}`;
    const where = rendezvousFrom === undefined ? rendezvous : `${rendezvous} (${rendezvousFrom})`;
    const does = rank === 0 ? `listens at ${where} and supervises all ranks` : `connects to ${where}`;
    return [`this is host ${rank} of ${count}: ${counted(ranks, "rank")}, ${how}; ${does}`];
  }
  let from = 0;
  return listed.map((host, node) => {
    const who = `host ${node} (${host.target}): ${numbered(from, host.ranks)}, ${how}`;
    from += host.ranks;
    const words = commands.find((command) => command.node === node)?.words;
    return words === undefined
      ? `${who}; this one, listens at ${nodes.rendezvous} and supervises all ranks`
      : `${who}\n  ${words.map(quoted).join(" ")}`;
  });
}

/** The secret for the launchers of a file: the one that is set, or a new one. Sets it for this process. */
export function secretForAll(): string {
  if (SECRET_VARIABLES.every((name) => !process.env[name])) {
    process.env["CHORALE_SECRET"] = randomBytes(32).toString("hex");
  }
  return rendezvousSecret(process.env);
}

/** Takes the secret from standard input, where it is the first line. @param ended is told when that input ends later */
export function secretFromInput(ended: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    let text = "";
    let isRead = false;
    const { stdin } = process;
    stdin.setEncoding("utf8").on("data", (chunk: string) => {
      if (isRead) return;
      text += chunk;
      const end = text.indexOf("\n");
      if (end < 0 && text.length <= MAX_SECRET_CHARS) return;
      isRead = true;
      process.env["CHORALE_SECRET"] = text.slice(0, Math.max(0, end)).trim();
      text = "";
      // The input alone must not keep this process.
      (stdin as Partial<{ unref(): void }>).unref?.();
      resolve();
    });
    stdin.on("error", () => {});
    stdin.on("close", () => {
      if (isRead) ended();
      else
        reject(
          new InvalidArgumentError(
            "--secret-stdin",
            described("given, but standard input ended"),
            "the secret as the first line of standard input",
          ),
        );
    });
  });
}

/** The hosts of the world, from flags and from the environment. @throws InvalidArgumentError, UnavailableError */
function nodesOf(flags: HostFlags): Pick<LaunchHosts, "nodes" | "rendezvousFrom"> {
  const { nnodes, nodeRank, rdzv } = flags;
  if (nnodes === undefined && nodeRank === undefined) {
    const { joinTimeout, hostTimeout, lastCall } = flags;
    const others = { rdzv, "join-timeout": joinTimeout, "host-timeout": hostTimeout, "last-call": lastCall };
    const given = Object.entries(others).find(([, value]) => value !== undefined)?.[0];
    if (given === undefined) return { nodes: undefined };
    throw new InvalidArgumentError("--nnodes", described("not given"), `the number of hosts, beside --${given}`);
  }
  const here = nnodes === "env" || nodeRank === "env" ? nodePlace(process.env) : undefined;
  const count = nnodes === "env" ? here?.count : nnodes;
  const rank = nodeRank === "env" || nodeRank === undefined ? here?.node : nodeRank;
  if (count === undefined) {
    const given = nnodes === "env" ? "env, and no variable here says how many hosts there are" : "not given";
    throw new InvalidArgumentError("--nnodes", described(given), "the number of hosts");
  }
  if (rank === undefined)
    throw new InvalidArgumentError("--node-rank", described("not given"), "this host's number, or env");
  const most = typeof count === "number" ? count : count.max;
  if (rank >= most) throw new InvalidArgumentError("--node-rank", rank, `0 to ${most - 1}, of ${most} hosts`);
  const fixed = typeof count === "number" ? count : undefined;
  const meeting = rdzv === undefined ? nodeRendezvous(process.env, { node: rank, count: fixed }) : undefined;
  const rendezvous = rdzv ?? meeting?.address;
  if (rendezvous === undefined) {
    throw new InvalidArgumentError(
      "--rdzv",
      described("not given"),
      "HOST:PORT, an address of host 0, also as CHORALE_RDZV; only under srun, with one task a host, it can be left out",
    );
  }
  const nodes = { count, rank, rendezvous, ...timesOf(flags, count) };
  return meeting === undefined ? { nodes } : { nodes, rendezvousFrom: meeting.from };
}

function timesOf(
  { joinTimeout, hostTimeout, lastCall }: HostFlags,
  count: number | HostRange,
): Pick<NodesOptions, "joinTimeoutMs" | "hostTimeoutMs" | "lastCallMs"> {
  if (lastCall !== undefined && typeof count === "number") {
    throw new InvalidArgumentError(
      "--last-call",
      lastCall,
      `--nnodes MIN:MAX beside it: all ${count} hosts are awaited`,
    );
  }
  return {
    ...(lastCall === undefined ? {} : { lastCallMs: lastCall * 1000 }),
    ...(joinTimeout === undefined ? {} : { joinTimeoutMs: joinTimeout * 1000 }),
    ...(hostTimeout === undefined ? {} : { hostTimeoutMs: hostTimeout * 1000 }),
  };
}
