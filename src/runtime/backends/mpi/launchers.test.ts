/** Which launcher starts the ranks, and what is said where it belongs to another library. */
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { scratchFolder } from "../../../../test/helpers/scratch.ts";
import { MPI_ABIS } from "../../../foreign/mpi/index.ts";
import { removeOwnFolder } from "../../memory/index.ts";
import { refuseLarge } from "./move-calls.ts";
import { refuseWrongLauncher } from "./mpi-process.ts";
import { mpirunCommand, withOwnSegments } from "./mpirun.ts";

const folder = scratchFolder("launchers");
/** A launcher that only says whose it is. */
function launcher(name: string, version: string): void {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\necho '${version}'\n`);
  chmodSync(path, 0o755);
}
const env = { PATH: folder };
const asked = { library: "the library", ranks: 3, program: ["node", "entry.js"], folder: "/session", env } as const;

describe("MPI's launcher", () => {
  it("is the one whose version says that it is the library's", () => {
    launcher("mpirun", "HYDRA build details:");
    launcher("mpiexec", "mpiexec (OpenRTE) 4.1.4");
    expect(mpirunCommand({ ...asked, abi: "Open MPI" })).toMatchObject({
      command: "mpiexec",
      args: ["-n", "3", "node", "entry.js"],
      env: { OMPI_MCA_orte_tmpdir_base: "/session", OMPI_MCA_orte_enable_recovery: "1" },
    });
    expect(mpirunCommand({ ...asked, abi: "MPICH" })).toMatchObject({
      command: "mpirun",
      args: ["-n", "3", "-disable-auto-cleanup", "-prepend-rank", "node", "entry.js"],
    });
  });

  it("is refused with what was found when none is", () => {
    expect(() => mpirunCommand({ ...asked, abi: "MPICH", env: { PATH: "/nowhere" } })).toThrow(
      /launcher of the library is not available: mpiexec\.mpich: not found; .*Install MPICH's \(.*apt-get install mpich\), or name it in CHORALE_MPIRUN/,
    );
    expect(() => mpirunCommand({ ...asked, abi: "MPICH", env: { ...env, CHORALE_MPIRUN: "mpiexec" } })).toThrow(
      /mpiexec: another MPI's \(mpiexec \(OpenRTE\) 4\.1\.4\)/,
    );
  });

  it("has Open MPI keep its shared memory in a folder that is removed with the ranks, unless it is told another", () => {
    const command = { command: "mpirun", args: [], env: { SET: "1" } };
    const own = withOwnSegments(command, "Open MPI", {}, folder);
    const [made = ""] = own.folders ?? [];
    expect(made).toMatch(/launchers.*\/chorale-mpi-/);
    expect(own.env).toEqual({
      SET: "1",
      OMPI_MCA_btl_vader_backing_directory: made,
      OMPI_MCA_btl_sm_backing_directory: made,
    });
    removeOwnFolder(made);
    const told = { OMPI_MCA_btl_vader_backing_directory: "/elsewhere" };
    for (const same of [
      withOwnSegments(command, "MPICH", {}, folder),
      withOwnSegments(command, "Open MPI", told, folder),
      withOwnSegments(command, "Open MPI", {}, join(folder, "absent")),
    ])
      expect(same).toBe(command);
  });

  it("is found to be another library's from the counts", () => {
    const library = { name: "Open MPI 4.1.4", path: "libmpi.so.40", abi: MPI_ABIS["Open MPI"] };
    const hydra = { launcher: "MPICH's mpiexec", family: "MPICH", size: 3, rank: 0, variable: "PMI_SIZE" } as const;
    expect(() => refuseWrongLauncher(library, 1, hydra)).toThrow(
      "3 processes started, each believes it is alone: started with MPICH's mpiexec, library is Open MPI 4.1.4 (libmpi.so.40)",
    );
    expect(() => refuseWrongLauncher(library, 2, { ...hydra, family: undefined, launcher: "Slurm's srun" })).toThrow(
      /3 processes started \(PMI_SIZE\), but MPI counts 2.*srun --mpi=list/,
    );
    refuseWrongLauncher(library, 3, hydra);
    refuseWrongLauncher(library, 1, undefined);
  });
});

it("says how many elements MPI counts in one call", () => {
  refuseLarge(2 ** 31 - 1);
  expect(() => refuseLarge(2 ** 31)).toThrow(/2147483648 elements.*at most 2147483647/);
});
