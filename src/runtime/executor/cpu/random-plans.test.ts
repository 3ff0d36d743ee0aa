import { describe, expect, it } from "vitest";
import { randomPlansOnCpu } from "../../../../test/support/random-plans-on-cpu.ts";

describe("random plans on the CPU", () => {
  it("end as the oracle's runs do, bit for bit (150 verified ones here; EXECUTOR_PLANS=2000 for more)", {
    timeout: 3_600_000,
  }, () => {
    const wanted = Number(process.env["EXECUTOR_PLANS"] ?? 150);
    expect(randomPlansOnCpu(wanted, Number(process.env["CHORALE_SEED"] ?? 1)).wrong).toEqual([]);
  });
});
