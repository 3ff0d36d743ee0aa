import { runConformance, SEMANTIC_CASES } from "chorale/conformance";
import { describe, expect, it } from "vitest";
import { spread } from "../support/spread.ts";
import { FEW, failuresOf } from "./failures.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
console.log(`conformance over tcp: seed ${seed} (CHORALE_SEED=${seed} repeats it)`);

/** `npm run conformance:full -- --backend tcp --isolation process` runs everything, on 1 to 8 ranks. */
describe.skipIf(process.platform === "win32")("tcp backend (needs the C library's sockets)", () => {
  const moving = spread(["processes", "threads"], 2);
  it.runIf(moving.includes("processes"))(
    "moves and reduces as the reference says, between processes",
    { timeout: 300_000 },
    async () => {
      const result = await runConformance({
        backend: "tcp",
        isolation: "process",
        seed,
        only: "data",
        ranks: spread([1, 4, 2], 2),
        filter: "count=uneven",
      });
      expect(failuresOf(result)).toEqual([]);
      expect(result.numPassed).toBeGreaterThan(30);
    },
  );

  it.runIf(moving.includes("threads"))(
    "moves large messages over several connections of each pair, which a second thread writes",
    {
      timeout: 300_000,
    },
    async () => {
      const result = await runConformance({
        backend: "tcp",
        backendOptions: { connections: 3, sendThread: "on" },
        isolation: "thread",
        seed,
        only: "data",
        ranks: [3],
        full: true,
        filter: "f32 sum ranks=3 count=large",
      });
      expect(failuresOf(result)).toEqual([]);
      expect(result.numPassed).toBe(4);
    },
  );

  it("moves and reduces as the reference says with checksums", { timeout: 300_000 }, async () => {
    const result = await runConformance({
      backend: "tcp",
      backendOptions: { checksum: "on", hierarchy: "off" },
      isolation: "thread",
      seed,
      only: "data",
      ranks: [3],
      filter: "f32 sum ranks=3 count=uneven",
    });
    expect(failuresOf(result)).toEqual([]);
    expect(result.numPassed).toBeGreaterThan(3);
  });

  it("behaves as the contract says", { timeout: 600_000 }, async () => {
    const [maxRanks = 5] = spread([3, 5], 2);
    const result = await runConformance({
      backend: "tcp",
      isolation: "thread",
      seed,
      only: "behaviour",
      ...FEW,
      maxRanks,
    });
    expect(failuresOf(result)).toEqual([]);
    const numFitting = SEMANTIC_CASES.filter(({ ranks }) => ranks <= maxRanks).length;
    expect([result.numPassed, result.numSkipped]).toEqual([numFitting, SEMANTIC_CASES.length - numFitting]);
  });
});
