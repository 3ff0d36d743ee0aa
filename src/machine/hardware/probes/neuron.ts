/**
 * AWS Inferentia and Trainium: `neuron-ls -j` as the tool really prints it (bytes of memory, neighbours in connected_to),
 * else the driver's sysfs. The generation comes from the instance type, the PCI id or the driver.
 */
import { wordTable } from "../../../core/index.ts";
import { dtypesOf, findPart, partFields } from "../../topology/index.ts";
import { ask } from "../ask-tool.ts";
import { count, field, json, line, memory, pciAddress, record, scalar } from "../field-readers.ts";
import { defined } from "../pci.ts";
import type { DeviceDraft, LinkDraft, Probe, ProbeContext, ProbeWarning } from "../probe.ts";

const MAX_DEVICES = 64;
/** PCI device ids of vendor 0x1d0f (aws-neuronx-dkms). */
const BY_PCI: Readonly<Record<number, string>> = {
  28772: "inf1",
  28773: "inf1",
  28774: "inf1",
  28775: "inf1",
  29028: "trn1",
  29284: "inf2",
  29540: "trn2",
};
const NAMES: Readonly<Record<string, string>> = wordTable({
  inf1: "AWS Inferentia",
  inf2: "AWS Inferentia2",
  trn1: "AWS Trainium",
  trn2: "AWS Trainium2",
});

export const neuronProbe: Probe = {
  name: "neuron",
  families: ["neuron"],
  platforms: ["linux"],
  run: async (context) => {
    const warnings: ProbeWarning[] = [];
    const accepts = (args: readonly string[]) => args.includes("-j") || args.includes("--json-output");
    // Exit code 1 with nothing printed is how the tool says that there is no device.
    const result = await context.commands.run({ tool: "neuron-ls", args: ["-j"], accepts });
    const silent = result?.exitCode === 1 && result.stdout.trim() === "";
    const answer =
      result === undefined || silent
        ? undefined
        : await ask(
            { ...context, commands: { run: async () => result } },
            { tool: "neuron-ls", args: ["-j"] },
            warnings,
          );
    const told = answer === undefined ? [] : parse(answer.stdout, warnings);
    const chips = told.length > 0 ? told : await fromSysfs(context);
    const product = field(await context.files.readText("/sys/devices/virtual/dmi/id/product_name", 128));
    const pci = await context.pci();
    const devices = chips.map((chip) => {
      const arch =
        instanceArch(chip.instanceType ?? product) ??
        BY_PCI[chip.pciAddress === undefined ? 0 : (pci.get(chip.pciAddress)?.device ?? 0)] ??
        byShape(chip);
      return draft(chip, arch);
    });
    return { devices, links: links(chips), warnings };
  },
};

interface Chip {
  readonly index: number;
  readonly pciAddress?: string;
  readonly numCores?: number;
  readonly memoryBytes?: number;
  readonly numaNode?: number;
  readonly connectedTo: readonly number[];
  readonly instanceType?: string;
  readonly logicalCoreConfig?: number;
  readonly processes: readonly { pid: number; name: string }[];
}

/** `trn1n.32xlarge` is of trn1. */
function instanceArch(type: string | undefined): string | undefined {
  return /^(inf1|inf2|trn1|trn2)/.exec(type ?? "")?.[1];
}

/** Memory and cores single out all but trn1 and inf2, which look alike. */
function byShape(chip: Chip): string | undefined {
  const gib = (chip.memoryBytes ?? 0) / 1024 ** 3;
  if (gib >= 90 && chip.numCores !== undefined && chip.numCores >= 4) return "trn2";
  return gib > 0 && gib <= 8 && chip.numCores === 4 ? "inf1" : undefined;
}

