/** Each MPI's own launcher on this machine, and the words with which it starts more ranks than there are cores, also as root. */
import { spawnSync } from "node:child_process";

/** The first of these that is here: Debian's names, which say whose they are, before those of an installation by itself. */
export const toolOf = (names) => names.find((name) => spawnSync(name, ["--version"]).error === undefined) ?? names[0];

/** @param mpi `openmpi` or `mpich` */
export const launcherOf = (mpi) =>
  mpi === "mpich"
    ? { launcher: toolOf(["mpiexec.mpich", "mpiexec.hydra"]), flags: [] }
    : {
        launcher: toolOf(["mpirun.openmpi", "mpirun"]),
        flags: ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
      };
