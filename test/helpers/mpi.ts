/** Which MPIs are installed here, each with its launcher and library; tests that need an absent one skip, and say so. */
import { spawnSync } from "node:child_process";

export interface InstalledMpi {
  readonly family: "Open MPI" | "MPICH";
  /** Its mpirun, and arguments that let it start as root and with more ranks than cores. */
  readonly launcher: string;
  readonly flags: readonly string[];
  /** For CHORALE_MPI_LIBRARY. */
  readonly library: string;
  readonly installed: boolean;
}

/** Open MPI says nothing to root, not even its version, unless told that it may. */
export const ROOT = { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" };

const says = (launcher: string, pattern: RegExp): boolean =>
  pattern.test(spawnSync(launcher, ["--version"], { encoding: "utf8", env: { ...process.env, ...ROOT } }).stdout ?? "");

export const OPEN_MPI: InstalledMpi = {
  family: "Open MPI",
  launcher: "mpirun.openmpi",
  flags: ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
  library: "libmpi.so.40",
  installed: says("mpirun.openmpi", /OpenRTE|Open MPI|PRRTE/),
};
export const MPICH: InstalledMpi = {
  family: "MPICH",
  launcher: "mpiexec.mpich",
  flags: [],
  library: "libmpich.so.12",
  installed: says("mpiexec.mpich", /HYDRA/),
};
export const MPIS = [OPEN_MPI, MPICH] as const;

/** What a test that needs an MPI is called where it is missing. */
export const nameOf = ({ family, installed }: InstalledMpi): string =>
  installed
    ? family
    : `${family} (skipped: not installed; apt-get install ${family === "MPICH" ? "mpich" : "openmpi-bin"})`;
