import { describe, expect, it } from "vitest";
import { spread } from "../../../test/support/spread.ts";
import { compile } from "../language/index.ts";
import { meshAllReduce, meshReduceScatter, multiRingAllReduce, ringStrides } from "./index.ts";
import { disjointRings } from "./mesh.ts";

describe("algorithms for full meshes", () => {
  it.each([2, 3, 4, 5, 8])(
    "compute what they should on %i ranks, in place and not, in one and two instances",
    (numRanks) => {
      for (const make of [meshAllReduce, multiRingAllReduce, meshReduceScatter])
        for (const [inPlace, instances] of spread(
          [
            [false, 1],
            [true, 1],
            [false, 2],
            [true, 2],
          ] as const,
          numRanks === 8 ? 4 : 1,
        ))
          compile(make({ numRanks, inPlace, instances }));
    },
  );
  it("have rings that share no link", () => {
    expect(ringStrides(8)).toEqual([1, 3, 5, 7]);
    expect(ringStrides(7)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(ringStrides(2)).toEqual([1]);
    for (const n of [3, 5, 8, 12]) {
      const rings = disjointRings(n);
      for (const ring of rings) expect(new Set(ring).size).toBe(n);
      const links = rings.flatMap((ring) => ring.map((rank, i) => `${rank} ${ring[(i + 1) % n]}`));
      expect(new Set(links).size).toBe(links.length);
    }
    // Eight devices (MI300X, Gaudi): every link.
    expect(disjointRings(8)).toHaveLength(7);
  });
});
