/**
 * Accelerators with little to read: Qualcomm Cloud AI, Cerebras, Graphcore, Groq, Samsung and MediaTek NPUs. One device per
 * card that the bus, the driver or the tool shows; memory only where one of these states it.
 */
import type { Family } from "../../topology/index.ts";
import { ask } from "../ask-tool.ts";
import { json, line, linesOf, memory, namedValue, number, pciAddress, record, scalar } from "../field-readers.ts";
import { defined } from "../pci.ts";
import type { DeviceDraft, Probe, ProbeContext, ProbeWarning } from "../probe.ts";
import { devNodes } from "./drm-class.ts";
import { accelCards } from "./linux-accel-class.ts";

type Facts = Partial<Omit<DeviceDraft, "key" | "family" | "vendor" | "index">>;

/** Most cards of one host. */
const MAX_DEVICES = 64;

function devicesOf(family: Family, vendor: string, name: string, found: readonly Facts[]): DeviceDraft[] {
  return found.map((facts, index) => ({
    key: `${family}:${index}`,
    family,
    vendor,
    index,
    ...facts,
    name: facts.name ?? name,
  }));
}

async function onBus(context: ProbeContext, vendor: number, devices?: readonly number[]): Promise<Facts[]> {
  return [...(await context.pci()).values()]
    .filter((f) => f.vendor === vendor && (devices === undefined || devices.includes(f.device)))
    .map((f) => ({ pciAddress: f.address }));
}

/** Whichever source shows the most cards; details of the first are kept. */
function most(...sources: readonly (readonly Facts[])[]): readonly Facts[] {
  return sources.reduce(
    (best, next) => (next.length > best.length ? next.map((facts, i) => ({ ...facts, ...best[i] })) : best),
    [],
  );
}

/** `32768 MB`, `900 MiB`, `44 GB` in bytes; vendors of this list mean powers of two. */
function size(text: string | undefined): number | undefined {
  const value = number(text);
  const unit = /([KMGT])i?B/i.exec(text ?? "")?.[1]?.toUpperCase();
  if (value === undefined || unit === undefined) return undefined;
  return memory(value * 1024 ** ("KMGT".indexOf(unit) + 1));
}

const qualcommProbe: Probe = {
  name: "qualcomm-ai",
  families: ["qualcomm-ai"],
  platforms: ["linux"],
  run: async (context) => {
    const warnings: ProbeWarning[] = [];
    const [bus, cards, old, answer] = await Promise.all([
      onBus(context, 0x17cb, [0xa100, 0xa080]),
      accelCards(context, "qualcomm-ai"),
      devNodes(context.files, /^qaic_/),
      ask(context, { tool: "qaic-util", args: ["-q"], accepts: (args) => args[0] === "-q" }, warnings),
    ]);
    // qaic-util prints one block per card; each begins with its number.
    const told = (answer?.stdout ?? "")
      .split(/^QID \d+/m)
      .slice(1, 65)
      .map((block): Facts => {
        const rows = linesOf(block);
        const get = (name: string) => namedValue(rows, name);
        const bytes = size(get("Dram Total"));
        const free = size(get("Dram Free"));
        return {
          ...defined({
            pciAddress: pciAddress(get("PCI Address")),
            memoryBytes: bytes,
            memoryFreeBytes: free,
            driverVersion: get("FW Version"),
          }),
        };
      });
    const fromClass = cards.map((card): Facts => defined({ pciAddress: card.pciAddress }));
    const found = most(
      told,
      bus,
      fromClass,
      old.map(() => ({})),
    );
    return { devices: devicesOf("qualcomm-ai", "Qualcomm", "Qualcomm Cloud AI 100", found), warnings };
  },
};

const cerebrasProbe: Probe = {
  name: "cerebras",
  families: ["cerebras"],
  platforms: ["linux"],
  run: async (context) => {
    const warnings: ProbeWarning[] = [];
    const [nodes, answer] = await Promise.all([
      devNodes(context.files, /^cerebras\d*$/),
      ask(
        context,
        { tool: "cerebras_cli", args: ["system-info"], accepts: (args) => args[0] === "system-info" },
        warnings,
      ),
    ]);
    const text = answer?.stdout ?? "";
    const memoryBytes = sizeNamed(text);
    const model = /\b(CS-[23]|WSE-?[23])\b/.exec(text)?.[1];
    const told: Facts[] =
      text.trim() === "" ? [] : [defined({ memoryBytes, name: model === undefined ? undefined : `Cerebras ${model}` })];
    return {
      devices: devicesOf(
        "cerebras",
        "Cerebras",
        "Cerebras WSE",
        most(
          told,
          nodes.map(() => ({})),
        ),
      ),
      warnings,
    };
  },
};

