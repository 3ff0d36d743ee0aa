/** Training that keeps something in host memory, and what is trained on a quantized base. */
import { describe, expect, it } from "vitest";
import { parseSystem } from "../../src/machine/topology/index.ts";
import { loadModel, modelPreset, type PlanRequest, planModel } from "../../src/planner/index.ts";
import { runCli } from "../helpers/cli.ts";

const GIB = 2 ** 30;

function train(hardware: string, more: Partial<PlanRequest> = {}, memoryGiB?: number) {
  const found = parseSystem(hardware);
  if (found === undefined) throw new Error(`no ${hardware}`);
  const devices = found.devices.map((device) =>
    device.family === "cpu" && memoryGiB !== undefined ? { ...device, memoryBytes: memoryGiB * GIB } : device,
  );
  const request = { model: modelPreset("llama-3.1-8b"), train: "full", contextTokens: 2048, batch: 4, ...more };
  return planModel({ ...request, inventory: { ...found, devices }, explainNothing: false });
}

describe("host memory", () => {
  // bf16 weights and gradients, f32 moments and master weights: 16 bytes a parameter, 14 of them without the weights.
  const all = (16 * 8_030_261_248) / GIB;

  it("holds what is offloaded, is printed, and is what is named where it is short", async () => {
    const [plan] = train("h100", { offload: "all" }).plans;
    expect((plan?.memory.host?.bytes ?? 0) / GIB / all).toBeCloseTo(1, 2);
    const [optimizer] = train("h100", { offload: "optimizer" }).plans;
    expect((optimizer?.memory.host?.bytes ?? 0) / GIB / ((14 / 16) * all)).toBeCloseTo(1, 2);
    const { plans, rejected } = train("h100", { offload: "all" }, 100);
    expect(plans).toEqual([]);
    expect(rejected.map(({ reason }) => reason).join()).toMatch(
      /host 0 needs 119\.7 GiB of host memory for what is offloaded; it has 100\.0 GiB/,
    );
    const at = ["llama-3.1-8b", "--train", "full", "--context", "2k", "--batch", "4", "--offload"];
    const { code, out } = await runCli("plan", ...at, "all", "--hardware", "h100");
    expect([code, out]).toEqual([0, expect.stringMatching(/host memory 119\.7 GiB of 2048\.0 GiB/)]);
  });

  it("lets a model that no GPU holds be trained where the host holds it, one layer after the other", () => {
    const model = modelPreset("llama-3.1-70b");
    const [plan] = train("h100", { model, offload: "all" }).plans;
    expect(plan?.memory.host?.bytes).toBeGreaterThan(1000 * GIB);
    // Two passes over 141 GB at 25 GB/s a micro-batch, at least.
    expect(plan?.estimates.kind === "training" && plan.estimates.stepMs).toBeGreaterThan(11_000);
  });

  it("frees nothing where the GPU has no memory of its own", () => {
    expect(train("dgx-spark", { offload: "optimizer" }).rejected[0]?.reason).toMatch(/accelerators have no other/);
  });
});

describe("paged 8-bit Adam", () => {
  it("holds no gradients in one fused pass, and all of them where they are accumulated", () => {
    const gradients = (batch: number) => {
      const request = { batch, microBatch: 1, optimizer: "paged-adamw-8bit", checkpointing: "full" } as const;
      const [plan] = train("h100", request).plans;
      return plan?.ranks[0]?.memory.items.gradients ?? 0;
    };
    expect(gradients(1)).toBe(0);
    expect(gradients(4)).toBeGreaterThan(1.99 * 8e9);
  });
});

describe("LoRA of a checkpoint in 4 bits", () => {
  it("is QLoRA on it", async () => {
    const model = await loadModel("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit");
    const [plan] = train("rtx4090", { model, train: "lora" }).plans;
    expect(plan?.workload).toMatchObject({ method: "qlora", weightFormat: "nf4" });
    expect((plan?.ranks[0]?.memory.items.weights ?? 0) / GIB).toBeLessThan(6);
  });
});

describe("hardware without accelerators", () => {
  it("is not planned on its CPU where they were taken away, unless that is asked for", async () => {
    const at = ["llama-3.2-1b", "--hardware", "rtx4090", "--context", "1k", "--without", "gpu0"];
    const { code, out } = await runCli("plan", ...at);
    expect([code, out]).toEqual([1, expect.stringContaining("no accelerator is left; --allow-cpu plans on the CPU")]);
    expect((await runCli("plan", ...at, "--allow-cpu")).code).toBe(0);
    expect((await runCli("plan", ...at, "--json")).code).toBe(1);
  });
});
