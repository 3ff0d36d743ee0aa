import { describe, expect, it } from "vitest";
import { abiOf, MPI_ABIS, OPEN_MPI_WORLD } from "./abi.ts";
import { mpiLibrary } from "./library.ts";
import { launchedBy } from "./started-by.ts";
import { ulfmOf } from "./ulfm.ts";

describe("the binary interface of an MPI", () => {
  const exporting = (...symbols: string[]) => ({ has: (symbol: string) => symbols.includes(symbol) });

  it("is told by its symbols, and by its version where both interfaces export one", () => {
    expect(abiOf(exporting(OPEN_MPI_WORLD), "Open MPI v4.1.4").name).toBe("Open MPI");
    expect(abiOf(exporting(), "MPICH Version: 4.0.2").name).toBe("MPICH");
    expect(abiOf(exporting(), "Intel(R) MPI Library 2021.11").name).toBe("MPICH");
    expect(abiOf(exporting("MPI_Abi_get_version"), "MPICH Version: 5.0.1").name).toBe("MPICH");
    expect(abiOf(exporting("MPI_Abi_get_version"), "mpi-abi-stubs").name).toBe("MPI-5");
  });

  it("has sizes in MPICH's datatypes: bits 8 to 15 of a handle", () => {
    const { dtypes } = MPI_ABIS.MPICH.handles({} as never);
    const sizes = Object.entries(dtypes).map(([dtype, handle]) => [dtype, (handle >> 8) & 0xff]);
    expect(Object.fromEntries(sizes)).toEqual({ i8: 1, u8: 1, u16: 2, i32: 4, u32: 4, f32: 4, i64: 8, u64: 8, f64: 8 });
  });

  it("has no two names for one handle, in any interface", () => {
    for (const abi of [MPI_ABIS.MPICH, MPI_ABIS["MPI-5"]]) {
      const { dtypes, ops, ...rest } = abi.handles({} as never);
      const all = [...Object.values(dtypes), ...Object.values(ops), ...Object.values(rest)];
      expect(new Set(all).size).toBe(all.length);
    }
  });
});

it("knows of ULFM what was tried, and not what is exported", () => {
  const exporting = { has: (symbol: string) => symbol === "MPIX_Comm_shrink" };
  expect(ulfmOf({ has: () => false }, "Open MPI 4.1.4")).toBe("none");
  expect(ulfmOf(exporting, "MPICH 4.0.2")).toBe("aborts");
  expect(ulfmOf(exporting, "Open MPI 5.0.3")).toBe("untried");
});

describe("the launcher of this process", () => {
  it("is told by its variables, srun's before those of the library that it serves", () => {
    expect(launchedBy({})).toBeUndefined();
    expect(launchedBy({ OMPI_COMM_WORLD_SIZE: "4", OMPI_COMM_WORLD_RANK: "2" })).toMatchObject({
      family: "Open MPI",
      size: 4,
      rank: 2,
    });
    expect(launchedBy({ PMI_SIZE: "3", PMI_RANK: "0" })).toMatchObject({ family: "MPICH", size: 3 });
    expect(launchedBy({ PMI_SIZE: "3", PMI_RANK: "0", SLURM_PROCID: "0" })).toMatchObject({
      launcher: "Slurm's srun",
      family: undefined,
      size: 3,
    });
    expect(launchedBy({ PMI_SIZE: "many", PMI_RANK: "0" })).toBeUndefined();
  });

  /** What launchers set in each rank, of jobs of four tasks on two nodes: the variables by which ranks are told apart, as recorded in their documentation. */
  const SLURM = {
    SLURM_PROCID: "3",
    SLURM_NTASKS: "4",
    SLURM_STEP_NUM_TASKS: "4",
    SLURM_LOCALID: "1",
    SLURM_NNODES: "2",
  };
  it.each([
    // Open MPI speaks PMIx to srun, and sets its own variables only after MPI_Init.
    ["srun --mpi=pmix", { ...SLURM, PMIX_RANK: "3", PMIX_NAMESPACE: "slurm.pmix.17.0" }, "Slurm's srun", undefined],
    ["srun --mpi=pmi2", { ...SLURM, PMI_RANK: "3", PMI_SIZE: "4", PMI_FD: "14" }, "Slurm's srun", undefined],
    [
      "a Kubeflow MPIJob's worker, which mpirun reaches by ssh",
      { OMPI_COMM_WORLD_RANK: "3", OMPI_COMM_WORLD_SIZE: "4", OMPI_COMM_WORLD_LOCAL_RANK: "1", PMIX_RANK: "3" },
      "Open MPI's mpirun",
      "Open MPI",
    ],
    [
      "a Kubeflow MPIJob of Intel MPI or MPICH, by Hydra",
      { PMI_RANK: "3", PMI_SIZE: "4", MPI_LOCALRANKID: "1", MPI_LOCALNRANKS: "2", PMI_FD: "9" },
      "MPICH's mpiexec",
      "MPICH",
    ],
    // mpirun within a batch job of Slurm: the step is that of its daemons, one on each node.
    [
      "mpirun within sbatch",
      { ...SLURM, SLURM_PROCID: "1", SLURM_STEP_NUM_TASKS: "2", OMPI_COMM_WORLD_RANK: "3", OMPI_COMM_WORLD_SIZE: "4" },
      "Open MPI's mpirun",
      "Open MPI",
    ],
    [
      "Hydra within sbatch",
      { ...SLURM, SLURM_PROCID: "1", PMI_RANK: "3", PMI_SIZE: "4", MPI_LOCALRANKID: "1", MPI_LOCALNRANKS: "2" },
      "MPICH's mpiexec",
      "MPICH",
    ],
  ])("is told in the environment of %s", (_, env, launcher, family) => {
    expect(launchedBy(env)).toMatchObject({ launcher, family, size: 4, rank: 3 });
  });

  it("has its own library looked for first", () => {
    const first = (env: Record<string, string>) => mpiLibrary(launchedBy(env)).files[0];
    expect(first({ PMI_SIZE: "3", PMI_RANK: "0" })).toBe("libmpich.so.12");
    expect(first({ OMPI_COMM_WORLD_SIZE: "3", OMPI_COMM_WORLD_RANK: "0" })).toBe("libmpi.so.40");
    expect(first({})).toBe("libmpi.so.40");
  });
});
