import { expect, it } from "vitest";
import { HostAddresses } from "../../memory/index.ts";
import { measureCollective } from "./host-measurement.ts";
import type { Activity, Steps } from "./mpi-entry.ts";

it("has the ranks meet before each call that it times", () => {
  const made: string[] = [];
  const way = (name: string) => (): Activity => ({
    stepped: true,
    begin: () => void made.push(name),
    advance: () => true,
  });
  const begin = (name: string) => () => {
    made.push(name);
    return 0;
  };
  const steps = {
    ...{ comm: 0, rank: 0, size: 4 },
    issue: (symbol: string) => made.push(symbol),
    mpi: {
      addresses: new HostAddresses(),
      requests: { take: () => 0, give: () => {}, done: () => true },
      library: { api: { MPI_Ibarrier: begin("MPI_Ibarrier") }, handles: { dtypes: {}, ops: {} } },
    },
  } as unknown as Steps;
  const ways = { mpi: way("mpi"), exchange: way("exchange") };
  const measuring = measureCollective("broadcast", ways, steps, [65536]);
  while (measuring.next().done !== true);
  const calls = made.filter((name) => name === "mpi" || name === "exchange");
  expect(new Set(calls)).toEqual(new Set(["mpi", "exchange"]));
  for (const [i, name] of made.entries())
    if (name === "mpi" || name === "exchange") expect(made[i - 1]).toBe("MPI_Ibarrier");
});
