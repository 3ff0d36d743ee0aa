/**
 * Which MPI's launcher started this process, by the variables that it set: its ranks find each other only through that
 * MPI.
 */

export interface LaunchedBy {
  /** How people call the launcher. */
  readonly launcher: string;
  /** Whose library it starts: `undefined` where it starts both (Slurm). */
  readonly family: "Open MPI" | "MPICH" | undefined;
  readonly size: number;
  readonly rank: number;
  /** The variable that gives the size. */
  readonly variable: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

const LAUNCHERS = [
  {
    launcher: "Open MPI's mpirun",
    family: "Open MPI",
    size: "OMPI_COMM_WORLD_SIZE",
    rank: "OMPI_COMM_WORLD_RANK",
  },
  { launcher: "MPICH's mpiexec", family: "MPICH", size: "PMI_SIZE", rank: "PMI_RANK" },
  { launcher: "Slurm's srun", family: undefined, size: "SLURM_STEP_NUM_TASKS", rank: "SLURM_PROCID" },
] as const;

/** Which launcher started this process as a rank, a single one too; `undefined` when no MPI launcher did. */
export function launchedBy(env: Environment = process.env): LaunchedBy | undefined {
  for (const { launcher, family, size: sizeVariable, rank: rankVariable } of LAUNCHERS) {
    const [size, rank] = [Number(env[sizeVariable]), Number(env[rankVariable])];
    if (!(Number.isInteger(size) && size >= 1 && Number.isInteger(rank))) continue;
    // Within a batch job mpirun and Hydra have their daemons started by srun, whose variables the ranks inherit.
    const isDaemons = env["OMPI_COMM_WORLD_SIZE"] !== undefined || env["MPI_LOCALRANKID"] !== undefined;
    const isSlurm = env["SLURM_PROCID"] !== undefined && !isDaemons;
    return {
      launcher: isSlurm ? "Slurm's srun" : launcher,
      family: isSlurm ? undefined : family,
      size,
      rank,
      variable: sizeVariable,
    };
  }
  return undefined;
}
