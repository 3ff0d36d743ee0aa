/** The file of what was measured on a machine, as `FileOption`s: choices with a plan of their own, and constants. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { storeTable } from "../../src/apps/tune/index.ts";
import { planToJson } from "../../src/authoring/interchange/index.ts";
import { type ExecutionPlan, hashPlan } from "../../src/authoring/plan/index.ts";
import { DEFAULT_CPU_COSTS, writeMachineSection } from "../../src/machine/cost/index.ts";
import type { FileOption } from "./file-option.ts";

/** @param plan an all-reduce of two ranks, which the choices name; `four`: one of four ranks, in a file */
export function machineFileOptions(folder: string, plan: ExecutionPlan, four: string): readonly FileOption[] {
  const file = join(folder, "machine.json");
  const name = `mine-h${hashPlan(plan).slice(0, 8)}`;
  const rows = [
    { fromBytes: 0, use: "ring-all-reduce" },
    { fromBytes: 1024, use: name },
  ];
  storeTable(
    file,
    { backend: "threads", collective: "all_reduce", ranks: [2, 2], rows },
    { [name]: { collective: "all_reduce", plan: JSON.parse(planToJson(plan)) as { ranks: unknown[] } } },
    "0.1.0",
  );
  const data = { byRanks: { "2": DEFAULT_CPU_COSTS, "4": DEFAULT_CPU_COSTS } };
  writeMachineSection(file, "cpuCosts", { chorale: "0.1.0", date: "2026-11-23", data });
  const content = readFileSync(file);
  const one = ["-n", "2", "-b", "1K", "-e", "1K", "--iterations", "2", "--repeats", "1"];
  return [
    {
      name: "CHORALE_CHOICES: tune --show",
      file: "machine.json",
      content,
      argv: () => ["tune", "--show"],
      isMachineFile: true,
    },
    {
      name: "CHORALE_CHOICES: bench",
      file: "machine.json",
      content,
      argv: () => ["bench", "all_reduce", ...one],
      isMachineFile: true,
      isSlow: true,
    },
    {
      name: "CHORALE_CHOICES: sim --topology cpu",
      file: "machine.json",
      content,
      argv: () => ["sim", four, "--topology", "cpu", "-b", "64K", "-e", "64K"],
      isMachineFile: true,
    },
    {
      name: "synth --choices",
      file: "machine.json",
      content,
      argv: (path) => ["synth", "all_gather", "--topology", "rtx4090-2", "--choices", path, "-b", "64K", "-e", "64K"],
    },
  ];
}
