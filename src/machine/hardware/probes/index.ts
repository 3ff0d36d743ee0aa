import type { Probe } from "../probe.ts";
import { cpuProbe } from "./cpu.ts";
import { nvidiaProbe } from "./nvidia.ts";

/** Every probe; their order is the order of the devices. */
export const PROBES: readonly Probe[] = [cpuProbe, nvidiaProbe];
