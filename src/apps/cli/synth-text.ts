/** What `chorale synth` answers: its summary, which is the JSON document, and the same as text. */
import type { CertifiedCollective } from "../../authoring/certificate/index.ts";
import type { EdgeSensitivity, Envelope, Synthesis, SynthesisStatus } from "../../authoring/synthesis/index.ts";
import { formatSize } from "../../core/index.ts";
import { counted } from "./counted.ts";
import { table } from "./hardware-columns.ts";
import { listed } from "./node-names.ts";

/** What `--json` prints. Times are seconds for 1 GB, as exact fractions. */
export interface Summary {
  readonly operation: CertifiedCollective;
  readonly topology: string;
  readonly ranks: number;
  readonly bound: string;
  readonly boundGBps: number;
  readonly time: string;
  readonly timeGBps: number;
  readonly optimal: boolean;
  /** `timeLimit`: the search ended at --time-limit. */
  readonly status: SynthesisStatus;
  readonly gap: number;
  readonly witness: Synthesis["witness"];
  readonly height: number;
  readonly heightBound: number;
  readonly parts: number;
  readonly size: {
    readonly sizeBytes: number;
    readonly pieces: number;
    readonly timeUs: number;
    readonly fluidUs: number;
  };
  /** What a switch that multicasts and reduces would give. */
  readonly multicast?: { readonly switch: string; readonly bound: string; readonly time: string; readonly gap: number };
  readonly sensitivity?: readonly EdgeSensitivity[];
  readonly envelope?: Omit<Envelope, "plans">;
}

/** Two decimals, but never 0.00: rates of any size are asked about. */
const rate = (GBps: number): string =>
  GBps >= 0.1 && GBps < 1e7 ? GBps.toFixed(2) : String(Number(GBps.toPrecision(3)));

function multicastText(template: NonNullable<Summary["multicast"]>): string {
  const gap = ((template.gap - 1) * 100).toFixed(1);
  return `If ${template.switch} multicasts and reduces (NVLS, SHARP; not counted on above): ${template.time} s/GB by switch-all-reduce, ${gap} % above ${template.bound}, which nothing is faster than even so.`;
}

function witnessText({ witness, collective }: Synthesis): string {
  const some = (ids: readonly string[]) => listed(ids, 12);
  switch (witness.kind) {
    case "cut":
      return `the links that ${/reduce|gather$/.test(collective) && collective !== "all_gather" ? "enter" : "leave"} {${some(witness.inside)}} are busy all the time`;
    case "partition":
      return `${witness.parts.length} parts exchange 2 x ${witness.parts.length - 1} messages an element: ${some(witness.parts.map(({ out }) => `{${some(out)}}`))}`;
    case "lengths":
      return `traffic times distance fills these links: ${some(witness.lengths.map(({ from, to, length }) => `${from}>${to} ${length}`))}`;
  }
}

/** That bind, in the table; more fill the screen. */
const MOST_LINKS = 32;

export function renderSynthesis(summary: Summary, result: Synthesis): string {
  const { size } = summary;
  const { kind } = result.schedule;
  const parts = counted(summary.parts, kind === "trees" ? "tree" : "path");
  const steps =
    summary.height === summary.heightBound
      ? `at most ${counted(summary.height, "step")}, the fewest possible`
      : `at most ${counted(summary.height, "step")}, where at least ${summary.heightBound} ${summary.heightBound === 1 ? "is" : "are"} needed (a gap of ${summary.height - summary.heightBound})`;
  const lines = [
    `${result.collective} over ${summary.ranks} ranks: no schedule is faster than ${summary.bound} s/GB (${rate(summary.boundGBps)} GB/s).`,
    `Why: ${witnessText(result)}.`,
    summary.optimal
      ? `The schedule reaches it: ${parts}, ${steps}.`
      : `The schedule reaches ${rate(summary.timeGBps)} GB/s, ${((summary.gap - 1) * 100).toFixed(2)} % above the bound: ${parts}, ${steps}.`,
    ...(summary.status === "complete" ? [] : ["The search ended at the time limit: this is the best that was found."]),
    `At ${formatSize(size.sizeBytes)}, in ${counted(size.pieces, "piece")}, waves of one step each over links and their latency take ${size.timeUs.toFixed(1)} us.`,
  ];
  if (summary.multicast !== undefined) lines.push(multicastText(summary.multicast));
  if (summary.sensitivity !== undefined) {
    lines.push(
      summary.sensitivity.length === 0
        ? "No single link binds: the optimum stays with any one at 90 % or 110 %."
        : table(
            ["link", "time at 90 %", "at 110 %"],
            summary.sensitivity
              .slice(0, MOST_LINKS)
              .map(({ from, to, narrower, wider }) => [
                `${from}-${to}`,
                `${narrower.toFixed(4)}x`,
                `${wider.toFixed(4)}x`,
              ]),
            [false, true, true],
          ),
    );
    const left = summary.sensitivity.length - MOST_LINKS;
    if (left > 0)
      lines.push(`… and ${counted(left, "link")} that ${left === 1 ? "binds" : "bind"} less; --json has all.`);
  }
  return `${lines.join("\n")}\n`;
}
