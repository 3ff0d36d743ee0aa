/** The topology as a matrix for terminals, and as Graphviz. */
import { wordTable } from "../../core/index.ts";
import {
  type Inventory,
  islands,
  type Link,
  type Pair,
  relate,
  ringOrder,
  type TopologyNode,
} from "../../machine/topology/index.ts";
import { cut, table } from "./hardware-columns.ts";

const MEANING: Readonly<Record<string, string>> = wordTable({
  "NV#": "a bonded set of # NVLinks, through an NVSwitch or not",
  "XGMI#": "AMD Infinity Fabric",
  "XL#": "Intel Xe Link",
  "ICI#": "TPU inter-chip interconnect",
  "NL#": "NeuronLink",
  "ROCE#": "the Gaudi cards' own Ethernet ports",
  PIX: "PCIe, at most one switch",
  PXB: "PCIe, several switches, no host bridge",
  PHB: "PCIe and one host bridge",
  NODE: "PCIe and host bridges of one NUMA node",
  SYS: "PCIe and the link between NUMA nodes",
});

/** Names of fabrics in a cell of the matrix: short ones, since there may be sixteen columns. */
const CELL_NAMES: Readonly<Record<string, string>> = wordTable({
  XGMI: "XGMI",
  XELINK: "XL",
  ICI: "ICI",
  NEURONLINK: "NL",
  "GAUDI-ROCE": "ROCE",
  ULTRAFUSION: "UF",
});

/** `XGMI4` is four links between the two, `XGMI/2` two hops over other devices, `XGMI` what does not say. */
function cellOf({ relation, count, hops }: Pair): string {
  const name = Object.hasOwn(CELL_NAMES, relation) ? CELL_NAMES[relation] : undefined;
  if (name === undefined) return relation;
  if (count !== undefined) return `${name}${count}`;
  return hops !== undefined && hops > 1 ? `${name}/${hops}` : name;
}

/** The legend's name for a cell: `NV18` and `XGMI/2` are `NV#` and `XGMI#`. */
function legendName(cell: string): string {
  const [, name] = /^([A-Z]+)(?:\/?\d+)?$/.exec(cell) ?? [];
  return name === undefined || Object.hasOwn(MEANING, name) ? cell : `${name}#`;
}

/** Width that is folded to where the output is no terminal. */
const DEFAULT_WIDTH = 120;
/** The matrix in blocks of columns, each no wider than the terminal, the row's name before every block. */
function foldedTable(head: readonly string[], rows: readonly (readonly string[])[], width: number): string {
  const sizes = head.map((name, i) => Math.max(name.length, ...rows.map((row) => (row[i] ?? "").length)) + 2);
  const blocks: string[] = [];
  for (let first = 1; first < head.length; ) {
    let used = sizes[0] ?? 0;
    let last = first;
    while (last < head.length && (last === first || used + (sizes[last] ?? 0) <= width)) used += sizes[last++] ?? 0;
    const pick = (row: readonly string[]) => [row[0] ?? "", ...row.slice(first, last)];
    blocks.push(table(pick(head), rows.map(pick)));
    first = last;
  }
  return blocks.join("\n\n");
}

/**
 * Draws the matrix, then islands, rings, NUMA nodes, NICs and the legend of what occurs.
 * @param width columns of the terminal; a wider matrix is folded
 */
export function renderMatrix(inventory: Inventory, width = process.stdout.columns ?? DEFAULT_WIDTH): string {
  const { topology } = inventory;
  const accelerators = inventory.devices.filter((d) => d.family !== "cpu" && d.parent === undefined);
  const nics = topology.nodes.filter((node) => node.kind === "nic");
  const ids = [...accelerators.map((d) => d.id), ...nics.map((nic) => nic.id)];
  const relation = new Map<string, string>();
  for (const pair of topology.pairs ?? allPairs(inventory, ids)) {
    relation.set(`${pair.a} ${pair.b}`, cellOf(pair));
    relation.set(`${pair.b} ${pair.a}`, cellOf(pair));
  }
  const sections: string[] = [];
  if (accelerators.length > 0) {
    const numaOf = new Map(accelerators.map((d) => [d.id, d.numaNode]));
    const rows = accelerators.map((d) => [
      d.id,
      ...ids.map((other) => (other === d.id ? "X" : (relation.get(`${d.id} ${other}`) ?? "-"))),
      String(numaOf.get(d.id) ?? "-"),
    ]);
    sections.push(foldedTable(["", ...ids, "NUMA"], rows, width));
  } else sections.push("no accelerator found");
  sections.push(...islandLines(inventory), ...nicLines(nics), ...numaLines(topology.nodes, width));
  const used = new Set([...relation.values()].map(legendName));
  const fabrics = [...used].some((name) => name.endsWith("#") && name !== "NV#");
  const legend = Object.entries(MEANING).filter(([name]) => used.has(name));
  if (legend.length > 0) sections.push(legend.map(([name, meaning]) => `${name.padEnd(10)} ${meaning}`).join("\n"));
  if (fabrics) sections.push("NAME4 stands for 4 links between the two, NAME/2 for a way of 2 hops over other devices");
  if (inventory.warnings.length > 0)
    sections.push(inventory.warnings.map((w) => `warning: ${w.source}: ${w.message}`).join("\n"));
  return `${sections.join("\n\n")}\n`;
}

