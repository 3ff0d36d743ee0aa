/**
 * What is here: one probe per vendor family, on the live machine, a recording or a test's stand-in -> Inventory.
 * Refuses to fail: what cannot be read is absent and leaves a warning. Nothing is set, reset or installed.
 * Start with detect.ts, which runs the probes; machine.ts is all that a probe may ask.
 */
export { type CachedDetector, cachedDetector } from "./cached-detector.ts";
export { type DetectOptions, detect, detectOn, openMachine, parseFamily, type Timing } from "./detect.ts";
export {
  acceleratorMemory,
  bestDevice,
  type DeviceRequirements,
  findDevices,
  ingestionSeconds,
} from "./find-devices.ts";
export {
  type Access,
  COMMAND_TIMEOUT_MS,
  type CommandRequest,
  type CommandResult,
  type CommandRunner,
  type FileSystem,
  type HostFacts,
  MAX_COMMAND_ERROR_BYTES,
  MAX_COMMAND_OUTPUT_BYTES,
  MAX_FILE_BYTES,
  MAX_FOLDER_ENTRIES,
  type Machine,
  type NvmlSource,
  PROBE_TIMEOUT_MS,
} from "./machine.ts";
export { type MeasureOptions, measureLinks, type PairMeasurement } from "./measure-links.ts";
export { NVML_LIBRARY } from "./nvml.ts";
export { type NvmlSnapshot, nvmlSnapshotSchema } from "./nvml-snapshot.ts";
export { inBatches, listPci } from "./pci.ts";
export type { ProbeContext } from "./probe.ts";
export { isOnBaseboard } from "./probes/nvidia-reading.ts";
export { type RecordOptions, recordMachine } from "./recorder.ts";
export { readInventory, resolveHardware } from "./resolve-hardware.ts";
export { type DeviceDelta, deltasBetween, type WatchEvent, type WatchOptions, watch } from "./watch.ts";
