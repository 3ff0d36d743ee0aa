/** The commands. A command's file exports `configure(command, exit)`: it declares options and an action. */
import type { Command } from "commander";

export interface CommandModule {
  /** Declares options and the action on `command`; `exit(code)` sets the exit code when the action is done. */
  configure(command: Command, exit: (code: number) => void): void;
}

export interface CommandEntry {
  readonly name: string;
  readonly summary: string;
  readonly load: () => Promise<CommandModule>;
}

/** In the order of `chorale --help`; one line each. */
export const COMMANDS: readonly CommandEntry[] = [
  {
    name: "detect",
    summary: "find accelerators, their state and what surrounds them",
    load: () => import("./detect.ts"),
  },
  { name: "topo", summary: "show how devices are linked, and measure it", load: () => import("./topo.ts") },
  { name: "plan", summary: "lay a model out on hardware", load: () => import("./plan.ts") },
  { name: "launch", summary: "start a script on N ranks", load: () => import("./launch.ts") },
  {
    name: "bench",
    summary: "measure a collective over sizes, with nccl-tests' columns",
    load: () => import("./bench.ts"),
  },
  {
    name: "check",
    summary: "prove execution plans right, or say what is wrong",
    load: () => import("./check.ts"),
  },
  {
    name: "compile",
    summary: "compile a collective program to an execution plan",
    load: () => import("./compile.ts"),
  },
  { name: "sim", summary: "time plans on a machine that need not be here", load: () => import("./sim.ts") },
  {
    name: "tune",
    summary: "measure what serves a collective, or runs a program, fastest here; refit the simulator",
    load: () => import("./tune.ts"),
  },
  {
    name: "synth",
    summary: "find the provable optimum of a collective on a topology, and its plan",
    load: () => import("./synth.ts"),
  },
  { name: "doctor", summary: "say what is missing or misconfigured here", load: () => import("./doctor.ts") },
  { name: "demo", summary: "the main job, end to end, on this machine", load: () => import("./demo.ts") },
];
