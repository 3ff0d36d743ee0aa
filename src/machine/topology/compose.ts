/**
 * Several hosts joined by a network: `16x hgx-h100-8 --nic 8xNDR`. NIC i of every host hangs on rail switch i; with more
 * than one rail a spine of full bisection joins the rails (NVIDIA DGX SuperPOD reference architecture). Device ids get
 * the prefix `n<host>.`.
 */
import { InvalidArgumentError, wordTable } from "../../core/index.ts";
import { CARD_PRESETS } from "./card-presets.ts";
import { INVENTORY_SCHEMA_VERSION, type Inventory, type Link, type LinkKind, type TopologyNode } from "./inventory.ts";
import { findPreset, PRESET_NAMES, partMachines, presetInventory } from "./presets.ts";
import { respelled } from "./system-names.ts";

/** Most hosts that one composition may have: 4096 hosts of 8 are more devices than anyone simulates one by one. */
const MAX_HOSTS = 4096;

export interface NicSpec {
  readonly count: number;
  readonly kind: Extract<LinkKind, "infiniband" | "roce" | "ethernet">;
  readonly rateGbps: number;
  readonly name: string;
  /** The network that the NIC is a port of, where its link's kind does not say: `efa`, `tcpxo`. */
  readonly fabric?: string;
}

/** Networks that `--nic` names beside InfiniBand, RoCE and Ethernet: what their links are, and what details say. */
const NAMED_NETWORKS: Readonly<Record<string, Pick<NicSpec, "kind" | "fabric">>> = wordTable({
  ib: { kind: "infiniband" },
  roce: { kind: "roce" },
  "g-roce": { kind: "roce" },
  groce: { kind: "roce" },
  gbe: { kind: "ethernet" },
  efa: { kind: "ethernet", fabric: "efa" },
  tcpx: { kind: "ethernet", fabric: "tcpx" },
  tcpxo: { kind: "ethernet", fabric: "tcpxo" },
  gib: { kind: "roce", fabric: "gib" },
  slingshot: { kind: "ethernet", fabric: "slingshot" },
});

/** Four-lane data rates, Gb/s (InfiniBand Trade Association roadmap). */
export const INFINIBAND_RATES: Readonly<Record<string, number>> = wordTable({
  QDR: 40,
  FDR: 56,
  EDR: 100,
  HDR: 200,
  NDR: 400,
  XDR: 800,
});

/**
 * Reads a NIC description: `8xNDR`, `1x100GbE`, `8x400RoCE`, `8x400IB`, `32x100EFA`, `8x200TCPXO`, `8x400gIB`.
 * @throws InvalidArgumentError saying what is accepted
 * @example
 * parseNic("32x100EFA").fabric // "efa"
 */
export function parseNic(text: string): NicSpec {
  const accepted = `COUNTxRATE with RATE one of ${Object.keys(INFINIBAND_RATES).join(", ")}, or <Gb/s> and IB, RoCE, GbE, EFA, TCPX, TCPXO, gIB or Slingshot, such as 8xNDR or 32x100EFA`;
  const match =
    /^(?:(\d{1,2})x)?(?:(QDR|FDR|EDR|HDR|NDR|XDR)|(\d{1,4})(GbE|G?-?RoCE|IB|EFA|TCPXO|TCPX|gIB|Slingshot))$/i.exec(
      text.trim(),
    );
  const count = Number(match?.[1] ?? 1);
  if (match === null || count < 1 || count > 32) throw new InvalidArgumentError("--nic", text, accepted);
  const [, , infiniband, rate, suffix = ""] = match;
  if (infiniband !== undefined) {
    const name = infiniband.toUpperCase();
    return { count, kind: "infiniband", rateGbps: INFINIBAND_RATES[name] ?? 0, name };
  }
  const rateGbps = Number(rate);
  const network = NAMED_NETWORKS[suffix.toLowerCase()] ?? NAMED_NETWORKS["roce"];
  if (rateGbps < 1 || network === undefined) throw new InvalidArgumentError("--nic", text, accepted);
  return { count, ...network, rateGbps, name: `${rateGbps}${suffix}` };
}

