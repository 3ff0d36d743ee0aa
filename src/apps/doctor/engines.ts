/** Which engines could be used here: each is found and opened, or it says where it was looked for and how to get it. */
import { type LibrarySpec, openLibrary } from "../../foreign/native/index.ts";
import { NVML_LIBRARY } from "../../machine/hardware/index.ts";
import { ncclLibrary } from "../../runtime/backends/nccl/index.ts";
import { CUDA_LIBRARY, nvrtcLibrary } from "../../runtime/device/index.ts";

export interface EngineReport {
  readonly name: string;
  readonly available: boolean;
  /** The library's path, or why it is not there. */
  readonly detail: string;
  readonly howToGetIt?: string;
}

/** As the backends and the probes look for them; those of backends that are to come as their vendors install them. */
const engines = (): readonly LibrarySpec[] => [
  { ...CUDA_LIBRARY, name: "CUDA driver" },
  NVML_LIBRARY,
  ncclLibrary(),
  nvrtcLibrary(),
  {
    name: "MPI",
    files: ["libmpi.so.40", "libmpich.so.12", "libmpi.so.12"],
    requires: ["MPI_Init"],
    howToGetIt: "Install Open MPI or MPICH (apt-get install libopenmpi3 or libmpich12).",
  },
  {
    name: "RCCL",
    files: ["librccl.so.1"],
    folders: ["/opt/rocm/lib"],
    requires: ["ncclGetVersion"],
    howToGetIt: "Install ROCm's rccl package.",
  },
];

/** Opens each engine's library and closes it again; nothing of it is initialised. */
export function findEngines(specs: readonly LibrarySpec[] = engines()): EngineReport[] {
  return specs.map((spec) => {
    const library = openLibrary(spec);
    if (!library.available)
      return { name: spec.name, available: false, detail: library.why, howToGetIt: library.howToGetIt };
    // Left loaded: MPI and CUDA do not bear being unloaded.
    return { name: spec.name, available: true, detail: library.path };
  });
}
