/**
 * What a schedule takes at a finite size, when its data is cut into pieces that follow each other. Along trees of height H, p
 * pieces take at most (p + H - 1) * (latency + fluid / p), least at p = sqrt((H - 1) * fluid / latency), where it is about
 * (sqrt(fluid) + sqrt((H - 1) * latency))^2. `waveTimeUs` has the exact form for a schedule: in the first and last waves only
 * some of its hops are busy.
 */

import { checkNetwork } from "./network.ts";
import { pathWays } from "./path-program.ts";
import { Rational } from "./rational.ts";
import { hopsOf } from "./schedule-hops.ts";
import type { Synthesis } from "./synthesize.ts";

/** The best number of pieces, 1 to `most`. @param fluidUs the time by bandwidth alone; @param latencyUs of one step */
export function piecesFor(height: number, latencyUs: number, fluidUs: number, most = 64): number {
  if (height <= 1 || !(latencyUs > 0)) return 1;
  return Math.min(most, Math.max(1, Math.round(Math.sqrt(((height - 1) * fluidUs) / latencyUs))));
}

/** Time with a number of pieces, us. */
export function pipelinedTime(height: number, latencyUs: number, fluidUs: number, pieces: number): number {
  return (pieces + Math.max(height, 1) - 1) * (latencyUs + fluidUs / pieces);
}

/**
 * Time of a schedule in waves, us: in wave w piece k takes the hops of step w - k, and a wave takes a latency and what its
 * busiest link needs. Data that does not wait for the others of its wave may be done before.
 * @param latencyUs of one step
 */
export function waveTimeUs(
  { network, schedule }: Synthesis,
  sizeBytes: number,
  pieces: number,
  latencyUs: number,
): number {
  const net = checkNetwork(network);
  const numbers = new Map(net.ranks.map((node, rank) => [net.ids[node] as string, rank]));
  const rankOf = (id: string) => numbers.get(id) as number;
  const edgeOf = new Map(net.edges.map(({ from, to }, edge) => [from * net.ids.length + to, edge]));
  /** By edge and step, for how long all the data of the step keeps it busy. */
  const busy: number[][] = net.edges.map(() => []);
  let numSteps = 0;
  const add = (way: readonly string[], step: number, share: number): void => {
    numSteps = Math.max(numSteps, step + 1);
    for (let i = 1; i < way.length; i++) {
      const [from, to] = [net.indexOf.get(way[i - 1] as string), net.indexOf.get(way[i] as string)] as [number, number];
      const edge = edgeOf.get(from * net.ids.length + to) as number;
      const steps = busy[edge] as number[];
      const us = (share * sizeBytes) / ((net.edges[edge]?.capacity.toNumber() as number) * 1000);
      steps[step] = (steps[step] ?? 0) + us;
    }
  };
  if (schedule.kind === "trees") {
    for (const tree of schedule.trees) {
      const share = Rational.parse(tree.weight).toNumber();
      for (const { way, step } of hopsOf(tree, rankOf).hops) add(way, step, share);
    }
  } else {
    const ways = pathWays(schedule.paths, rankOf);
    for (const [i, { weight }] of schedule.paths.entries()) {
      for (const [step, way] of (ways[i] as (readonly string[])[]).entries())
        add(way, step, Rational.parse(weight).toNumber());
    }
  }
  let time = (pieces + numSteps - 1) * latencyUs;
  for (let wave = 0; wave < pieces + numSteps - 1; wave++) {
    const first = Math.max(0, wave - pieces + 1);
    let longest = 0;
    for (const steps of busy) {
      let sum = 0;
      for (let step = first; step <= Math.min(wave, numSteps - 1); step++) sum += steps[step] ?? 0;
      longest = Math.max(longest, sum);
    }
    time += longest / pieces;
  }
  return time;
}
