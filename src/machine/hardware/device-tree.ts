/** What the device tree says of systems on a chip: Apple's under Asahi Linux, NVIDIA's Tegra of Jetson boards. */

import { wordTable } from "../../core/index.ts";
import { line } from "./field-readers.ts";
import type { FileSystem } from "./machine.ts";

/** SoC numbers of the device tree (Asahi Linux). */
const APPLE_SOCS: Readonly<Record<string, string>> = wordTable({
  t8103: "Apple M1",
  t6000: "Apple M1 Pro",
  t6001: "Apple M1 Max",
  t6002: "Apple M1 Ultra",
  t8112: "Apple M2",
  t6020: "Apple M2 Pro",
  t6021: "Apple M2 Max",
  t6022: "Apple M2 Ultra",
  t8122: "Apple M3",
});

/** GPUs of Tegra, by the SoC's number (Linux device trees; NVIDIA's Jetson module data sheets). */
const TEGRAS: Readonly<Record<string, TegraGpu>> = wordTable({
  tegra210: { name: "NVIDIA Tegra X1 (GM20B)", arch: "5.3" },
  tegra186: { name: "NVIDIA Tegra X2 (GP10B)", arch: "6.2" },
  tegra194: { name: "NVIDIA Xavier (GV11B)", arch: "7.2" },
  tegra234: { name: "NVIDIA Orin (GA10B)", arch: "8.7" },
  tegra264: { name: "NVIDIA Thor", arch: "11.0" },
});

export interface TegraGpu {
  readonly name: string;
  /** Compute capability. */
  readonly arch: string;
  /** The board, as the tree's `model` names it. */
  readonly board?: string;
}

async function compatible(files: FileSystem): Promise<string[]> {
  return ((await files.readText("/proc/device-tree/compatible", 1024)) ?? "").split(/[\u0000\n]/);
}

/** The Apple chip that the tree names; `Apple silicon` for one that is not known; undefined on other machines. */
export async function appleSoc(files: FileSystem): Promise<string | undefined> {
  const entries = await compatible(files);
  if (!entries.some((entry) => entry.startsWith("apple,"))) return undefined;
  return (
    entries.map((entry) => APPLE_SOCS[entry.replace("apple,", "")]).find((soc) => soc !== undefined) ?? "Apple silicon"
  );
}

/** The GPU of the Tegra that the tree names. */
export async function tegraGpu(files: FileSystem): Promise<TegraGpu | undefined> {
  const entries = await compatible(files);
  const gpu = entries.map((entry) => TEGRAS[entry.replace("nvidia,", "")]).find((found) => found !== undefined);
  if (gpu === undefined) return undefined;
  const board = line(((await files.readText("/proc/device-tree/model", 256)) ?? "").replaceAll("\u0000", ""));
  return board === "" ? gpu : { ...gpu, board };
}
