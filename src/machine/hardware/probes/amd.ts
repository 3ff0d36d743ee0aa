/**
 * AMD GPUs: the amdgpu driver's sysfs and the KFD topology; where these are not (another system's recording, a container
 * without sysfs), amd-smi's or rocm-smi's JSON. A package split in partitions (MI300 CPX, DPX, QPX) gives one device per
 * partition, each with its share of the memory.
 */
import { wordTable } from "../../../core/index.ts";
import { dtypesOf, findPart, partFields } from "../../topology/index.ts";
import { count, field, line } from "../field-readers.ts";
import { defined } from "../pci.ts";
import type {
  DeviceDraft,
  LinkDraft,
  Probe,
  ProbeContext,
  ProbeResult,
  ProbeWarning,
  RelationDraft,
} from "../probe.ts";
import { integratedMemory, isIntegrated } from "./amd-apu.ts";
import { type KfdNode, readDriverMemory, readKfd } from "./amd-kfd.ts";
import { AMD_NAMES } from "./amd-names.ts";
import { readAmdTools } from "./amd-smi.ts";
import { type Card, readCards, readSensors } from "./drm-class.ts";
import { percent } from "./nvidia.ts";

/** Partitions of a package by compute mode where sysfs does not count them (MI300: 6 or 8 XCDs; CPX is one each). */
const PARTITIONS: Readonly<Record<string, number>> = wordTable({ SPX: 1, DPX: 2, TPX: 3, QPX: 4, CPX: 8 });

export const amdProbe: Probe = {
  name: "amd",
  families: ["amd-gpu"],
  platforms: ["linux"],
  run: async (context) => {
    const warnings: ProbeWarning[] = [];
    const cards = await amdCards(context);
    if (cards.length === 0) {
      const result = await readAmdTools(context, warnings);
      if (result.devices.length > 0) return { ...result, warnings };
      return { devices: [], warnings: [...warnings, ...(await driverless(context))] };
    }
    return fromSysfs(context, cards, warnings);
  },
};

/** Cards of the amdgpu driver; where a copy of sysfs lost the driver's link, its memory file tells. */
async function amdCards(context: ProbeContext): Promise<Card[]> {
  const all = await readCards(context.files, "drm");
  const own = await Promise.all(
    all.map(async (card) => {
      if (card.driver !== undefined) return card.driver === "amdgpu";
      if (card.vendor !== undefined && card.vendor !== 0x1002) return false;
      return (await context.files.readText(`${card.folder}/mem_info_vram_total`, 64)) !== undefined;
    }),
  );
  return all.filter((_, i) => own[i] === true);
}

async function fromSysfs(
  context: ProbeContext,
  cards: readonly Card[],
  warnings: ProbeWarning[],
): Promise<ProbeResult> {
  const [kfd, driverVersion, rocm] = await Promise.all([
    readKfd(context.files),
    context.files.readText("/sys/module/amdgpu/version", 128),
    context.files.readText("/opt/rocm/.info/version", 128),
  ]);
  const common = defined({
    driverVersion: field(driverVersion),
    runtimeVersion: field(rocm) === undefined ? undefined : `ROCm ${field(rocm)}`,
  });
  const devices: DeviceDraft[] = [];
  const keyOfNode = new Map<number, string>();
  const hives = new Map<string, string[]>();
  for (const [i, card] of cards.entries()) {
    const nodes = nodesOf(card, i, cards, kfd);
    const drafts = await draftsOf(context, card, nodes, devices.length);
    for (const [i, draft] of drafts.entries()) {
      devices.push({ ...draft, ...common });
      const node = nodes[i];
      if (node !== undefined) keyOfNode.set(node.node, draft.key);
    }
    const hive = await hiveOf(context, card);
    if (hive !== undefined) hives.set(hive, [...(hives.get(hive) ?? []), ...drafts.map((draft) => draft.key)]);
  }
  let links = kfdLinks(kfd, keyOfNode);
  let relations: readonly RelationDraft[] = [];
  if (links.length === 0 && devices.length > 1) {
    // Without KFD's links the driver still says which devices form a hive, and rocm-smi may know the rest.
    const tools = await readAmdTools(
      context,
      [],
      devices.map((d) => d.key),
    );
    links = tools.links?.length ? [...tools.links] : hivesOfTwo(hives);
    const told = new Set((tools.relations ?? []).map(({ a, b }) => `${a} ${b}`));
    const linked = new Set(links.map(({ a, b }) => `${a} ${b}`));
    relations = [
      ...(tools.relations ?? []),
      ...hiveRelations(hives).filter(({ a, b }) => !told.has(`${a} ${b}`) && !linked.has(`${a} ${b}`)),
    ];
    if (tools.links?.length === 0 && [...hives.values()].some((keys) => keys.length > 2)) {
      warnings.push({
        source: "amd",
        message: "the driver says which GPUs share an XGMI hive, but not which of them are linked directly",
        hint: "Give access to /sys/class/kfd, or install rocm-smi.",
      });
    }
  }
  return { devices, links, relations, warnings };
}

