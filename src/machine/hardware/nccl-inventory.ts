/** The inventory of a machine that NCCL or RCCL dumped as XML: GPUs, their fabric, the PCI tree, NICs. */
import { wordTable } from "../../core/index.ts";
import { type NcclGpu, type NcclPci, parseNcclTopology } from "../../foreign/formats/index.ts";
import {
  type Device,
  INVENTORY_SCHEMA_VERSION,
  type Inventory,
  type Link,
  type TopologyNode,
} from "../topology/index.ts";

/** One xGMI link, one direction, GB/s, by architecture: AMD's data sheets of MI60, MI100, MI250X, MI300X and MI355X. */
const XGMI_GBPS: Readonly<Record<string, number>> = wordTable({
  gfx906: 50,
  gfx908: 46,
  gfx90a: 50,
  gfx940: 64,
  gfx941: 64,
  gfx942: 64,
  gfx950: 76.8,
});
/** One NVLink, one direction, GB/s, by compute capability: P100, V100, A100, H100, B200. */
const NVLINK_GBPS: Readonly<Record<number, number>> = { 60: 20, 70: 25, 80: 25, 90: 26.5625, 100: 50 };

/** Dumps of RCCL before 2023 give numbers: 910 is gfx90a. */
function archOf({ gcn, sm }: NcclGpu): string | undefined {
  if (gcn === undefined) return sm === undefined ? undefined : `${Math.floor(sm / 10)}.${sm % 10}`;
  const name = gcn.split(":")[0] as string;
  if (name === "910") return "gfx90a";
  return name.startsWith("gfx") ? name : `gfx${name}`;
}

/** Rate of a PCI link: transfers times lanes, less its coding; undefined where the dump does not know. */
function pcieGBps({ gigatransfers, lanes }: NcclPci): number | undefined {
  if (gigatransfers === undefined || lanes === undefined) return undefined;
  const coding = gigatransfers < 8 ? 0.8 : gigatransfers < 64 ? 128 / 130 : 242 / 256;
  return Number(((gigatransfers * lanes * coding) / 8).toPrecision(6));
}

/**
 * Makes the inventory of a dump. GPUs are numbered as the dump does (`dev`); PCI functions with others below them forward;
 * CPUs of one host are joined to each other. Rates are nominal; where a dump has none, the kind's default is assumed.
 * @throws FormatError as `parseNcclTopology`
 */
export function inventoryOfNcclTopology(text: string, where = "topology.xml"): Inventory {
  const { cpus } = parseNcclTopology(text, where);
  const nodes: TopologyNode[] = [];
  const links: Link[] = [];
  const devices: Device[] = [];
  const warnings: Inventory["warnings"] = [];
  const gpus = new Map<string, { id: string; gpu: NcclGpu; arch: string | undefined }>();
  let numNics = 0;
  const pcie = (a: string, b: string, pci: NcclPci): void => {
    const bandwidthGBps = pcieGBps(pci);
    links.push({ a, b, kind: "pcie", ...(bandwidthGBps === undefined ? {} : { bandwidthGBps }) });
  };
  const place = (pci: NcclPci, parent: string, numaNode: number): void => {
    const { gpu, busId, nets } = pci;
    if (gpu !== undefined) {
      const id = `gpu${gpu.dev}`;
      const arch = archOf(gpu);
      const isAmd = gpu.gcn !== undefined;
      gpus.set(busId, { id, gpu, arch });
      devices.push({
        id,
        family: isAmd ? "amd-gpu" : "nvidia-gpu",
        vendor: isAmd ? "AMD" : "NVIDIA",
        name: `${isAmd ? "AMD" : "NVIDIA"} GPU${arch === undefined ? "" : ` ${arch}`}`,
        index: gpu.dev,
        pciAddress: busId,
        numaNode,
        visible: true,
        ...(arch === undefined ? {} : { arch }),
      });
      nodes.push({ id, kind: "device", host: 0 });
      pcie(parent, id, pci);
    }
    const isBridge = pci.children.length > 0;
    const again = nodes.filter(({ name, kind }) => kind === "pcie-switch" && name === busId).length;
    const id = isBridge ? `pci-${busId}${again === 0 ? "" : `-${again + 1}`}` : parent;
    if (isBridge) {
      nodes.push({ id, kind: "pcie-switch", name: busId, host: 0 });
      pcie(parent, id, pci);
    }
    for (const { name, megabitsPerSecond } of nets) {
      const nic = `nic${numNics++}`;
      const details = megabitsPerSecond === undefined ? {} : { details: { rateGbps: megabitsPerSecond / 1000 } };
      nodes.push({ id: nic, kind: "nic", name, host: 0, ...details });
      pcie(id, nic, pci);
    }
    for (const child of pci.children) place(child, id, numaNode);
  };
  for (const { numa, pci } of cpus) {
    const id = `numa${numa}`;
    for (const other of nodes.filter(({ kind }) => kind === "numa"))
      links.push({ a: other.id, b: id, kind: "host-interconnect" });
    nodes.push({ id, kind: "numa", host: 0 });
    for (const child of pci) place(child, id, numa);
  }
  addFabric(gpus, nodes, links, warnings);
  return {
    schemaVersion: INVENTORY_SCHEMA_VERSION,
    devices: devices.sort((a, b) => a.index - b.index),
    topology: { nodes, links },
    environment: { source: where },
    warnings,
  };
}

/** Links between GPUs, each once; those that end at an NVSwitch all end at one node, for the switches work as one. */
function addFabric(
  gpus: ReadonlyMap<string, { id: string; gpu: NcclGpu; arch: string | undefined }>,
  nodes: TopologyNode[],
  links: Link[],
  warnings: Inventory["warnings"],
): void {
  const switched = new Map<string, Link>();
  const seen = new Map<string, number>();
  for (const { id, gpu, arch } of gpus.values()) {
    for (const { kind, target, count } of gpu.links) {
      const rate = kind === "xgmi" ? XGMI_GBPS[arch ?? ""] : NVLINK_GBPS[Math.floor((gpu.sm ?? 0) / 10) * 10];
      const other = gpus.get(target)?.id;
      if (other === id) continue;
      if (other === undefined && kind === "xgmi") {
        warnings.push({ source: "nccl", message: `${id} has an xGMI link to ${target}, which is not in the file` });
        continue;
      }
      if (other === undefined) {
        const known = switched.get(id)?.count ?? 0;
        const total = known + count;
        const rated = rate === undefined ? {} : { bandwidthGBps: rate * total };
        switched.set(id, { a: id, b: "nvswitch0", kind, count: total, ...rated });
        continue;
      }
      const key = [id, other].sort().join(" ");
      const before = seen.get(key);
      if (before !== undefined) {
        const message = `${key.replace(" ", " and ")} do not agree on the number of their links`;
        if (before !== count) warnings.push({ source: "nccl", message });
        continue;
      }
      seen.set(key, count);
      links.push({ a: id, b: other, kind, count, ...(rate === undefined ? {} : { bandwidthGBps: rate * count }) });
    }
  }
  if (switched.size === 0) return;
  nodes.push({ id: "nvswitch0", kind: "nvswitch", host: 0 });
  links.push(...switched.values());
}
