import { describe, expect, it } from "vitest";
import { HostAddresses } from "../../memory/index.ts";
import { ChosenCall } from "./chosen-call.ts";
import { measureCollective, rowsOf } from "./host-measurement.ts";
import { type Activity, type CallTarget, SteppedCall } from "./mpi-entry.ts";

/** Stands in for MPI, whose calls end at once. @param made hears of each */
function mpiThatSays(made: string[]): CallTarget {
  const symbol = (name: string) => () => {
    made.push(name);
    return 0;
  };
  const api = { MPI_Ibarrier: symbol("MPI_Ibarrier"), MPI_Iallreduce: symbol("MPI_Iallreduce") };
  const mpi = {
    addresses: new HostAddresses(),
    requests: { take: () => 0, give: () => {}, done: () => true },
    library: { api, handles: { dtypes: {}, ops: {} } },
  };
  return { comm: 0, rank: 0, size: 4, mpi } as unknown as CallTarget;
}

it("stops the call that it times when the group fails", () => {
  const stopped: string[] = [];
  const way = (name: string) => (): Activity => ({
    stepped: true,
    begin: () => {},
    advance: () => name === "mpi",
    stop: () => void stopped.push(name),
  });
  const call = new ChosenCall({
    choose: () => undefined,
    *measure(steps) {
      yield* measureCollective("broadcast", { mpi: way("mpi"), exchange: way("exchange") }, steps, [65536]);
    },
  });
  call.begin(mpiThatSays([]));
  for (let looks = 0; looks < 100; looks++) expect(call.advance()).toBe(false);
  call.stop();
  expect(stopped).toEqual(["exchange"]);
});

it("has the ranks meet before each call that it times", () => {
  const made: string[] = [];
  const way = (name: string) => (): Activity => ({
    stepped: true,
    begin: () => void made.push(name),
    advance: () => true,
  });
  const ways = { mpi: way("mpi"), exchange: way("exchange") };
  const measuring = new SteppedCall(function* (steps) {
    yield* measureCollective("broadcast", ways, steps, [65536]);
  });
  measuring.begin(mpiThatSays(made));
  while (!measuring.advance());
  const calls = made.filter((name) => name === "mpi" || name === "exchange");
  expect(new Set(calls)).toEqual(new Set(["mpi", "exchange"]));
  for (const [i, name] of made.entries())
    if (name === "mpi" || name === "exchange") expect(made[i - 1]).toBe("MPI_Ibarrier");
});

describe("what is measured", () => {
  const sizes = [65_536, 262_144, 1_048_576];
  /** @param takenUs by size: by MPI, by the exchange; the same in each of eight rounds, but for what is told of some */
  const rows = (takenUs: readonly number[], ...others: readonly (readonly [round: number, ...us: number[]])[]) =>
    rowsOf(
      sizes,
      sizes.map((_, i) =>
        Array.from({ length: 8 }, (_, round) => {
          const [, ...told] = others.find(([one]) => one === round) ?? [];
          const [us = 0, exchangeUs = 0] = (told.length > 0 ? told : takenUs).slice(2 * i);
          return { byMpi: 1000 * us, byExchange: 1000 * exchangeUs };
        }),
      ),
    );

  it("has the exchange serve sizes where it is faster by a tenth at both ends", () => {
    const uses = (takenUs: readonly number[]) => rows(takenUs).map(({ use }) => use);
    expect(uses([10, 20, 20, 10, 30, 10])).toEqual(["mpi", "mpi", "exchange", "exchange"]);
    expect(uses([20, 10, 20, 10, 30, 28])).toEqual(["mpi", "exchange", "mpi", "mpi"]);
    expect(rows([20, 10, 20, 10, 30, 28])[1]).toEqual({ fromBytes: 65_536, use: "exchange", timeUs: 10 });
  });

  it("has it serve where it is faster in seven of eight rounds", () => {
    const fast = [20, 10, 20, 10, 20, 10];
    const slow = [20, 21, 20, 21, 20, 21];
    const uses = (...slowRounds: readonly number[]) =>
      rows(fast, ...slowRounds.map((round) => [round, ...slow] as const)).map(({ use }) => use);
    expect(uses(3)).toEqual(["mpi", "exchange", "exchange", "exchange"]);
    expect(uses(3, 7)).toEqual(["mpi", "mpi", "mpi", "mpi"]);
    // One round that something else held up is no gain.
    expect(rows([21, 20, 21, 20, 21, 20], [0, 900, 20, 900, 20, 900, 20])[1]?.use).toBe("mpi");
  });

  it("is MPI's where there was no time for all rounds", () => {
    const fast = Array.from({ length: 8 }, () => ({ byMpi: 20_000, byExchange: 10_000 }));
    expect(rowsOf(sizes, [fast, fast.slice(0, 6), []])).toEqual([
      { fromBytes: 0, use: "mpi" },
      { fromBytes: 65_536, use: "mpi", timeUs: 20 },
      { fromBytes: 262_144, use: "mpi", timeUs: 20 },
      { fromBytes: 1_048_576, use: "mpi" },
    ]);
  });
});
