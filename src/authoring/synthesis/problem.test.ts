import { describe, expect, it } from "vitest";
import { type CertifiedCollective, checkCertificate, type Network } from "../certificate/index.ts";
import { certify } from "./certify.ts";
import { lowerBound, synthesize } from "./synthesize.ts";

const network: Network = {
  nodes: ["a", "b"].map((id) => ({ id, kind: "rank" })),
  edges: [
    { from: "a", to: "b", capacity: "10" },
    { from: "b", to: "a", capacity: "10" },
  ],
};

describe("shares", () => {
  it.each(["broadcast", "reduce", "all_reduce", "all_to_all"] as CertifiedCollective[])(
    "are refused for %s, where no rank owns a part of the data",
    async (collective) => {
      await expect(lowerBound(network, collective, { shares: ["1/4", "3/4"] })).rejects.toMatchObject({
        code: "INVALID_ARGUMENT",
        argument: "shares",
      });
    },
  );

  it.each(["scatter", "gather"] as const)("of %s are not all the root's, or nothing would move", async (collective) => {
    await expect(lowerBound(network, collective, { shares: ["1", "0"] })).rejects.toThrow("besides the root");
    expect(`${(await lowerBound(network, collective, { root: 1, shares: ["1", "0"] })).bound}`).toBe("1/10");
  });
});

describe("numbers of many digits", () => {
  const edge = (from: string, to: string, capacity: string) => ({ from, to, capacity });

  it("have a partition of all ranks as witness, and a certificate", async () => {
    // A wrong stand-in for an endless capacity once gave parts without ranks here, and a bound above the optimum.
    const primes = [1009, 1013, 1019, 1021];
    const ids = [..."abcdef"];
    const wide: Network = {
      nodes: ids.map((id) => ({ id, kind: "rank" })),
      edges: ids.flatMap((a, i) =>
        ids.slice(i + 1).flatMap((b, j) => {
          const capacity = `${1 + ((i * 7 + j * 11) % 29)}/${primes[(i + j) % 4]}`;
          return [edge(a, b, capacity), edge(b, a, capacity)];
        }),
      ),
    };
    const result = await synthesize(wide, "all_reduce");
    expect(result.isOptimal).toBe(true);
    expect(checkCertificate(certify(result))).toMatchObject({ ok: true, faults: [] });
    const exchange = await synthesize(wide, "all_to_all");
    expect(exchange.time.over(exchange.bound).toNumber()).toBeLessThan(1.0001);
  });

  it("still give trees near the bound where relays have more capacity in than out", async () => {
    const oneWay: Network = {
      nodes: [..."abcd"].map((id) => ({ id, kind: "rank" as const })).concat([{ id: "w", kind: "relay" as never }]),
      edges: [
        ...[..."abcd"].flatMap((id, i) => [edge(id, "w", `${7_654_321 + i}`), edge("w", id, `${5_000_011 * (i + 1)}`)]),
        edge("a", "b", "1000003"),
        edge("b", "a", "999983"),
      ],
    };
    for (const collective of ["all_gather", "reduce_scatter", "broadcast"] as const) {
      const { time, bound } = await synthesize(oneWay, collective);
      expect(time.over(bound).toNumber()).toBeLessThan(1.01);
    }
  });

  it("are refused where flows in doubles would round", async () => {
    const edges = [edge("a", "b", "31.50111"), edge("b", "a", "25.333777")];
    const shares = ["1/1000000007", "1000000006/1000000007"];
    await expect(synthesize({ ...network, edges }, "all_gather", { shares })).rejects.toThrow("fewer digits");
    const long = [edge("a", "b", `1/${2 ** 52 + 1}`), edge("b", "a", `1/${2 ** 52 - 1}`)];
    await expect(synthesize({ ...network, edges: long }, "all_gather")).rejects.toThrow("fewer digits");
    await expect(lowerBound(network, "all_gather", { shares: ["x", "1"] })).rejects.toMatchObject({
      argument: "shares",
    });
  });
});
