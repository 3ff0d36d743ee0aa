import { describe, expect, it } from "vitest";
import { parseSystem } from "../../machine/topology/index.ts";
import { MODEL_PRESETS, modelPreset } from "../model/presets.ts";
import { parsePlan, type ShardingPlan } from "../plan.ts";
import { type PlanRequest, planModel } from "../plan-model.ts";
import { withoutDevices } from "../what-if.ts";
import { EXPORT_TARGETS, EXPORT_VERSIONS, exportPlan, FLAGS, renderExport, visibleDevices } from "./export.ts";
import { HUB_PRESETS, hubId } from "./hub-ids.ts";

function plan(model: string, hardware: string, more: Partial<PlanRequest> = {}): ShardingPlan {
  const inventory = parseSystem(hardware);
  if (inventory === undefined) throw new Error(`no preset ${hardware}`);
  const [best] = planModel({ model: modelPreset(model), inventory, ...more }).plans;
  if (best === undefined) throw new Error("no plan");
  return best;
}

const served = plan("llama-3.1-70b", "hgx-h100-8", {
  quant: "fp8",
  batch: 32,
  constrain: { tp: 4, pp: 2, dp: 1 },
  kv: "fp8",
  contextTokens: 4096,
});
const trained = plan("llama-3.1-8b", "hgx-h100-8", {
  train: "full",
  constrain: { tp: 2, pp: 2, dp: 2 },
  zeroStage: 1,
  batch: 64,
  contextTokens: 4096,
});
const wide = plan("llama-3.1-8b", "2x hgx-h100-8", {
  train: "full",
  constrain: { tp: 1, pp: 1, dp: 16 },
  zeroStage: 3,
  batch: 64,
  contextTokens: 4096,
});

/** With all that a server can be asked for, and all that a trainer can. */
const asked = plan("qwen3-8b", "hgx-h100-8", {
  constrain: { tp: 2, pp: 1, dp: 1, cp: 1 },
  gpuMemoryUtilization: 0.9,
  speculation: { tokens: 3, acceptance: 0.7 },
  prefillChunkTokens: 2048,
  prefixHits: 0.5,
  contextTokens: 65_536,
  forceContext: true,
});
const spread = plan("deepseek-v3", "hgx-h200-8", {
  constrain: { tp: 1, ep: 8, pp: 1, dp: 1 },
  batch: 8,
  contextTokens: 4096,
  expertOverlap: 0.5,
  kv: "fp8",
});
const offloaded = plan("llama-3.1-8b", "hgx-h100-8", {
  train: "full",
  constrain: { tp: 2, pp: 1, dp: 4 },
  zeroStage: 1,
  trainPrecision: "fp8",
  offload: "optimizer",
  checkpointing: "full",
  contextTokens: 4096,
});

/** Words that look like flags. */
const flagsOf = (command: string) => command.split(/\s+/).filter((word) => /^--?[a-zA-Z]/.test(word));

