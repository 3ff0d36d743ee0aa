/** Systems whose devices are joined pair by pair, by links of different width: no switch, and no full mesh. */
import { wordTable } from "../../core/index.ts";
import { cpu, type Fabric, type FabricLink, fullMesh, type HostSpec, part, pcie } from "./preset-builder.ts";
import { CPUS, type Entry, nvswitched } from "./preset-entry.ts";

/** Reads links as `a-b*count`, one by default. */
const linksOf = (text: string, perLinkGBps: number): FabricLink[] =>
  text.split(" ").map((word) => {
    const [a = 0, b = 0, count = 1] = word.split(/[-*]/).map(Number);
    return { a, b, count, bandwidthGBps: perLinkGBps * count };
  });

/** The hybrid cube mesh of a DGX-1 with V100: six NVLinks of 25 GB/s a GPU. */
const DGX1_LINKS = "0-1 0-2 0-3*2 0-4*2 1-2*2 1-3 1-5*2 2-3*2 2-6 3-7 4-5 4-6 4-7*2 5-6*2 5-7 6-7*2";

/** The eight dies of a four-package MI250X node (Frontier, LUMI): 50 GB/s a link, 4 within a package. */
const MI250X_LINKS = "0-1*4 2-3*4 4-5*4 6-7*4 0-6*2 2-4*2 0-2 1-3 1-5 3-7 4-6 5-7";

/** The sixteen dies of an eight-package MI250 node (Azure, and the testbed of TACCL and ForestColl). */
const MI250_16_LINKS =
  "0-1*4 2-3*4 4-5*4 6-7*4 8-9*4 10-11*4 12-13*4 14-15*4 0-4*2 3-7*2 8-12*2 11-15*2 0-8 1-5 1-9 1-10 2-6 " +
  "2-9 2-10 3-11 4-6 5-6 5-7 9-13 10-14 12-14 13-14 13-15";

/** Two cards under each bridge: 12 NVLinks of 25 GB/s on A100, 18 on H100 NVL's generation. */
function bridged(
  key: string,
  num: number,
  generation: number,
  links: number,
  host: HostSpec["cpu"],
  source: string,
): Entry {
  const chip = part(key);
  const pairs = Array.from({ length: num / 2 }, (_, i) => `${2 * i}-${2 * i + 1}*${links}`).join(" ");
  const perLinkGBps = generation === 4 ? 26.562 : 25;
  return {
    summary: `${num}x ${chip.name}, NVLink bridges between pairs`,
    sources: [chip.source, source],
    nic: "1x100GbE",
    host: {
      cpu: host,
      part: chip,
      numDevices: num,
      hostLink: pcie(generation === 4 ? 5 : 4),
      devicesPerPcieSwitch: 0,
      fabric: { kind: "nvlink", generation, links: linksOf(pairs, perLinkGBps) },
    },
  };
}

function instinct(host: HostSpec["cpu"], num: number, links: string, key: string): HostSpec {
  const fabric: Fabric = { kind: "xgmi", generation: 3, links: linksOf(links, 50) };
  return {
    cpu: host,
    part: part(key),
    numDevices: num,
    hostLink: key === "mi250x" ? { kind: "xgmi", bandwidthGBps: 36 } : pcie(4),
    devicesPerPcieSwitch: 0,
    fabric,
  };
}

const ONE_MILAN = cpu("AMD EPYC 7V13", 1, 96, 880, 204.8);

export const LINKED_PRESETS: Readonly<Record<string, Entry>> = wordTable({
  "dgx1-v100": {
    summary: "8x Tesla V100-SXM2-16GB, hybrid cube mesh",
    sources: [part("v100-16").source, "NVIDIA DGX-1 with Tesla V100 system architecture (white paper WP-08437)"],
    nic: "4xEDR",
    fixed: true,
    host: {
      cpu: CPUS.skylake,
      part: part("v100-16"),
      numDevices: 8,
      hostLink: pcie(3),
      devicesPerPcieSwitch: 2,
      fabric: { kind: "nvlink", generation: 2, links: linksOf(DGX1_LINKS, 25) },
    },
  },
  "dgx2-v100": {
    summary: "16x Tesla V100-SXM3-32GB, NVSwitch",
    sources: [part("v100-32").source, "NVIDIA DGX-2 User Guide"],
    nic: "8xEDR",
    host: {
      cpu: CPUS.skylake,
      part: part("v100-32"),
      numDevices: 16,
      hostLink: pcie(3),
      devicesPerPcieSwitch: 2,
      fabric: nvswitched(16, 2, 6, 25, "12x NVSwitch"),
    },
  },
  "a100-pcie-nvlink-4": bridged("a100-80-pcie", 4, 3, 12, ONE_MILAN, "Azure NC A100 v4: NVLink bridges in pairs"),
  "a100-pcie-nvlink-2": bridged("a100-80-pcie", 2, 3, 12, ONE_MILAN, "Azure NC A100 v4: NVLink bridges in pairs"),
  "h100-nvl-2": bridged("h100-nvl", 2, 4, 12, CPUS.genoa, "NVIDIA H100 NVL product brief: 600 GB/s over three bridges"),
  "gh200-4": {
    summary: "4x Grace Hopper superchip, every pair on six NVLinks",
    sources: [part("gh200-96").source, "CSCS Alps and JSC JUPITER: nodes of four GH200"],
    nic: "4x200Slingshot",
    fixed: true,
    host: {
      cpu: cpu("4x NVIDIA Grace", 4, 72, 512, 2048),
      part: part("gh200-96"),
      numDevices: 4,
      hostLink: { kind: "nvlink-c2c", bandwidthGBps: 450 },
      devicesPerPcieSwitch: 0,
      fabric: { kind: "nvlink", generation: 4, links: fullMesh(4, 6, 150) },
    },
  },
  "mi250x-8": {
    summary: "four MI250X packages, 8 devices of 64 GiB",
    sources: [part("mi250x").source, "OLCF Frontier User Guide, compute nodes; LUMI-G hardware documentation"],
    nic: "4x200GbE",
    fixed: true,
    host: instinct(CPUS.trento, 8, MI250X_LINKS, "mi250x"),
  },
  "mi250-16": {
    summary: "eight MI250 packages, 16 devices of 64 GiB",
    sources: [part("mi250").source, "ForestColl (arXiv 2402.06787), testbed of 16 dies; RCCL's model of the node"],
    nic: "8xHDR",
    fixed: true,
    host: instinct(CPUS.milan, 16, MI250_16_LINKS, "mi250"),
  },
});
