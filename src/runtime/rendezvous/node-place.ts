/**
 * Which host of a world this is, as the program that started the launchers says it: one process a host, by Slurm, Open MPI,
 * MPICH, Flux, Kubernetes (indexed Job, JobSet) or Kubeflow Trainer.
 */
import { InvalidArgumentError, UnavailableError } from "../../core/index.ts";
import { slurmFirstHost, slurmPort } from "./slurm-hosts.ts";

interface NodeVariables {
  readonly name: string;
  readonly node: string;
  /** Absent where nothing says how many hosts there are. */
  readonly count?: string;
  /** Number of the starter's processes on this host, which must be 1. */
  readonly perHost?: string;
  /** The number of this process among those that share `node`, which must be the only one: 0. */
  readonly others?: string;
}

const STARTERS: readonly NodeVariables[] = [
  { name: "torchrun (Kubeflow Trainer)", node: "PET_NODE_RANK", count: "PET_NNODES" },
  {
    name: "Open MPI",
    node: "OMPI_COMM_WORLD_RANK",
    count: "OMPI_COMM_WORLD_SIZE",
    perHost: "OMPI_COMM_WORLD_LOCAL_SIZE",
  },
  { name: "Flux", node: "FLUX_TASK_RANK", count: "FLUX_JOB_SIZE", others: "FLUX_TASK_LOCAL_ID" },
  { name: "MPICH", node: "PMI_RANK", count: "PMI_SIZE", perHost: "MPI_LOCALNRANKS", others: "PMI_LOCAL_RANK" },
  { name: "Slurm", node: "SLURM_PROCID", count: "SLURM_STEP_NUM_TASKS", perHost: "SLURM_STEP_TASKS_PER_NODE" },
  // One Job of one pod for each host; the variables are set from the annotations of JobSet, as docs/multi-host.md shows.
  {
    name: "Kubernetes (JobSet)",
    node: "JOB_GLOBAL_INDEX",
    count: "JOBSET_GLOBAL_REPLICAS",
    others: "JOB_COMPLETION_INDEX",
  },
  { name: "Kubernetes (indexed Job)", node: "JOB_COMPLETION_INDEX" },
];

/** The fewest and the most hosts, as torchrun writes them: MIN:MAX. */
interface NodeRange {
  readonly min: number;
  readonly max: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads this host's number and the number of hosts.
 * @returns `count` undefined where the starter does not say it
 * @throws UnavailableError when nothing says it; InvalidArgumentError for a variable that is no number, or more than one
 *   launcher on this host
 */
export function nodePlace(env: Environment): { readonly node: number; readonly count: number | NodeRange | undefined } {
  const found = STARTERS.find(({ node }) => env[node] !== undefined && env[node] !== "");
  if (found === undefined) {
    throw new UnavailableError(
      "this host's number",
      `none of ${STARTERS.map(({ node }) => node).join(", ")} is set`,
      "Give it: --nnodes N --node-rank R",
    );
  }
  const read = (variable: string | undefined): number | undefined => {
    const text = variable === undefined ? undefined : env[variable];
    if (text === undefined || text === "") return undefined;
    if (!/^\d{1,6}$/.test(text)) throw new InvalidArgumentError(variable ?? "", text, "a whole number");
    return Number(text);
  };
  const { name, perHost } = found;
  // Slurm says `1(x4)`: one task on each of four hosts.
  const onThisHost = perHost === undefined ? undefined : env[perHost]?.replace(/\(x\d+\)$/, "");
  if (onThisHost !== undefined && onThisHost !== "" && onThisHost !== "1") {
    throw new InvalidArgumentError(perHost ?? "", onThisHost, `1: ${name} must start one chorale launch on each host`);
  }
  const other = read(found.others);
  if (other !== undefined && other !== 0) {
    throw new InvalidArgumentError(found.others ?? "", other, `0: ${name} must start one chorale launch for each host`);
  }
  const [, min, max] = /^(\d{1,6}):(\d{1,6})$/.exec(env[found.count ?? ""] ?? "") ?? [];
  const count = min === undefined ? read(found.count) : { min: Number(min), max: Number(max) };
  if (count === 0) throw new InvalidArgumentError(found.count ?? "", 0, "a number of hosts, 1 or more");
  return { node: read(found.node) ?? 0, count };
}

/**
 * Where the launchers meet, where the starter says it, and by which variables; `undefined` where nothing does. What Slurm's users
 * have not set of it is taken of its list of hosts and the job's number.
 * @param here this host's number, and the number of hosts where it does not change
 * @throws InvalidArgumentError for variables of Slurm that are malformed
 */
export function nodeRendezvous(
  env: Environment,
  here?: { readonly node: number; readonly count: number | undefined },
): { readonly address: string; readonly from: string } | undefined {
  if (env["CHORALE_RDZV"]) return { address: env["CHORALE_RDZV"], from: "CHORALE_RDZV" };
  const isKubeflow = env["PET_NODE_RANK"] !== undefined;
  const place = here === undefined || isKubeflow ? undefined : { rank: here.node, size: here.count };
  const set = (name: string) => (env[name] ? { value: env[name], from: name } : undefined);
  const first = () => {
    const found = place && slurmFirstHost(env, place);
    return found && { value: found.host, from: `the first host of ${found.from}` };
  };
  const ofJob = () => {
    const found = place && slurmPort(env, place);
    return found && { value: String(found.port), from: found.from };
  };
  const host = set(isKubeflow ? "PET_MASTER_ADDR" : "MASTER_ADDR") ?? first();
  const port = host && (set(isKubeflow ? "PET_MASTER_PORT" : "MASTER_PORT") ?? ofJob());
  if (host === undefined || port === undefined) return undefined;
  const name = host.value.includes(":") ? `[${host.value}]` : host.value;
  return { address: `${name}:${port.value}`, from: `${host.from} and ${port.from}` };
}
