/** `chorale synth --envelope` and `--choices`: what is fastest at which size, as a table and as choices that ranks use. */

import type { CertifiedCollective, Network } from "../../authoring/certificate/index.ts";
import { planToJson } from "../../authoring/interchange/index.ts";
import type { PlanReduceOp } from "../../authoring/plan/index.ts";
import type { SystemParameters } from "../../authoring/simulator/index.ts";
import { type Envelope, envelope } from "../../authoring/synthesis/index.ts";
import { formatSize, InvalidArgumentError } from "../../core/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import type { ChoiceRow, ChoiceTable, StoredPlan } from "../../runtime/executor/index.ts";
import { version } from "../../runtime/world/index.ts";
import { requireChoicesFile, storeTable } from "../tune/index.ts";
import { table } from "./hardware-columns.ts";
import { showProgress } from "./output.ts";

export interface EnvelopeRequest {
  readonly network: Network;
  readonly collective: CertifiedCollective;
  readonly inventory: Inventory;
  readonly parameters: SystemParameters;
  readonly devices: readonly string[] | undefined;
  readonly sizes: readonly number[];
  readonly root: number;
  readonly op: PlanReduceOp;
}

/** Collectives that have a root. */
export const ROOTED: readonly CertifiedCollective[] = ["broadcast", "reduce", "scatter", "gather"];

/** Refuses what choices cannot say, for they know no root, and files that are something else; before anything is made. */
export function requireStorable(collective: CertifiedCollective, file: string): void {
  if (ROOTED.includes(collective)) {
    throw new InvalidArgumentError(
      "--choices",
      collective,
      "a collective without a root: choices serve calls of any root",
    );
  }
  requireChoicesFile(file);
}

/** Finds the envelope, telling how far it is. */
export async function findEnvelope({
  root,
  devices,
  network,
  collective,
  ...options
}: EnvelopeRequest): Promise<Envelope> {
  try {
    return await envelope(network, collective, {
      ...options,
      ...(devices === undefined ? {} : { devices }),
      ...(ROOTED.includes(collective) ? { root } : {}),
      onProgress: showProgress,
    });
  } finally {
    showProgress("");
  }
}

/** Rows of the ranges that one choice serves. */
function rowsOf({ points }: Envelope): readonly ChoiceRow[] {
  return points.flatMap(({ use, sizeBytes }, i) =>
    i > 0 && points[i - 1]?.use === use ? [] : [{ fromBytes: i === 0 ? 0 : sizeBytes, use }],
  );
}

/** Adds the envelope to a file of choices, in place of what it has for the same calls. */
export function storeEnvelope(file: string, result: Envelope): void {
  const { numRanks, plans, collective } = result;
  const made: ChoiceTable = { backend: "threads", collective, ranks: [numRanks, numRanks], rows: rowsOf(result) };
  storeTable(
    file,
    made,
    Object.fromEntries(
      [...plans].map(([name, plan]) => [
        name,
        { collective, plan: JSON.parse(planToJson(plan)) as StoredPlan["plan"] },
      ]),
    ),
    version(),
  );
}

const us = (time: number | undefined): string =>
  time === undefined || !Number.isFinite(time) ? "-" : time >= 100 ? time.toFixed(0) : time.toPrecision(3);

export function renderEnvelope({ points, numCandidates }: Envelope, parameters: SystemParameters): string {
  const rows = points.map(({ sizeBytes, use, timeUs, synthesisedUs, libraryUs, latencyBoundUs, bandwidthBoundUs }) => [
    formatSize(sizeBytes),
    us(timeUs),
    us(latencyBoundUs),
    us(bandwidthBoundUs),
    `${((100 * Math.max(latencyBoundUs, bandwidthBoundUs)) / timeUs).toFixed(1)} %`,
    us(synthesisedUs),
    us(libraryUs),
    use,
  ]);
  const columns = ["SIZE", "US", "LATENCY", "BANDWIDTH", "REACHED", "SYNTHESISED", "LIBRARY", "FASTEST"];
  return [
    `The fastest of ${numCandidates} plans at each size, simulated with the costs of ${parameters.name}; us.`,
    "LATENCY (the simulator's, along the longest of the shortest ways) and BANDWIDTH are bounds; REACHED is the larger one's share.",
    table(columns, rows, [true, true, true, true, true, true, true, false]),
  ].join("\n");
}
