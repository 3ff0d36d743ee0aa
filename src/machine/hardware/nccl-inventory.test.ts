import { describe, expect, it } from "vitest";
import { Random } from "../../../test/oracle/random.ts";
import { FormatError } from "../../core/index.ts";
import { inventorySchema } from "../topology/index.ts";
import { inventoryOfNcclTopology } from "./nccl-inventory.ts";

const pci = (busId: string, inside: string, speed = "16.0 GT/s PCIe", lanes = 16) =>
  `<pci busid="${busId}" class="0x038000" link_speed="${speed}" link_width="${lanes}">${inside}</pci>`;
const gpu = (dev: number, arch: string, links: string) =>
  `<gpu dev="${dev}" ${arch} rank="${dev}" gdr="1">${links}</gpu>`;
const xgmi = (target: string, count: number) => `<xgmi target="${target}" count="${count}" tclass="0x038000"/>`;

/** Two dies of a package behind one bridge with a NIC, one more on the other CPU. */
const AMD = `<!-- a dump -->
<system version="2">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="48">
    ${pci(
      "0000:c0:00.0",
      pci("0000:c1:00.0", gpu(0, 'sm="104" gcn="910"', xgmi("0000:C2:00.0", 4) + xgmi("0000:d1:00.0", 1))) +
        pci("0000:c2:00.0", gpu(1, 'sm="104" gcn="gfx90a:sramecc+:xnack-"', xgmi("0000:c1:00.0", 4))) +
        pci("0000:c3:00.0", '<nic><net name="mlx5_0" dev="0" speed="200000" port="1"/></nic>', "8 GT/s", 8),
    )}
  </cpu>
  <cpu numaid="1" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="48">
    ${pci("0000:d1:00.0", gpu(2, 'sm="104" gcn="910"', xgmi("0000:c1:00.0", 1)), "", 0)}
  </cpu>
</system>
`;

const NVIDIA = `<system version="1"><cpu numaid="0">
  ${[0, 1]
    .map((i) =>
      pci(
        `0000:1${i}:00.0`,
        gpu(i, 'sm="80"', [2, 3].map((s) => `<nvlink target="0000:c${s}:00.0" count="6" tclass="0x068000"/>`).join("")),
      ),
    )
    .join("\n")}
</cpu></system>`;

const linksOf = (text: string, kind: string) =>
  inventoryOfNcclTopology(text)
    .topology.links.filter((link) => link.kind === kind)
    .map(({ a, b, count, bandwidthGBps }) => [a, b, count, bandwidthGBps]);

describe("inventoryOfNcclTopology", () => {
  it("reads GPUs, xGMI links with their number, the PCI tree and NICs", () => {
    const inventory = inventoryOfNcclTopology(AMD);
    expect(inventorySchema.parse(inventory)).toEqual(inventory);
    expect(inventory.devices.map(({ id, arch, pciAddress, numaNode }) => [id, arch, pciAddress, numaNode])).toEqual([
      ["gpu0", "gfx90a", "0000:c1:00.0", 0],
      ["gpu1", "gfx90a", "0000:c2:00.0", 0],
      ["gpu2", "gfx90a", "0000:d1:00.0", 1],
    ]);
    expect(linksOf(AMD, "xgmi")).toEqual([
      ["gpu0", "gpu1", 4, 200],
      ["gpu0", "gpu2", 1, 50],
    ]);
    expect(linksOf(AMD, "pcie")).toEqual([
      ["numa0", "pci-0000:c0:00.0", undefined, 31.5077],
      ["pci-0000:c0:00.0", "gpu0", undefined, 31.5077],
      ["pci-0000:c0:00.0", "gpu1", undefined, 31.5077],
      ["pci-0000:c0:00.0", "nic0", undefined, 7.87692],
      ["numa1", "gpu2", undefined, undefined],
    ]);
    expect(linksOf(AMD, "host-interconnect")).toHaveLength(1);
  });

  it("joins NVSwitches to one, for they work as one", () => {
    expect(linksOf(NVIDIA, "nvlink")).toEqual([
      ["gpu0", "nvswitch0", 12, 300],
      ["gpu1", "nvswitch0", 12, 300],
    ]);
  });

  it.each([
    ["", /ends before/],
    ["<system>", /ends before/],
    ["<system></cpu>", /closes <cpu>/],
    ["<graphs/>", /expected <system>/],
    ["<system/><system/>", /second root/],
    ["<!DOCTYPE x><system/>", /line 1/],
    ["<system>text</system>", /no element/],
    ["<system/>", /has no GPU/],
    [NVIDIA.replace('dev="1"', 'dev="0"'), /gpu dev 0 twice/],
    [NVIDIA.replace('dev="1"', 'dev="-1"'), /expected an integer/],
    [NVIDIA.replace('busid="0000:11', 'busid="11'), /PCI address/],
    ["<a>".repeat(100), /64 within each other/],
  ])("refuses %j in words", (text, message) => {
    expect(() => inventoryOfNcclTopology(text, "dump.xml")).toThrow(FormatError);
    expect(() => inventoryOfNcclTopology(text, "dump.xml")).toThrow(message);
  });

  it("reads changed dumps, or refuses them with a FormatError", () => {
    const seed = Number(process.env["CHORALE_FUZZ_SEED"] ?? 20_261_123);
    const random = new Random(seed);
    const below = (n: number) => Math.floor(random.fraction() * n);
    const pieces = [
      "<",
      ">",
      "/>",
      '"',
      "<pci ",
      "<!--",
      "-->",
      "</cpu>",
      "=",
      "0",
      "99999999999",
      "\u0000",
      "é",
      "&lt;",
    ];
    const runs = Number(process.env["CHORALE_FUZZ_RUNS"] ?? 3000);
    let numRead = 0;
    for (let i = 0; i < runs; i++) {
      let text = i % 2 === 0 ? AMD : NVIDIA;
      for (let changes = below(3); changes >= 0; changes--) {
        const [at, length] = [below(text.length), below(below(4) === 0 ? 200 : 4)];
        text = text.slice(0, at) + (below(3) === 0 ? "" : pieces[below(pieces.length)]) + text.slice(at + length);
      }
      try {
        const inventory = inventoryOfNcclTopology(text);
        expect(inventorySchema.safeParse(inventory).success, `seed ${seed}, run ${i}: ${text}`).toBe(true);
        numRead++;
      } catch (error) {
        if (!(error instanceof FormatError)) throw new Error(`seed ${seed}, run ${i}: ${error}\n${text}`);
      }
    }
    expect(numRead).toBeGreaterThan(runs / 20);
    expect(numRead).toBeLessThan(runs);
  });
});
