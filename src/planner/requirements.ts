/**
 * Requirements on devices, and which quantization suits a machine: what the ancestor answered by rules of thumb,
 * answered here from the device's own figures and from plans that are made.
 */
import { InvalidArgumentError, wordTable } from "../core/index.ts";
import { type Device, FAMILIES, type Family, type Inventory, islands } from "../machine/topology/index.ts";
import { availableMemory } from "./placement/blocks.ts";
import type { ShardingPlan } from "./plan.ts";
import { type PlanRequest, planModel, ranksProblem } from "./plan-model.ts";

/** What a device must be. Every field that is given must hold. */
export interface DeviceRequirement {
  readonly families?: readonly Family[];
  /** Anything but a CPU. */
  readonly accelerator?: boolean;
  readonly minMemoryBytes?: number;
  readonly minBandwidthGBps?: number;
  /** Compared part by part: "9.0" satisfies "8.0". NVIDIA's compute capability. */
  readonly minComputeCapability?: string;
  /** The device must compute in this dtype natively. */
  readonly dtype?: NonNullable<Device["dtypes"]>[number];
  /** That many devices must satisfy the rest; all in one island when `interconnected`. */
  readonly count?: number;
  readonly interconnected?: boolean;
}

const GROUPS: Readonly<Record<string, DeviceRequirement>> = wordTable({
  none: {},
  gpu: { families: ["nvidia-gpu", "amd-gpu", "intel-gpu", "apple-gpu", "vulkan", "windows-gpu"] },
  npu: { families: ["apple-npu", "intel-npu", "amd-xdna", "samsung-npu", "mediatek-npu"] },
  "gpu-or-tpu": { families: ["nvidia-gpu", "amd-gpu", "intel-gpu", "apple-gpu", "vulkan", "windows-gpu", "tpu"] },
  "any-accelerator": { accelerator: true },
});

/**
 * Reads a requirement: `none`, `gpu`, `npu`, `gpu-or-tpu`, `any-accelerator`, a family, or one with a count: `tpu(4)`.
 * @throws InvalidArgumentError naming them
 */
export function parseRequirement(text: string): DeviceRequirement {
  const match = /^([a-z-]+)(?:\((\d{1,6})\+?(?: chips)?\))?$/.exec(text.trim().toLowerCase());
  const name = match?.[1] ?? "";
  const family = FAMILIES.find((known) => known === name);
  const base = Object.hasOwn(GROUPS, name) ? GROUPS[name] : family === undefined ? undefined : { families: [family] };
  if (base === undefined) {
    throw new InvalidArgumentError(
      "requirement",
      text,
      `${Object.keys(GROUPS).join(", ")}, or a family (${FAMILIES.join(", ")}), with a count as in tpu(4)`,
    );
  }
  return match?.[2] === undefined ? base : { ...base, count: Number(match[2]) };
}

function atLeast(version: string | undefined, least: string): boolean {
  if (version === undefined || !/^\d+(\.\d+)*$/.test(version)) return false;
  const [have, want] = [version.split(".").map(Number), least.split(".").map(Number)];
  for (let at = 0; at < Math.max(have.length, want.length); at++) {
    const difference = (have[at] ?? 0) - (want[at] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return true;
}

/** Says whether one device meets a requirement, its count aside. A masked device meets none. */
export function satisfies(device: Device, requirement: DeviceRequirement): boolean {
  const { families, accelerator, minMemoryBytes, minBandwidthGBps, minComputeCapability, dtype } = requirement;
  return (
    device.visible &&
    (families === undefined || families.includes(device.family)) &&
    (accelerator !== true || device.family !== "cpu") &&
    (minMemoryBytes === undefined || availableMemory(device, false) >= minMemoryBytes) &&
    (minBandwidthGBps === undefined || (device.memoryBandwidthGBps ?? 0) >= minBandwidthGBps) &&
    (minComputeCapability === undefined || atLeast(device.arch, minComputeCapability)) &&
    (dtype === undefined || (device.dtypes ?? []).includes(dtype))
  );
}

/**
 * Devices that meet a requirement; none when it asks for more of them than there are, or for more that are joined than
 * any island has.
 * @example
 * satisfying({ devices: [], topology: { nodes: [], links: [] } }, { accelerator: true }) // []
 */
export function satisfying(
  inventory: Pick<Inventory, "devices" | "topology">,
  requirement: DeviceRequirement,
): readonly Device[] {
  const found = inventory.devices.filter((device) => satisfies(device, requirement));
  const { count = 0, interconnected = false } = requirement;
  if (found.length < count) return [];
  if (!interconnected || count <= 1) return found;
  const ids = new Set(found.map((device) => device.id));
  const island = islands(inventory)
    .map(({ devices }) => devices.filter((id) => ids.has(id)))
    .sort((a, b) => b.length - a.length)[0];
  return island === undefined || island.length < count ? [] : found.filter((device) => island.includes(device.id));
}

/**
 * The device that a plan would choose first: the most memory bandwidth among those that hold `bytes`, most memory where
 * bandwidth is unknown. A tiny fast device never wins what does not fit it.
 */
export function bestDeviceFor(inventory: Inventory, bytes = 0): Device | undefined {
  const rank = (device: Device) => [
    device.family === "cpu" ? 0 : 1,
    device.memoryBandwidthGBps ?? 0,
    availableMemory(device, false),
  ];
  return inventory.devices
    .filter((device) => device.visible && availableMemory(device, false) >= Math.max(1, bytes))
    .sort((a, b) => {
      const [x, y] = [rank(a), rank(b)];
      return (y[0] ?? 0) - (x[0] ?? 0) || (y[1] ?? 0) - (x[1] ?? 0) || (y[2] ?? 0) - (x[2] ?? 0);
    })[0];
}

/** From the most exact to the smallest. */
export const QUANTIZATION_LADDER = ["bf16", "fp8", "int8", "int4", "q3_k", "q2_k"] as const;

/**
 * The most exact format in which the model fits the machine, with the plan that proves it; undefined when even the
 * smallest does not. A format counts only on devices that the plan really uses: FP8 is skipped where no device of the
 * plan computes in it.
 */
export function suggestQuantization(
  request: PlanRequest,
): { readonly format: string; readonly plan: ShardingPlan } | undefined {
  const devices = new Map(request.inventory.devices.map((device) => [device.id, device]));
  for (const format of QUANTIZATION_LADDER) {
    const [plan] = planModel({ ...request, quant: format }).plans;
    if (plan === undefined) continue;
    const used = plan.ranks.map((rank) => devices.get(rank.deviceId));
    const lacksFp8 = used.some((device) => device?.dtypes === undefined || !device.dtypes.includes("f8e4m3"));
    if (format === "fp8" && lacksFp8) continue;
    return { format, plan };
  }
  return undefined;
}

/** The fewest devices of an inventory on which the model fits, and that plan; undefined when all together are too few. */
export function minDevices(
  request: PlanRequest,
): { readonly numDevices: number; readonly plan: ShardingPlan } | undefined {
  const { inventory } = request;
  const most = inventory.devices.filter((device) => device.visible && device.family !== "cpu").length;
  for (let ranks = 1; ranks <= most; ranks++) {
    if (ranksProblem(ranks, request.constrain ?? {}) !== undefined) continue;
    const accelerators = { ...inventory, devices: inventory.devices.filter((device) => device.family !== "cpu") };
    const [plan] = planModel({ ...request, inventory: accelerators, ranks }).plans;
    if (plan !== undefined) return { numDevices: ranks, plan };
  }
  return undefined;
}
