/** What NVML answered, as plain data: the form in which it is recorded (`nvml.json`) and replayed. */
import { z } from "zod";

const uint = z.number().int().nonnegative();

const nvmlLinkSchema = z.object({
  link: uint,
  active: z.boolean(),
  version: uint.optional(),
  /** MB/s of 1e6 bytes, one direction. */
  speedMBps: uint.optional(),
  remote: z.enum(["gpu", "switch", "npu", "unknown"]).optional(),
  remotePci: z.string().optional(),
});

const nvmlMigSchema = z.object({
  index: uint,
  uuid: z.string().optional(),
  name: z.string().optional(),
  memoryTotalBytes: uint.optional(),
  memoryUsedBytes: uint.optional(),
  memoryFreeBytes: uint.optional(),
});

const nvmlDeviceSchema = z.object({
  index: uint,
  name: z.string().optional(),
  uuid: z.string().optional(),
  serial: z.string().optional(),
  minorNumber: uint.optional(),
  pciAddress: z.string().optional(),
  memoryTotalBytes: uint.optional(),
  memoryUsedBytes: uint.optional(),
  memoryFreeBytes: uint.optional(),
  computeCapability: z.string().optional(),
  memoryBusWidthBits: uint.optional(),
  temperatureC: z.number().optional(),
  powerMilliwatts: uint.optional(),
  powerLimitMilliwatts: uint.optional(),
  utilizationPercent: z.number().optional(),
  pcieGeneration: uint.optional(),
  pcieMaxGeneration: uint.optional(),
  pcieWidth: uint.optional(),
  pcieMaxWidth: uint.optional(),
  eccEnabled: z.boolean().optional(),
  eccCorrected: uint.optional(),
  eccUncorrected: uint.optional(),
  smClockMHz: uint.optional(),
  memoryClockMHz: uint.optional(),
  maxSmClockMHz: uint.optional(),
  maxMemoryClockMHz: uint.optional(),
  /** Bit mask of NVML, in hexadecimal. */
  throttleReasons: z.string().optional(),
  migEnabled: z.boolean().optional(),
  mig: z.array(nvmlMigSchema).optional(),
  links: z.array(nvmlLinkSchema).optional(),
  /** Active links to the CPU of a superchip, and the rate of one in MB/s. */
  c2c: z.object({ count: uint, speedMBps: uint.optional() }).optional(),
  /** nvmlGpuFabricState_t and the status that goes with it. */
  fabric: z.object({ state: uint, status: uint.optional() }).optional(),
  processes: z.array(z.object({ pid: uint, usedBytes: uint.optional() })).optional(),
  /** By index of the other device: NVML's topology level (10 PIX, 20 PXB, 30 PHB, 40 NODE, 50 SYS). */
  levels: z.record(z.string(), uint).optional(),
  /** By index of the other device: whether peer reads are possible, or NVML's reason why not. */
  peerRead: z.record(z.string(), uint).optional(),
});

export const nvmlSnapshotSchema = z.object({
  driverVersion: z.string().optional(),
  nvmlVersion: z.string().optional(),
  cudaVersion: z.string().optional(),
  devices: z.array(nvmlDeviceSchema),
  /** Calls that failed, in words. */
  problems: z.array(z.string()).optional(),
});

export type NvmlLink = z.infer<typeof nvmlLinkSchema>;
export type NvmlMig = z.infer<typeof nvmlMigSchema>;
export type NvmlDevice = z.infer<typeof nvmlDeviceSchema>;
export type NvmlSnapshot = z.infer<typeof nvmlSnapshotSchema>;
