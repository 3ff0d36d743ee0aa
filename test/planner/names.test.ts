/** What people call models and accelerators, and the parameter counts that their cards publish. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { resolveHardware } from "../../src/machine/hardware/index.ts";
import { countParameters, loadModel, modelFromConfig } from "../../src/planner/index.ts";

type Row = [name: string, total: number, active: number | null];
const read = (file: string): unknown => JSON.parse(readFileSync(new URL(file, import.meta.url), "utf8"));
const { models } = read("published-models.json") as { models: readonly Row[] };
const configs = read("published-configs.json") as readonly {
  readonly name: string;
  readonly total: number;
  readonly active: number | null;
  readonly config: unknown;
}[];

describe("models by name", () => {
  // Counts of their cards and files on the Hub.
  it.each([
    ["Qwen/Qwen3-Coder-Next", 80],
    ["MiniMaxAI/MiniMax-M2.5", 229],
    ["mistralai/Devstral-Small-2-24B-Instruct-2512", 24],
    ["open-r1/OlympicCoder-32B", 32.8],
    ["agentica-org/DeepSWE-Preview", 32.8],
    ["utter-project/EuroLLM-9B-Instruct", 9.15],
    ["speakleash/Bielik-11B-v2.3-Instruct", 11.17],
  ] as const)("%s has %d billion parameters within 2 %%", async (name, total) => {
    expect(Math.abs(countParameters(await loadModel(name)).total / (total * 1e9) - 1)).toBeLessThan(0.02);
  });

  it.each([...models])("%s has %d billion parameters within 2 %% (active within 4 %%)", async (name, total, active) => {
    const counts = countParameters(await loadModel(name));
    expect(Math.abs(counts.total / (total * 1e9) - 1)).toBeLessThan(0.02);
    if (typeof active === "number") expect(Math.abs(counts.active / (active * 1e9) - 1)).toBeLessThan(0.04);
  });

  it.each([
    ["Qwen/Qwen3-8B-FP8", "fp8"],
    ["Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "gptq-8-g128"],
    ["Qwen/Qwen3-32B-AWQ", "awq-4-g128"],
    ["nvidia/DeepSeek-R1-0528-NVFP4", "nvfp4"],
    ["bartowski/Llama-3.3-70B-Instruct-GGUF", "q4_k_m"],
    ["llama3.1:8b-instruct-q5_K_M", "q5_k_m"],
    ["mlx-community/Qwen3-30B-A3B-8bit", "mlx-8-g64"],
    ["unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "nf4"],
    ["deepseek-ai/DeepSeek-V3", "fp8-block128"],
    ["llama3.3:70b-instruct-q8_0", "q8_0"],
    ["gemma3:27b-it-q4_0", "q4_0"],
    ["gemma3:27b-it-qat", "q4_0"],
    ["Qwen3-8B-Q4_K_M.gguf", "q4_k_m"],
    // Ollama's library: its tags are Q4_K_M where they name no format, but for what is published in 4 bits or is an encoder.
    ["llama3.1:70b", "q4_k_m"],
    ["gemma3:12b", "q4_k_m"],
    ["qwen3-coder:30b", "q4_k_m"],
    ["llama3.2:latest", "q4_k_m"],
    ["llama3.1:8b-instruct-q8_0", "q8_0"],
    ["llama3.1:8b-instruct-fp16", "f16"],
    ["deepseek-r1:671b", "q4_k_m"],
    ["gpt-oss:20b", "mxfp4"],
    ["bge-m3:latest", "f32"],
    ["hf.co/unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M", "q4_k_m"],
    ["unsloth/Qwen3-30B-A3B-GGUF:UD-Q4_K_XL", "q4_k_m"],
    ["unsloth/Qwen3-30B-A3B-GGUF:UD-Q2_K_XL", "q2_k"],
    ["unsloth/Qwen3-8B-GGUF:BF16", "bf16"],
    ["amd/Llama-3.3-70B-Instruct-MXFP4-Preview", "mxfp4"],
  ])("%s is in %s", async (name, format) => {
    expect((await loadModel(name)).weightFormat).toBe(format);
  });

  it.each([
    ["gemma3:27b", "gemma-3-27b"],
    ["mixtral:8x7b", "mixtral-8x7b"],
    ["mistral-small:latest", "mistral-small-24b"],
    ["openai/gpt-oss-safeguard-20b", "gpt-oss-20b"],
    ["internlm/internlm2_5-7b-chat", "internlm2.5-7b"],
    ["nvidia/Llama-3_1-Nemotron-70B", "llama-3.1-70b"],
    ["deepseek r1", "deepseek-r1"],
    ["Llama 3.1 70B Instruct", "llama-3.1-70b"],
    ["qwen 3 32b", "qwen3-32b"],
    ["gpt oss 120b", "gpt-oss-120b"],
    ["phi4:14b", "phi-4"],
    ["deepseek-r1:7b", "deepseek-r1-distill-qwen-7b"],
    ["deepseek-r1:70b", "deepseek-r1-distill-llama-70b"],
    ["deepseek-r1:671b", "deepseek-r1"],
    ["NousResearch/Hermes-4-405B", "llama-3.1-405b"],
  ])("%s is %s", async (name, preset) => {
    expect((await loadModel(name)).name).toBe(preset);
  });

  it("keeps what a suffix says of the context, the window and the vocabulary", async () => {
    expect((await loadModel("Qwen/Qwen3-4B-Instruct-2507")).contextLength).toBe(262_144);
    expect((await loadModel("Qwen/Qwen3-4B")).contextLength).toBe(40_960);
    expect((await loadModel("Qwen/Qwen2.5-7B-Instruct-1M")).contextLength).toBe(1_010_000);
    expect((await loadModel("Qwen/Qwen2.5-7B-Instruct")).contextLength).toBe(32_768);
    const windowOf = async (name: string) => {
      const attention = (await loadModel(name)).layerKinds[0]?.attention;
      return attention?.kind === "gqa" ? attention.window : undefined;
    };
    expect(await windowOf("mistral-7b")).toBeUndefined();
    expect(await windowOf("mistralai/Mistral-7B-v0.1")).toBe(4096);
    expect((await loadModel("mistralai/Mistral-7B-Instruct-v0.3")).vocabSize).toBe(32_768);
  });

  it("reads a tuned model as the one that its name contains, and says so; refuses a name with two sizes", async () => {
    const tuned = await loadModel("someone/Storm-Llama-3.1-8B");
    expect(tuned.assumptions.join()).toContain("read as llama-3.1-8b");
    await expect(loadModel("someone/llama-3.1-8b-draft-of-70b")).rejects.toThrow(/expected a folder/);
    await expect(loadModel("someone/unheard-of")).rejects.toThrow(/expected a folder/);
  });
});

describe("models by config", () => {
  it.each(configs)("$name has $total billion parameters within 2 %", ({ config, total, active }) => {
    const counts = countParameters(modelFromConfig(config));
    expect(Math.abs(counts.total / (total * 1e9) - 1)).toBeLessThan(0.02);
    if (active !== null) expect(Math.abs(counts.active / (active * 1e9) - 1)).toBeLessThan(0.04);
  });

  const base = configs.find(({ name }) => name === "qwen3-1.7b")?.config as Record<string, unknown>;
  it.each([
    [
      {
        quant_method: "compressed-tensors",
        format: "pack-quantized",
        config_groups: { group_0: { weights: { num_bits: 8, group_size: null } } },
      },
      "awq-8-gchannel",
    ],
    [
      {
        quant_method: "compressed-tensors",
        format: "pack-quantized",
        config_groups: { group_0: { weights: { num_bits: 4, group_size: 32 } } },
      },
      "awq-4-g32",
    ],
    [{ quant_method: "compressed-tensors", format: "nvfp4-pack-quantized" }, "nvfp4"],
    [{ quant_method: "compressed-tensors", format: "float-quantized" }, "fp8"],
    [{ quant_method: "quark", global_quant_config: { weight: { dtype: "fp8_e4m3" } } }, "fp8"],
    [{ quant_method: "quark", global_quant_config: { weight: { dtype: "fp4" } } }, "mxfp4-linear"],
    [{ quant_method: "hqq", quant_config: { weight_quant_params: { nbits: 3, group_size: 64 } } }, "hqq-3-g64"],
    [{ bits: 6, group_size: 32 }, "mlx-6-g32"],
  ])("quantization %j is %s", (quantization_config, format) => {
    expect(modelFromConfig({ ...base, quantization_config }).weightFormat).toBe(format);
  });
});

describe("accelerators by name", () => {
  // Spelling, devices, name, hosts.
  it.each([
    ["h100", 1, "NVIDIA H100 80GB HBM3", 1],
    ["H100 PCIe", 1, "NVIDIA H100 PCIe", 1],
    ["h100-nvl", 1, "NVIDIA H100 NVL", 1],
    ["h200", 1, "NVIDIA H200", 1],
    ["a100-40", 1, "NVIDIA A100-SXM4-40GB", 1],
    ["A100 80GB PCIe", 1, "NVIDIA A100 80GB PCIe", 1],
    ["b200", 1, "NVIDIA B200", 1],
    ["8x h100", 8, "NVIDIA H100 80GB HBM3", 1],
    ["16x H100", 16, "NVIDIA H100 80GB HBM3", 2],
    ["12x h100", 12, "NVIDIA H100 80GB HBM3", 2],
    ["t4", 1, "Tesla T4", 1],
    ["Tesla V100", 1, "Tesla V100-SXM2-16GB", 1],
    ["3090", 1, "NVIDIA GeForce RTX 3090", 1],
    ["4x RTX 4090", 4, "NVIDIA GeForce RTX 4090", 1],
    ["GeForce RTX 4080", 1, "NVIDIA GeForce RTX 4080", 1],
    ["RTX A6000", 1, "NVIDIA RTX A6000", 1],
    ["rtx6000-ada", 1, "NVIDIA RTX 6000 Ada Generation", 1],
    ["RTX PRO 6000", 1, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 1],
    ["h20", 1, "NVIDIA H20", 1],
    ["mi210", 1, "AMD Instinct MI210", 1],
    ["8x mi300x", 8, "AMD Instinct MI300X", 1],
    ["4x gb200", 4, "NVIDIA GB200", 1],
    ["4x L40S", 4, "NVIDIA L40S", 1],
    ["a10g", 1, "NVIDIA A10G", 1],
    ["M4 Max", 1, "Apple M4 Max", 1],
    ["2x hgx-h100-8", 16, "NVIDIA H100 80GB HBM3", 2],
  ])("%s is %d of %s on %d host(s)", async (text, count, name, hosts) => {
    const { devices, topology } = await resolveHardware(text);
    const accelerators = devices.filter((device) => device.family !== "cpu");
    expect(accelerators).toHaveLength(count);
    expect(new Set(accelerators.map((device) => device.name))).toEqual(new Set([name]));
    const own = new Set(accelerators.map((device) => device.id));
    expect(new Set(topology.nodes.filter((node) => own.has(node.id)).map((node) => node.host)).size).toBe(hosts);
  });

  it("a count before a file joins copies of it", async () => {
    await expect(resolveHardware("2x nowhere.json")).rejects.toThrow(/nowhere.json/);
  });
});
