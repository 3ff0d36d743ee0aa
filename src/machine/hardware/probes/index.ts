/**
 * The probes of all families of devices, each in a file of its own; what several need stands beside them.
 * Refuses nothing: a probe that cannot read its devices says so in a warning.
 * Start with probe.ts one folder up (what a probe is), then nvidia.ts or apple.ts.
 */
import type { Probe } from "../probe.ts";
import { amdProbe } from "./amd.ts";
import { appleProbe } from "./apple.ts";
import { cpuProbe } from "./cpu.ts";
import { gaudiProbe } from "./gaudi.ts";
import { intelProbe } from "./intel.ts";
import { intelNpuProbe, unknownAccelProbe, xdnaProbe } from "./linux-accel-class.ts";
import { neuronProbe } from "./neuron.ts";
import { nvidiaProbe } from "./nvidia.ts";
import { ASIC_PROBES } from "./other-asics.ts";
import { tpuProbe } from "./tpu.ts";
import { vulkanProbe } from "./vulkan.ts";
import { windowsProbe } from "./windows.ts";

/** Every probe; their order is the order of the devices. */
export const PROBES: readonly Probe[] = [
  cpuProbe,
  nvidiaProbe,
  amdProbe,
  intelProbe,
  appleProbe,
  windowsProbe,
  vulkanProbe,
  intelNpuProbe,
  xdnaProbe,
  tpuProbe,
  gaudiProbe,
  neuronProbe,
  ...ASIC_PROBES,
  unknownAccelProbe,
];
