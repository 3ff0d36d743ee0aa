/** What other launchers tell a process of its place: torchrun, Open MPI, Flux, MPICH and its relatives, and Slurm, by environment variables. */
import { InvalidArgumentError, UnavailableError, UnsupportedError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { slurmFirstHost, slurmPort } from "./slurm-hosts.ts";

interface ForeignLauncher {
  readonly name: string;
  readonly rank: string;
  readonly size: string;
  /** Names of one thing: of these and of the next the first that is set counts. */
  readonly localRank: readonly string[];
  /** Number of ranks on this host. */
  readonly localSize?: readonly string[];
  /** Number of hosts, where the launcher tells it. */
  readonly numHosts?: string;
  /** How often it has started the ranks again. */
  readonly restarts?: string;
}

const FOREIGN: readonly ForeignLauncher[] = [
  {
    name: "torchrun",
    rank: "RANK",
    size: "WORLD_SIZE",
    localRank: ["LOCAL_RANK"],
    localSize: ["LOCAL_WORLD_SIZE"],
    restarts: "TORCHELASTIC_RESTART_COUNT",
  },
  {
    name: "Open MPI",
    rank: "OMPI_COMM_WORLD_RANK",
    size: "OMPI_COMM_WORLD_SIZE",
    localRank: ["OMPI_COMM_WORLD_LOCAL_RANK"],
    localSize: ["OMPI_COMM_WORLD_LOCAL_SIZE"],
  },
  {
    name: "Flux",
    rank: "FLUX_TASK_RANK",
    size: "FLUX_JOB_SIZE",
    localRank: ["FLUX_TASK_LOCAL_ID"],
    numHosts: "FLUX_JOB_NNODES",
  },
  // Also Intel MPI's Hydra, and PALS of Cray systems.
  {
    name: "MPICH",
    rank: "PMI_RANK",
    size: "PMI_SIZE",
    localRank: ["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
    localSize: ["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
  },
  {
    name: "Slurm",
    rank: "SLURM_PROCID",
    size: "SLURM_STEP_NUM_TASKS",
    localRank: ["SLURM_LOCALID"],
    numHosts: "SLURM_STEP_NUM_NODES",
    restarts: "SLURM_RESTART_COUNT",
  },
];

/** A process's place in a world that another launcher started. */
export interface ForeignPlace {
  /** `torchrun`, `Slurm`, ... */
  readonly launcher: string;
  /** The variables that said so, for errors. */
  readonly variables: string;
  readonly rank: number;
  readonly size: number;
  /** Place among the ranks of this host. */
  readonly localRank: number;
  /** From 1; raised when the launcher starts all ranks again. */
  readonly generation: number;
  /** Why this version cannot join the world, if so: it spans several hosts. */
  readonly spansHosts: string | undefined;
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Refuses variables that say half of a place: each process would take itself for a world of one, and run the whole program.
 * @throws InvalidArgumentError
 */
function checkHalves(env: Environment): void {
  for (const { rank, size } of FOREIGN) {
    const refuse = (variable: string, accepted: string, other: string): never => {
      const value = env[variable] ?? "";
      const solo = `or unset ${other} for a world of 1`;
      throw new InvalidArgumentError(variable, value === "" ? described("not set") : value, `${accepted}; ${solo}`);
    };
    const rankText = env[rank] ?? "";
    const sizeText = env[size] ?? "";
    if (rankText === "" && Number(sizeText) > 1) refuse(rank, `0 to ${Number(sizeText) - 1}, by ${size}`, size);
    if (rankText === "") continue;
    if (Number(rankText) > 0) refuse(size, `a number above ${rank}=${rankText}`, rank);
    if (sizeText !== "" && Number(sizeText) !== 1) refuse(size, "a number from 1 on", rank);
  }
}

/**
 * Reads the place from the variables of the first launcher that set them.
 * @returns `undefined` when none did, or the world has one rank
 * @throws InvalidArgumentError when a variable is not a number, one of rank and size is missing, or the rank is out of range
 */
export function foreignPlace(env: Environment): ForeignPlace | undefined {
  const found = FOREIGN.find(({ rank, size }) => (env[rank] ?? "") !== "" && Number(env[size]) > 1);
  if (found === undefined) {
    checkHalves(env);
    return undefined;
  }
  const read = (variable: string | undefined): number | undefined => {
    const text = variable === undefined ? undefined : env[variable];
    if (text === undefined || text === "") return undefined;
    if (!/^\d{1,9}$/.test(text)) throw new InvalidArgumentError(variable ?? "", text, "a whole number");
    return Number(text);
  };
  const size = read(found.size) ?? 1;
  const rank = read(found.rank) ?? 0;
  if (rank >= size) throw new InvalidArgumentError(found.rank, rank, `0 to ${size - 1}, as ${found.size} says`);
  const setOne = (names: readonly string[] = []) => names.find((name) => env[name] !== undefined && env[name] !== "");
  const localSize = read(setOne(found.localSize));
  const localName = setOne(found.localRank);
  const localRank = read(localName) ?? rank;
  if (localName !== undefined && localSize !== undefined && localRank >= localSize)
    throw new InvalidArgumentError(localName, localRank, `0 to ${localSize - 1}, as ${setOne(found.localSize)} says`);
  const numHosts = read(found.numHosts);
  const spansHosts =
    localSize !== undefined && localSize !== size
      ? `${localSize} of its ${size} ranks are on this host (${setOne(found.localSize)})`
      : numHosts !== undefined && numHosts > 1
        ? `it has ${numHosts} hosts (${found.numHosts})`
        : undefined;
  return {
    launcher: found.name,
    variables: `${found.rank}, ${found.size}`,
    rank,
    size,
    localRank,
    generation: 1 + (read(found.restarts) ?? 0),
    spansHosts,
  };
}

/** @throws UnsupportedError for a world of several hosts */
export function checkOneHost({ launcher, spansHosts }: ForeignPlace, canLaunch: boolean): void {
  if (spansHosts === undefined) return;
  const instead = canLaunch ? ": have it start one chorale launch --nnodes on each host instead" : "";
  throw new UnsupportedError(
    "a world of several hosts",
    `${launcher} started this one: ${spansHosts}. This version joins processes of one host${instead}`,
  );
}

interface Address {
  readonly host: string;
  readonly port: number;
}

/**
 * Where the ranks meet: `CHORALE_RDZV=HOST:PORT`, or loopback and torchrun's MASTER_PORT + 1 (its own store has
 * MASTER_PORT), of a world of several hosts torchrun's MASTER_ADDR. Rank 0 listens there. What is not set of it is taken of
 * Slurm's list of hosts and the job's number, where Slurm started the ranks.
 * @param place of this process, where another launcher says it
 * @throws InvalidArgumentError, UnavailableError saying what to set
 */
export function rendezvousAddress(
  env: Environment,
  spansHosts = false,
  place?: Pick<ForeignPlace, "rank" | "size">,
): Address {
  const text = env["CHORALE_RDZV"];
  if (text !== undefined && text !== "") return parseAddress(text);
  const port = masterPort(env) ?? (place && slurmPort(env, place)?.port);
  if (port === undefined) {
    throw new UnavailableError(
      "a place for the ranks to meet",
      "neither CHORALE_RDZV nor MASTER_PORT is set",
      "Set the same free port for all ranks: CHORALE_RDZV=127.0.0.1:29517",
    );
  }
  const host = spansHosts ? env["MASTER_ADDR"] || (place && slurmFirstHost(env, place)?.host) : "127.0.0.1";
  if (host === undefined || host === "") {
    throw new UnavailableError(
      "a place for the ranks to meet",
      `neither CHORALE_RDZV nor, beside ${env["MASTER_PORT"] ? "MASTER_PORT" : "Slurm's job"}, MASTER_ADDR is set`,
      "Set an address of rank 0's host for all ranks: CHORALE_RDZV=HOST:PORT",
    );
  }
  return parseAddress(`${host.includes(":") ? `[${host}]` : host}:${port}`, "MASTER_ADDR and MASTER_PORT");
}

/** The port beside torchrun's own store. @throws InvalidArgumentError */
function masterPort(env: Environment): number | undefined {
  const master = env["MASTER_PORT"];
  if (master === undefined || master === "") return undefined;
  if (!/^\d{1,5}$/.test(master))
    throw new InvalidArgumentError("MASTER_PORT", master, "a port, or CHORALE_RDZV=HOST:PORT");
  return Number(master) < 65_535 ? Number(master) + 1 : Number(master) - 1;
}

/** @throws InvalidArgumentError */
export function parseAddress(text: string, variable = "CHORALE_RDZV", leastPort = 1): Address {
  const [, ipv6, name, port] = /^(?:\[([0-9a-fA-F:]+)\]|([\w.-]+)):(\d{1,5})$/.exec(text) ?? [];
  const host = ipv6 ?? name;
  if (host === undefined || Number(port) < leastPort || Number(port) > 65_535) {
    throw new InvalidArgumentError(variable, text, "HOST:PORT, such as 127.0.0.1:29517 or [::1]:29517");
  }
  return { host, port: Number(port) };
}