/** Presets and compositions state no pairs; up to this many nodes they are derived here. */
const MAX_DERIVED = 96;

function allPairs({ topology }: Inventory, ids: readonly string[]): Pair[] {
  if (ids.length > MAX_DERIVED) return [];
  return ids.flatMap((a, i) => ids.slice(i + 1).flatMap((b) => relate(topology, a, b, "by-path") ?? []));
}

function islandLines(inventory: Inventory): string[] {
  const all = islands(inventory, { includeMasked: true });
  if (all.length === 0) return [];
  const lines = all.map((island) => {
    if (island.kind === undefined) return `${island.id}: ${island.devices.join(" ")} (alone)`;
    const width =
      island.bandwidthGBps === undefined
        ? ", rate unknown"
        : island.bandwidthGBps === 0
          ? ", not every pair directly linked"
          : `, ${Number(island.bandwidthGBps.toFixed(1))} GB/s at the narrowest`;
    const ring =
      island.devices.length > 2 ? `; ring ${ringOrder(inventory.topology, island.devices).order.join(" ")}` : "";
    return `${island.id}: ${island.devices.join(" ")} (${island.kind}${width}${ring})`;
  });
  return [lines.join("\n")];
}

function nicLines(nics: readonly TopologyNode[]): string[] {
  if (nics.length === 0) return [];
  return [
    nics
      .map((nic) => {
        const details = nic.details ?? {};
        const speed = details["rateGbps"] === undefined ? "" : `, ${String(details["rateGbps"])} Gb/s`;
        return `${nic.id}: ${cut(nic.name ?? "")} (${String(details["linkLayer"] ?? "unknown")}, ${String(details["state"] ?? "unknown")}${speed})`;
      })
      .join("\n"),
  ];
}

function numaLines(nodes: readonly TopologyNode[], width: number): string[] {
  const numa = nodes.filter((node) => node.kind === "numa");
  if (numa.length < 2 || numa.every((node) => node.details?.["distances"] === undefined)) return [];
  const rows = numa.map((node) => {
    const distances = node.details?.["distances"];
    return [node.id, ...(Array.isArray(distances) ? distances.map(String) : [])];
  });
  return [`NUMA distances\n${foldedTable(["", ...numa.map((node) => node.id)], rows, width)}`];
}

const SHAPES: Readonly<Record<TopologyNode["kind"], string>> = {
  device: "box",
  numa: "folder",
  "pcie-root": "house",
  "pcie-switch": "diamond",
  nvswitch: "hexagon",
  nic: "component",
  "network-switch": "doubleoctagon",
};

/** Text inside a quoted Graphviz string. */
function quoted(text: string): string {
  return `"${text.replace(/[\\"]/g, "\\$&").replace(/\n/g, " ")}"`;
}

function linkLabel(link: Link): string {
  const count = link.count !== undefined && link.count > 1 ? `${link.count}x ` : "";
  const width = link.bandwidthGBps === undefined ? "" : `\\n${Number(link.bandwidthGBps.toFixed(1))} GB/s`;
  return `"${count}${link.kind}${width}"`;
}

/** Draws the graph in the DOT language. */
export function renderDot(inventory: Inventory): string {
  const names = new Map(inventory.devices.map((device) => [device.id, device.name]));
  const lines = inventory.topology.nodes.map((node) => {
    const name = names.get(node.id) ?? node.name;
    const label =
      name === undefined || name === node.id
        ? quoted(node.id)
        : `${quoted(node.id).slice(0, -1)}\\n${quoted(name).slice(1)}`;
    return `  ${quoted(node.id)} [shape=${SHAPES[node.kind]}, label=${label}];`;
  });
  const edges = inventory.topology.links.map(
    (link) => `  ${quoted(link.a)} -- ${quoted(link.b)} [label=${linkLabel(link)}];`,
  );
  return `graph topology {\n  graph [overlap=false];\n${[...lines, ...edges].join("\n")}\n}\n`;
}
