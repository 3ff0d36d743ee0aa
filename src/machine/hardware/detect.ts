/**
 * Detection: all probes side by side, each with a deadline, on the live machine, a recorded root, or whatever the caller
 * puts in their place. A probe that fails or is late costs a warning, never the inventory.
 */

import { InvalidArgumentError } from "../../core/index.ts";
import { oneOf } from "../../core/internal.ts";
import { type Device, FAMILIES, type Family, INVENTORY_SCHEMA_VERSION, type Inventory } from "../topology/index.ts";
import { assemble } from "./assemble.ts";
import { readEnvironment } from "./environment.ts";
import { count, line, memory } from "./field-readers.ts";
import { openLive } from "./live-machine.ts";
import { type Machine, PROBE_TIMEOUT_MS } from "./machine.ts";
import { readNics } from "./network.ts";
import { numaNodes } from "./numa.ts";
import { readAllPci } from "./pci.ts";
import { NOTHING, type Probe, type ProbeContext, type ProbeResult, type ProbeWarning } from "./probe.ts";
import { PROBES } from "./probes/index.ts";
import { openRecorded } from "./recorded-machine.ts";
import { noCommands } from "./tool-runner.ts";

/** Most warnings of one inventory: a hostile recording must not fill the memory with them. */
const MAX_WARNINGS = 128;

export interface DetectOptions {
  /** Read this recorded root instead of the live machine. */
  readonly root?: string;
  /** With `root`: run tools found in this folder instead of taking recorded outputs. */
  readonly tools?: string;
  /** False: spawn nothing. */
  readonly exec?: boolean;
  /** Probe only these families (the CPU always). */
  readonly families?: readonly Family[];
  /** Replaces parts of the machine: file system, command runner, environment, NVML. */
  readonly machine?: Partial<Machine>;
  readonly nvidiaSource?: ProbeContext["nvidiaSource"];
  /** Milliseconds that one probe may take. */
  readonly probeTimeoutMs?: number;
  /** Told how long each probe took. */
  readonly onTiming?: (timing: Timing) => void;
}

export interface Timing {
  readonly name: string;
  readonly milliseconds: number;
}

/**
 * Finds the devices of this machine (or of a recorded root), the links between them and what surrounds them. Devices that
 * cannot be read are absent and leave a warning; an inventory always comes.
 * @throws InvalidArgumentError when the options contradict each other or `root` holds no recording
 * @example
 * import { detect } from "chorale/hardware";
 * const inventory = await detect({ exec: false });
 * inventory.devices[0]?.family // "cpu"
 */
export async function detect(options: DetectOptions = {}): Promise<Inventory> {
  return detectOn(await openMachine(options), options);
}

/**
 * Opens the machine that the options name.
 * @throws InvalidArgumentError when `tools` is given without `root`, or `root` holds no recording
 */
export async function openMachine(options: DetectOptions): Promise<Machine> {
  if (options.tools !== undefined && options.root === undefined) {
    throw new InvalidArgumentError("--tools", options.tools, "to be used together with --root");
  }
  const base =
    options.root === undefined
      ? openLive({ exec: options.exec !== false })
      : await openRecorded(
          options.root,
          options.tools === undefined || options.exec === false ? {} : { tools: options.tools },
        );
  return { ...base, ...options.machine };
}

/** Runs the probes on a machine. */
export async function detectOn(machine: Machine, options: DetectOptions = {}): Promise<Inventory> {
  const begin = performance.now();
  const timed = async <T>(name: string, work: Promise<T>): Promise<T> => {
    const from = performance.now();
    try {
      return await work;
    } finally {
      options.onTiming?.({ name, milliseconds: performance.now() - from });
    }
  };
  const context = contextOf(machine, options);
  const warnings: ProbeWarning[] = [];
  const deadline = options.probeTimeoutMs ?? PROBE_TIMEOUT_MS;
  const probes = PROBES.filter((probe) => isWanted(probe, machine, options.families));
  const [results, pci, numa, nics, environment] = await Promise.all([
    Promise.all(probes.map((probe) => timed(probe.name, bounded(probe, context, deadline)))),
    orElse(context.pci(), new Map(), deadline),
    orElse(numaNodes(context), [], deadline),
    timed("network", orElse(readNics(context.files, warnings), [], deadline)),
    timed("environment", orElse(readEnvironment(context), {}, deadline)),
  ]);
  const { devices, topology } = assemble({ results, pci, numa, nics, env: context.env });
  const all = [
    ...machine.warnings,
    ...results.flatMap((result) => result.warnings ?? []),
    ...warnings,
    ...maskWarnings(devices),
    ...machine.files.refused.map((path) => ({ source: "files", message: `${path} leads out of the root; refused` })),
  ];
  options.onTiming?.({ name: "total", milliseconds: performance.now() - begin });
  return {
    schemaVersion: INVENTORY_SCHEMA_VERSION,
    devices: clean(devices),
    topology: clean(topology),
    environment: clean(environment),
    warnings: tidy(all),
  };
}

