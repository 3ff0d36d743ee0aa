/**
 * The inventory: every device of a machine, the links between them, and where the machine stands. Plain data with a
 * zod schema; what is unknown is absent, never invented. `hardware/` makes it, presets are it, `planner/`,
 * `simulator/` and `world/` read it.
 */
import { z } from "zod";
import { DTYPE_NAMES, type DType } from "../../core/index.ts";

export const INVENTORY_SCHEMA_VERSION = 1;

/** One probe per family. */
export const FAMILIES = [
  "cpu",
  "nvidia-gpu",
  "amd-gpu",
  "intel-gpu",
  "apple-gpu",
  "apple-npu",
  "vulkan",
  "intel-npu",
  "amd-xdna",
  "tpu",
  "gaudi",
  "neuron",
  "qualcomm-ai",
  "cerebras",
  "graphcore",
  "groq",
  "samsung-npu",
  "mediatek-npu",
  "windows-gpu",
] as const;
export type Family = (typeof FAMILIES)[number];

const count = z.number().int().nonnegative();
const dtype = z.enum(DTYPE_NAMES as [DType, ...DType[]]);

export const deviceSchema = z.object({
  /** Unique in the inventory, and the node id of the topology: `cpu0`, `gpu0`, `npu1`. */
  id: z.string().min(1),
  family: z.enum(FAMILIES),
  vendor: z.string(),
  name: z.string(),
  uuid: z.string().optional(),
  /** Domain:bus:device.function, lower case, four-digit domain. */
  pciAddress: z.string().optional(),
  /** Index among the devices of its family as the vendor's runtime counts them (CUDA ordinal of an unmasked process). */
  index: count,
  memoryBytes: count.optional(),
  memoryUsedBytes: count.optional(),
  memoryFreeBytes: count.optional(),
  /** Memory shared with the host CPU (GB10, Apple silicon, APUs). */
  unifiedMemory: z.boolean().optional(),
  memoryBandwidthGBps: z.number().positive().optional(),
  /** Dense peak, operations a second divided by 1e12, by dtype; only of known parts. */
  peakTflops: z.partialRecord(dtype, z.number().positive()).optional(),
  dtypes: z.array(dtype).optional(),
  /** `9.0` of NVIDIA, `gfx942` of AMD, `v5e` of TPU. */
  arch: z.string().optional(),
  driverVersion: z.string().optional(),
  runtimeVersion: z.string().optional(),
  pcie: z
    .object({
      generation: count.optional(),
      width: count.optional(),
      maxGeneration: count.optional(),
      maxWidth: count.optional(),
    })
    .optional(),
  numaNode: count.optional(),
  temperatureC: z.number().optional(),
  powerWatts: z.number().nonnegative().optional(),
  powerLimitWatts: z.number().nonnegative().optional(),
  utilizationPercent: z.number().min(0).max(100).optional(),
  /** False when the environment masks it (CUDA_VISIBLE_DEVICES and its like). */
  visible: z.boolean(),
  /** Set for a part of another device (a MIG instance, an MI300 partition): the parent's id. */
  parent: z.string().optional(),
  /** Facts of one family only: ECC counters, throttle reasons, CPU caches, processes. */
  details: z.record(z.string(), z.json()).optional(),
});
export type Device = z.infer<typeof deviceSchema>;

/** What a node of the topology is. Devices are nodes by their id. */
export const NODE_KINDS = ["device", "numa", "pcie-root", "pcie-switch", "nvswitch", "nic", "network-switch"] as const;
export const nodeSchema = z.object({
  id: z.string().min(1),
  kind: z.enum(NODE_KINDS),
  name: z.string().optional(),
  /** Which host of a composition it belongs to, from 0; absent for what joins hosts. */
  host: count.optional(),
  details: z.record(z.string(), z.json()).optional(),
});
export type TopologyNode = z.infer<typeof nodeSchema>;

export const LINK_KINDS = [
  "nvlink",
  "nvlink-c2c",
  "xgmi",
  "xe-link",
  "ici",
  "neuronlink",
  "gaudi-roce",
  "ultrafusion",
  "pcie",
  "host-interconnect",
  "memory",
  "infiniband",
  "roce",
  "ethernet",
] as const;
export type LinkKind = (typeof LINK_KINDS)[number];

export const linkSchema = z.object({
  a: z.string(),
  b: z.string(),
  kind: z.enum(LINK_KINDS),
  /** Parallel physical links that are active. */
  count: count.optional(),
  generation: z.number().positive().optional(),
  /** All parallel links together, one direction, GB/s (1e9). Links are full duplex. */
  bandwidthGBps: z.number().positive().optional(),
  latencyUs: z.number().positive().optional(),
  details: z.record(z.string(), z.json()).optional(),
});
export type Link = z.infer<typeof linkSchema>;

/**
 * How two devices (or a device and a NIC) reach each other, as `nvidia-smi topo -m` names it: NV# (bonded NVLinks),
 * XGMI, XELINK, ICI, NEURONLINK, GAUDI-ROCE, C2C, or by PCIe: PIX (at most one bridge), PXB (several bridges), PHB (one host
 * bridge), NODE (host bridges of one NUMA node), SYS (across NUMA nodes).
 */
export const pairSchema = z.object({
  a: z.string(),
  b: z.string(),
  relation: z.string(),
  /** Active parallel links of the direct connection, where known; of the narrower end when a switch lies between. */
  count: count.optional(),
  /** Narrowest link of the direct connection, or of the widest path where there is none; one direction. */
  bandwidthGBps: z.number().positive().optional(),
  /** Links on that path; more than one without a `count` says that other devices pass the data on. */
  hops: count.optional(),
});
export type Pair = z.infer<typeof pairSchema>;

export const topologySchema = z.object({
  nodes: z.array(nodeSchema),
  links: z.array(linkSchema),
  /** Derived from nodes and links, for readers that do not want to walk a graph; absent in compositions. */
  pairs: z.array(pairSchema).optional(),
});
export type Topology = z.infer<typeof topologySchema>;

export const warningSchema = z.object({
  /** Which probe or file it comes from. */
  source: z.string(),
  message: z.string(),
  hint: z.string().optional(),
});

export const inventorySchema = z.object({
  schemaVersion: z.literal(INVENTORY_SCHEMA_VERSION),
  devices: z.array(deviceSchema),
  topology: topologySchema,
  /** Container, Kubernetes, Slurm, cloud, WSL, storage, limits. Refined by `hardware/`. */
  environment: z.record(z.string(), z.json()).optional(),
  warnings: z.array(warningSchema),
});
export type Inventory = z.infer<typeof inventorySchema>;
