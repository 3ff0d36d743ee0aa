import { describe, expect, it } from "vitest";
import { ClosedError } from "../../core/index.ts";
import { joinWorld } from "./join.ts";
import { launch } from "./launch.ts";
import { storeOf } from "./world.ts";

describe("the store of a launched world", () => {
  it("counts for all ranks, and outlives a rank and its generation", async () => {
    const module = new URL("../../../test/e2e/ranks/storing.ts", import.meta.url);
    const got = await launch({ ranks: 3, onFailure: "shrink", module, data: { dying: 1 } });
    const told = ["rank 1 failed (generation 1): Error: this rank dies", "ClosedError"];
    expect(got).toEqual(Array(2).fill([true, told, "step 17", "3", 2]));
  });

  it("is there in a world of one, also after its rebuild", async () => {
    const world = await joinWorld();
    await storeOf(world).set("k", "v");
    const next = await world.rebuild();
    expect(() => storeOf(world)).toThrow(ClosedError);
    expect(await storeOf(next).find("k")).toBe("v");
    await storeOf(next).barrier("alone");
    await next.close();
  });
});
