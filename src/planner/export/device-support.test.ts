import { describe, expect, it } from "vitest";
import { parseSystem } from "../../machine/topology/index.ts";
import { modelPreset } from "../model/presets.ts";
import { planModel } from "../plan-model.ts";
import { DEVICE_SUPPORT, enginesFor } from "./device-support.ts";
import { ENGINE_NAMES } from "./engines.ts";
import { exportPlan } from "./export.ts";
import { FORMAT_SOURCES, servesFormat, trainsInFp8 } from "./format-support.ts";

function deviceOf(hardware: string) {
  const device = parseSystem(hardware)?.devices.find(({ family }) => family !== "cpu");
  if (device === undefined) throw new Error(`no accelerator in ${hardware}`);
  return device;
}

describe("devices that engines run on", () => {
  it("each row has a source", () => {
    for (const engine of ENGINE_NAMES) expect(DEVICE_SUPPORT[engine].source, engine).toMatch(/\w{5}/);
    for (const source of Object.values(FORMAT_SOURCES)) expect(source).toMatch(/docs|README/);
  });

  it.each([
    ["h100", "vllm sglang tensorrt-llm deepspeed megatron-lm torchrun llama.cpp chorale pytorch"],
    ["t4", "vllm sglang deepspeed megatron-lm torchrun llama.cpp chorale pytorch"],
    ["v100", "vllm deepspeed megatron-lm torchrun llama.cpp chorale pytorch"],
    ["p40", "deepspeed torchrun llama.cpp pytorch"],
    ["mi300x", "vllm sglang deepspeed torchrun llama.cpp pytorch"],
    ["mi100", "deepspeed torchrun llama.cpp pytorch"],
    ["gaudi2", "vllm deepspeed torchrun pytorch"],
    ["m3-max", "torchrun llama.cpp pytorch"],
    ["trn2", "vllm torchrun pytorch"],
    ["tpu-v5e-8", "vllm pytorch"],
    ["arc-a770", "vllm sglang deepspeed torchrun llama.cpp pytorch"],
  ])("%s: %s", (hardware, engines) => {
    expect(enginesFor(deviceOf(hardware)).join(" ")).toBe(engines);
  });

  it.each([
    // engine, format, where it is served, where it is not
    ["vllm", "fp8", "a100 l4 h100 mi300x gaudi2", "v100 t4 trn2"],
    ["vllm", "awq-4-g128", "t4 h100", "v100 gaudi2"],
    ["sglang", "nvfp4", "b200", "h100 a100"],
    ["tensorrt-llm", "fp8", "l40s h100 b200", "a100"],
    ["tensorrt-llm", "nvfp4", "b200", "h100 a100 rtx3090"],
    // Its published gpt-oss on H100 and H200 is in MXFP4.
    ["tensorrt-llm", "mxfp4", "h100 h200 b200", "a100 l40s"],
    ["tensorrt-llm", "nf4", "", "h100"],
    ["llama.cpp", "q4_k_m", "m3-max mi300x p40", ""],
    ["llama.cpp", "fp8", "", "h100"],
  ] as const)("%s serves %s on %s, not on %s", (engine, format, on, notOn) => {
    for (const name of on.split(" ").filter(Boolean)) {
      expect(servesFormat(engine, "weights", format, deviceOf(name)), name).toBe(true);
    }
    for (const name of notOn.split(" ").filter(Boolean)) {
      expect(servesFormat(engine, "weights", format, deviceOf(name)), name).toBe(false);
    }
  });

  it("FP8 is trained in where there are units for it", () => {
    const names = ["h100", "l40s", "mi300x", "gaudi2", "a100", "v100", "mi210", "m3-max", "trn2"];
    expect(names.filter((name) => trainsInFp8(deviceOf(name)))).toEqual(["h100", "l40s", "mi300x", "gaudi2"]);
  });
});

