/**
 * Vulkan, the last resort: for GPUs that no vendor's probe knows. Memory is the sum of the device-local heaps of the full
 * `vulkaninfo`, since `--summary` states none. Software renderers are left out.
 */

import { ask } from "../ask-tool.ts";
import { hex, linesOf, memory, namedValue } from "../field-readers.ts";
import { defined } from "../pci.ts";
import { type DeviceDraft, NOTHING, type Probe, type ProbeContext, type ProbeWarning } from "../probe.ts";

const VENDORS: Readonly<Record<number, string>> = {
  4318: "NVIDIA",
  4098: "AMD",
  32902: "Intel",
  4203: "Apple",
  5045: "Arm",
  20803: "Qualcomm",
  4112: "Imagination",
  5348: "Broadcom",
};
const OWN_DRIVERS: ReadonlySet<string> = new Set(["nvidia", "amdgpu", "xe", "i915"]);
const MAX_GPUS = 32;

export const vulkanProbe: Probe = {
  name: "vulkan",
  families: ["vulkan"],
  platforms: ["linux", "win32"],
  run: async (context) => {
    if (await everyDisplayHasItsProbe(context)) return NOTHING;
    const warnings: ProbeWarning[] = [];
    const args = (wanted: boolean) => (given: readonly string[]) => given.includes("--summary") === wanted;
    const [summary, full] = await Promise.all([
      ask(context, { tool: "vulkaninfo", args: ["--summary"], accepts: args(true) }, warnings),
      ask(context, { tool: "vulkaninfo", args: [], accepts: args(false) }, warnings),
    ]);
    const heaps = parseHeaps(full?.stdout ?? "");
    const devices = parseSummary(summary?.stdout ?? full?.stdout ?? "").map((gpu): DeviceDraft => {
      const { index, isIntegrated, ...rest } = gpu;
      return {
        key: `vulkan:${index}`,
        family: "vulkan",
        index,
        ...rest,
        ...defined({ memoryBytes: heaps.get(index) }),
        ...(isIntegrated && { unifiedMemory: true }),
      };
    });
    return { devices, warnings };
  },
};

/** No call is needed where sysfs shows that every display controller is held by a driver whose probe knows more. */
async function everyDisplayHasItsProbe(context: ProbeContext): Promise<boolean> {
  const displays = [...(await context.pci()).values()].filter((f) => f.classCode >> 16 === 0x03);
  return (
    displays.length > 0 &&
    displays.every((f) => OWN_DRIVERS.has(f.driver ?? "") || f.vendor === 0x1a03 || f.vendor === 0x102b)
  );
}

function blocks(text: string): { index: number; body: string }[] {
  const parts = text.split(/^GPU(\d{1,2}):\s*$/m);
  const found: { index: number; body: string }[] = [];
  for (let i = 1; i + 1 < parts.length && found.length < MAX_GPUS; i += 2)
    found.push({ index: Number(parts[i]), body: parts[i + 1] ?? "" });
  return found;
}

function parseSummary(text: string) {
  // The full output has each GPU's block twice (presentation first): the one that names the device counts.
  return blocks(text).flatMap(({ index, body }) => {
    const rows = linesOf(body);
    const get = (name: string) => namedValue(rows, name, "=");
    const name = get("deviceName");
    const kind = get("deviceType") ?? "";
    if (name === undefined || /CPU|VIRTUAL/.test(kind) || /llvmpipe|swiftshader|softpipe/i.test(name)) return [];
    const vendorId = hex(get("vendorID")?.split(/[\s(]/)[0]);
    const api = get("apiVersion");
    return {
      index,
      name,
      vendor: VENDORS[vendorId ?? 0] ?? "unknown",
      isIntegrated: /INTEGRATED/.test(kind),
      ...defined({ uuid: get("deviceUUID"), driverVersion: get("driverInfo") ?? get("driverVersion") }),
      details: defined({ apiVersion: api?.replace(/^\d+ \((.+)\)$/, "$1"), driver: get("driverName") }),
    };
  });
}

/** Bytes of the device-local heaps, per GPU. */
function parseHeaps(text: string): Map<number, number> {
  const found = new Map<number, number>();
  for (const { index, body } of blocks(text)) {
    const heaps = body.split(/memoryHeaps\[\d+\]:/).slice(1, 17);
    let total = 0;
    for (const heap of heaps) {
      const size = /^(\d{1,16})\b/.exec(namedValue(linesOf(heap.slice(0, 4096)), "size", "=") ?? "")?.[1];
      if (size !== undefined && /HEAP_DEVICE_LOCAL_BIT/.test(heap)) total += Number(size);
    }
    const bytes = memory(total);
    if (bytes !== undefined && bytes > 0) found.set(index, bytes);
  }
  return found;
}
