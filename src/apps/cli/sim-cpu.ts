/** `chorale sim --topology cpu`: plans on threads of this machine, by the constants that `chorale tune` fitted here. */

import { type ExecutionPlan, proofOf } from "../../authoring/plan/index.ts";
import { type CpuSimulation, simulateCpu } from "../../authoring/simulator/index.ts";
import { provePlan } from "../../authoring/verifier/index.ts";
import { parseDType, printableLine, UnsupportedError } from "../../core/index.ts";
import { cpuCostsFor, thisMachine } from "../../machine/cost/index.ts";
import { tunedMachine } from "../tune/index.ts";
import { EXIT } from "./exit-codes.ts";
import { print, printJson } from "./output.ts";
import { parseProgramArgs } from "./program-args.ts";
import { loadPlan } from "./program-file.ts";
import { DEFAULT_SIZES } from "./sim-library.ts";
import { elementSizesOf, type SizeFlags } from "./size-options.ts";

/** The name of this machine's processors as a topology. */
export const CPU_TOPOLOGY = "cpu";

export interface SimCpuFlags extends SizeFlags {
  readonly dtype: string;
  readonly arg?: readonly string[];
  readonly json?: boolean;
}

/** What only simulated machines with links have. */
const OTHERS = [
  "measured",
  "nvls",
  "p2p",
  "processes",
  "blocking",
  "algorithm",
  "protocol",
  "ncclVersion",
  "fault",
  "devices",
  "params",
  "parameters",
  "switch",
  "nccl",
  "trace",
  "chakra",
] as const;

/** Times plans on this machine's cores. @returns the exit code */
export async function simulateHere(
  files: readonly string[],
  flags: SimCpuFlags & { readonly [K in (typeof OTHERS)[number]]?: unknown },
): Promise<number> {
  for (const name of OTHERS) {
    const value = flags[name];
    if (value === undefined || (Array.isArray(value) && value.length === 0)) continue;
    throw new UnsupportedError(`--${name} with --topology ${CPU_TOPOLOGY}`, "it is for topologies of links");
  }
  const dtype = parseDType(flags.dtype, "--dtype");
  if (dtype !== "f32")
    throw new UnsupportedError(`--dtype ${dtype} with --topology ${CPU_TOPOLOGY}`, "its costs are those of f32");
  const sizes = elementSizesOf(flags, DEFAULT_SIZES);
  const { costs, stamps } = tunedMachine();
  const stamp = stamps.cpuCosts;
  const source =
    stamp === undefined
      ? "not fitted here: `chorale tune OPERATION --backend threads` does"
      : `fitted on ${stamp.date} by chorale ${stamp.chorale}`;
  const runs: { file: string; plan: ExecutionPlan; rows: CpuSimulation[] }[] = [];
  for (const file of files) {
    const plan = await loadPlan(file, parseProgramArgs(flags.arg ?? []), { verify: false });
    provePlan(plan);
    const proof = proofOf(plan);
    const endsAlone = proof?.ok === true && proof.endsAlone();
    const constants = cpuCostsFor(costs, plan.ranks.length);
    runs.push({
      file,
      plan,
      rows: sizes.map((sizeBytes) => simulateCpu(plan, { sizeBytes, costs: constants, endsAlone })),
    });
  }
  if (flags.json === true) {
    const documents = runs.map(({ file, rows }) => ({ file, rows }));
    const shared = { topology: CPU_TOPOLOGY, machine: thisMachine(), source };
    printJson(runs.length === 1 ? { ...documents[0], ...shared } : { results: documents, ...shared });
  } else {
    const lines = [`# ${thisMachine().cpu}, ${thisMachine().cores} cores, f32; costs: ${source}`];
    for (const { file, plan, rows } of runs) {
      lines.push(
        `# ${file}: ${printableLine(plan.name ?? "plan")}, ${plan.ranks.length} ranks`,
        "#       size      time    algbw    busbw",
        "#        (B)      (us)   (GB/s)   (GB/s)",
        ...rows.map(row),
      );
    }
    print(`${lines.join("\n")}\n`);
  }
  return runs.every(({ rows }) => rows.every(({ completed }) => completed)) ? EXIT.done : EXIT.checkFailed;
}

function row({ sizeBytes, timeUs, algbwGBps, busbwGBps, completed }: CpuSimulation): string {
  const size = String(sizeBytes).padStart(12);
  if (!completed) return `${size}     never`;
  return `${size} ${timeUs.toFixed(2).padStart(9)}${algbwGBps.toFixed(2).padStart(9)}${busbwGBps.toFixed(2).padStart(9)}`;
}
