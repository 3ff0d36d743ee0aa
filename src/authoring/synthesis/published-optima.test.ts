import { describe, expect, it } from "vitest";
import { publishedNetwork, publishedTopologies } from "../../../test/support/published-topologies.ts";
import { spread } from "../../../test/support/spread.ts";
import { type CertifiedCollective, checkCertificate } from "../certificate/index.ts";
import { breadthFirst } from "./breadth-first.ts";
import { certify } from "./certify.ts";
import { gatherBound, rationalOf } from "./cut-bounds.ts";
import { unitsForTrees } from "./forest.ts";
import { checkNetwork } from "./network.ts";
import { Rational } from "./rational.ts";
import { scaleNetwork } from "./scaled-graph.ts";
import { synthesize } from "./synthesize.ts";

/** Those of more than 16 ranks take most of the time. `CHORALE_SYNTHESIS=all` runs all; else a fifth of the others. */
const isFull = process.env.CHORALE_SYNTHESIS === "all";
const tried = isFull
  ? publishedTopologies
  : spread(
      publishedTopologies.filter(({ ranks }) => ranks <= 16),
      5,
    );

describe.each(tried)("$name", (published) => {
  const network = publishedNetwork(published);
  const { ranks } = checkNetwork(network);
  const rootOf = (id: string) => ranks.indexOf(checkNetwork(network).indexOf.get(id) as number);
  const ofAll = (text: string) => Rational.parse(text).over(new Rational(BigInt(ranks.length)));

  const expected: [CertifiedCollective, Rational, number?][] = [
    ["all_gather", ofAll(published.allgather.inv_x)],
    ["reduce_scatter", ofAll(published.reducescatter.inv_x)],
    ["broadcast", Rational.parse(published.broadcast.time_per_GB), rootOf(published.broadcast.root)],
    ["reduce", Rational.parse(published.reduce.time_per_GB), rootOf(published.reduce.root)],
    ["scatter", ofAll(published.scatter.lam_per_block), rootOf(published.scatter.root)],
    ["gather", ofAll(published.scatter.lam_per_block), rootOf(published.scatter.root)],
    ["all_reduce", Rational.parse(published.allreduce_time_per_GB.lower_bound)],
    ...(published.alltoall === undefined
      ? []
      : [["all_to_all", ofAll(published.alltoall.theta)] as [CertifiedCollective, Rational]]),
  ];

  it.each(expected)(
    "%s has the published optimum, a schedule that reaches it and a certificate",
    async (collective, optimum, root = 0) => {
      const result = await synthesize(network, collective, { root });
      // One-way links: no bound for all-reduce is known to be reached there, and gathering is no mirror of scattering.
      const oneWay = published.name === "teccl_dgx2_x2" && (collective === "all_reduce" || collective === "gather");
      if (!oneWay) expect(`${result.bound}`).toBe(`${optimum}`);
      expect(result.isOptimal || oneWay).toBe(true);
      expect(result.height).toBeGreaterThanOrEqual(result.heightBound);
      if (result.isOptimal)
        expect(checkCertificate(JSON.parse(JSON.stringify(certify(result))))).toMatchObject({ ok: true, faults: [] });
    },
    60_000,
  );

  it.runIf(published.bfb)("has the published steps of a breadth-first schedule", () => {
    const graph = scaleNetwork(checkNetwork(network));
    const { steps, height } = breadthFirst(
      graph,
      graph.ranks.map(() => 1),
    );
    const times = steps.map((step) => rationalOf(step).over(graph.unit).toString());
    expect({ steps: height, per_step: times }).toEqual({
      steps: published.bfb?.steps,
      per_step: published.bfb?.per_step,
    });
  });

  it.each(["all_gather", "all_reduce", "all_to_all"] as const)(
    "has a schedule of the fewest steps for %s",
    async (collective) => {
      if (collective === "all_to_all" && published.alltoall === undefined) return;
      const fewest = await synthesize(network, collective, { fewestSteps: true });
      expect(fewest.time.compare(fewest.bound)).toBeGreaterThanOrEqual(0);
      if (collective === "all_reduce") expect(fewest.height).toBeGreaterThanOrEqual(fewest.heightBound);
      else if (!fewest.isOptimal) expect(fewest.height).toBe(fewest.heightBound);
      if (published.bfb) expect(fewest.height).toBe(published.bfb.steps * (collective === "all_reduce" ? 2 : 1));
      // No step is skipped for lack of links: spread over the steps, the time is at most the sum of the steps' times.
      if (published.bfb && collective === "all_gather")
        expect(fewest.time.compare(ofAll(published.bfb.inv_x))).toBeLessThanOrEqual(0);
      if (fewest.isOptimal) expect(checkCertificate(certify(fewest)).faults).toEqual([]);
    },
  );

  it("has the published times with few trees", () => {
    const graph = scaleNetwork(checkNetwork(network));
    const weights = graph.ranks.map(() => 1);
    const bound = gatherBound(graph, weights);
    const times = Object.keys(published.fixed_k).map((k) => {
      const { time } = unitsForTrees(graph, weights, Number(k), bound);
      return [k, new Rational(BigInt(time.above), BigInt(time.below)).over(graph.unit).toString()];
    });
    expect(Object.fromEntries(times)).toEqual(published.fixed_k);
  });
});
