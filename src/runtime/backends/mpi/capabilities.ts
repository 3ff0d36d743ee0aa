/** What MPI can do here: chorale's contract in full, and what the library has beyond MPI 3.1. */
import { DTYPE_NAMES, isLegal, REDUCE_OPS } from "../../../core/index.ts";
import type { MpiLibrary } from "../../../foreign/mpi/index.ts";
import { type Capabilities, WIRE_OPS } from "../../comm/index.ts";

/** Graphs are a device's, and plans run on memory that ranks share. */
const NOT_HERE: ReadonlySet<string> = new Set(["replay", "run"]);

/** @param device the name of the rank's, where its tensors are there */
export function mpiCapabilities(
  { name, abi, path, abilities, ulfm }: MpiLibrary,
  maxRanks: number,
  device?: string,
): Capabilities {
  return {
    backend: "mpi",
    engineVersion: name,
    dtypes: DTYPE_NAMES,
    reduceOps: Object.fromEntries(
      DTYPE_NAMES.map((dtype) => [dtype, [...REDUCE_OPS.filter((op) => isLegal(op, dtype)), "preMulSum" as const]]),
    ),
    operations: [...WIRE_OPS.filter((op) => !NOT_HERE.has(op)), "shrink", "batch"],
    deviceTensors: device !== undefined,
    hostTensors: true,
    maxRanks,
    features: {
      library: path,
      ...(device !== undefined && { device }),
      abi: abi.name,
      ...abilities,
      ulfm,
      accumulatesInF32: true,
      minMaxPropagatesNan: true,
      mixedInPlace: true,
    },
  };
}
