/** The threads backend as the world knows it: ranks are threads of one process, which share WebAssembly memory. */
import { type BackendKind, isDuration, isFlag, isIntegerFrom } from "../../comm/index.ts";
import { isChoices } from "../../executor/internal.ts";
import { dumpFlight } from "./flight-ring.ts";
import type { AttachOptions, ThreadsHandle, ThreadsHostOptions } from "./handle.ts";
import { buryRank, createThreadsHost, failRank, failWorld, MAX_RANKS, releaseThreadsHost } from "./host.ts";

/** Memory, deadline, cores and choices of the threads backend. */
export type ThreadsOptions = Pick<ThreadsHostOptions, "memoryLimitBytes" | "choices"> & AttachOptions;

export const THREADS_KIND: BackendKind<ThreadsHandle, ThreadsOptions> = {
  name: "threads",
  options: {
    memoryLimitBytes: isIntegerFrom(1),
    timeoutMs: isDuration,
    strictWork: isFlag,
    cores: isIntegerFrom(1),
    choices: isChoices(["shipped", "plans"]),
  },
  isolations: ["thread"],
  isolationReason: "its ranks share the memory of one process",
  servesPlans: true,
  maxRanks: MAX_RANKS,
  usesDevices: false,
  availableRanks: () => MAX_RANKS,
  createHost: ({ ranks, generation }, options) => createThreadsHost({ ...options, ranks, generation }),
  releaseHost: releaseThreadsHost,
  attach: async (host, rank, options) => (await import("./backend.ts")).attachThreads(host, rank, options),
  fail: (host, rank, cause, everybody, blamed) =>
    everybody ? failWorld(host, rank, cause, blamed) : failRank(host, rank, cause, { blamed }),
  bury: buryRank,
  readFlight: dumpFlight,
  libraries: async () => [],
};
