/**
 * Instances of clouds by their names: the board, and the network that the provider sells with it (written on 2026-11-23 from
 * what is generally known; the published curves in bench/results/simulator-accuracy.md agree for p3dn, p5, p6-b200, a3, a4 and the
 * shapes of OCI). `--nic` names another. AWS has EFA, Google its own transports over Ethernet.
 */

import { wordTable } from "../../core/index.ts";

export interface CloudInstance {
  readonly preset: string;
  readonly nic: string;
  readonly source: string;
}

type Row = readonly [name: string, preset: string, nic: string];

const rows = (source: string, list: readonly Row[]): [string, CloudInstance][] =>
  list.map(([name, preset, nic]) => [name, { preset, nic, source }]);

export const CLOUD_INSTANCES: Readonly<Record<string, CloudInstance>> = wordTable(
  Object.fromEntries([
    ...rows("AWS EC2, accelerated computing instances", [
      ["p3.16xlarge", "dgx1-v100", "1x25GbE"],
      ["p3dn.24xlarge", "8x v100-32", "1x100EFA"],
      ["p4d.24xlarge", "8x a100-40", "4x100EFA"],
      ["p4de.24xlarge", "hgx-a100-8", "4x100EFA"],
      ["p5.48xlarge", "hgx-h100-8", "32x100EFA"],
      ["p5e.48xlarge", "hgx-h200-8", "32x100EFA"],
      ["p5en.48xlarge", "hgx-h200-8", "16x200EFA"],
      ["p6-b200.48xlarge", "hgx-b200-8", "8x400EFA"],
      ["p6-b300.48xlarge", "hgx-b300-8", "16x400EFA"],
      ["g5.48xlarge", "8x a10g", "1x100EFA"],
      ["g6e.48xlarge", "l40s-8", "4x100EFA"],
    ]),
    ...rows("Google Cloud, accelerator-optimized machine family", [
      ["a2-highgpu-8g", "8x a100-40", "1x100GbE"],
      ["a2-ultragpu-8g", "hgx-a100-8", "1x100GbE"],
      ["a3-highgpu-8g", "hgx-h100-8", "4x200TCPX"],
      ["a3-megagpu-8g", "hgx-h100-8", "8x200TCPXO"],
      ["a3-ultragpu-8g", "hgx-h200-8", "8x400gIB"],
      ["a4-highgpu-8g", "hgx-b200-8", "8x400gIB"],
    ]),
    ...rows("Azure, ND-series virtual machines", [
      ["nd96asr_v4", "8x a100-40", "8x200IB"],
      ["nd96amsr_a100_v4", "hgx-a100-8", "8x200IB"],
      ["nd96isr_h100_v5", "hgx-h100-8", "8x400IB"],
      ["nd96isr_h200_v5", "hgx-h200-8", "8x400IB"],
      ["nd96isr_mi300x_v5", "mi300x-8", "8x400IB"],
      ["nc96ads_a100_v4", "a100-pcie-nvlink-4", "1x100GbE"],
    ]),
    ...rows("Oracle Cloud Infrastructure, bare-metal GPU shapes", [
      ["bm.gpu4.8", "8x a100-40", "16x100RoCE"],
      ["bm.gpu.a100-v2.8", "hgx-a100-8", "16x100RoCE"],
      ["bm.gpu.h100.8", "hgx-h100-8", "16x200RoCE"],
      ["bm.gpu.h200.8", "hgx-h200-8", "8x400RoCE"],
      ["bm.gpu.b200.8", "hgx-b200-8", "8x400RoCE"],
      ["bm.gpu.mi300x.8", "mi300x-8", "8x400RoCE"],
    ]),
  ]),
);

/** Finds an instance by its name, in any case, with or without Azure's `Standard_`. */
export function cloudInstance(name: string): CloudInstance | undefined {
  const key = name.toLowerCase().replace(/^standard_/, "");
  return CLOUD_INSTANCES[key];
}
