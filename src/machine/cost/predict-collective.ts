/** Which library runs on these devices, and what it takes: NCCL on NVIDIA's, RCCL on AMD's, the vendors' own elsewhere. */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { CollectiveEstimate, EstimateOptions, TimedOperation } from "./collective-estimate.ts";
import { type CollectiveMachine, nvidiaGeneration } from "./collective-machine.ts";
import { ncclPrediction } from "./nccl-prediction.ts";
import { isRcclKnown, rcclPrediction } from "./rccl-prediction.ts";
import { vendorPrediction } from "./vendor-prediction.ts";

/**
 * Says whether the switches of these devices multicast and reduce: NVSwitch 3 and later, which came with Hopper.
 * @example
 * import { collectiveMachineOf, simulatedDevices, switchesReduce } from "chorale/simulator";
 * import { presetInventory } from "chorale/topology";
 * const host = presetInventory("hgx-a100-8");
 * switchesReduce(collectiveMachineOf(host, simulatedDevices(host))) // false
 */
export function switchesReduce({ family, arch, fabric }: CollectiveMachine): boolean {
  return family === "nvidia-gpu" && fabric.kind === "fabric" && fabric.switched && Number(arch) >= 9;
}

/** Whether devices without peer access have a way within their host that is known: not between the trays of a rack. */
const reachesThroughPcie = ({ fabric, numHosts, numNodes }: CollectiveMachine) =>
  numHosts === numNodes && (fabric.numLinks === 0 || fabric.pcieGBps > 0);

/** Says whether NCCL or RCCL is modelled on these devices, between several nodes too. */
export function hasLibraryModel({ family, arch, numNodes, network }: CollectiveMachine): boolean {
  if (numNodes > 1 && network === undefined) return false;
  return family === "nvidia-gpu" ? nvidiaGeneration(arch) !== undefined : family === "amd-gpu" && isRcclKnown(arch);
}

/**
 * Predicts the time of one collective of the vendor's library. `sizeBytes` is the larger of a rank's two buffers.
 * @throws InvalidArgumentError for NVLS on a machine whose switches do not reduce, or a network that the inventory lacks
 * @throws UnsupportedError for devices whose library is not modelled
 */
export function predictCollective(
  op: TimedOperation,
  sizeBytes: number,
  machine: CollectiveMachine,
  options: EstimateOptions = {},
): CollectiveEstimate {
  if (machine.numRanks < 2) throw new InvalidArgumentError("ranks", machine.numRanks, "2 or more");
  if (options.nvls === true && !switchesReduce(machine))
    throw new InvalidArgumentError(
      "nvls",
      described(`on with ${machine.device}`),
      "devices whose switches multicast and reduce: NVIDIA's from compute capability 9.0, on NVSwitch",
    );
  if (machine.numNodes > 1 && machine.network === undefined)
    throw new InvalidArgumentError(
      "topology",
      described(`of ${machine.numNodes} nodes`),
      "NICs that join them (--nic 8xNDR)",
    );
  // NCCL_P2P_DISABLE is NCCL's, and the memory of one host is no way to another.
  if (machine.fabric.kind === "shm" && (machine.family !== "nvidia-gpu" || !reachesThroughPcie(machine)))
    throw new InvalidArgumentError(
      "p2p",
      described(`off on ${machine.device}`),
      "NVIDIA devices that meet in the memory of one host over PCIe",
    );
  // What a model does not know it must not seem to heed.
  const asked = (["version", "algorithm", "protocol"] as const).find((name) => options[name] !== undefined);
  if (options.blocking === true && machine.family !== "nvidia-gpu" && machine.family !== "amd-gpu")
    throw new InvalidArgumentError(
      "blocking",
      true,
      `nothing on ${machine.device}: its model knows no host that waits`,
    );
  const heeds = machine.family === "nvidia-gpu" || (machine.family === "amd-gpu" && asked !== "version");
  if (asked !== undefined && !heeds)
    throw new InvalidArgumentError(asked, options[asked], `nothing on ${machine.device}: it is NCCL's`);
  if (machine.family === "nvidia-gpu") return ncclPrediction(op, sizeBytes, machine, options);
  if (machine.family === "amd-gpu") return rcclPrediction(op, sizeBytes, machine, options);
  return vendorPrediction(op, sizeBytes, machine);
}
