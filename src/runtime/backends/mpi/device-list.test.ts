/** How the environment names the ranks' devices. Calls on them: test/e2e/mpi.test.ts. */
import { describe, expect, it } from "vitest";
import { devicesOfEnvironment } from "./device-list.ts";

describe("CHORALE_MPI_DEVICES", () => {
  const read = (CHORALE_MPI_DEVICES: string | undefined, ranks = 2) =>
    devicesOfEnvironment(ranks, { CHORALE_MPI_DEVICES });

  it("names a device for each rank, which several may share", () => {
    expect([read("0,1"), read("0, 0"), read("3,2,1"), read(""), read(undefined)]).toEqual([
      [0, 1],
      [0, 0],
      [3, 2, 1],
      undefined,
      undefined,
    ]);
  });

  it.each(["0", "all", "0,,1", "-1,0", "0,1.5"])("refuses %o for two ranks", (said) => {
    expect(() => read(said)).toThrow(/CHORALE_MPI_DEVICES is .*CUDA ordinals, one for each of 2 ranks/);
  });
});
