/**
 * The accel class and /dev/accel*: Intel NPU, AMD XDNA, Habana, Qualcomm and Google all live there, so each device is told
 * apart by its kernel driver, or by the vendor on the PCI bus, and never assumed. What neither tells is a warning.
 */

import { wordTable } from "../../../core/index.ts";
import { field } from "../field-readers.ts";
import { defined } from "../pci.ts";
import type { DeviceDraft, Probe, ProbeContext, ProbeWarning } from "../probe.ts";
import { type Card, devNodes, readCards } from "./drm-class.ts";

/** Which family a kernel driver of the accel class serves. */
const BY_DRIVER: Readonly<Record<string, AccelKind>> = wordTable({
  intel_vpu: "intel-npu",
  ivpu: "intel-npu",
  amdxdna: "amd-xdna",
  habanalabs: "gaudi",
  qaic: "qualcomm-ai",
  tpu: "tpu",
  tpu_v4: "tpu",
  gasket: "tpu",
  "gasket-driver": "tpu",
});
const BY_VENDOR: Readonly<Record<number, AccelKind>> = { 6880: "tpu", 7587: "gaudi", 6091: "qualcomm-ai" };

export type AccelKind = "intel-npu" | "amd-xdna" | "gaudi" | "qualcomm-ai" | "tpu";

/** PCI ids of NPUs (pci.ids and the drivers' tables). */
const NPU_NAMES: Readonly<Record<number, string>> = {
  32029: "Intel NPU (Meteor Lake)",
  44317: "Intel NPU (Arrow Lake)",
  25662: "Intel NPU (Lunar Lake)",
  45118: "Intel NPU (Panther Lake)",
  5378: "AMD XDNA (Phoenix, Hawk Point)",
  6128: "AMD XDNA 2 (Strix, Krackan)",
};

/** The accel devices of a kind. */
export async function accelCards(context: ProbeContext, kind: AccelKind): Promise<Card[]> {
  const all = await readCards(context.files, "accel");
  const kinds = await Promise.all(all.map((card) => kindOnDisk(context, card)));
  return all.filter((_, i) => kinds[i] === kind);
}

/** The kind by driver or vendor, or by a file that only Google's driver makes. */
async function kindOnDisk(context: ProbeContext, card: Card): Promise<AccelKind | undefined> {
  const known = kindOf(card);
  if (known !== undefined || card.driver !== undefined) return known;
  return (await context.files.readText(`${card.folder}/tpu_version`, 64)) === undefined ? undefined : "tpu";
}

function kindOf(card: Card): AccelKind | undefined {
  // Google's driver has had many names; who made the chip is what counts. Other makers' drivers are told by their names.
  const byVendor = BY_VENDOR[card.vendor ?? 0];
  return BY_DRIVER[card.driver ?? ""] ?? (card.driver === undefined || byVendor === "tpu" ? byVendor : undefined);
}

function npuProbe(family: "intel-npu" | "amd-xdna", vendor: string, legacy: string): Probe {
  return {
    name: family,
    families: [family],
    platforms: ["linux"],
    run: async (context) => {
      const cards = await accelCards(context, family);
      const devices = await Promise.all(
        cards.map(async (card, index): Promise<DeviceDraft> => {
          const system = await context.systemMemory();
          const version = field(await context.files.readText(`/sys/module/${card.driver}/version`, 128));
          return {
            key: `${family}:${card.name}`,
            family,
            vendor,
            name: NPU_NAMES[card.device ?? 0] ?? `${vendor} NPU`,
            index,
            ...defined({ pciAddress: card.pciAddress, driverVersion: version, memoryBytes: system.totalBytes }),
            unifiedMemory: true,
            details: { kernelDriver: card.driver ?? "unknown" },
          };
        }),
      );
      if (devices.length > 0 || (await context.files.realPath(legacy)) === undefined) return { devices };
      return {
        devices: [{ key: `${family}:0`, family, vendor, name: `${vendor} NPU`, index: 0, unifiedMemory: true }],
      };
    },
  };
}

export const intelNpuProbe: Probe = npuProbe("intel-npu", "Intel", "/sys/class/misc/intel_npu");
export const xdnaProbe: Probe = npuProbe("amd-xdna", "AMD", "/sys/class/misc/amdxdna");

/** Says which accel devices no probe knows. */
export const unknownAccelProbe: Probe = {
  name: "accel",
  families: ["intel-npu", "amd-xdna", "gaudi", "qualcomm-ai", "tpu"],
  platforms: ["linux"],
  run: async (context) => {
    const cards = await readCards(context.files, "accel");
    const known = new Set(cards.map((card) => card.name));
    const nodes = [
      ...(await devNodes(context.files, /^accel\d{1,4}$/)),
      ...(await devNodes(context.files, /^accel\d{1,4}$/, "/dev/accel")),
    ];
    // Google's older driver makes /dev/accel* without the accel class: the bus tells.
    const google = [...(await context.pci()).values()].filter((f) => f.vendor === 0x1ae0).length;
    const orphans = nodes.filter((name) => !known.has(name));
    const kinds = await Promise.all(cards.map((card) => kindOnDisk(context, card)));
    const warnings: ProbeWarning[] = cards
      .filter((_, i) => kinds[i] === undefined)
      .map((card) => ({
        source: "accel",
        message: `/dev/accel device ${card.name} has the driver ${card.driver ?? "(unknown)"}, which belongs to no family that we know`,
      }));
    if (orphans.length > google) {
      warnings.push({
        source: "accel",
        message: `${orphans.map((name) => `/dev/${name}`).join(", ")}: neither the driver nor the vendor is known; not counted as an accelerator`,
      });
    }
    return { devices: [], warnings };
  },
};
