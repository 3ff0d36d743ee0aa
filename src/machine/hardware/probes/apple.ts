/**
 * Apple GPUs and the Neural Engine: system_profiler as JSON (or its older text form), and Asahi Linux by the device tree.
 * On Apple silicon both use main memory; on Intel Macs a discrete GPU has its own.
 */
import { APPLE_CHIPS, dtypesOf } from "../../topology/index.ts";
import { ask } from "../ask-tool.ts";
import { appleSoc } from "../device-tree.ts";
import { count, field, json, line, linesOf, memory, namedValue, record, scalar } from "../field-readers.ts";
import { defined } from "../pci.ts";
import type { DeviceDraft, Probe, ProbeContext, ProbeWarning } from "../probe.ts";

export const appleProbe: Probe = {
  name: "apple",
  families: ["apple-gpu", "apple-npu"],
  platforms: ["darwin", "linux"],
  run: async (context) => {
    const warnings: ProbeWarning[] = [];
    if (context.platform === "linux") return { devices: await asahi(context) };
    const accepts = (args: readonly string[]) => args.includes("SPHardwareDataType");
    const displaysOnly = (args: readonly string[]) => args.includes("SPDisplaysDataType");
    const [hardware, displays] = await Promise.all([
      ask(context, { tool: "system_profiler", args: ["SPHardwareDataType", "-json"], accepts }, warnings),
      ask(context, { tool: "system_profiler", args: ["SPDisplaysDataType", "-json"], accepts: displaysOnly }, warnings),
    ]);
    const host = parseHardware(hardware?.stdout ?? "");
    if (hardware !== undefined && host.chip === undefined && host.memoryBytes === undefined) {
      warnings.push({ source: "system_profiler", message: "system_profiler names neither chip nor memory" });
    }
    return { devices: devicesOf(host, parseDisplays(displays?.stdout ?? "")), warnings };
  },
};

interface Hardware {
  readonly chip?: string;
  readonly memoryBytes?: number;
  readonly model?: string;
}

/** `48 GB`, `512 MB`. */
function size(text: string | undefined): number | undefined {
  const match = /^(\d+(?:\.\d+)?)\s*(MB|GB|TB)$/i.exec(text?.trim() ?? "");
  return match === null
    ? undefined
    : memory(Number(match[1]) * 1024 ** (["MB", "GB", "TB"].indexOf((match[2] ?? "").toUpperCase()) + 2));
}

function firstOf(value: unknown, key: string): readonly unknown[] {
  const list = record(value)?.[key];
  return Array.isArray(list) ? (list as readonly unknown[]).slice(0, 16) : [];
}

function parseHardware(text: string): Hardware {
  const [own] = firstOf(json(text), "SPHardwareDataType");
  const get = (name: string) => field(scalar(record(own)?.[name]));
  const rows = linesOf(text);
  const say = (name: string) => namedValue(rows, name);
  const chip = get("chip_type") ?? (own === undefined ? say("Chip") : undefined);
  return defined({
    chip,
    memoryBytes: size(get("physical_memory") ?? (own === undefined ? say("Memory") : undefined)),
    model: get("machine_model") ?? get("machine_name"),
  });
}

interface Display {
  readonly name: string;
  readonly vendor: string;
  readonly cores?: number;
  readonly metal?: string;
  readonly vramBytes?: number;
}

function parseDisplays(text: string): Display[] {
  return firstOf(json(text), "SPDisplaysDataType").flatMap((entry) => {
    const get = (name: string) => field(scalar(record(entry)?.[name]));
    const name = get("sppci_model") ?? get("_name");
    if (name === undefined) return [];
    const metal = get("spdisplays_mtlgpufamilysupport") ?? get("spdisplays_metal_family") ?? get("spdisplays_metal");
    return {
      name,
      vendor: vendorOf(get("spdisplays_vendor") ?? get("sppci_vendor"), name),
      ...defined({
        cores: count(get("sppci_cores")),
        metal: metal?.replace(/^spdisplays_/, ""),
        vramBytes: size(get("spdisplays_vram") ?? get("sppci_vram") ?? get("_spdisplays_vram")),
      }),
    };
  });
}

function vendorOf(text: string | undefined, name: string): string {
  const said = `${text ?? ""} ${name}`;
  return /apple/i.test(said)
    ? "Apple"
    : /amd|ati|radeon/i.test(said)
      ? "AMD"
      : /nvidia|geforce/i.test(said)
        ? "NVIDIA"
        : /intel/i.test(said)
          ? "Intel"
          : "unknown";
}

function devicesOf(host: Hardware, displays: readonly Display[]): DeviceDraft[] {
  const silicon = host.chip !== undefined && /^Apple /.test(host.chip);
  const devices: DeviceDraft[] = [];
  for (const display of displays.length > 0
    ? displays
    : silicon
      ? [{ name: host.chip ?? "", vendor: "Apple" } as Display]
      : []) {
    const own = display.vendor === "Apple";
    devices.push({
      key: `apple:${devices.length}`,
      family: "apple-gpu",
      vendor: display.vendor,
      name: display.name,
      index: devices.length,
      ...(own ? siliconFields(host, display.name) : defined({ memoryBytes: display.vramBytes })),
      details: defined({ cores: display.cores, metal: display.metal }),
    });
  }
  if (silicon) devices.push(neuralEngine(host));
  return devices;
}

function siliconFields(host: Hardware, name: string): Partial<DeviceDraft> {
  const chip = APPLE_CHIPS[host.chip ?? name];
  return {
    unifiedMemory: true,
    arch: line(host.chip ?? name),
    dtypes: dtypesOf("apple-gpu", name) ?? [],
    ...defined({ memoryBytes: host.memoryBytes, memoryBandwidthGBps: chip?.memoryBandwidthGBps }),
  };
}

/** Every Apple silicon chip has one; its cores are 16, two dies' worth in an Ultra. */
function neuralEngine(host: Hardware): DeviceDraft {
  return {
    key: "apple:ane",
    family: "apple-npu",
    vendor: "Apple",
    name: "Apple Neural Engine",
    index: 0,
    unifiedMemory: true,
    ...defined({ memoryBytes: host.memoryBytes, arch: host.chip }),
    details: { cores: /Ultra/.test(host.chip ?? "") ? 32 : 16 },
  };
}

async function asahi(context: ProbeContext): Promise<DeviceDraft[]> {
  const soc = await appleSoc(context.files);
  if (soc === undefined) return [];
  const { totalBytes } = await context.systemMemory();
  const name = soc === "Apple silicon" ? "Apple GPU" : soc;
  return devicesOf(defined({ chip: soc, memoryBytes: totalBytes }), [{ name, vendor: "Apple" }]);
}
