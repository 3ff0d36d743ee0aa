/** `chorale doctor`: what is missing or misconfigured here; with --flight, what a stuck run was stuck in. */
import type { Command } from "commander";
import { formatSize, InvalidArgumentError } from "../../core/index.ts";
import { ffiProblem } from "../../foreign/native/index.ts";
import { detectOn, openMachine } from "../../machine/hardware/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { type CubinCache, cubinCache } from "../../runtime/executor/cuda/internal.ts";
import {
  diagnose,
  type EngineReport,
  explainFlight,
  type DoctorFinding as Finding,
  findEngines,
  judgeFfi,
  judgeMpi,
  judgeNode,
  readGpuFacts,
  readMpiFacts,
  type StreamTimings,
} from "../doctor/index.ts";
import { EXIT } from "./exit-codes.ts";
import { leaveIfStuck } from "./hung-driver-exit.ts";
import { print, printJson } from "./output.ts";

interface Flags {
  readonly flight?: string;
  readonly root?: string;
  readonly tools?: string;
  readonly exec: boolean;
  readonly json?: boolean;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .option("--flight <folder>", "explain the flight-recorder dumps of a folder (or one dump)")
    .option("--root <folder>", "examine a recorded root instead of this machine")
    .option("--tools <folder>", "with --root: run the tools of this folder instead of taking recorded outputs")
    .option("--no-exec", "start no vendor tool")
    .option("--json", "print one JSON document")
    .action(async (flags: Flags) => {
      exit(await run(flags));
    });
}

async function run(flags: Flags): Promise<number> {
  if (flags.flight !== undefined) {
    if (flags.root !== undefined)
      throw new InvalidArgumentError("--flight", flags.flight, "not to be used together with --root");
    return explainDumps(flags.flight, flags.json === true);
  }
  const options = {
    exec: flags.exec,
    ...(flags.root !== undefined && { root: flags.root }),
    ...(flags.tools !== undefined && { tools: flags.tools }),
  };
  const machine = await openMachine(options);
  const inventory = await detectOn(machine, options);
  const facts = await readGpuFacts(machine, options);
  // A recorded root says nothing about libraries and Node; nothing of this machine may be mixed in.
  const ofNode =
    flags.root === undefined ? judgeNode(process.versions.node, new Date().toISOString().slice(0, 10)) : [];
  const ofFfi = flags.root === undefined ? judgeFfi(ffiProblem()) : [];
  const ofMpi = flags.root === undefined ? judgeMpi(readMpiFacts(flags.exec !== false)) : [];
  const findings = [...ofNode, ...ofFfi, ...ofMpi, ...(await diagnose(inventory, machine, facts))];
  const engines = flags.root === undefined ? await findEngines() : [];
  const kernels = flags.root === undefined ? cubinCache() : undefined;
  if (flags.json === true) {
    const { warnings } = inventory;
    printJson({ schemaVersion: 1, ok: !hasError(findings), findings, engines, kernels, facts, warnings }, 2);
  } else print(render(findings, engines, kernels, inventory));
  const code = hasError(findings) ? EXIT.checkFailed : EXIT.done;
  leaveIfStuck(inventory, code);
  return code;
}

function hasError(findings: readonly Finding[]): boolean {
  return findings.some((finding) => finding.severity === "error");
}

function render(
  findings: readonly Finding[],
  engines: readonly EngineReport[],
  kernels: CubinCache | undefined,
  { devices }: Inventory,
): string {
  const lines = findings.flatMap(({ code, severity, message, evidence, mend }) => [
    `${severity.padEnd(8)}${code}: ${message}`,
    ...(evidence ?? []).map((line) => `        > ${line}`),
    `        ${mend}`,
  ]);
  const hasAccelerator = devices.some(({ family }) => family !== "cpu");
  if (findings.length === 0) lines.push(`nothing wrong found${hasAccelerator ? "" : ", and no accelerator"}`);
  if (engines.length > 0) lines.push("", "engines");
  for (const engine of engines) {
    lines.push(`  ${engine.available ? "found  " : "absent "} ${engine.name}: ${engine.detail}`);
    if (engine.howToGetIt !== undefined) lines.push(`          ${engine.howToGetIt}`);
  }
  if (kernels !== undefined && kernels.numFiles > 0) {
    const { folder, numFiles, sizeBytes, limitBytes } = kernels;
    lines.push(
      "",
      "compiled kernels",
      `  ${formatSize(sizeBytes)} of ${formatSize(limitBytes)}, ${numFiles} files in ${folder}`,
    );
  }
  return `${lines.join("\n")}\n`;
}

function describeTimings({ rank, calls, totalUs, slowest }: StreamTimings): string {
  return `    rank ${rank}: ${calls} calls took ${totalUs.toFixed(1)} us on the stream, the longest ${slowest.durationUs.toFixed(1)} us (${slowest.call}, #${slowest.seq})`;
}

/** Lines after the first stand apart: what a dump says must not look like what doctor says. */
const indented = (text: string) => text.replaceAll("\n", "\n    ");

async function explainDumps(path: string, json: boolean): Promise<number> {
  const report = await explainFlight(path);
  const stuck = report.groups.some((group) => group.verdict !== "complete") || report.failures.length > 0;
  if (json) printJson({ schemaVersion: 1, ok: !stuck, ...report }, 2);
  else {
    const lines = [
      `world of ${report.worldSize} ranks, ${report.backend}, generation ${report.generation}`,
      ...report.failures.flatMap(({ rank, failed, mend }) => [
        `rank ${rank} failed: ${indented(failed)}`,
        ...(mend === undefined ? [] : [`    ${mend}`]),
      ]),
      ...report.groups.flatMap(({ message, timings = [] }) => [indented(message), ...timings.map(describeTimings)]),
      ...(report.leftOut === 0
        ? []
        : [`not explained: ${report.leftOut} more, of other runs or earlier generations; --flight FILE explains one`]),
    ];
    print(`${lines.join("\n")}\n`);
  }
  return stuck ? EXIT.checkFailed : EXIT.done;
}
