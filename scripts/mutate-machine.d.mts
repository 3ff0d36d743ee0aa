import type { Machine } from "../src/machine/hardware/index.ts";

/** A recorded root in memory. */
export interface MemoryRoot {
  readonly name: string;
  readonly files: Map<string, string>;
  readonly links: Map<string, string>;
  commands: {
    argv: string[];
    exitCode: number | null;
    stdout: string;
    stderr: string;
    timedOut: boolean;
    truncated?: boolean;
  }[];
  env: Record<string, string>;
  nvml: unknown;
  platform: NodeJS.Platform;
  arch: string;
}
export function loadRoots(folders: readonly string[]): MemoryRoot[];
export function mutate(root: MemoryRoot, seed: number): MemoryRoot;
export function machineOf(root: MemoryRoot, parseNvml: (value: unknown) => unknown): Machine;
/** What is wrong with an inventory, in words; empty when nothing is. */
export function problems(inventory: unknown, parse: (value: unknown) => unknown): string[];
