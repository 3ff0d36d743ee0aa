import type { Probe } from "../probe.ts";
import { intelNpuProbe, unknownAccelProbe, xdnaProbe } from "./accel.ts";
import { amdProbe } from "./amd.ts";
import { appleProbe } from "./apple.ts";
import { ASIC_PROBES } from "./asic.ts";
import { cpuProbe } from "./cpu.ts";
import { gaudiProbe } from "./gaudi.ts";
import { intelProbe } from "./intel.ts";
import { neuronProbe } from "./neuron.ts";
import { nvidiaProbe } from "./nvidia.ts";
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
