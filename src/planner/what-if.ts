/**
 * What if: the same question on other hardware. Each function takes an inventory and gives a new one; nothing is changed
 * in place, so what-ifs compose.
 */
import { InvalidArgumentError } from "../core/index.ts";
import {
  type Device,
  findPart,
  type Inventory,
  LINK_KINDS,
  type Link,
  PARTS,
  type Part,
  parseSystem,
  partByKey,
  partFields,
  pcieGBps,
  type TopologyNode,
} from "../machine/topology/index.ts";

/** A part and how many of it, by any name that `--hardware` takes: `rtx 3090`, `4x a100`. */
function namedDevices(text: string): { readonly part: Part; readonly count: number } | undefined {
  try {
    const named = (parseSystem(text)?.devices ?? []).filter(({ family }) => family !== "cpu");
    const [first] = named;
    const part = first === undefined ? undefined : findPart(first.family, first.name);
    return part === undefined ? undefined : { part, count: named.length };
  } catch (error) {
    if (error instanceof InvalidArgumentError) return undefined;
    throw error;
  }
}

/** Part keys that a word may stand for, without its memory or form factor: `a100`, `mi300x`. */
function partBeginning(name: string): Part | undefined {
  const lower = name.toLowerCase();
  return (
    partByKey(lower) ??
    PARTS.find((part) => part.key.startsWith(`${lower}-`) || part.name.toLowerCase().includes(lower))
  );
}

/**
 * Adds devices: `4xH200`, `H100`. They hang on the first host's PCIe, and on its NVSwitch or full mesh where their kind
 * is the host's own; a network, where there is one, reaches them.
 * @throws InvalidArgumentError for an unknown part
 * @example
 * import { addDevices } from "chorale/planner";
 * import { presetInventory } from "chorale/topology";
 * addDevices(presetInventory("l4"), "1xl4").devices.length; // 3: a CPU and two L4
 */
export function addDevices(inventory: Inventory, text: string): Inventory {
  const match = /^\s*(?:(\d{1,4})\s*x\s*)?([A-Za-z][A-Za-z0-9.-]*)\s*$/.exec(text);
  const named = namedDevices(text);
  const part = named?.part ?? (match === null ? undefined : partBeginning(match[2] ?? ""));
  const count = named?.count ?? Number(match?.[1] ?? 1);
  if (part === undefined || count < 1) {
    throw new InvalidArgumentError(
      "--add",
      text,
      `COUNTxPART with PART one of ${PARTS.map(({ key }) => key).join(", ")}`,
    );
  }
  const devices: Device[] = [...inventory.devices];
  const nodes: TopologyNode[] = [...inventory.topology.nodes];
  const links: Link[] = [...inventory.topology.links];
  const peers = inventory.devices.filter((device) => device.name === part.name);
  const [peer] = peers;
  const fabric =
    peer === undefined ? [] : inventory.topology.links.filter((link) => link.a === peer.id || link.b === peer.id);
  const host = nodes.find((node) => node.id === peer?.id)?.host ?? 0;
  for (let at = 0; at < count; at++) {
    let index = devices.length;
    while (devices.some((device) => device.id === `added${index}`)) index++;
    const id = `added${index}`;
    devices.push({
      id,
      family: part.family,
      vendor: part.vendor,
      name: part.name,
      index: devices.filter((device) => device.family === part.family).length,
      memoryBytes: part.memoryBytes,
      ...partFields(part),
      arch: part.arch,
      ...(part.unifiedMemory === true ? { unifiedMemory: true } : {}),
      visible: true,
      details: { source: `added: ${text}` },
    });
    nodes.push({ id, kind: "device", host });
    const toSwitch = fabric.find((link) =>
      nodes.some((node) => node.kind === "nvswitch" && (node.id === link.a || node.id === link.b)),
    );
    if (toSwitch !== undefined && peer !== undefined) {
      links.push({ ...toSwitch, a: id, b: toSwitch.a === peer.id ? toSwitch.b : toSwitch.a });
    }
    const anchor = nodes.find((node) => node.host === host && (node.kind === "numa" || node.kind === "pcie-switch"));
    links.push({ a: id, b: anchor?.id ?? "host", kind: "pcie", bandwidthGBps: pcieGBps(5, 16) });
  }
  return { ...inventory, devices, topology: { nodes, links: links.filter((link) => link.b !== "host") } };
}

