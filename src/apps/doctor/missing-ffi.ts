/** Whether libraries can be called at all: without koffi, GPUs are read from files and tools, and no engine is found. */
import type { Unavailable } from "../../core/index.ts";
import type { Finding } from "./finding.ts";

/** @param problem why no library can be called, if so */
export function judgeFfi(problem: Unavailable | undefined): Finding[] {
  if (problem === undefined) return [];
  return [
    {
      code: "NO_FFI",
      severity: "warning",
      message: `${problem.what} is missing: NVML, CUDA, NCCL and MPI cannot be called, whether they are installed or not, and ranks cannot run on shm or tcp.`,
      evidence: [problem.why],
      mend: `${problem.howToGetIt}. It is an optional dependency: npm leaves it out with --omit=optional.`,
    },
  ];
}
