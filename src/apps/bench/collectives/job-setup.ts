/** What benchmarks of operations and of programs begin with: counts, buffers, and the columns that say what was run. */
import { operationInfo, partCount, reportedCount } from "../../../collectives/index.ts";
import { sizeOf } from "../../../core/index.ts";
import type { Communicator } from "../../../runtime/comm/index.ts";
import type { World } from "../../../runtime/world/index.ts";
import type { BenchJob } from "./bench-types.ts";
import type { Buffers } from "./timed-calls.ts";

type Job = Pick<BenchJob, "op" | "dtype" | "sizes" | "isolation" | "redop" | "root" | "drive">;

/** The count of elements of each size, and buffers for the largest. */
export function setUp(world: World, { op, dtype, sizes }: Job): { counts: readonly number[]; buffers: Buffers } {
  const n = world.comm.size;
  const counts = sizes.map((size) => partCount(op, n, Math.floor(size / sizeOf(dtype))));
  const largest = reportedCount(op, n, Math.max(0, ...counts));
  return { counts, buffers: { input: world.tensor(dtype, [largest]), output: world.tensor(dtype, [largest]) } };
}

/** The columns of a row that do not depend on what was measured. */
export function rowStart(comm: Communicator, { op, isolation, dtype, redop, root, drive }: Job, count: number) {
  const info = operationInfo(op);
  return {
    op,
    backend: comm.backend,
    ranks: comm.size,
    isolation,
    sizeBytes: reportedCount(op, comm.size, count) * sizeOf(dtype),
    count,
    dtype,
    redop: info.reduces ? redop : ("none" as const),
    root: info.rooted ? root : -1,
    drive,
  };
}
