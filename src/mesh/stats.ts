/** Sums over the devices of a mesh. */
import type { Device } from "../machine/topology/index.ts";
import { type DeviceBackend, deviceBackend } from "./device-backend.ts";

export interface MeshStats {
  readonly worldSize: number;
  readonly numDevices: number;
  /** Of the devices whose memory is known. */
  readonly totalMemoryBytes: number;
  /** Devices whose memory is not known, which the total leaves out. */
  readonly numDevicesOfUnknownMemory: number;
  /** Multiprocessors of GPUs, cores of CPUs, where the probe knows them. */
  readonly totalComputeUnits: number;
  readonly numDevicesOfUnknownComputeUnits: number;
  /** Number of devices by the runtime that drives them. */
  readonly backends: Readonly<Partial<Record<DeviceBackend, number>>>;
  /** Groups of every axis and product of axes, and custom ones. */
  readonly numGroups: number;
}

/** Compute units of a device: what its probe wrote to `details`; `undefined` when it did not. */
export function computeUnits(device: Device): number | undefined {
  const { details } = device;
  for (const key of ["computeUnits", "multiprocessors", "cores", "numCores"]) {
    const value = details?.[key];
    if (typeof value === "number" && value > 0) return value;
  }
  return undefined;
}

/** Sums over the mesh's devices; a device that several ranks share counts once. */
export function meshStats(mesh: {
  readonly size: number;
  readonly devices?: readonly Device[] | undefined;
  allGroups(): readonly unknown[];
}): MeshStats {
  const devices = [...new Set(mesh.devices)];
  const backends: Partial<Record<DeviceBackend, number>> = {};
  for (const { family } of devices) {
    const backend = deviceBackend(family);
    backends[backend] = (backends[backend] ?? 0) + 1;
  }
  const units = devices.map(computeUnits);
  return {
    worldSize: mesh.size,
    numDevices: devices.length,
    totalMemoryBytes: devices.reduce((sum, { memoryBytes }) => sum + (memoryBytes ?? 0), 0),
    numDevicesOfUnknownMemory: devices.filter(({ memoryBytes }) => memoryBytes === undefined).length,
    totalComputeUnits: units.reduce<number>((sum, count) => sum + (count ?? 0), 0),
    numDevicesOfUnknownComputeUnits: units.filter((count) => count === undefined).length,
    backends,
    numGroups: mesh.allGroups().length,
  };
}