/**
 * Joins `count` copies of an inventory (one or more hosts each) by a network with `nic.count` rails.
 * @throws InvalidArgumentError for a count outside 1 to 4096 hosts
 */
export function composeInventory(unit: Inventory, count: number, nic: NicSpec): Inventory {
  const unitHosts = Math.max(1, ...unit.topology.nodes.map((node) => (node.host ?? 0) + 1));
  if (!Number.isInteger(count) || count < 1 || count * unitHosts > MAX_HOSTS) {
    throw new InvalidArgumentError("number of hosts", count, `1 to ${Math.floor(MAX_HOSTS / unitHosts)}`);
  }
  const nodes: TopologyNode[] = [];
  const links: Link[] = [];
  const devices: Inventory["devices"] = [];
  const prefix = (copy: number, id: string) => (count === 1 ? id : `n${copy}.${id}`);
  for (let copy = 0; copy < count; copy++) {
    for (const device of unit.devices) {
      devices.push({
        ...device,
        id: prefix(copy, device.id),
        ...(device.parent !== undefined && { parent: prefix(copy, device.parent) }),
      });
    }
    for (const node of unit.topology.nodes) {
      // A fabric that spans the hosts of a rack belongs to no host of it.
      const host = node.host === undefined ? (unitHosts > 1 ? undefined : copy) : copy * unitHosts + node.host;
      const { host: _own, ...rest } = node;
      nodes.push({ ...rest, id: prefix(copy, node.id), ...(host !== undefined && { host }) });
    }
    for (const link of unit.topology.links) links.push({ ...link, a: prefix(copy, link.a), b: prefix(copy, link.b) });
    for (let host = 0; host < unitHosts; host++) {
      addNics(nodes, links, unit, nic, { copy, host, unitHosts, prefix: (id) => prefix(copy, id) });
    }
  }
  addNetwork(nodes, links, nic, count * unitHosts);
  return {
    schemaVersion: INVENTORY_SCHEMA_VERSION,
    devices,
    topology: { nodes, links },
    environment: { ...unit.environment, hosts: count * unitHosts, nic: `${nic.count}x${nic.name}` },
    warnings: unit.warnings,
  };
}

interface HostPlace {
  readonly copy: number;
  readonly host: number;
  readonly unitHosts: number;
  readonly prefix: (id: string) => string;
}

function addNics(nodes: TopologyNode[], links: Link[], unit: Inventory, nic: NicSpec, place: HostPlace): void {
  const own = unit.topology.nodes.filter((node) => (node.host ?? 0) === place.host);
  const switches = own.filter((node) => node.kind === "pcie-switch");
  const attach = switches.length > 0 ? switches : own.filter((node) => node.kind === "numa");
  const pcieGBps = Math.max(
    ...unit.topology.links.filter((link) => link.kind === "pcie").map((link) => link.bandwidthGBps ?? 0),
    (nic.rateGbps / 8) * 1.25,
  );
  for (let i = 0; i < nic.count; i++) {
    const id = place.prefix(place.unitHosts > 1 ? `h${place.host}.nic${i}` : `nic${i}`);
    const parent = attach[Math.floor((i * attach.length) / nic.count)]?.id;
    nodes.push({
      id,
      kind: "nic",
      name: nic.name,
      host: place.copy * place.unitHosts + place.host,
      details: {
        state: "ACTIVE",
        rateGbps: nic.rateGbps,
        linkLayer: nic.kind === "infiniband" ? "InfiniBand" : "Ethernet",
        ...(nic.fabric !== undefined && { fabric: nic.fabric }),
      },
    });
    if (parent !== undefined) links.push({ a: id, b: place.prefix(parent), kind: "pcie", bandwidthGBps: pcieGBps });
    links.push({ a: id, b: railOf(nic, i), kind: nic.kind, bandwidthGBps: nic.rateGbps / 8 });
  }
}

function railOf(nic: NicSpec, i: number): string {
  return nic.count === 1 ? "net0" : `rail${i}`;
}

