/** `chorale topo --bounds`: what no schedule of each collective is faster than on this machine, and why. */
import { CERTIFIED_COLLECTIVES, type Network, type Witness } from "../../authoring/certificate/index.ts";
import {
  checkNetwork,
  latencyBoundUs,
  lowerBound,
  multicastTemplate,
  networkOf,
} from "../../authoring/synthesis/index.ts";
import { UnsupportedError } from "../../core/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { counted } from "./counted.ts";
import { table } from "./hardware-columns.ts";
import { listed } from "./node-names.ts";

/** Programs of all-to-all beyond this take seconds. */
const MOST_FLOWS = 5000;

export interface CollectiveBound {
  readonly operation: string;
  /** Seconds for 1 GB of the larger of a rank's two buffers, exact. */
  readonly secondsPerGB: string;
  readonly algbwGBps: number;
  readonly latencyUs: number;
  readonly witness: Witness;
}

export interface MachineBounds {
  readonly ranks: readonly string[];
  readonly bounds: readonly CollectiveBound[];
  /** Collectives whose bound takes too long here: `chorale synth` finds it. */
  readonly leftOut: readonly string[];
  /** What an all-reduce would take if a switch of the fabric multicast and reduced, and what nothing is faster than then. */
  readonly multicast?: { readonly switch: string; readonly bound: string; readonly time: string };
}

/**
 * Bounds of all collectives over the visible accelerators; roots are rank 0.
 * @throws UnsupportedError for fewer than two accelerators, and for ones that no links join
 */
export async function boundsOf(inventory: Inventory): Promise<MachineBounds> {
  const numDevices = inventory.devices.filter(
    ({ family, visible, parent }) => family !== "cpu" && visible && parent === undefined,
  ).length;
  if (numDevices < 2) {
    throw new UnsupportedError(
      `topo --bounds for a machine with ${counted(numDevices, "visible accelerator")}`,
      "they need two or more; --hardware takes a machine that is not here",
    );
  }
  const network: Network = networkOf(inventory);
  const { ids, ranks, edges } = checkNetwork(network);
  const bounds: CollectiveBound[] = [];
  const leftOut: string[] = [];
  for (const operation of CERTIFIED_COLLECTIVES) {
    if (operation === "all_to_all" && ranks.length * edges.length > MOST_FLOWS) {
      leftOut.push(operation);
      continue;
    }
    const { bound, witness } = await lowerBound(network, operation);
    bounds.push({
      operation,
      secondsPerGB: bound.toString(),
      algbwGBps: 1 / bound.toNumber(),
      latencyUs: latencyBoundUs(network, operation),
      witness,
    });
  }
  const switches = new Set(inventory.topology.nodes.filter(({ kind }) => kind === "nvswitch").map(({ id }) => id));
  const template = multicastTemplate(network, (id) => switches.has(id));
  return {
    ranks: ranks.map((node) => ids[node] as string),
    bounds,
    leftOut,
    ...(template === undefined
      ? {}
      : { multicast: { switch: template.switch, bound: `${template.bound}`, time: `${template.time}` } }),
  };
}

function why({ witness }: CollectiveBound): string {
  if (witness.kind === "cut") return `links of {${listed(witness.inside, 6)}}`;
  if (witness.kind === "partition") return `links among ${witness.parts.length} parts`;
  return `${witness.lengths.length} links by traffic and distance`;
}

export function renderBounds({ ranks, bounds, leftOut, multicast }: MachineBounds): string {
  const rows = bounds.map((one) => [
    one.operation,
    one.secondsPerGB,
    one.algbwGBps.toFixed(2),
    one.latencyUs.toFixed(2),
    why(one),
  ]);
  const head = ["OPERATION", "S/GB", "ALGBW GB/S", "LATENCY US", "WHAT BINDS"];
  const lines = [
    `No schedule over these ${ranks.length} ranks is faster, by bandwidth and by latency (roots are rank 0; rates are the links' own):`,
    table(head, rows, [false, true, true, true, false]),
  ];
  if (multicast !== undefined)
    lines.push(
      `If ${multicast.switch} multicasts and reduces (NVLS, SHARP; not counted on above): all_reduce ${multicast.time} s/GB by switch-all-reduce; nothing is faster than ${multicast.bound} even so.`,
    );
  if (leftOut.length > 0) lines.push(`Left out for time: ${leftOut.join(", ")}; \`chorale synth\` finds the bound.`);
  return `${lines.join("\n")}\n`;
}
