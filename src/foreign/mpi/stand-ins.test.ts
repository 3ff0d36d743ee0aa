/**
 * MPI libraries that are not on this machine, as libraries that export what those do and say what those say of themselves:
 * how each is told, and with which handles it is called. What they do with a call is theirs, and was not tried.
 */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { hasCompiler } from "../../../test/support/compile-library.ts";
import { MPI_ABIS, type MpiOpName, OPEN_MPI_WORLD } from "./abi.ts";
import { requireMpi } from "./library.ts";
import { MPI_PROTOTYPES } from "./prototypes.ts";

const folder = scratchFolder("mpi-stand-ins");
/** The objects of Open MPI whose addresses are its handles, from its mpi.h. */
const OBJECTS = [
  OPEN_MPI_WORLD,
  ...["errors_return", "byte", "float", "double"].map((name) => `ompi_mpi_${name}`),
  ...["uint8_t", "int8_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t"].map((name) => `ompi_mpi_${name}`),
  ...(["sum", "prod", "min", "max", "band", "bor", "bxor"] satisfies MpiOpName[]).map((op) => `ompi_mpi_op_${op}`),
];

/** Compiles a library whose functions do nothing but say who it is. @returns where it lies */
function standIn(file: string, version: string, more: readonly string[] = [], objects: readonly string[] = []): string {
  const symbols = [...Object.keys(MPI_PROTOTYPES), ...more];
  const source = [
    "#include <string.h>",
    `int MPI_Get_library_version(char *text, int *length) { strcpy(text, "${version}"); *length = strlen(text); return 0; }`,
    ...symbols.map((symbol) => `int ${symbol}(void) { return 0; }`),
    ...objects.map((object) => `char ${object}[256];`),
  ].join("\n");
  const path = join(folder, file);
  const { status, stderr } = spawnSync("cc", ["-shared", "-fPIC", "-o", path, "-x", "c", "-"], { input: source });
  if (status !== 0) throw new Error(`cc failed: ${stderr}`);
  return path;
}

describe.skipIf(!hasCompiler)(
  `MPIs that have not run here${hasCompiler ? "" : " (skipped: needs a C compiler)"}`,
  () => {
    const load = (path: string) => requireMpi({ CHORALE_MPI_LIBRARY: path });

    it("has Open MPI 5 called by the addresses that it exports", () => {
      const path = standIn("libmpi.so.40", "Open MPI v5.0.3, package: Open MPI", ["MPIX_Comm_shrink"], OBJECTS);
      const { name, abi, handles, ulfm, abilities } = load(path);
      expect([name, abi.name, ulfm, abilities.largeCounts]).toEqual(["Open MPI 5.0.3", "Open MPI", "untried", false]);
      const all = [handles.commWorld, handles.byte, ...Object.values(handles.dtypes), ...Object.values(handles.ops)];
      expect(new Set(all).size).toBe(all.length);
      for (const one of all) expect(one).toBeGreaterThan(0);
    });

    it("has Intel MPI called by MPICH's handles", () => {
      const { name, abi, handles, ulfm } = load(standIn("libmpi.so.12", "Intel(R) MPI Library 2021.11 for Linux* OS"));
      expect([name, abi.name, ulfm]).toEqual(["Intel MPI 2021.11", "MPICH", "none"]);
      expect(handles).toEqual(MPI_ABIS.MPICH.handles({} as never));
    });

    it("has a library of the standard's interface called by the standard's constants", () => {
      const more = ["MPI_Abi_get_version", "MPI_Allreduce_c", "MPI_Session_init"];
      const { abi, handles, abilities } = load(standIn("libmpi_abi.so.0", "mpi-abi-stubs 1.0", more));
      expect([abi.name, handles.commWorld, handles.dtypes.f32, handles.ops.sum]).toEqual(["MPI-5", 0x101, 0x210, 0x21]);
      expect(abilities).toMatchObject({ largeCounts: true, sessions: true, persistentCollectives: false });
    });
  },
);
