/** The machine that this process runs on. */
import { cpus, freemem, totalmem } from "node:os";
import { openFiles } from "./files.ts";
import type { Machine } from "./machine.ts";
import { collectNvml } from "./nvml.ts";
import { noCommands, processRunner } from "./tool-runner.ts";

/** Opens the live machine. Nothing is read, loaded or spawned yet. */
export function openLive(options: { readonly exec?: boolean } = {}): Machine {
  return {
    platform: process.platform,
    arch: process.arch,
    env: process.env,
    files: openFiles(),
    commands: options.exec === false ? noCommands : processRunner(),
    nvml: () => collectNvml(),
    host: hostFacts(),
    recorded: false,
    warnings: [],
  };
}

function hostFacts(): Machine["host"] {
  // On Linux /proc and /sys say more; os.cpus() would read the clock of every thread.
  if (process.platform === "linux") return { memoryBytes: totalmem() };
  const all = cpus();
  const model = all[0]?.model;
  return {
    cpuCount: all.length,
    memoryBytes: totalmem(),
    freeMemoryBytes: freemem(),
    ...(model !== undefined && { cpuModel: model }),
  };
}