/** Control characters that a recording or a driver brings into any text end here; equal texts stay equal. */
function clean<T>(value: T): T {
  if (typeof value === "string")
    return (/[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/.test(value) ? line(value) : value) as T;
  if (Array.isArray(value)) return value.map((entry: unknown) => clean(entry)) as T;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, clean(entry as unknown)])) as T;
}

function contextOf(machine: Machine, options: DetectOptions): ProbeContext {
  let pci: ReturnType<ProbeContext["pci"]> | undefined;
  let system: ReturnType<ProbeContext["systemMemory"]> | undefined;
  return {
    ...machine,
    ...(options.exec === false && { commands: noCommands }),
    noExec: options.exec === false,
    nvidiaSource: options.nvidiaSource ?? "auto",
    pci: () => {
      pci ??= readAllPci(machine.files);
      return pci;
    },
    systemMemory: () => {
      system ??= readSystemMemory(machine);
      return system;
    },
  };
}

async function readSystemMemory(machine: Machine) {
  const info = await machine.files.readText("/proc/meminfo", 65_536);
  const kib = (name: string) => {
    const value = count(new RegExp(`^${name}:\\s*(\\d+) kB`, "m").exec(info ?? "")?.[1]);
    return memory(value === undefined ? undefined : value * 1024);
  };
  const totalBytes = kib("MemTotal") ?? machine.host.memoryBytes;
  const availableBytes = kib("MemAvailable") ?? machine.host.freeMemoryBytes;
  return {
    ...(totalBytes !== undefined && { totalBytes }),
    ...(availableBytes !== undefined && { availableBytes }),
  };
}

function isWanted(probe: Probe, machine: Machine, families: readonly Family[] | undefined): boolean {
  if (families !== undefined && probe.name !== "cpu" && !probe.families.some((family) => families.includes(family)))
    return false;
  return machine.recorded || probe.platforms === undefined || probe.platforms.includes(machine.platform);
}

async function bounded(probe: Probe, context: ProbeContext, deadlineMs: number): Promise<ProbeResult> {
  const late: ProbeResult = {
    devices: [],
    warnings: [{ source: probe.name, message: `the ${probe.name} probe did not end within ${deadlineMs} ms` }],
  };
  try {
    return await orElse(probe.run(context), late, deadlineMs, (error) => ({
      ...NOTHING,
      warnings: [
        {
          source: probe.name,
          message: `the ${probe.name} probe failed: ${line(error instanceof Error ? error.message : String(error))}`,
        },
      ],
    }));
  } catch {
    return late;
  }
}

async function orElse<T>(
  work: Promise<T>,
  otherwise: T,
  deadlineMs: number,
  onError?: (error: unknown) => T,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<T>((resolve) => {
    timer = setTimeout(() => resolve(otherwise), deadlineMs);
  });
  try {
    return await Promise.race([work, deadline]);
  } catch (error) {
    return onError?.(error) ?? otherwise;
  } finally {
    clearTimeout(timer);
  }
}

function maskWarnings(devices: readonly Device[]): ProbeWarning[] {
  const masked = devices.filter((device) => !device.visible && device.parent === undefined);
  if (masked.length === 0) return [];
  return [
    {
      source: "environment",
      message: `${masked.map((device) => device.id).join(", ")} ${masked.length === 1 ? "is" : "are"} hidden from this process by its environment`,
      hint: "Unset CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and their like to use all.",
    },
  ];
}

const { compare: byNumber } = new Intl.Collator("en", { numeric: true });

/** In a fixed order, since which of two tools answers first is chance; each once. */
function tidy(warnings: readonly ProbeWarning[]): ProbeWarning[] {
  const seen = new Set<string>();
  const kept: ProbeWarning[] = [];
  const ordered = [...warnings].sort(
    (a, b) => byNumber(a.source, b.source) || byNumber(a.message, b.message) || byNumber(a.hint ?? "", b.hint ?? ""),
  );
  for (const { source, message, hint } of ordered) {
    const key = `${source} ${message}`;
    if (seen.has(key) || kept.length >= MAX_WARNINGS) continue;
    seen.add(key);
    kept.push({ source: line(source), message: line(message), ...(hint !== undefined && { hint: line(hint) }) });
  }
  return kept;
}

/**
 * Reads a family's name.
 * @throws InvalidArgumentError naming the families
 */
export function parseFamily(text: string, argument = "--family"): Family {
  return oneOf(text, argument, FAMILIES);
}
