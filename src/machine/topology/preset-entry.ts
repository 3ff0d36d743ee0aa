/** What a row of the presets' tables holds, and the hosts and switches that several of them share. */
import { type CpuSpec, cpu, type Fabric, type HostSpec, star } from "./preset-builder.ts";

export const CPUS = {
  rome: cpu("2x AMD EPYC 7742", 2, 64, 2048, 409.6),
  sapphireRapids: cpu("2x Intel Xeon Platinum 8480C", 2, 56, 2048, 614.4),
  emeraldRapids: cpu("2x Intel Xeon Platinum 8570", 2, 56, 2048, 716.8),
  graniteRapids: cpu("2x Intel Xeon 6776P", 2, 64, 2048, 1024),
  genoa: cpu("2x AMD EPYC 9654", 2, 96, 2304, 921.6),
  turin: cpu("2x AMD EPYC 9575F", 2, 64, 3072, 1152),
  trento: cpu("AMD EPYC 7A53", 1, 64, 512, 204.8, 4),
  skylake: cpu("2x Intel Xeon Platinum 8168", 2, 24, 1536, 256),
  milan: cpu("2x AMD EPYC 7763", 2, 64, 1024, 409.6),
  iceLake: cpu("2x Intel Xeon Platinum 8380", 2, 40, 1024, 409.6),
} as const satisfies Readonly<Record<string, CpuSpec>>;

export interface Entry {
  readonly summary: string;
  readonly sources: readonly string[];
  readonly nic: string;
  readonly host: HostSpec;
  readonly hosts?: number;
  readonly fabric?: Fabric;
  /** Its devices are not alike: a part of them is another system. */
  readonly fixed?: true;
}

/** Devices on one NVSwitch fabric. */
export function nvswitched(
  size: number,
  generation: number,
  count: number,
  perLinkGBps: number,
  switchName: string,
): Fabric {
  return { kind: "nvlink", generation, links: star(size, count, count * perLinkGBps), switchName };
}
