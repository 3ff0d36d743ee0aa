/**
 * MPI's own launcher: ranks find each other through the one that belongs to their library, so `chorale launch` starts
 * them all by one call of it. It is found by name and by what it says of its version.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { UnavailableError } from "../../../core/index.ts";
import type { MpiAbiName } from "../../../foreign/mpi/index.ts";
import type { StartCommand } from "../../comm/index.ts";
import { makeOwnFolder } from "../../memory/index.ts";

/** What tells the family of a launcher, in what `--version` prints. */
const SAYS: Readonly<Record<"Open MPI" | "MPICH", RegExp>> = {
  "Open MPI": /Open ?MPI|OpenRTE|PRRTE/i,
  MPICH: /HYDRA|MPICH|Intel\(R\) MPI/i,
};
const NAMES: Readonly<Record<"Open MPI" | "MPICH", readonly string[]>> = {
  "Open MPI": ["mpirun.openmpi", "mpirun", "mpiexec", "orterun"],
  MPICH: ["mpiexec.mpich", "mpiexec.hydra", "mpiexec", "mpirun"],
};
const VERSION_MS = 10_000;

/** Of Open MPI 4 (OMPI_MCA_) and 5 (PRTE_MCA_): more ranks than cores, no binding, survivors that live to tell. */
const OPEN_MPI_ENVIRONMENT = {
  OMPI_MCA_rmaps_base_oversubscribe: "1",
  OMPI_MCA_hwloc_base_binding_policy: "none",
  OMPI_MCA_orte_abort_on_non_zero_status: "0",
  OMPI_MCA_orte_enable_recovery: "1",
  OMPI_MCA_orte_tag_output: "1",
  PRTE_MCA_rmaps_default_mapping_policy: ":oversubscribe",
  PRTE_MCA_hwloc_default_binding_policy: "none",
} as const;

interface MpirunOptions {
  readonly abi: MpiAbiName;
  /** What the library is called, for errors. */
  readonly library: string;
  readonly ranks: number;
  readonly program: readonly string[];
  /** For Open MPI's session files, which it leaves behind when it is killed. */
  readonly folder: string;
  readonly env?: NodeJS.ProcessEnv;
}

/**
 * The command that starts `ranks` processes of `program` on this host.
 * @throws UnavailableError when no launcher of the library's family is here, naming what was found
 */
export function mpirunCommand(options: MpirunOptions): StartCommand {
  const { abi, library, ranks, program, folder, env = process.env } = options;
  const isRoot = process.getuid?.() === 0;
  const root = isRoot ? { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" } : {};
  const family = abi === "Open MPI" ? "Open MPI" : "MPICH";
  const named = env["CHORALE_MPIRUN"];
  const names = named === undefined || named === "" ? NAMES[family] : [named];
  const found: string[] = [];
  for (const name of names) {
    const { stdout, error } = spawnSync(name, ["--version"], {
      encoding: "utf8",
      timeout: VERSION_MS,
      env: { ...env, ...root },
    });
    if (error !== undefined) {
      found.push(`${name}: not found`);
      continue;
    }
    if (!SAYS[family].test(stdout)) {
      found.push(`${name}: another MPI's (${stdout.split("\n")[0]?.trim() || "it does not say whose"})`);
      continue;
    }
    const session = { OMPI_MCA_orte_tmpdir_base: folder, PRTE_MCA_prte_tmpdir_base: folder };
    const count = ["-n", String(ranks)];
    return family === "Open MPI"
      ? { command: name, args: [...count, ...program], env: { ...OPEN_MPI_ENVIRONMENT, ...session, ...root } }
      : { command: name, args: [...count, "-disable-auto-cleanup", "-prepend-rank", ...program], env: {} };
  }
  throw new UnavailableError(
    `the launcher of ${library}`,
    found.join("; "),
    `Install ${family}'s (Debian and Ubuntu: apt-get install ${family === "Open MPI" ? "openmpi-bin" : "mpich"}), or name it in CHORALE_MPIRUN.`,
  );
}

/** Where Open MPI (4: vader, 5: sm) keeps the files over which ranks of a host share memory, unless it is told. */
const SEGMENTS_IN = "/dev/shm";
const SEGMENTS_VARIABLES = ["OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"] as const;

/**
 * Has Open MPI keep those files in a folder that goes with the launcher: a rank that is killed leaves its own, some MiB of
 * memory until the next boot.
 * @param parent a folder in memory; where none can be made there, Open MPI does as it always does
 */
export function withOwnSegments(
  command: StartCommand,
  abi: MpiAbiName,
  env: NodeJS.ProcessEnv,
  parent = SEGMENTS_IN,
): StartCommand {
  const isTold = SEGMENTS_VARIABLES.some((name) => (env[name] ?? "") !== "");
  if (abi !== "Open MPI" || isTold || !existsSync(parent)) return command;
  let folder: string;
  try {
    folder = makeOwnFolder(parent, "chorale-mpi", "Open MPI's shared memory");
  } catch {
    return command;
  }
  const segments = Object.fromEntries(SEGMENTS_VARIABLES.map((name) => [name, folder]));
  return { ...command, env: { ...command.env, ...segments }, folders: [folder] };
}