/** The KFD nodes of a card: by PCI address, or by order where a copy of sysfs lost the addresses. */
function nodesOf(card: Card, index: number, cards: readonly Card[], kfd: readonly KfdNode[]): KfdNode[] {
  if (card.pciAddress === undefined) return kfd.length === cards.length ? kfd.slice(index, index + 1) : [];
  return kfd.filter((node) => node.pciAddress === card.pciAddress).sort((a, b) => a.partition - b.partition);
}

async function draftsOf(
  context: ProbeContext,
  card: Card,
  nodes: readonly KfdNode[],
  firstIndex: number,
): Promise<DeviceDraft[]> {
  const read = (name: string) => context.files.readText(`${card.folder}/${name}`, 256);
  const [product, mode, memoryMode, uniqueId, busy, vbios, own, sensors] = await Promise.all([
    read("product_name"),
    read("current_compute_partition"),
    read("current_memory_partition"),
    read("unique_id"),
    read("gpu_busy_percent"),
    read("vbios_version"),
    readDriverMemory(context.files, card.folder),
    readSensors(context.files, card.folder),
  ]);
  const name = named(field(product), card.device);
  const part = findPart("amd-gpu", name);
  const compute = field(mode)?.toUpperCase();
  const unified = await isIntegrated(
    context.files,
    card,
    nodes.some((node) => node.isApu),
  );
  const ofDriver = unified ? integratedMemory(card, own) : { total: own.vramBytes, used: own.vramUsedBytes };
  const { total } = ofDriver;
  const num = Math.max(nodes.length, compute === undefined ? 1 : (PARTITIONS[compute] ?? 1), 1);
  const arch = nodes[0]?.gfx ?? part?.arch;
  return Array.from({ length: num }, (_, i): DeviceDraft => {
    const node = nodes[i];
    const share = num === 1 ? (total ?? node?.memoryBytes) : partitionMemory(node?.memoryBytes, total, num);
    const used = num === 1 ? ofDriver.used : undefined;
    const dtypes = dtypesOf("amd-gpu", arch);
    return {
      key: `amd:${card.name}/${i}`,
      family: "amd-gpu",
      vendor: "AMD",
      name: num === 1 ? name : `${name} (${compute ?? "partition"} ${i})`,
      index: firstIndex + i,
      ...defined({
        uuid: num === 1 ? uuidOf(field(uniqueId) ?? node?.uniqueId) : undefined,
        pciAddress: card.pciAddress,
        memoryBytes: share,
        memoryUsedBytes: used,
        memoryFreeBytes: share !== undefined && used !== undefined && used <= share ? share - used : undefined,
        dtypes,
        arch,
        utilizationPercent: num === 1 ? percent(count(busy)) : undefined,
      }),
      // Peaks are of the whole package; a partition has its share of them, which no vendor publishes.
      ...(part !== undefined && num === 1 && partFields(part)),
      ...(unified && { unifiedMemory: true }),
      ...sensors,
      details: {
        ...defined({
          computePartition: compute,
          memoryPartition: field(memoryMode)?.toUpperCase(),
          vbiosVersion: field(vbios),
          ...(unified && own.gttBytes !== undefined && { vramBytes: own.vramBytes, gttBytes: own.gttBytes }),
        }),
        ...(num > 1 && { partition: i, numPartitions: num, ...(total !== undefined && { packageMemoryBytes: total }) }),
      },
    };
  });
}