function addNetwork(nodes: TopologyNode[], links: Link[], nic: NicSpec, hosts: number): void {
  for (let i = 0; i < nic.count; i++) nodes.push({ id: railOf(nic, i), kind: "network-switch" });
  if (nic.count === 1) return;
  nodes.push({ id: "spine0", kind: "network-switch" });
  for (let i = 0; i < nic.count; i++) {
    links.push({
      a: railOf(nic, i),
      b: "spine0",
      kind: nic.kind,
      count: hosts,
      bandwidthGBps: (nic.rateGbps / 8) * hosts,
    });
  }
}

/**
 * Reads a preset or a composition: `hgx-h100-8`, `16x hgx-h100-8`, `16x hgx-h100-8 --nic 8xNDR`. Undefined when the text
 * does not begin with a preset's name (it may be a path).
 * @throws InvalidArgumentError for a count or NIC that cannot be, or a preset that a count precedes and nobody knows
 * @example
 * parseSystem("2x hgx-h100-8 --nic 8xNDR")?.devices.length // 18: two CPUs and sixteen GPUs
 */
export function parseSystem(text: string): Inventory | undefined {
  const exact = readSystem(text);
  if (exact !== undefined) return exact;
  for (const way of respelled(text)) {
    const found = readSystem(way);
    if (found !== undefined) return found;
  }
  const [, name] = /^\s*\d{1,6}\s*x\s*([a-z][a-z0-9._-]*)(?:\s|$)/i.exec(text) ?? [];
  if (name !== undefined) throw new InvalidArgumentError("preset", name, `one of ${PRESET_NAMES.join(", ")}`);
  return undefined;
}

function readSystem(text: string): Inventory | undefined {
  const named = parseParts(text);
  if (named !== undefined) return named;
  const match = /^\s*(?:(\d{1,6})\s*x\s*)?([a-z][a-z0-9._-]*)\s*(?:\s--nic[\s=]+(\S+))?\s*$/i.exec(text);
  if (match === null) return undefined;
  const [, countText, name = "", nicText] = match;
  const preset = findPreset(name.toLowerCase());
  if (preset === undefined) return undefined;
  const unit = presetInventory(name.toLowerCase());
  const count = Number(countText ?? 1);
  if (nicText === undefined && count === 1) return unit;
  return withNics(unit, count, nicText, preset.defaultNic);
}

/** The composition; `environment.nicIsAssumed` says that the network is the preset's default. */
function withNics(unit: Inventory, count: number, said: string | undefined, otherwise: string): Inventory {
  const joined = composeInventory(unit, count, parseNic(said ?? otherwise));
  return said !== undefined ? joined : { ...joined, environment: { ...joined.environment, nicIsAssumed: true } };
}

/** `8x h100`, `RTX 4090`: devices by their part's name, where no preset has it. */
function parseParts(text: string): Inventory | undefined {
  const match = /^(.*?)(?:\s+--nic[\s=]+(\S+))?\s*$/i.exec(text);
  const name = (match?.[1] ?? text).trim().toLowerCase();
  // A preset keeps its meaning: `16x hgx-h100-8` are sixteen hosts of eight, `2x gh200` two hosts. Cards share one host
  // (`2x l4`) unless NICs are named.
  const unitName = name.replace(/^\d+\s*x\s*/, "");
  const isCard = Object.hasOwn(CARD_PRESETS, unitName);
  if (PRESET_NAMES.includes(name) || (PRESET_NAMES.includes(unitName) && (!isCard || match?.[2] !== undefined)))
    return undefined;
  // A slice of TPUs has a shape and links of its own.
  if (/^tpu[\s-]v\w+-\d+$/.test(unitName)) return undefined;
  const machines = partMachines(name);
  if (machines === undefined) return undefined;
  const preset = findPreset(machines.preset);
  if (preset === undefined) return undefined;
  const unit = preset.build();
  const nicText = match?.[2];
  if (machines.hosts === 1 && nicText === undefined) return unit;
  return withNics(unit, machines.hosts, nicText, preset.defaultNic);
}