/**
 * Takes devices away: by id, by family, or those that a predicate picks. Their links go with them.
 * @throws InvalidArgumentError when an id or family names none
 */
export function withoutDevices(inventory: Inventory, which: string | ((device: Device) => boolean)): Inventory {
  const names = typeof which === "string" ? which.split(",").map((name) => name.trim()) : [];
  const isGone =
    typeof which === "string"
      ? (device: Device) =>
          names.includes(device.id) ||
          names.includes(device.family) ||
          (device.parent !== undefined && names.includes(device.parent))
      : which;
  const gone = new Set(inventory.devices.filter(isGone).map((device) => device.id));
  for (const name of names) {
    if (!inventory.devices.some((device) => device.id === name || device.family === name)) {
      throw new InvalidArgumentError(
        "--without",
        name,
        `devices of ${inventory.devices.map((device) => device.id).join(", ")}`,
      );
    }
  }
  return {
    ...inventory,
    devices: inventory.devices.filter((device) => !gone.has(device.id)),
    topology: {
      nodes: inventory.topology.nodes.filter((node) => !gone.has(node.id)),
      links: inventory.topology.links.filter((link) => !gone.has(link.a) && !gone.has(link.b)),
    },
  };
}

/** Puts other devices in place of all that a predicate picks: `--without` and `--add` in one. */
export function replaceDevices(
  inventory: Inventory,
  which: string | ((device: Device) => boolean),
  text: string,
): Inventory {
  return withoutDevices(addDevices(inventory, text), which);
}

/**
 * Changes links: `nvlink=off` takes all links of a kind away, `nvlink=200` gives them 200 GB/s in each direction,
 * `nvlink=x0.5` scales them.
 * @throws InvalidArgumentError for an unknown kind or value, or a kind that the inventory does not have
 */
export function changeLinks(inventory: Inventory, text: string): Inventory {
  const match = /^([a-z0-9-]+)=(off|x?\d+(?:\.\d+)?)$/.exec(text.trim());
  const kind = LINK_KINDS.find((name) => name === match?.[1]);
  if (match === null || kind === undefined) {
    throw new InvalidArgumentError(
      "--link",
      text,
      `KIND=off, KIND=GBps or KIND=xFACTOR, with KIND one of ${LINK_KINDS.join(", ")}`,
    );
  }
  const { nodes, links } = inventory.topology;
  const own = links.filter((link) => link.kind === kind);
  if (own.length === 0) {
    throw new InvalidArgumentError(
      "--link",
      text,
      `a kind that is there: ${[...new Set(links.map((link) => link.kind))].join(", ")}`,
    );
  }
  const value = match[2] ?? "";
  const changed = value === "off" ? [] : own.map((link) => rescaled(link, value));
  const others = links.filter((link) => link.kind !== kind);
  return { ...inventory, topology: { nodes, links: [...others, ...changed] } };
}

/** Some hundred times what any link reaches: more is a slip. */
const MOST_GBPS = 1e6;

function rescaled(link: Link, value: string): Link {
  const number = Number(value.replace(/^x/, ""));
  if (!(number > 0)) throw new InvalidArgumentError("--link", value, "a bandwidth above 0, or off");
  const bandwidthGBps = value.startsWith("x") ? (link.bandwidthGBps ?? 0) * number : number;
  if (bandwidthGBps > MOST_GBPS)
    throw new InvalidArgumentError("--link", value, `a bandwidth of ${MOST_GBPS} GB/s at most`);
  if (bandwidthGBps === 0)
    throw new InvalidArgumentError("--link", value, "GB/s: the link's own bandwidth is not known");
  return { ...link, bandwidthGBps };
}
