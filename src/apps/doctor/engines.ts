/** Which engines could be used here: each is found and opened, or it says where it was looked for and how to get it. */
import { type LibrarySpec, openLibrary } from "../../foreign/native/index.ts";

export interface EngineReport {
  readonly name: string;
  readonly available: boolean;
  /** The library's path, or why it is not there. */
  readonly detail: string;
  readonly howToGetIt?: string;
}

/** Folders of CUDA toolkits, vendors' packages and Python wheels' usual places. */
const CUDA_FOLDERS = [
  "/usr/local/cuda/lib64",
  "/usr/local/cuda/targets/x86_64-linux/lib",
  "/usr/local/cuda/targets/sbsa-linux/lib",
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib64",
];

const ENGINES: readonly LibrarySpec[] = [
  {
    name: "CUDA driver",
    files: ["libcuda.so.1"],
    folders: ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu"],
    variable: "CHORALE_CUDA_LIBRARY",
    requires: ["cuInit"],
    howToGetIt: "Install the NVIDIA driver.",
  },
  {
    name: "NVML",
    files: ["libnvidia-ml.so.1"],
    folders: ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu"],
    variable: "CHORALE_NVML",
    requires: ["nvmlInit_v2"],
    howToGetIt: "Install the NVIDIA driver.",
  },
  {
    name: "NCCL",
    files: ["libnccl.so.2"],
    folders: CUDA_FOLDERS,
    variable: "CHORALE_NCCL_LIBRARY",
    requires: ["ncclGetVersion"],
    howToGetIt: "Install libnccl2, or pip install nvidia-nccl-cu13 and name its folder in CHORALE_NCCL_LIBRARY.",
  },
  {
    name: "NVRTC",
    files: ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    folders: CUDA_FOLDERS,
    variable: "CHORALE_NVRTC_LIBRARY",
    requires: ["nvrtcVersion"],
    howToGetIt:
      "Install the CUDA toolkit, or pip install nvidia-cuda-nvrtc and name its folder in CHORALE_NVRTC_LIBRARY.",
  },
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
export function findEngines(specs: readonly LibrarySpec[] = ENGINES): EngineReport[] {
  return specs.map((spec) => {
    const library = openLibrary(spec);
    if (!library.available)
      return { name: spec.name, available: false, detail: library.why, howToGetIt: library.howToGetIt };
    // Left loaded: MPI and CUDA do not bear being unloaded.
    return { name: spec.name, available: true, detail: library.path };
  });
}
