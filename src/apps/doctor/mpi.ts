/** Whether the MPI whose launcher stands first on PATH is one whose library is here: ranks find each other through no other. */
import { spawnSync } from "node:child_process";
import { describeMpi, mpiLibraries, type UlfmState } from "../../foreign/mpi/index.ts";
import { openLibrary } from "../../foreign/native/index.ts";
import type { Finding } from "./finding.ts";

type Family = "Open MPI" | "MPICH";

interface FoundMpi {
  readonly family: Family;
  readonly path: string;
  /** With its version. */
  readonly name: string;
  readonly ulfm: UlfmState;
}

export interface MpiFacts {
  /** The libraries that load, with their paths. */
  readonly libraries: readonly FoundMpi[];
  /** What `mpirun --version` says first; `undefined` without one. */
  readonly mpirun: string | undefined;
}

const VERSION_MS = 5_000;
/** `world.rebuild()` is refused on mpi either way: what could have served it is said with the library. */
const ULFM_WORDS: Readonly<Record<UlfmState, string>> = {
  none: ", without ULFM",
  aborts: ", whose ULFM aborts the process that calls it",
  untried: ", with ULFM that is untried",
};

/** Looks for MPI's libraries and for `mpirun`. Initialises nothing. @param exec whether programs may be started */
export function readMpiFacts(exec: boolean): MpiFacts {
  const libraries = mpiLibraries().flatMap((spec) => {
    const library = openLibrary(spec);
    const family: Family = spec.name.startsWith("Open MPI") ? "Open MPI" : "MPICH";
    return library.available ? [{ family, path: library.path, ...describeMpi(library) }] : [];
  });
  if (!exec) return { libraries, mpirun: undefined };
  const env = { ...process.env, OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1" };
  const { stdout, error } = spawnSync("mpirun", ["--version"], { encoding: "utf8", timeout: VERSION_MS, env });
  return { libraries, mpirun: error === undefined ? stdout.split("\n")[0]?.trim() : undefined };
}

/** Judges how MPI is installed. */
export function judgeMpi({ libraries, mpirun }: MpiFacts): Finding[] {
  const evidence = [
    ...libraries.map(({ path, name, ulfm }) => `${path}: ${name}${ULFM_WORDS[ulfm]}`),
    ...(mpirun === undefined ? [] : [`mpirun --version: ${mpirun}`]),
  ];
  const family: Family | undefined = /OpenRTE|Open ?MPI|PRRTE/i.test(mpirun ?? "")
    ? "Open MPI"
    : /HYDRA|Intel\(R\) MPI|MPICH/i.test(mpirun ?? "")
      ? "MPICH"
      : undefined;
  if (family !== undefined && libraries.length > 0 && !libraries.some((one) => one.family === family)) {
    return [
      {
        code: "MPI_MIXED",
        severity: "warning",
        message: `mpirun is ${family}'s, but no library of it was found: ranks that it starts would each be alone with ${libraries[0]?.family}'s.`,
        evidence,
        mend: `Install ${family}'s library, or start ranks with the mpirun of ${libraries[0]?.family}; CHORALE_MPI_LIBRARY and CHORALE_MPIRUN name them.`,
      },
    ];
  }
  if (libraries.length < 2) return [];
  const whose = family === undefined ? "" : `; mpirun is ${family}'s`;
  return [
    {
      code: "MPI_MIXED",
      severity: "info",
      message: `Open MPI and MPICH are both here${whose}. The mpi backend loads the library of the launcher that started the process.`,
      evidence,
      mend: "Nothing to do. CHORALE_MPI_LIBRARY and CHORALE_MPIRUN choose one of them for chorale launch.",
    },
  ];
}
