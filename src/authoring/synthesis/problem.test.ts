import { describe, expect, it } from "vitest";
import type { CertifiedCollective, Network } from "../certificate/index.ts";
import { lowerBound } from "./synthesize.ts";

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
