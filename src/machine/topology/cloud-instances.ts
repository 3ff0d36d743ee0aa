/**
 * Instances of clouds by their names: the board, and the network that the provider sells with it (written on 2026-11-23 from
 * what is generally known; the published curves in bench/results/simulator-accuracy.md agree for p3dn, p5, p6-b200, a3, a4 and the
 * shapes of OCI). `--nic` names another. AWS has EFA, Google its own transports over Ethernet.
 */

import { wordTable } from "../../core/index.ts";

export interface CloudInstance {
  /** As the provider writes it, but in small letters and without Azure's `Standard_`. */
  readonly name: string;
  readonly preset: string;
  readonly nic: string;
  readonly source: string;
}

type Row = readonly [name: string, preset: string, nic: string];

const rows = (source: string, list: readonly Row[]): [string, CloudInstance][] =>
  list.map(([name, preset, nic]) => [name, { name, preset, nic, source }]);

/** AWS's G families: which sizes have one card, four and eight. */
const AWS_G = {
  one: ["xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge"],
  four: ["12xlarge", "24xlarge"],
  eight: ["48xlarge"],
} as const;

function sizes(
  family: string,
  part: string,
  { one, four, eight }: Readonly<Record<"one" | "four" | "eight", readonly string[]>>,
): Row[] {
  return [
    ...one.map((size): Row => [`${family}.${size}`, `1x ${part}`, size === "16xlarge" ? "1x25GbE" : "1x10GbE"]),
    ...four.map((size): Row => [`${family}.${size}`, `4x ${part}`, size === "12xlarge" ? "1x40GbE" : "1x50GbE"]),
    ...eight.map((size): Row => [`${family}.${size}`, `8x ${part}`, "1x100EFA"]),
  ];
}

/** `NAME-Ng` with N accelerators. */
const counted = (name: string, part: string, counts: readonly number[], nic: string): Row[] =>
  counts.map((count) => [`${name}-${count}g`, `${count}x ${part}`, nic]);

