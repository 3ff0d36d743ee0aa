/** The cuda backend as the world knows it: the nccl backend, and tables that say which plan serves a collective and size. */
import { COLLECTIVE_NAMES } from "../../../collectives/index.ts";
import type { BackendKind } from "../../comm/index.ts";
import type { CudaDeviceInfo } from "../../device/index.ts";
import {
  type ChoiceDocument,
  Choices,
  choiceNews,
  isChoices,
  type KernelNames,
  machineChoices,
  registerStoredPlans,
  SHIPPED_CHOICES,
} from "../../executor/internal.ts";
import {
  attachRank,
  NCCL_KIND,
  type NcclHandle,
  type NcclOptions,
  prepareNcclJoin,
  type Serving,
} from "../nccl/internal.ts";

/** What the cuda backend is told: what the nccl backend is, and which tables of choices it has. */
export interface CudaOptions extends NcclOptions {
  /** This machine's own (`chorale tune`) before the shipped ones by default; `shipped` alone; or a document before those. */
  readonly choices?: ChoiceDocument | "shipped";
}

/** What all ranks of a generation attach with. */
export interface CudaHandle extends NcclHandle {
  readonly choices?: ChoiceDocument;
}

/** NCCL is the one engine by hand. */
const KERNELS = Object.fromEntries(COLLECTIVE_NAMES.map((op) => [op, ["nccl"]])) as unknown as KernelNames;

/** How tables name what ranks run on: the device's name as the driver has it, and what the ranks are. */
function topologyOf({ name }: Pick<CudaDeviceInfo, "name">, interprocess: boolean): string {
  const device = name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  return `${device} ${interprocess ? "processes" : "threads"}`;
}

function servingOf({ choices }: CudaHandle): Serving {
  const documents = choices === undefined ? [SHIPPED_CHOICES] : [choices, SHIPPED_CHOICES];
  if (choices !== undefined) registerStoredPlans(choices);
  return {
    backend: "cuda",
    topologyOf,
    choicesOf: ({ group, numRanks, member }, device, interprocess) => {
      const topology = topologyOf(device, interprocess);
      return new Choices(
        { backend: "cuda", group, numRanks, topology, kernels: KERNELS },
        documents,
        choiceNews(member),
      );
    },
  };
}

/** Plans reach peers through memory: all ranks are on one host. */
const { acrossHosts: _acrossHosts, ...NCCL_ON_ONE_HOST } = NCCL_KIND;

export const CUDA_KIND: BackendKind<CudaHandle, CudaOptions> = {
  ...NCCL_ON_ONE_HOST,
  name: "cuda",
  servesPlans: true,
  options: { ...NCCL_KIND.options, choices: isChoices(["shipped"]) },
  createHost: (spec, { choices = machineChoices(), ...options }) => ({
    ...NCCL_KIND.createHost(spec, options),
    ...(choices === undefined || choices === "shipped" ? {} : { choices }),
  }),
  attach: (host, rank, { choices: _, ...options }) => attachRank(host, rank, options, servingOf(host)),
  prepareJoin: (localRank, launcher) => prepareNcclJoin(localRank, launcher, servingOf),
};