describe("export", () => {
  it("vLLM", () => {
    expect(exportPlan(served, "vllm", { modelPath: "meta-llama/Llama-3.1-70B" }).command).toBe(
      "vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4 --pipeline-parallel-size 2 --max-model-len 4096 --max-num-seqs 32 --quantization fp8 --kv-cache-dtype fp8",
    );
  });

  it("vLLM gets an uneven split by its environment variable", () => {
    const uneven = plan("llama-3.1-8b", "hgx-h100-8", {
      constrain: { tp: 1, pp: 3, dp: 1 },
      batch: 3,
      contextTokens: 4096,
    });
    const counts = [0, 1, 2].map((stage) => {
      const rank = uneven.ranks[stage];
      return rank === undefined ? 0 : rank.layers.end - rank.layers.first;
    });
    expect(counts.reduce((a, b) => a + b, 0)).toBe(32);
    expect(exportPlan(uneven, "vllm").env).toEqual({ VLLM_PP_LAYER_PARTITION: counts.join(",") });
  });

  it("SGLang, on several hosts", () => {
    expect(exportPlan(served, "sglang", { modelPath: "m", numHosts: 2 }).command).toBe(
      "python -m sglang.launch_server --model-path m --tp-size 4 --pp-size 2 --context-length 4096 --max-running-requests 32 --quantization fp8 --kv-cache-dtype fp8_e4m3 --nnodes 2 --node-rank $NODE_RANK --dist-init-addr $HEAD_ADDRESS:20000",
    );
  });

  it("vLLM on several hosts needs Ray, for replicas too", () => {
    const command = (dp: number) =>
      exportPlan(
        plan("llama-3.1-8b", "2x hgx-h100-8", { constrain: { tp: 8, pp: 2 / dp, dp }, batch: 2, contextTokens: 4096 }),
        "vllm",
        { numHosts: 2 },
      );
    expect(command(1).command).toMatch(/--distributed-executor-backend ray$/);
    expect(command(2).command).toMatch(/--distributed-executor-backend ray --data-parallel-backend ray$/);
    expect(command(1).notes.join()).toContain("Ray cluster of the 2 hosts");
    expect(exportPlan(served, "vllm").command).not.toContain("ray");
  });

  it("shows the engine the plan's devices where they are not the first ones", () => {
    const whole = parseSystem("hgx-h100-8");
    if (whole === undefined) throw new Error("no preset");
    const inventory = withoutDevices(whole, "gpu1");
    const [best] = planModel({ model: modelPreset("llama-3.1-8b"), inventory, constrain: { tp: 4 } }).plans;
    if (best === undefined) throw new Error("no plan");
    const env = visibleDevices(best, inventory);
    expect(env).toEqual({ CUDA_VISIBLE_DEVICES: best.ranks.map((rank) => rank.deviceId.slice(3)).join(",") });
    expect(env["CUDA_VISIBLE_DEVICES"]?.split(",")).not.toContain("1");
    expect(exportPlan(best, "vllm", { env }).env).toEqual(env);
    expect(visibleDevices(served, whole)).toEqual({});
  });

  it("TensorRT-LLM", () => {
    const { command, files, notes } = exportPlan(served, "tensorrt-llm", { modelPath: "m" });
    expect(command).toBe(
      "trtllm-serve m --tp_size 4 --pp_size 2 --max_batch_size 32 --max_seq_len 4096 --extra_llm_api_options llm-api.yml",
    );
    expect(files).toEqual({ "llm-api.yml": "kv_cache_config:\n  dtype: fp8\n" });
    // No flag quantizes weights: a reader must know that the checkpoint has to be fp8 itself.
    expect(notes[0]).toBe("the checkpoint itself must be in fp8 (ModelOpt)");
  });

  it("Megatron-LM", () => {
    const { command } = exportPlan(trained, "megatron-lm");
    expect(command).toContain(
      "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2",
    );
    expect(command).toContain("--group-query-attention --num-query-groups 8");
    expect(command).toContain("--use-distributed-optimizer --sequence-parallel");
  });

  it("DeepSpeed writes its config file", () => {
    const { command, files } = exportPlan(wide, "deepspeed", { numHosts: 2 });
    expect(command).toBe("deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed_config ds_config.json");
    expect(JSON.parse(files["ds_config.json"] ?? "")).toEqual({
      train_micro_batch_size_per_gpu: 4,
      gradient_accumulation_steps: 1,
      bf16: { enabled: true },
      optimizer: { type: "AdamW" },
      data_types: { grad_accum_dtype: "bf16" },
      zero_optimization: { stage: 3, overlap_comm: true },
    });
  });

  it("torchrun", () => {
    expect(exportPlan(wide, "torchrun", { numHosts: 2 }).command).toBe(
      "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint $HEAD_ADDRESS:29500 --rdzv-id chorale script.py",
    );
  });

  it("llama.cpp keeps its cache in f16, its default, unless another is asked for", () => {
    for (const quant of ["bf16", "f32", "q4_k_m"]) {
      const own = plan("llama-3.1-8b", "h100", { engine: "llama.cpp", quant, contextTokens: 4096 });
      expect(own.workload.kvFormat, quant).toBe("f16");
      expect(exportPlan(own, "llama.cpp").command, quant).not.toContain("--cache-type");
    }
    const chosen = plan("llama-3.1-8b", "m3-max", { contextTokens: 4096 });
    expect([chosen.workload.engine, chosen.workload.kvFormat]).toEqual(["llama.cpp", "f16"]);
    const asked = plan("llama-3.1-8b", "h100", { engine: "llama.cpp", kv: "bf16", contextTokens: 4096 });
    expect(exportPlan(asked, "llama.cpp").command).toMatch(/ --cache-type-k bf16 --cache-type-v bf16$/);
  });

  it("llama.cpp splits by layers or by rows", () => {
    const piped = plan("llama-3.1-70b", "l40s-8", {
      quant: "q4_k_m",
      constrain: { tp: 1, pp: 2, dp: 1 },
      batch: 2,
      kv: "int8",
      contextTokens: 4096,
    });
    expect(exportPlan(piped, "llama.cpp", { modelPath: "llama.gguf" }).command).toMatch(
      /^llama-server -m llama\.gguf -ngl 81 --split-mode layer --tensor-split \d+,\d+ -c 8192 -np 2 -fa --cache-type-k q8_0 --cache-type-v q8_0$/,
    );
    const rows = plan("llama-3.1-70b", "l40s-8", {
      quant: "q4_k_m",
      constrain: { tp: 2, pp: 1, dp: 1 },
      contextTokens: 4096,
    });
    expect(exportPlan(rows, "llama.cpp", { modelPath: "llama" }).command).toContain(
      "--split-mode row --tensor-split 1,1",
    );
  });

  it("chorale's own launch line comes with the plan, which reads back", () => {
    const dense = plan("llama-3.1-70b", "hgx-h100-8", { constrain: { tp: 4, pp: 2, dp: 1 }, contextTokens: 4096 });
    const { command, files } = exportPlan(dense, "chorale", { modelPath: "my model" });
    expect(command).toContain(
      "chorale launch -n 8 examples/sharded-llama/main.ts -- --model 'my model' --plan plan.json",
    );
    expect(parsePlan(JSON.parse(files["plan.json"] ?? ""))).toEqual(dense);
  });

  it("writes only flags that the named version has", () => {
    for (const target of EXPORT_TARGETS) {
      expect(EXPORT_VERSIONS[target]).toMatch(/\d/);
      for (const candidate of [
        served,
        trained,
        wide,
        asked,
        spread,
        offloaded,
        plan("deepseek-v3", "hgx-h200-8", { objective: "throughput" }),
      ]) {
        let command: string;
        try {
          command = exportPlan(candidate, target, { numHosts: 2 }).command;
        } catch {
          continue;
        }
        // Megatron is started by torchrun.
        const known: readonly string[] =
          target === "megatron-lm" ? [...FLAGS[target], ...FLAGS.torchrun] : FLAGS[target];
        const own = command
          .replace(/^python -m \S+/, "")
          .replace(/'[^']*'/g, "JSON")
          .split(" -- ");
        expect(
          own.flatMap(flagsOf).filter((flag) => !known.includes(flag)),
          `${target}: ${command}`,
        ).toEqual([]);
      }
    }
  });

  it("refuses what an engine cannot do, saying what to constrain", () => {
    expect(() => exportPlan(trained, "vllm")).toThrow(/is for inference/);
    expect(() => exportPlan(served, "deepspeed")).toThrow(/is for training/);
    expect(() => exportPlan(trained, "deepspeed")).toThrow(/--constrain pp=1/);
    const both = { quant: "q4_k_m", constrain: { tp: 4, pp: 2, dp: 1 }, contextTokens: 4096 };
    expect(() => exportPlan(plan("llama-3.1-70b", "hgx-h100-8", both), "llama.cpp")).toThrow(/not both/);
    expect(() => exportPlan(plan("llama-3.1-8b", "l4", { quant: "fp8", contextTokens: 512 }), "llama.cpp")).toThrow(
      /weights in fp8 .*q4_k_m/,
    );
    expect(() => exportPlan(wide, "megatron-lm")).toThrow(/--zero 1/);
    expect(() => exportPlan(plan("llama-3.1-8b", "l4", { quant: "q4_k_m", contextTokens: 512 }), "vllm")).toThrow(
      /weights in q4_k_m/,
    );
    const dense = plan("llama-3.1-8b", "h100", { quant: "mxfp4", contextTokens: 512 });
    expect(() => exportPlan(dense, "vllm")).toThrow(/mxfp4 of a dense model/);
    expect(exportPlan(plan("gpt-oss-20b", "h100", { contextTokens: 512 }), "vllm").command).toContain("vllm serve");
    expect(() => exportPlan(served, "ollama")).toThrow(/vllm, sglang/);
    expect(renderExport(exportPlan(wide, "deepspeed"))).toContain("# ds_config.json:");
  });
});

describe("Hub ids", () => {
  it("are those of presets, and an id of the user's stays", () => {
    expect(HUB_PRESETS.filter((name) => !MODEL_PRESETS.includes(name))).toEqual([]);
    expect(hubId("llama-3.1-70b", "llama-3.1-70b")).toBe("meta-llama/Llama-3.1-70B-Instruct");
    expect(hubId("RedHatAI/Qwen3-32B-FP8-dynamic", "qwen3-32b")).toBe("RedHatAI/Qwen3-32B-FP8-dynamic");
    expect(hubId("70B", "70B")).toBeUndefined();
  });
});
