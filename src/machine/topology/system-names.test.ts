/** Accelerators and systems as people write them. */
import { describe, expect, it } from "vitest";
import { CLOUD_INSTANCES } from "./cloud-instances.ts";
import { parseSystem } from "./index.ts";

const GIB = 1024 ** 3;
const accelerators = (text: string) => parseSystem(text)?.devices.filter(({ family }) => family !== "cpu") ?? [];

describe("names of systems", () => {
  // Count, a part of the name, GiB as sold (5 % off at most: drivers report less), GB/s.
  it.each([
    ["rtx 4060", 1, "RTX 4060", 8, 272],
    ["gtx 1080 ti", 1, "GTX 1080 Ti", 11, 484],
    ["1080ti", 1, "GTX 1080 Ti", 11, 484],
    ["jetson orin nano", 1, "Orin Nano", 8, 102],
    ["jetson orin nx", 1, "Orin NX", 16, 102.4],
    ["jetson agx orin 64gb", 1, "AGX Orin", 64, 204.8],
    ["jetson orin", 1, "AGX Orin", 64, 204.8],
    ["strix halo", 1, "8060S", 96, 256],
    ["ryzen ai max+ 395", 1, "8060S", 96, 256],
    ["ryzen ai max+ 395 128gb", 1, "8060S", 96, 256],
    ["dgx spark 128gb", 1, "GB10", 122, 273],
    ["rtx 6000 pro", 1, "RTX PRO 6000 Blackwell Workstation", 96, 1792],
    ["rtx pro 6000 max-q", 1, "RTX PRO 6000 Blackwell Max-Q", 96, 1792],
    ["h20 141gb", 1, "H20-3e", 141, 4800],
    ["hgx-h800-8", 8, "H800", 80, 3350],
    ["hgx h20", 8, "H20", 96, 4000],
    ["8x h800 sxm", 8, "H800", 80, 3350],
    ["GTX 1660", 1, "GTX 1660", 6, 192],
    ["rtx 3080 12gb", 1, "RTX 3080 12GB", 12, 912],
    ["gtx 970", 1, "GTX 970", 4, 196.3],
    ["tesla m40 24gb", 1, "Tesla M40 24GB", 24, 288],
    ["rx 6600", 1, "RX 6600", 8, 224],
    ["2x RX 580", 2, "RX 580", 8, 256],
    ["ironwood-64", 64, "TPU v7x", 192, 7380],
    ["tpu7x-standard-4t", 4, "TPU v7x", 192, 7380],
    ["ct6e-standard-8t", 8, "TPU v6e", 32, 1640],
    ["g4-standard-96", 2, "RTX PRO 6000", 96, 1597],
    ["w7800 48gb", 1, "PRO W7800 48GB", 48, 864],
    ["m3 ultra 512gb", 1, "Apple M3 Ultra", 512, 819],
    ["mac studio m2 ultra 64gb", 1, "Apple M2 Ultra", 64, 800],
    ["m3 max 36gb", 1, "Apple M3 Max", 36, 300],
    ["2 h100s", 2, "H100 80GB HBM3", 80, 3350],
    ["two h100s", 2, "H100 80GB HBM3", 80, 3350],
    ["2 x DGX H100", 16, "H100 80GB HBM3", 80, 3350],
    ["hgx b200", 8, "B200", 180, 8000],
    ["dual 3090", 2, "RTX 3090", 24, 936],
    ["2 4090s", 2, "RTX 4090", 24, 1008],
    ["rtx 3060 12gb", 1, "RTX 3060", 12, 360],
    ["4060 ti 8gb", 1, "RTX 4060 Ti 8GB", 8, 288],
    ["4060 ti 16gb", 1, "RTX 4060 Ti", 16, 288],
    ["rtx 4070 super", 1, "RTX 4070 SUPER", 12, 504],
    ["rtx 4090 laptop", 1, "RTX 4090 Laptop", 16, 576],
    ["rx 6800 xt", 1, "RX 6800 XT", 16, 512],
    ["mi50 32gb", 1, "MI50", 32, 1024],
    ["tpu v4-8", 4, "TPU v4", 32, 1228],
    ["tpu v5p-8", 4, "TPU v5p", 95, 2765],
    ["v5litepod-8", 8, "TPU v5e", 16, 819],
    ["google tpu v6e-8", 8, "TPU v6e", 32, 1640],
    ["gb200 nvl72", 72, "GB200", 186, 8000],
    ["g5.12xlarge", 4, "A10G", 24, 600],
    ["aws g6e.12xlarge", 4, "L40S", 48, 864],
    ["p5.4xlarge", 1, "H100", 80, 3350],
    ["a3-highgpu-1g", 1, "H100", 80, 3350],
    ["g2-standard-48", 4, "L4", 24, 300],
    ["Standard_NC80adis_H100_v5", 2, "H100 NVL", 94, 3900],
    ["NC40ads H100 v5", 1, "H100 NVL", 94, 3900],
  ] as const)("%s is %d x %s", (text, count, name, gib, bandwidth) => {
    const found = accelerators(text);
    expect(found).toHaveLength(count);
    expect(found[0]?.name).toContain(name);
    expect(Math.abs((found[0]?.memoryBytes ?? 0) / GIB / gib - 1)).toBeLessThan(0.08);
    expect(found[0]?.memoryBandwidthGBps).toBe(bandwidth);
  });

  it.each(["3080 24gb", "h100z", "m3 ultra 384gb", "two", "mac studio", "6 of them"])("%s names nothing", (text) => {
    expect(parseSystem(text)).toBeUndefined();
  });

  it("instances say what they are rented as; every one has accelerators", () => {
    expect(parseSystem("2x Standard_ND96isr_H100_v5")?.environment).toMatchObject({ instance: "nd96isr_h100_v5" });
    for (const name of Object.keys(CLOUD_INSTANCES)) expect(accelerators(name).length, name).toBeGreaterThan(0);
  });
});
