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
  const title = (number: number, text: string) => print(heading(style, number, text, columns));
  print(`\n${style.bold("chorale")} ${style.dim("detect · plan · mesh · collectives · a sharded model")}`);
  const report = await runDemo({
    listener: {
      inventory: (inventory) => {
        title(1, "What is here");
        print(...showInventory(style, inventory));
      },
      plans: ({ summaries, plan }) => {
        title(2, "What fits where");
        print(
          ...showPlans(style, [
            ["free choice", summaries.here],
            ["free choice", summaries.large],
            ["tp=2, pp=2", summaries.constrained],
          ]),
        );
        title(3, `The plan that runs now: ${plan.mesh.worldSize} ranks`);
        print(...showRanks(style, { plan }));
      },
      generationStarts: () => title(4, "The model writes"),
      generated: ({ comparisons, runs, prompt, cores }) => {
        print(...showText(style, prompt, { comparisons, runs }), "", ...showSpeed(style, runs, cores));
      },
      sweepStarts: (ranks) => {
        title(5, `All-reduce, f32 sum, ${ranks} ranks on threads`);
        print(sweepHeader(style));
      },
      sweepRow: (row) => print(showSweepRow(style, row)),
    },
  });
  print(sweepFooter(style));
  const wrong = report.sweep.rows.reduce((total, row) => total + (row.wrong ?? 0), 0);
  const ok = report.tokensIdentical && wrong === 0 && report.comparisons.maxLogitDifference <= LOGIT_TOLERANCE;
  print(
    "",
    `${ok ? style.good("✓ all results are right") : style.bad("✗ results are wrong")} ${style.dim(`(${(report.tookMs / 1000).toFixed(1)} s)`)}`,
    "",
  );
  if (json) printJson(report, 2);
  return ok ? 0 : 1;
}
