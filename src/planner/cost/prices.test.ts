/** What is rented for a plan. */
import { describe, expect, it } from "vitest";
import { parseSystem } from "../../machine/topology/index.ts";
import { modelPreset } from "../model/presets.ts";
import { planModel } from "../plan-model.ts";
import { DEFAULT_PRICES, instancesFor, withPrice } from "./prices.ts";

const machine = (text: string) => {
  const found = parseSystem(text);
  if (found === undefined) throw new Error(`no ${text}`);
  return found;
};
const planOn = (hardware: string, more: object = {}) => {
  const inventory = machine(hardware);
  const [plan] = planModel({ model: modelPreset("llama-3.1-70b"), inventory, quant: "fp8", ...more }).plans;
  if (plan === undefined) throw new Error(`no plan on ${hardware}`);
  return { plan, inventory };
};

describe("rentals", () => {
  it("two devices are not paid for as a host of eight where they are rented apart, and idle ones are named where not", () => {
    const { plan, inventory } = planOn("2x h100", { constrain: { tp: 2 } });
    const rentals = instancesFor(plan, inventory);
    const host = rentals.find(({ instance }) => instance.name === "p5.48xlarge");
    expect(host).toMatchObject({ count: 1, idleDevices: 6, pricePerHour: host?.instance.pricePerHour });
    const apart = rentals.find(({ instance }) => instance.perDevice === true);
    expect(apart?.pricePerHour).toBeCloseTo(2 * (apart?.instance.pricePerHour ?? 0), 9);
    expect(rentals[0]?.pricePerHour).toBeLessThan((host?.pricePerHour ?? 0) / 2);
    // What was timed over NVLink is not rented as two hosts of one.
    expect(rentals.some(({ instance }) => instance.name === "p5.4xlarge")).toBe(false);
    const whole = {
      ...DEFAULT_PRICES,
      instances: DEFAULT_PRICES.instances.filter((own) => own.name === "p5.48xlarge"),
    };
    expect(withPrice(plan, inventory, whole).notes.join()).toContain("6 of its devices stay idle");
  });

  it("replicas that never talk may stand on hosts of their own; a trained one may not", () => {
    const served = planOn("2x h200", { constrain: { dp: 2, tp: 1 }, batch: 8 });
    const alone = { ...DEFAULT_PRICES.instances[0], name: "one", part: "h200", numDevices: 1, pricePerHour: 1 };
    const prices = { ...DEFAULT_PRICES, instances: [alone as (typeof DEFAULT_PRICES.instances)[number]] };
    expect(instancesFor(served.plan, served.inventory, prices)[0]).toMatchObject({ count: 2, idleDevices: 0 });
    const trained = planModel({
      model: modelPreset("llama-3.1-8b"),
      inventory: served.inventory,
      train: "lora",
      constrain: { dp: 2, tp: 1 },
    }).plans[0];
    if (trained === undefined) throw new Error("nothing trained");
    expect(instancesFor(trained, served.inventory, prices)).toEqual([]);
  });

  it("an instance of a provider costs what its own row says; where there is no such row, that is said", () => {
    for (const [hardware, provider, name, price] of [
      ["p5.48xlarge", "aws", "p5.48xlarge", 55.04],
      ["a3-highgpu-8g", "gcp", "a3-highgpu-8g", 88.49],
      ["Standard_ND96isr_H100_v5", "azure", "Standard_ND96isr_H100_v5", 98.32],
    ] as const) {
      const { plan, inventory } = planOn(hardware);
      const rows = instancesFor(plan, inventory);
      expect(rows.map(({ instance }) => [instance.provider, instance.name])).toEqual([[provider, name]]);
      const priced = withPrice(plan, inventory);
      expect(priced.estimates.pricePerHour).toBe(price);
      expect(priced.notes.join()).toMatch(new RegExp(`${name}, on-demand, .*as of 20\\d\\d-\\d\\d \\(https:`));
    }
    const two = planOn("2x p5.48xlarge", { constrain: { pp: 2, tp: 8 } });
    expect(withPrice(two.plan, two.inventory).estimates.pricePerHour).toBeCloseTo(2 * 55.04, 9);
    const unknown = planOn("bm.gpu.h100.8");
    const unpriced = withPrice(unknown.plan, unknown.inventory);
    expect(unpriced.estimates.pricePerHour).toBeUndefined();
    expect(unpriced.notes.join()).toContain("price: none is known of bm.gpu.h100.8; --prices FILE");
  });

  it("every row has a source, a date and a part that is known", () => {
    for (const row of DEFAULT_PRICES.instances) {
      expect(row.source).toMatch(/^https:/);
      expect(parseSystem(row.part), row.name).toBeDefined();
    }
  });
});
