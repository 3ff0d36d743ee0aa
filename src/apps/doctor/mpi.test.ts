import { expect, it } from "vitest";
import { judgeMpi, readMpiFacts } from "./mpi.ts";

const [open, mpich] = [
  { family: "Open MPI", path: "libmpi.so.40", name: "Open MPI 4.1.4", ulfm: "none" },
  { family: "MPICH", path: "libmpich.so.12", name: "MPICH 4.0.2", ulfm: "aborts" },
] as const;

it("warns of a launcher whose library is not here", () => {
  expect(judgeMpi({ libraries: [open], mpirun: "HYDRA build details:" })).toMatchObject([
    {
      code: "MPI_MIXED",
      severity: "warning",
      message: expect.stringContaining("mpirun is MPICH's, but no library of it was found"),
      evidence: ["libmpi.so.40: Open MPI 4.1.4, without ULFM", "mpirun --version: HYDRA build details:"],
    },
  ]);
});

it("tells of two MPIs beside each other, and whose mpirun stands first", () => {
  expect(judgeMpi({ libraries: [open, mpich], mpirun: "mpirun (Open MPI) 4.1.4" })).toMatchObject([
    {
      severity: "info",
      message: expect.stringContaining("both here; mpirun is Open MPI's"),
      evidence: expect.arrayContaining(["libmpich.so.12: MPICH 4.0.2, whose ULFM aborts the process that calls it"]),
    },
  ]);
});

it("has nothing to say of one MPI, or of none", () => {
  expect(judgeMpi({ libraries: [mpich], mpirun: "HYDRA build details:" })).toEqual([]);
  expect(judgeMpi({ libraries: [open], mpirun: undefined })).toEqual([]);
  expect(judgeMpi({ libraries: [], mpirun: "mpirun (Open MPI) 4.1.4" })).toEqual([]);
});

it("reads this machine without starting a program when told so", () => {
  expect(readMpiFacts(false).mpirun).toBeUndefined();
});
