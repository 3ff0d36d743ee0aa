/**
 * Which AMD GPUs share the memory of their CPU, and how much of it they may use. An APU has a carve-out that the firmware
 * reserves (VRAM, often 512 MiB) and maps main memory beyond it (GTT); both are the same DRAM. MI300A is one too, but its
 * memory is all VRAM.
 */
import type { FileSystem } from "../machine.ts";
import type { DriverMemory } from "./amd-kfd.ts";
import type { Card } from "./drm-class.ts";

/** MI300A: its HBM is main memory, and the driver states it as VRAM. */
const MI300A = 0x74a0;

/** PCI ids of integrated Radeons (pci.ids): Raven to Strix Halo. */
const INTEGRATED: ReadonlySet<number> = new Set([
  MI300A,
  0x15d8, // Picasso
  0x15dd, // Raven
  0x1636, // Renoir
  0x1638, // Cezanne
  0x164c, // Lucienne
  0x163f, // Van Gogh
  0x1435, // Van Gogh, Sephiroth
  0x1506, // Mendocino
  0x164d, // Rembrandt
  0x1681, // Rembrandt, Radeon 680M
  0x164e, // Raphael
  0x13c0, // Granite Ridge
  0x15bf, // Phoenix, Radeon 780M
  0x15c8, // Phoenix 2, Radeon 740M
  0x1900, // Hawk Point
  0x1901, // Hawk Point 2
  0x150e, // Strix Point, Radeon 890M
  0x1586, // Strix Halo, Radeon 8060S
  0x1114, // Krackan Point
]);

/** Whether a card is integrated: by its id, by KFD's word, or by the table of metrics that only APUs have. */
export async function isIntegrated(files: FileSystem, card: Card, saidByKfd: boolean): Promise<boolean> {
  if (saidByKfd || INTEGRATED.has(card.device ?? 0)) return true;
  // kgd_pp_interface.h: bytes 0 and 1 are the size, byte 2 the format: 1 of discrete GPUs, 2 and 3 of APUs.
  const metrics = await files.readText(`${card.folder}/gpu_metrics`, 16);
  const format = metrics?.charCodeAt(2);
  return format === 2 || format === 3;
}

/** What an integrated GPU may use: its carve-out and what it may map of main memory beyond it. */
export function integratedMemory(card: Card, own: DriverMemory): { total?: number; used?: number } {
  const sum = (a: number | undefined, b: number | undefined) =>
    a === undefined ? undefined : card.device === MI300A ? a : a + (b ?? 0);
  const [total, used] = [sum(own.vramBytes, own.gttBytes), sum(own.vramUsedBytes, own.gttUsedBytes)];
  return { ...(total !== undefined && { total }), ...(used !== undefined && { used }) };
}