function parse(text: string, warnings: ProbeWarning[]): Chip[] {
  const value = json(text);
  const list = Array.isArray(value) ? value : record(value)?.["mlas"];
  if (!Array.isArray(list)) {
    warnings.push({ source: "neuron-ls", message: "neuron-ls printed no JSON list of devices" });
    return [];
  }
  const chips: Chip[] = [];
  for (const entry of (list as readonly unknown[]).slice(0, MAX_DEVICES)) {
    const own = record(entry);
    const get = (name: string) => field(scalar(own?.[name]));
    const index = count(get("neuron_device"));
    if (index === undefined || index >= MAX_DEVICES || chips.some((chip) => chip.index === index)) {
      warnings.push({ source: "neuron-ls", message: "an entry without a usable neuron_device is left out" });
      continue;
    }
    const connected = own?.["connected_to"];
    const processes = own?.["neuron_processes"];
    chips.push({
      index,
      connectedTo: (Array.isArray(connected) ? (connected as readonly unknown[]) : [])
        .flatMap((id) => count(scalar(id)) ?? [])
        .slice(0, MAX_DEVICES),
      processes: (Array.isArray(processes) ? (processes as readonly unknown[]) : []).slice(0, 64).flatMap((process) => {
        const pid = count(scalar(record(process)?.["pid"]));
        return pid === undefined ? [] : [{ pid, name: line(scalar(record(process)?.["command"]) ?? "") }];
      }),
      ...defined({
        pciAddress: pciAddress(get("bdf")),
        numCores: count(get("nc_count")),
        memoryBytes: memory(count(get("memory_size"))),
        numaNode: count(get("numa_node")),
        instanceType: get("instance_type"),
        logicalCoreConfig: count(get("logical_neuroncore_config")),
      }),
    });
  }
  return chips;
}

async function fromSysfs(context: ProbeContext): Promise<Chip[]> {
  for (const folder of ["/sys/class/neuron_device", "/sys/devices/virtual/neuron_device"]) {
    const names = (await context.files.list(folder))
      .filter((name) => /^neuron\d{1,3}$/.test(name))
      .slice(0, MAX_DEVICES);
    if (names.length === 0) continue;
    return Promise.all(
      names.map(async (name) => {
        const read = (file: string) => context.files.readText(`${folder}/${name}/${file}`, 512);
        const [cores, connected, device, instance] = await Promise.all([
          read("core_count"),
          read("connected_devices"),
          context.files.realPath(`${folder}/${name}/device`),
          read("info/architecture/instance_type"),
        ]);
        return {
          index: Number(name.slice("neuron".length)),
          connectedTo: (connected ?? "").split(/[,\s]+/).flatMap((id) => (id === "" ? [] : (count(id) ?? []))),
          processes: [],
          ...defined({
            numCores: count(cores),
            pciAddress: pciAddress(device?.split("/").at(-1)),
            instanceType: field(instance)?.toLowerCase(),
          }),
        };
      }),
    );
  }
  return [];
}

function draft(chip: Chip, arch: string | undefined): DeviceDraft {
  const name = NAMES[arch ?? ""] ?? "AWS Neuron device";
  const part = findPart("neuron", name);
  const dtypes = arch === undefined ? undefined : dtypesOf("neuron", arch);
  return {
    key: `neuron:${chip.index}`,
    family: "neuron",
    vendor: "AWS",
    name,
    index: chip.index,
    ...(part !== undefined && partFields(part)),
    ...defined({ pciAddress: chip.pciAddress, memoryBytes: chip.memoryBytes, numaNode: chip.numaNode, arch, dtypes }),
    details: {
      ...defined({ numCores: chip.numCores, logicalCoreConfig: chip.logicalCoreConfig }),
      ...(chip.processes.length > 0 && { processes: chip.processes.map((process) => ({ ...process })) }),
    },
  };
}

function links(chips: readonly Chip[]): LinkDraft[] {
  const known = new Set(chips.map((chip) => chip.index));
  const found: LinkDraft[] = [];
  for (const chip of chips) {
    const neighbours = new Map<number, number>();
    for (const id of chip.connectedTo) neighbours.set(id, (neighbours.get(id) ?? 0) + 1);
    for (const [id, num] of neighbours) {
      // Each link is listed at both ends; one that only the farther end lists counts as well.
      const mutual = chips.find((other) => other.index === id)?.connectedTo.includes(chip.index) === true;
      if (!known.has(id) || id === chip.index || (mutual && id < chip.index)) continue;
      found.push({ a: `neuron:${chip.index}`, b: `neuron:${id}`, kind: "neuronlink", count: num });
    }
  }
  return found;
}
