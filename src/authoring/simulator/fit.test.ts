import { describe, expect, it } from "vitest";
import { presetInventory } from "../../machine/topology/index.ts";
import { ALGORITHMS } from "../algorithms/index.ts";
import { compile } from "../language/index.ts";
import {
  fitNcclLL,
  fitParameters,
  type Measurement,
  ncclEstimate,
  ncclMachineOf,
  parseParameters,
  readMeasurements,
  SYSTEMS,
  simulate,
} from "./index.ts";

const inventory = presetInventory("hgx-h200-8");
const base = SYSTEMS["h200"]!;
const plan = (name: string, instances: number) =>
  compile(ALGORITHMS.find((a) => a.name === name)!.make({ numRanks: 4, instances }), { verify: false });
const PLANS = ["one-shot-packet-all-reduce", "two-shot-fused-read-all-reduce", "direct-all-gather"].map((name) => ({
  name,
  plan: plan(name, 2),
}));
/** What a machine of the given constants would measure, off by a known, repeatable few percent. */
function measuredOn(changes: object, noise: number): Measurement[] {
  const parameters = parseParameters({ ...base, ...changes });
  let i = 0;
  return PLANS.flatMap((entry) =>
    [2 ** 10, 2 ** 14, 2 ** 18, 2 ** 20, 2 ** 22, 2 ** 26].map((sizeBytes) => ({
      ...entry,
      sizeBytes,
      timeUs: simulate(entry.plan, { inventory, sizeBytes, parameters }).timeUs * (1 + noise * Math.sin(37 * i++)),
    })),
  );
}

describe("fitting", () => {
  it("promises no more than the measurements confirm: two rows that a constant each explains say nothing of others", () => {
    const all = measuredOn({ fenceUs: 1.4, blockRemoteGBps: 30 }, 0.03);
    const options = { inventory, parameters: base, source: "a test" };
    const two = fitParameters([all[6]!, all[9]!], options);
    expect(two.after.rms).toBeLessThan(0.03);
    expect(two.parameters.uncertainty).toBeGreaterThanOrEqual(base.uncertainty);
    const many = fitParameters(all, options);
    expect(many.parameters.uncertainty).toBeGreaterThanOrEqual(many.after.rms);
    expect(many.parameters.uncertainty).toBeLessThan(3 * many.after.rms);
  });
  it("finds constants again that the measurements determine, within what it claims, and leaves the rest", () => {
    const truth = {
      fenceUs: 1.4,
      latencyUs: { ...base.latencyUs, nvlink: 1.05 },
      storeEfficiency: 0.55,
      efficiency: 0.8,
    };
    const fit = fitParameters(measuredOn(truth, 0.01), { inventory, parameters: base, source: "a test" });
    expect(fit.before.rms).toBeGreaterThan(0.05);
    expect(fit.after.rms).toBeLessThan(0.02);
    const found = new Map(fit.constants.map((value) => [value.constant, value]));
    for (const [constant, value] of [
      ["latencyUs.nvlink", 1.05],
      ["storeEfficiency", 0.55],
      ["efficiency", 0.8],
    ] as const) {
      const { after, uncertainty, determined } = found.get(constant)!;
      expect(determined, constant).toBe(true);
      expect(Math.abs(Math.log(after / value)), `${constant} ${after}`).toBeLessThan(Math.max(0.05, 3 * uncertainty));
    }
    const proxy = found.get("proxyUs")!;
    expect(proxy).toMatchObject({ before: base.proxyUs, after: base.proxyUs, determined: false });
    expect(proxy.uncertainty).toBeGreaterThan(0.6);
    expect(fit.parameters.name).toBe("h200-fitted");
    expect(parseParameters(JSON.parse(JSON.stringify(fit.parameters)))).toEqual(fit.parameters);
    // The rows are what a simulation with the written constants gives.
    const row = fit.rows[4]!;
    const again = simulate(PLANS[0]!.plan, { inventory, sizeBytes: row.sizeBytes, parameters: fit.parameters });
    expect(again.timeUs).toBeCloseTo(row.afterUs, 9);
  });
  it("fits only what it is told to", () => {
    const fit = fitParameters(measuredOn({ launchUs: 2 }, 0), {
      inventory,
      parameters: base,
      source: "a test",
      only: ["launchUs"],
    });
    expect(fit.constants.map((value) => value.constant)).toEqual(["launchUs"]);
    expect(fit.parameters.launchUs).toBeCloseTo(2, 1);
    expect({ ...fit.parameters, name: "", source: "", uncertainty: 0, uncertainties: {}, launchUs: 0 }).toEqual({
      ...base,
      name: "",
      source: "",
      uncertainty: 0,
      uncertainties: {},
      launchUs: 0,
    });
  });
  it("does not follow a row that is far off", () => {
    const rows = measuredOn({}, 0.005);
    const spoilt = rows.map((row, i) => (i === 3 ? { ...row, timeUs: row.timeUs * 5 } : row));
    const fit = fitParameters(spoilt, { inventory, parameters: base, source: "a test" });
    const others = fit.rows.filter((_, i) => i !== 3).map((row) => Math.abs(row.afterUs / row.measuredUs - 1));
    expect(Math.max(...others)).toBeLessThan(0.06);
  });
  it("finds LL's rate from NCCL's all-reduces", () => {
    const machine = { ...ncclMachineOf(inventory, 4, base), llGBps: 180 };
    const rows = [2 ** 10, 2 ** 18, 2 ** 20, 2 ** 21].map((sizeBytes) => ({
      op: "all_reduce",
      backend: "nccl",
      sizeBytes,
      timeUs: ncclEstimate("all_reduce", sizeBytes, machine).timeUs,
    }));
    const fit = fitNcclLL(
      rows,
      () => ncclMachineOf(inventory, 4, base),
      () => 4,
    )!;
    expect(Math.abs(fit.after / 180 - 1)).toBeLessThan(0.01);
    expect(fit.errorAfter.largestRelative).toBeLessThan(0.01);
    expect(
      fitNcclLL(
        [],
        () => machine,
        () => 4,
      ),
    ).toBeUndefined();
  });
  it("says what is missing", () => {
    expect(() => fitParameters([], { inventory, parameters: base, source: "" })).toThrow(/rows whose `plan`/);
    expect(() =>
      fitParameters(measuredOn({}, 0), { inventory, parameters: SYSTEMS["ideal"]!, source: "", only: ["opUs"] }),
    ).toThrow(/constants that the system has/);
    expect(() => readMeasurements({ rows: [] }, "m.json")).toThrow(/m\.json/);
    expect(() =>
      readMeasurements({ rows: [{ op: "all_reduce", plan: "direct-all-gather", sizeBytes: 1, timeUs: 1 }] }, "m.json"),
    ).toThrow(/numRanks/);
    expect(() =>
      readMeasurements({ numRanks: 4, rows: [{ op: "all_reduce", sizeBytes: 4, timeUs: 1 }] }, "m.json", "no-such"),
    ).toThrow(/one of one-shot-all-reduce/);
    expect(
      readMeasurements(
        { numRanks: 4, rows: [{ op: "all_reduce", backend: "nccl", sizeBytes: 4, timeUs: 1 }] },
        "m.json",
      ),
    ).toMatchObject({
      usable: [],
      others: [{ backend: "nccl" }],
    });
  });
});
