/** What a probe is and what it gives: drafts of devices, which `assemble.ts` numbers, places and links. */
import type { Device, Family, Link, LinkKind } from "../topology/index.ts";
import type { Machine } from "./machine.ts";
import type { PciFunction } from "./pci.ts";

export interface ProbeWarning {
  readonly source: string;
  readonly message: string;
  readonly hint?: string;
}

export type DeviceDraft = Omit<Device, "id" | "visible" | "parent"> & {
  /** Unique among all probes; links and children refer to it. */
  readonly key: string;
  readonly parentKey?: string;
  /** The link to its CPU where that is not PCIe. */
  readonly hostLink?: { readonly kind: LinkKind; readonly count?: number; readonly bandwidthGBps?: number };
};

export interface LinkDraft {
  readonly a: string;
  readonly b: string;
  readonly kind: LinkKind;
  readonly count?: number;
  readonly generation?: number;
  readonly bandwidthGBps?: number;
  readonly details?: NonNullable<Link["details"]>;
}

export interface SwitchDraft {
  readonly key: string;
  readonly kind: "nvswitch";
  readonly name?: string;
}

/** A relation that a tool states, kept for where sysfs does not tell; `b` may be a NIC, `nic:mlx5_0`. */
export interface RelationDraft {
  readonly a: string;
  readonly b: string;
  readonly relation: string;
}

export interface ProbeResult {
  readonly devices: readonly DeviceDraft[];
  readonly links?: readonly LinkDraft[];
  readonly switches?: readonly SwitchDraft[];
  readonly relations?: readonly RelationDraft[];
  readonly warnings?: readonly ProbeWarning[];
}

export interface ProbeContext extends Machine {
  /** The PCI functions of the machine, read once. */
  readonly pci: () => Promise<ReadonlyMap<string, PciFunction>>;
  /** Bytes of main memory: /proc/meminfo's total and what is available, or what the operating system says. */
  readonly systemMemory: () => Promise<{ readonly totalBytes?: number; readonly availableBytes?: number }>;
  /** Which source the NVIDIA probe uses; `auto` takes NVML where it answers. */
  readonly nvidiaSource: "auto" | "nvml" | "nvidia-smi";
  readonly noExec: boolean;
}

export interface Probe {
  readonly name: string;
  readonly families: readonly Family[];
  /** Platforms on which it runs; a recorded root runs all. */
  readonly platforms?: readonly NodeJS.Platform[];
  readonly run: (context: ProbeContext) => Promise<ProbeResult>;
}

/** Nothing found, nothing to say. */
export const NOTHING: ProbeResult = { devices: [] };
