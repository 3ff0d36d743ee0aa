/** `chorale demo`: the main job, end to end, on this machine. */
import { constants } from "node:os";
import type { Command } from "commander";
import {
  heading,
  LOGIT_TOLERANCE,
  makeStyle,
  runDemo,
  showInventory,
  showPlans,
  showRanks,
  showSpeed,
  showSweepRow,
  showText,
  showUnused,
  sweepFooter,
  sweepHeader,
} from "../bench/index.ts";
import { printInColour, printJson } from "./output.ts";

const COLUMNS = 100;

export function configure(command: Command, exit: (code: number) => void): void {
  command.option("--json", "print one JSON document").action(async (flags: { json?: boolean }) => {
    exit(await run(flags.json === true));
  });
}

async function run(json: boolean): Promise<number> {
  // By exit(), so that the files made for the ranks are removed.
  for (const name of ["SIGINT", "SIGTERM"] as const)
    process.once(name, () => process.exit(128 + constants.signals[name]));
  const style = makeStyle(process.stdout.isTTY === true && process.env.NO_COLOR === undefined);
  const columns = Math.min(COLUMNS, process.stdout.columns ?? COLUMNS);
  const print = (...lines: string[]) => {
    if (!json) printInColour(`${lines.join("\n")}\n`);
  };
  let section = 0;
  const title = (text: string) => print(heading(style, ++section, text, columns));
  print(`\n${style.bold("chorale")} ${style.dim("detect · plan · mesh · collectives · a sharded model")}`);
  const report = await runDemo({
    listener: {
      inventory: (inventory) => {
        title("What is here");
        print(...showInventory(style, inventory));
      },
      plans: ({ summaries, plan }, devices) => {
        title("What fits where");
        print(
          ...showPlans(style, [
            ["free choice", summaries.here],
            ["free choice", summaries.large],
            ["tp=2, pp=2", summaries.constrained],
            ...(devices !== undefined && "plan" in devices ? [["on the GPUs", devices.plan.summary] as const] : []),
          ]),
        );
        if (devices !== undefined && "unused" in devices) print("", ...showUnused(devices.unused));
        title(`The plan that runs now: ${plan.mesh.worldSize} ranks on the CPU`);
        print(...showRanks(style, { plan }));
        if (devices !== undefined && "plan" in devices) {
          const { plan } = devices.plan;
          print("", `   and ${plan.mesh.worldSize} on GPUs, with ${devices.backend}`);
          print(...showRanks(style, { plan }));
        }
      },
      generationStarts: () => title("The model writes"),
      generated: (found) => {
        print(...showText(style, found.prompt, found), "");
        print(...showSpeed(style, found.runs, found.cores, found.devices));
      },
      sweepStarts: (ranks, backend) => {
        title(`All-reduce, f32 sum, ${ranks} ranks on ${backend}`);
        print(sweepHeader(style));
      },
      sweepRow: (row) => print(showSweepRow(style, row)),
    },
  });
  print(sweepFooter(style));
  const rows = [...report.sweep.rows, ...(report.devices?.sweep?.rows ?? [])];
  const wrong = rows.reduce((total, row) => total + (row.wrong ?? 0), 0);
  const { devices } = report;
  const differences = [report.comparisons, ...(devices !== undefined && "run" in devices ? [devices] : [])];
  const isClose = differences.every(({ maxLogitDifference }) => maxLogitDifference <= LOGIT_TOLERANCE);
  const ok = report.tokensIdentical && wrong === 0 && isClose;
  print(
    "",
    `${ok ? style.good("✓ all results are right") : style.bad("✗ results are wrong")} ${style.dim(`(${(report.tookMs / 1000).toFixed(1)} s)`)}`,
    "",
  );
  if (json) printJson(report, 2);
  return ok ? 0 : 1;
}
