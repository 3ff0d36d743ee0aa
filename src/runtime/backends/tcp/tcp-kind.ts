/** The tcp backend as the world knows it: ranks are processes, or threads, that reach each other by sockets alone. */
import { hostname } from "node:os";
import { type BackendKind, isDuration, isFlag, type OptionCheck } from "../../comm/index.ts";
import { MAX_CONNECTIONS, MAX_TCP_RANKS } from "./capabilities.ts";
import { BY_ITSELF, SOCKET_KERNELS } from "./socket-ways.ts";
import { isTcpChoices } from "./tcp-choices.ts";
import { CHECKSUM_MODES, HIERARCHY_MODES, SEND_THREAD_MODES, type TcpHandle, type TcpOptions } from "./tcp-handle.ts";
import { adoptTcpHost, createTcpHost, failTcpRank, publishTcpHost, readTcpFlight, releaseTcpHost } from "./tcp-host.ts";

const isAddress: OptionCheck = (value) =>
  typeof value === "string" && /^[\w.:%-]{1,255}$/.test(value)
    ? undefined
    : "an address, a name or an interface of this host";
const isConnections: OptionCheck = (value) =>
  Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MAX_CONNECTIONS
    ? undefined
    : `an integer from 1 to ${MAX_CONNECTIONS}`;

const isOneOf =
  (modes: readonly string[]): OptionCheck =>
  (value) =>
    modes.some((mode) => mode === value) ? undefined : `one of ${modes.join(", ")}`;

export const TCP_KIND: BackendKind<TcpHandle, TcpOptions> = {
  name: "tcp",
  encrypts: true,
  options: {
    timeoutMs: isDuration,
    strictWork: isFlag,
    host: isAddress,
    connections: isConnections,
    hierarchy: isOneOf(HIERARCHY_MODES),
    sendThread: isOneOf(SEND_THREAD_MODES),
    checksum: isOneOf(CHECKSUM_MODES),
    choices: isTcpChoices,
  },
  isolations: ["process", "thread"],
  servesPlans: true,
  ways: (collective) => SOCKET_KERNELS[collective].filter((name) => name !== BY_ITSELF),
  maxRanks: MAX_TCP_RANKS,
  usesDevices: false,
  availableRanks: () => MAX_TCP_RANKS,
  createHost: createTcpHost,
  releaseHost: releaseTcpHost,
  attach: async (host, rank, options, bootstrap) =>
    (await import("./backend.ts")).attachTcp(host, rank, options, bootstrap),
  // Ranks hear of a death by their connections, and of the end of a generation by the bootstrap.
  fail: (host, rank, cause, _everybody, blamed = rank) => failTcpRank(host, rank, cause, blamed),
  bury: () => {},
  readFlight: readTcpFlight,
  libraries: async () => [],
  acrossHosts: {
    publish: publishTcpHost,
    adopt: adoptTcpHost,
    optionsAt: (options, address) => ({
      ...options,
      host: options.host ?? (process.env["CHORALE_TCP_HOST"] || address),
    }),
  },
  prepareJoin: async () => ({
    engine: "tcp",
    device: `process ${process.pid} of ${hostname()}`,
    howToChoose: "start each rank in a process of its own",
    attach: async (host, rank, timeoutMs, { bootstrap, address }) => {
      const options = TCP_KIND.acrossHosts?.optionsAt({ timeoutMs }, address) ?? { timeoutMs };
      return (await import("./backend.ts")).attachTcp(host as TcpHandle, rank, options, bootstrap, { joined: true });
    },
  }),
};