const graphcoreProbe: Probe = {
  name: "graphcore",
  families: ["graphcore"],
  platforms: ["linux"],
  run: async (context) => {
    const warnings: ProbeWarning[] = [];
    const [bus, nodes, list, info] = await Promise.all([
      onBus(context, 0x1d95),
      devNodes(context.files, /^ipu\d+$/),
      ask(context, { tool: "gc-info", args: ["-l"], accepts: (args) => args[0] === "--list-devices" }, warnings),
      ask(
        context,
        {
          tool: "gc-info",
          args: ["-d", "0", "-i"],
          accepts: (args) => args.includes("-i") || args.includes("--device-info"),
        },
        [],
      ),
    ]);
    const memoryBytes = ipuMemory(info?.stdout ?? "");
    const told = linesOf(list?.stdout ?? "")
      .slice(0, MAX_DEVICES)
      .flatMap((row): Facts[] => {
        if (!/Id:\s?\[?\d{1,4}\]?,\s{0,8}type:\s{0,8}\[?PCIe/i.test(row)) return [];
        return [defined({ pciAddress: pciAddress(/[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]/i.exec(row)?.[0]) })];
      });
    const found = most(
      told,
      bus,
      nodes.map(() => ({})),
    ).map((facts) => ({ ...facts, ...defined({ memoryBytes }) }));
    return { devices: devicesOf("graphcore", "Graphcore", "Graphcore IPU", found), warnings };
  },
};

/** The size at the end of the first line that speaks of memory: `On-chip SRAM: 44 GB`. */
function sizeNamed(text: string): number | undefined {
  for (const row of linesOf(text)) {
    const end = row.trimEnd().slice(-24);
    const match = /memory|sram/i.test(row) ? /(\d{1,9}(?:\.\d{1,3})?\s?[KMGT]i?B)$/i.exec(end) : null;
    if (match !== null) return size(match[1]);
  }
  return undefined;
}

/** Bytes of one IPU's own memory: JSON (`sram_size`, `memory`) or a line with a unit. */
function ipuMemory(text: string): number | undefined {
  const own = record(json(text));
  if (own !== undefined) return memory(number(scalar(own["memory"] ?? own["sram_size"])));
  return sizeNamed(text);
}

const groqProbe: Probe = {
  name: "groq",
  families: ["groq"],
  platforms: ["linux"],
  run: async (context) => {
    const [bus, nodes] = await Promise.all([onBus(context, 0x1de0), devNodes(context.files, /^groqA?\d+$/)]);
    return {
      devices: devicesOf(
        "groq",
        "Groq",
        "GroqChip",
        most(
          bus,
          nodes.map(() => ({})),
        ),
      ),
    };
  },
};

/** NPUs of phone and tablet chips: the kernel shows that they are there, and little more. */
function mobileProbe(
  family: "samsung-npu" | "mediatek-npu",
  vendor: string,
  name: string,
  misc: readonly string[],
  node: RegExp,
): Probe {
  return {
    name: family,
    families: [family],
    platforms: ["linux"],
    run: async (context) => {
      const [nodes, ...present] = await Promise.all([
        devNodes(context.files, node),
        ...misc.map((entry) => context.files.realPath(`/sys/class/misc/${entry}`)),
      ]);
      const inClass: Facts[] = present.some((path) => path !== undefined) ? [{}] : [];
      const compatible = line((await context.files.readText("/proc/device-tree/compatible", 1024)) ?? "");
      const chip = /(?:samsung,(exynos\d+)|mediatek,(mt\d+))/.exec(compatible);
      const facts = { unifiedMemory: true, ...defined({ arch: chip?.[1] ?? chip?.[2] }) };
      return {
        devices: devicesOf(
          family,
          vendor,
          name,
          most(
            nodes.map(() => facts),
            inClass.map(() => facts),
          ),
        ),
      };
    },
  };
}

const samsungProbe: Probe = mobileProbe(
  "samsung-npu",
  "Samsung",
  "Exynos NPU",
  ["samsung_npu", "npu"],
  /^samsung_npu\d*$/,
);
const mediatekProbe: Probe = mobileProbe(
  "mediatek-npu",
  "MediaTek",
  "MediaTek APU",
  ["mtk_apu", "apusys"],
  /^(mtk_mdla\d*|apusys)$/,
);

export const ASIC_PROBES: readonly Probe[] = [
  qualcommProbe,
  cerebrasProbe,
  graphcoreProbe,
  groqProbe,
  samsungProbe,
  mediatekProbe,
];
