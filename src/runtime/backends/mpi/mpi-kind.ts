/** The mpi backend as the world knows it: ranks are processes that MPI's own launcher starts together. */
import { type BackendKind, isDuration, isFlag } from "../../comm/index.ts";
import { isChoices } from "../../executor/internal.ts";
import { hostSegment } from "../../memory/index.ts";
import type { MpiOptions } from "./backend.ts";
import { devicesProblem } from "./device-list.ts";
import { CHOICE_WORDS } from "./host-choices.ts";
import { hostsProblem } from "./host-list.ts";
import {
  createMpiHost,
  dumpMpiFlight,
  MAX_MPI_RANKS,
  type MpiHandle,
  partOf,
  partsOf,
  releaseMpiHost,
} from "./mpi-handle.ts";

export const MPI_KIND: BackendKind<MpiHandle, MpiOptions> = {
  name: "mpi",
  options: {
    timeoutMs: isDuration,
    strictWork: isFlag,
    choices: isChoices(CHOICE_WORDS),
    devices: devicesProblem,
    hosts: hostsProblem,
  },
  isolations: ["process"],
  isolationReason: "its ranks are processes, since MPI knows no others",
  maxRanks: MAX_MPI_RANKS,
  usesDevices: false,
  async availableRanks() {
    const { requireMpi } = await import("../../../foreign/mpi/index.ts");
    requireMpi();
    return MAX_MPI_RANKS;
  },
  createHost: (spec, { choices, hosts }) => createMpiHost(spec, choices, hosts),
  releaseHost: releaseMpiHost,
  attach: async (host, rank, options) => (await import("./backend.ts")).attachMpi(host, rank, options),
  fail: (handle, rank, cause, _everybody, blamed = rank) => {
    const { generation } = handle;
    for (const { control } of partsOf(handle)) {
      hostSegment(control)?.fail({ code: "RANK_FAILED", rank: blamed, generation, cause });
    }
  },
  bury: (handle, rank) => hostSegment(partOf(handle, rank).control)?.presence.bury(rank),
  readFlight: dumpMpiFlight,
  libraries: async () => (await import("../../../foreign/mpi/index.ts")).mpiLibraries(),
  async startTogether(ranks, program, folder, given) {
    const { requireMpi } = await import("../../../foreign/mpi/index.ts");
    const { mpirunCommand, withOwnSegments } = await import("./mpirun.ts");
    const env = { ...process.env, ...given };
    const { abi, name } = requireMpi(env);
    const command = mpirunCommand({ abi: abi.name, library: name, ranks, program, folder, env });
    return withOwnSegments(command, abi.name, env);
  },
  rebuildRefusal:
    "MPI started its ranks together, and none can be added or left out: end the job and start it again (chorale launch, mpirun or the batch system)",
  join: async (options) => (await import("./join-mpi.ts")).joinMpi(options),
};