/** KFD divides the package's memory by its partitions since Linux 6.5; before, it states the whole for each. */
function partitionMemory(kfdBytes: number | undefined, total: number | undefined, num: number): number | undefined {
  if (total === undefined) return kfdBytes;
  const share = Math.floor(total / num);
  return kfdBytes === undefined || kfdBytes > share * 1.5 ? share : kfdBytes;
}

function named(product: string | undefined, id: number | undefined): string {
  if (product !== undefined) return /AMD|Radeon/i.test(product) ? product : `AMD ${product}`;
  return AMD_NAMES[id ?? 0] ?? (id === undefined ? "AMD GPU" : `AMD GPU 0x${id.toString(16)}`);
}

function uuidOf(uniqueId: string | undefined): string | undefined {
  return uniqueId === undefined || /^0+$/.test(uniqueId) ? undefined : `GPU-${line(uniqueId).replace(/^0x/, "")}`;
}

async function hiveOf(context: ProbeContext, card: Card): Promise<string | undefined> {
  for (const name of ["xgmi_hive_info/xgmi_hive_id", "xgmi_hive_id"]) {
    const id = field(await context.files.readText(`${card.folder}/${name}`, 64));
    if (id !== undefined && !/^0+$/.test(id)) return id;
  }
  return undefined;
}

function kfdLinks(kfd: readonly KfdNode[], keyOfNode: ReadonlyMap<number, string>): LinkDraft[] {
  const links: LinkDraft[] = [];
  for (const node of kfd) {
    for (const { to, ...facts } of node.links) {
      const [a, b] = [keyOfNode.get(node.node), keyOfNode.get(to)];
      if (a !== undefined && b !== undefined && node.node < to) links.push({ a, b, kind: "xgmi", ...facts });
    }
  }
  return links;
}

/** The devices of a hive reach each other over XGMI; which are linked directly, it does not say. */
function hiveRelations(hives: ReadonlyMap<string, readonly string[]>): RelationDraft[] {
  return [...hives.values()].flatMap((keys) =>
    keys.flatMap((a, i) => keys.slice(i + 1).map((b): RelationDraft => ({ a, b, relation: "XGMI" }))),
  );
}

/** Two devices of a hive have nobody else to be linked by. */
function hivesOfTwo(hives: ReadonlyMap<string, readonly string[]>): LinkDraft[] {
  return [...hives.values()].flatMap(([a, b, more]) =>
    a === undefined || b === undefined || more !== undefined ? [] : [{ a, b, kind: "xgmi" as const }],
  );
}

async function driverless(context: ProbeContext): Promise<ProbeWarning[]> {
  const found = [...(await context.pci()).values()].filter(
    (f) => f.vendor === 0x1002 && [0x0300, 0x0302, 0x0380, 0x1200].includes(f.classCode >> 8) && f.driver !== "amdgpu",
  );
  if (found.length === 0) return [];
  return [
    {
      source: "amd",
      message: `${found.length} AMD ${found.length === 1 ? "GPU is" : "GPUs are"} on the PCI bus, but the amdgpu driver does not hold ${found.length === 1 ? "it" : "them"} (${[...new Set(found.map((f) => f.driver ?? "none"))].join(", ")})`,
      hint: "Load the module amdgpu.",
    },
  ];
}
