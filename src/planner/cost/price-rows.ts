/**
 * What hosts with accelerators are rented for: rows of `DEFAULT_PRICES`. On-demand list prices in US dollars an hour, each
 * with the list that it stands in and the month it was written down. `node scripts/refresh-prices.mjs` looks the rows of
 * AWS and Azure up again; the others are checked by hand at their source.
 */

/** Provider, its name of the instance, key of the part, devices, dollars an hour, what joins them, month. */
export type PriceRow = readonly [
  name: string,
  part: string,
  numDevices: number,
  pricePerHour: number,
  interconnect: string,
  date: string,
];

export interface PriceList {
  readonly provider: string;
  readonly region: string;
  /** The public list. */
  readonly source: string;
  /** Any number of devices of a host is rented, at the row's price each. */
  readonly perDevice?: boolean;
  readonly rows: readonly PriceRow[];
}

export const PRICE_LISTS: readonly PriceList[] = [
  {
    provider: "aws",
    region: "us-east-1",
    source: "https://aws.amazon.com/ec2/pricing/on-demand/",
    rows: [
      ["p5.48xlarge", "h100", 8, 55.04, "NVSwitch", "2025-06"],
      ["p5.4xlarge", "h100", 1, 6.88, "none", "2025-09"],
      ["p5en.48xlarge", "h200", 8, 63.3, "NVSwitch", "2025-06"],
      ["p6-b200.48xlarge", "b200", 8, 113.93, "NVSwitch", "2025-06"],
      ["p4d.24xlarge", "a100-40", 8, 21.96, "NVSwitch", "2025-06"],
      ["p4de.24xlarge", "a100-80", 8, 27.45, "NVSwitch", "2025-06"],
      ["p3.2xlarge", "v100-16", 1, 3.06, "none", "2025-01"],
      ["p3.8xlarge", "v100-16", 4, 12.24, "NVLink", "2025-01"],
      ["p3.16xlarge", "v100-16", 8, 24.48, "NVLink", "2025-01"],
      ["p3dn.24xlarge", "v100-32", 8, 31.212, "NVLink", "2025-01"],
      ["g5.xlarge", "a10g", 1, 1.006, "none", "2025-01"],
      ["g5.2xlarge", "a10g", 1, 1.212, "none", "2025-01"],
      ["g5.4xlarge", "a10g", 1, 1.624, "none", "2025-01"],
      ["g5.8xlarge", "a10g", 1, 2.448, "none", "2025-01"],
      ["g5.24xlarge", "a10g", 4, 8.144, "PCIe", "2025-01"],
      ["g5.12xlarge", "a10g", 4, 5.672, "PCIe", "2025-01"],
      ["g5.48xlarge", "a10g", 8, 16.288, "PCIe", "2025-01"],
      ["g6.xlarge", "l4", 1, 0.8048, "none", "2025-01"],
      ["g6.2xlarge", "l4", 1, 0.9776, "none", "2025-01"],
      ["g6.12xlarge", "l4", 4, 4.6016, "PCIe", "2025-01"],
      ["g6.48xlarge", "l4", 8, 13.35, "PCIe", "2025-01"],
      ["g6e.xlarge", "l40s", 1, 1.861, "none", "2025-01"],
      ["g6e.12xlarge", "l40s", 4, 10.4926, "PCIe", "2025-01"],
      ["g6e.48xlarge", "l40s", 8, 30.131, "PCIe", "2025-01"],
      ["g4dn.xlarge", "t4", 1, 0.526, "none", "2025-01"],
      ["g4dn.2xlarge", "t4", 1, 0.752, "none", "2025-01"],
      ["g4dn.12xlarge", "t4", 4, 3.912, "PCIe", "2025-01"],
      ["trn1.2xlarge", "trainium1", 1, 1.34375, "none", "2025-01"],
      ["trn1.32xlarge", "trainium1", 16, 21.5, "NeuronLink", "2025-01"],
      ["inf2.xlarge", "inferentia2", 1, 0.7582, "none", "2025-01"],
      ["inf2.8xlarge", "inferentia2", 1, 1.9679, "none", "2025-01"],
      ["inf2.24xlarge", "inferentia2", 6, 6.4906, "NeuronLink", "2025-01"],
      ["inf2.48xlarge", "inferentia2", 12, 12.9813, "NeuronLink", "2025-01"],
    ],
  },
  {
    provider: "gcp",
    region: "us-central1",
    source: "https://cloud.google.com/compute/all-pricing",
    rows: [
      ["a3-highgpu-1g", "h100", 1, 11.06, "none", "2025-01"],
      ["a3-highgpu-2g", "h100", 2, 22.12, "NVSwitch", "2025-01"],
      ["a3-highgpu-4g", "h100", 4, 44.25, "NVSwitch", "2025-01"],
      ["a3-highgpu-8g", "h100", 8, 88.49, "NVSwitch", "2025-01"],
      ["a2-highgpu-1g", "a100-40", 1, 3.67, "none", "2025-01"],
      ["a2-highgpu-2g", "a100-40", 2, 7.35, "NVSwitch", "2025-01"],
      ["a2-highgpu-4g", "a100-40", 4, 14.69, "NVSwitch", "2025-01"],
      ["a2-highgpu-8g", "a100-40", 8, 29.39, "NVSwitch", "2025-01"],
      ["a2-ultragpu-1g", "a100-80", 1, 5.07, "none", "2025-01"],
      ["a2-ultragpu-2g", "a100-80", 2, 10.14, "NVSwitch", "2025-01"],
      ["a2-ultragpu-4g", "a100-80", 4, 20.28, "NVSwitch", "2025-01"],
      ["a2-ultragpu-8g", "a100-80", 8, 40.55, "NVSwitch", "2025-01"],
      ["g2-standard-4", "l4", 1, 0.71, "none", "2025-01"],
      ["g2-standard-24", "l4", 2, 2, "PCIe", "2025-01"],
      ["g2-standard-48", "l4", 4, 4, "PCIe", "2025-01"],
      ["g2-standard-96", "l4", 8, 8, "PCIe", "2025-01"],
      ["ct5lp-hightpu-4t", "tpu-v5e", 4, 4.8, "ICI", "2025-01"],
      ["ct5p-hightpu-4t", "tpu-v5p", 4, 16.8, "ICI", "2025-01"],
    ],
  },
  {
    provider: "azure",
    region: "eastus",
    source: "https://prices.azure.com/api/retail/prices",
    rows: [
      ["Standard_ND96isr_H100_v5", "h100", 8, 98.32, "NVSwitch", "2025-01"],
      ["Standard_NC40ads_H100_v5", "h100-nvl", 1, 6.98, "none", "2025-01"],
      ["Standard_NC80adis_H100_v5", "h100-nvl", 2, 13.96, "NVLink", "2025-01"],
      ["Standard_ND96asr_v4", "a100-40", 8, 27.2, "NVSwitch", "2025-01"],
      ["Standard_ND96amsr_A100_v4", "a100-80", 8, 32.77, "NVSwitch", "2025-01"],
      ["Standard_NC24ads_A100_v4", "a100-80", 1, 3.67, "none", "2025-01"],
      ["Standard_NC48ads_A100_v4", "a100-80", 2, 7.35, "NVLink", "2025-01"],
      ["Standard_NC96ads_A100_v4", "a100-80", 4, 14.69, "NVLink", "2025-01"],
      ["Standard_NC4as_T4_v3", "t4", 1, 0.526, "none", "2025-01"],
      ["Standard_NC64as_T4_v3", "t4", 4, 4.352, "PCIe", "2025-01"],
      ["Standard_NC6s_v3", "v100-16", 1, 3.06, "none", "2025-01"],
      ["Standard_NV36ads_A10_v5", "a10", 1, 3.2, "none", "2025-01"],
      ["Standard_NV72ads_A10_v5", "a10", 2, 6.52, "PCIe", "2025-01"],
      ["Standard_ND96isr_MI300X_v5", "mi300x", 8, 48, "xGMI", "2025-01"],
    ],
  },
  {
    provider: "runpod",
    region: "secure cloud",
    source: "https://www.runpod.io/pricing",
    perDevice: true,
    rows: [
      ["H100 SXM", "h100", 8, 2.69, "NVSwitch", "2026-03"],
      ["H100 PCIe", "h100-pcie", 8, 1.99, "PCIe", "2026-03"],
      ["H200 SXM", "h200", 8, 3.59, "NVSwitch", "2026-03"],
      ["B200", "b200", 8, 5.98, "NVSwitch", "2026-03"],
      ["A100 SXM", "a100-80", 8, 1.39, "NVSwitch", "2026-03"],
      ["A100 PCIe", "a100-80-pcie", 8, 1.19, "PCIe", "2026-03"],
      ["L40S", "l40s", 8, 0.79, "PCIe", "2026-03"],
      ["L40", "l40", 8, 0.69, "PCIe", "2026-03"],
      ["L4", "l4", 8, 0.44, "PCIe", "2026-03"],
      ["RTX 3090", "rtx3090", 8, 0.22, "PCIe", "2026-03"],
      ["RTX 4090", "rtx4090", 8, 0.34, "PCIe", "2026-03"],
      ["RTX 5090", "rtx5090", 8, 0.69, "PCIe", "2026-03"],
      ["RTX PRO 6000", "rtx-pro-6000", 8, 0.89, "PCIe", "2026-03"],
    ],
  },
];