describe("a plan on devices that an engine does not support", () => {
  const inventory = (hardware: string) => {
    const found = parseSystem(hardware);
    if (found === undefined) throw new Error(hardware);
    return found;
  };
  const model = modelPreset("llama-3.1-8b");

  it("is not exported: the refusal names what the engine runs on, and what runs here", () => {
    const [plan] = planModel({ model, inventory: inventory("mi300x") }).plans;
    if (plan === undefined) throw new Error("no plan");
    expect(plan.hardware).toEqual([{ family: "amd-gpu", name: "AMD Instinct MI300X", arch: "gfx942", count: 1 }]);
    expect(() => exportPlan(plan, "tensorrt-llm")).toThrow(
      "AMD Instinct MI300X in TensorRT-LLM 1.0 is not supported; it runs on NVIDIA GPUs from compute capability 8.0; here run vllm, sglang, llama.cpp",
    );
  });

  it("is not planned for that engine, nor in formats that the hardware lacks", () => {
    const plan = (hardware: string, more: object) => () =>
      planModel({ model, inventory: inventory(hardware), contextTokens: 2048, ...more });
    expect(plan("m3-max", { engine: "tensorrt-llm" })).toThrow(/Apple M3 Max in TensorRT-LLM .*here run llama\.cpp/);
    expect(plan("h100", { engine: "tensorrt-llm", quant: "nvfp4" })).toThrow(/nvfp4 .*H100 .*plan with .*--quant fp8/);
    expect(plan("a100", { engine: "vllm", kv: "fp8" })).toThrow(/a KV cache in fp8 .*A100/);
    const fp8 = { train: "full", trainPrecision: "fp8", batch: 8 };
    expect(plan("8x a100", fp8)).toThrow(/training in fp8 on NVIDIA A100.*--train-precision bf16/);
    expect(plan("m3-max", fp8)).toThrow(/training in fp8 on Apple M3 Max/);
    expect(plan("8x h100", fp8)().plans).toHaveLength(1);
  });

  it("uses the devices that the engine runs on, where there are others too, and says which are left out", () => {
    const [a, b] = [inventory("h100"), inventory("v100")];
    const mixed = {
      ...a,
      devices: [...a.devices, ...b.devices.map((device) => ({ ...device, id: `old-${device.id}` }))],
      topology: {
        ...a.topology,
        nodes: [...a.topology.nodes, ...b.topology.nodes.map((node) => ({ ...node, id: `old-${node.id}`, host: 1 }))],
      },
    };
    const [plan] = planModel({ model, inventory: mixed, engine: "tensorrt-llm" }).plans;
    expect(plan?.hardware?.map(({ name }) => name)).toEqual(["NVIDIA H100 80GB HBM3"]);
    expect(plan?.notes.join()).toContain("left out: Tesla V100");
  });

  it.each([
    ["mi300x", "nvfp4", /weights in nvfp4 on AMD Instinct MI300X .*--quant fp8.*--engine pytorch/],
    ["mi210", "fp8", /weights in fp8 on AMD Instinct MI210/],
    ["v100", "fp8", /weights in fp8 on Tesla V100/],
    ["m3-max", "fp8-block128", /on Apple M3 Max .*q4_k_m/],
    ["gaudi3-8", "q4_k_m", /weights in q4_k_m on HL-325L/],
  ])("on %s, weights in %s are refused where no engine is named and none serves them", (hardware, quant, message) => {
    const request = { model, inventory: inventory(hardware), quant, contextTokens: 2048 };
    expect(() => planModel(request)).toThrow(message);
    expect(planModel({ ...request, engine: "pytorch" }).plans).toHaveLength(1);
  });

  it.each([
    ["v100-32gb", { kv: "fp8" }, /a KV cache in fp8 beside weights in bf16 on Tesla V100.*plan with .*--kv f16/],
    ["h100", { kv: "nvfp4" }, /a KV cache in nvfp4 .* on NVIDIA H100.*plan with --kv bf16, --kv fp8/],
    ["rtx4090", { quant: "q4_k_m", kv: "fp8" }, /beside weights in q4_k_m on .*4090.*--kv q8_0/],
    ["rtx4090", { quant: "fp8", kv: "q8_0" }, /a KV cache in q8_0 beside weights in fp8 /],
    ["m3-max", { quant: "q4_k_m", kv: "fp8" }, /on Apple M3 Max.*--kv q8_0/],
  ] as const)("on %s, %j is refused: no engine serves the two formats together there", (hardware, more, message) => {
    const request = { model, inventory: inventory(hardware), contextTokens: 2048, ...more };
    expect(() => planModel(request)).toThrow(message);
    expect(planModel({ ...request, engine: "pytorch" }).plans).toHaveLength(1);
  });

  it("names another engine where the usual one lacks the format of the cache", () => {
    const request = { model, inventory: inventory("rtx3090"), contextTokens: 2048, kv: "fp8" } as const;
    const [plan] = planModel(request).plans;
    expect(plan?.notes.join()).toMatch(/cannot be exported to vLLM .*another engine can: --engine sglang/);
    expect(planModel({ ...request, engine: "sglang" }).plans[0]?.notes.join()).not.toMatch(/cannot be exported/);
    expect(planModel({ ...request, inventory: inventory("b200"), kv: "nvfp4" }).plans).toHaveLength(1);
  });

  it.each([
    ["v100", { quant: "int8" }, "no engine known here serves weights in int8 on Tesla V100"],
    ["v100-32gb", {}, "these GPUs have no bf16: it serves in float16"],
    ["8x v100", { train: "lora", batch: 8 }, "these GPUs have no bf16: it trains in fp16"],
    ["a100", { quant: "fp8" }, "does not multiply in fp8"],
    ["h100", { quant: "nvfp4" }, "does not multiply in nvfp4"],
  ])("on %s, a plan says what its devices lack: %o", (hardware, more, text) => {
    const [plan] = planModel({ model, inventory: inventory(hardware), contextTokens: 2048, ...more }).plans;
    expect(plan?.notes.join("\n")).toContain(text);
  });

  it.each([
    ["a100", {}],
    ["h100", { quant: "fp8" }],
    ["b200", { quant: "nvfp4" }],
    ["8x a100", { train: "lora", batch: 8 }],
  ])("on %s, a plan with %o says nothing of the kind", (hardware, more) => {
    const [plan] = planModel({ model, inventory: inventory(hardware), contextTokens: 2048, ...more }).plans;
    expect(plan?.notes.join("\n")).not.toMatch(/these GPUs|does not multiply|no engine known/);
  });
});