export const CLOUD_INSTANCES: Readonly<Record<string, CloudInstance>> = wordTable(
  Object.fromEntries([
    ...rows("AWS EC2, accelerated computing instances", [
      ["p3.2xlarge", "1x v100", "1x10GbE"],
      ["p3.8xlarge", "4x v100", "1x10GbE"],
      ["p3.16xlarge", "dgx1-v100", "1x25GbE"],
      ["p3dn.24xlarge", "8x v100-32", "1x100EFA"],
      ["p4d.24xlarge", "8x a100-40", "4x100EFA"],
      ["p4de.24xlarge", "hgx-a100-8", "4x100EFA"],
      ["p5.4xlarge", "1x h100", "1x100EFA"],
      ["p5.48xlarge", "hgx-h100-8", "32x100EFA"],
      ["p5e.48xlarge", "hgx-h200-8", "32x100EFA"],
      ["p5en.48xlarge", "hgx-h200-8", "16x200EFA"],
      ["p6-b200.48xlarge", "hgx-b200-8", "8x400EFA"],
      ["p6-b300.48xlarge", "hgx-b300-8", "16x400EFA"],
      ...sizes("g4dn", "t4", {
        one: ["xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge"],
        four: ["12xlarge"],
        eight: ["metal"],
      }),
      ...sizes("g5", "a10g", AWS_G),
      ...sizes("g6", "l4", AWS_G),
      ...sizes("g6e", "l40s", AWS_G).filter(([name]) => name !== "g6e.48xlarge"),
      ["g6e.48xlarge", "l40s-8", "4x100EFA"],
      ["trn1.2xlarge", "1x trainium1", "1x10GbE"],
      ["inf2.xlarge", "1x inferentia2", "1x10GbE"],
      ["inf2.8xlarge", "1x inferentia2", "1x25GbE"],
      ["inf2.24xlarge", "6x inferentia2", "1x50GbE"],
    ]),
    ...rows("Google Cloud, accelerator-optimized machine family", [
      ...counted("a2-highgpu", "a100-40", [1, 2, 4], "1x50GbE"),
      ["a2-highgpu-8g", "8x a100-40", "1x100GbE"],
      ...counted("a2-ultragpu", "a100-80", [1, 2, 4], "1x50GbE"),
      ["a2-ultragpu-8g", "hgx-a100-8", "1x100GbE"],
      ...counted("a3-highgpu", "h100", [1, 2, 4], "1x100GbE"),
      ["a3-highgpu-8g", "hgx-h100-8", "4x200TCPX"],
      ["a3-megagpu-8g", "hgx-h100-8", "8x200TCPXO"],
      ["a3-ultragpu-8g", "hgx-h200-8", "8x400gIB"],
      ["a4-highgpu-8g", "hgx-b200-8", "8x400gIB"],
      ["a4x-highgpu-4g", "4x gb200", "4x400gIB"],
      ...[4, 8, 12, 16, 32].map((cpus): Row => [`g2-standard-${cpus}`, "1x l4", "1x16GbE"]),
      ["g4-standard-48", "1x rtx-pro-6000-server", "1x50GbE"],
      ["g4-standard-96", "2x rtx-pro-6000-server", "1x100GbE"],
      ["g4-standard-192", "4x rtx-pro-6000-server", "1x200GbE"],
      ["g4-standard-384", "8x rtx-pro-6000-server", "1x400GbE"],
      ...[1, 4, 8].map((chips): Row => [`ct5lp-hightpu-${chips}t`, `tpu-v5e-${chips}`, "1x100GbE"]),
      ...[1, 4, 8].map((chips): Row => [`ct6e-standard-${chips}t`, `tpu-v6e-${chips}`, "1x100GbE"]),
      ["tpu7x-standard-4t", "tpu-v7x-4", "1x400GbE"],
      ["g2-standard-24", "2x l4", "1x32GbE"],
      ["g2-standard-48", "4x l4", "1x50GbE"],
      ["g2-standard-96", "8x l4", "1x100GbE"],
    ]),
    ...rows("Azure, N-series virtual machines", [
      ["nc4as_t4_v3", "1x t4", "1x8GbE"],
      ["nc8as_t4_v3", "1x t4", "1x8GbE"],
      ["nc16as_t4_v3", "1x t4", "1x8GbE"],
      ["nc64as_t4_v3", "4x t4", "1x32GbE"],
      ["nc6s_v3", "1x v100", "1x10GbE"],
      ["nc12s_v3", "2x v100-pcie", "1x10GbE"],
      ["nc24s_v3", "4x v100-pcie", "1x25GbE"],
      ["nv36ads_a10_v5", "1x a10", "1x40GbE"],
      ["nv72ads_a10_v5", "2x a10", "1x80GbE"],
      ["nc24ads_a100_v4", "1x a100-pcie", "1x20GbE"],
      ["nc48ads_a100_v4", "2x a100-pcie", "1x40GbE"],
      ["nc40ads_h100_v5", "1x h100-nvl", "1x40GbE"],
      ["nc80adis_h100_v5", "2x h100-nvl", "1x80GbE"],
      ["nd40rs_v2", "8x v100-32", "1x100IB"],
      ["nd96asr_v4", "8x a100-40", "8x200IB"],
      ["nd96amsr_a100_v4", "hgx-a100-8", "8x200IB"],
      ["nd96isr_h100_v5", "hgx-h100-8", "8x400IB"],
      ["nd96isr_h200_v5", "hgx-h200-8", "8x400IB"],
      ["nd96isr_mi300x_v5", "mi300x-8", "8x400IB"],
      ["nc96ads_a100_v4", "a100-pcie-nvlink-4", "1x100GbE"],
    ]),
    ...rows("Oracle Cloud Infrastructure, GPU shapes", [
      ["vm.gpu.a10.1", "1x a10", "1x24GbE"],
      ["vm.gpu.a10.2", "2x a10", "1x48GbE"],
      ["bm.gpu.a10.4", "4x a10", "2x50GbE"],
      ["bm.gpu.l40s.4", "4x l40s", "1x200RoCE"],
      ["bm.gpu4.8", "8x a100-40", "16x100RoCE"],
      ["bm.gpu.a100-v2.8", "hgx-a100-8", "16x100RoCE"],
      ["bm.gpu.h100.8", "hgx-h100-8", "16x200RoCE"],
      ["bm.gpu.h200.8", "hgx-h200-8", "8x400RoCE"],
      ["bm.gpu.b200.8", "hgx-b200-8", "8x400RoCE"],
      ["bm.gpu.mi300x.8", "mi300x-8", "8x400RoCE"],
    ]),
  ]),
);

/** An instance's name in small letters, without Azure's `Standard_`. */
const plainInstanceName = (name: string): string => name.toLowerCase().replace(/^standard_/, "");

/** Finds an instance by its name, in any case, with or without Azure's `Standard_`. */
export function cloudInstance(name: string): CloudInstance | undefined {
  return CLOUD_INSTANCES[plainInstanceName(name)];
}
