/** `chorale plan --export` and the advice around it, as a person calls it. */
import { describe, expect, it } from "vitest";
import { runCli } from "../helpers/cli.ts";

const plan = async (line: string) => {
  const { code, out, err } = await runCli("plan", ...line.split(" "));
  return { code, text: out + err };
};

describe("chorale plan --export", () => {
  it.each([
    ["llama-3.1-8b --hardware gaudi2 --export tensorrt-llm", /it runs on NVIDIA GPUs .*; here run vllm/],
    ["llama-3.1-8b --hardware trn2 --export llama.cpp --quant q4_k_m", /AWS Trainium2 in llama\.cpp/],
    ["llama-3.1-8b --hardware p40 --export vllm", /compute capability 6\.1\) in vLLM/],
    ["llama-3.1-8b --hardware h100 --engine vllm --export sglang", /vllm, as --engine says/],
    [
      "llama-3.1-8b --hardware h100 --export vllm --kv q8_0",
      /a KV cache in q8_0 in vLLM .*plan with --kv bf16, --kv fp8/,
    ],
  ])("refuses %s", async (line, message) => {
    const { code, text } = await plan(line);
    expect([code, text]).toEqual([2, expect.stringMatching(message)]);
  });

  it("compares machines of which an engine runs on some", async () => {
    const { code, text } = await plan("llama-3.1-8b --hardware mi300x,h100 --engine tensorrt-llm --context 4k");
    expect(code).toBe(0);
    expect(text).toMatch(/h100 +yes[^\n]*\nmi300x +no .*it runs on NVIDIA GPUs/);
  });

  it("lists engines with their devices", async () => {
    expect((await plan("--list engines")).text).toMatch(
      /tensorrt-llm +TensorRT-LLM [\d.]+: NVIDIA GPUs from .* 8\.0\n/,
    );
  });

  it.each([
    ["Qwen/Qwen3-8B-GGUF", "llama.cpp", "", "-hf Qwen/Qwen3-8B-GGUF:Q4_K_M"],
    ["Qwen/Qwen3-8B-GGUF", "llama.cpp", "--quant q8_0", "-hf Qwen/Qwen3-8B-GGUF:Q8_0"],
    ["qwen3-8b", "llama.cpp", "--quant q4_k_m", "-hf Qwen/Qwen3-8B-GGUF:Q4_K_M"],
    ["Qwen/Qwen3-8B", "llama.cpp", "--quant q4_k_m", "-hf Qwen/Qwen3-8B-GGUF:Q4_K_M"],
    ["openai/gpt-oss-20b", "llama.cpp", "", "-hf ggml-org/gpt-oss-20b-GGUF:MXFP4"],
    ["qwen3-8b", "llama.cpp", "--quant q3_k_m", "convert Qwen/Qwen3-8B to Qwen3-8B-q3_k_m.gguf first"],
    ["Qwen/Qwen3-8B-AWQ", "vllm", "", "vllm serve Qwen/Qwen3-8B-AWQ --max-model-len"],
    ["qwen3-8b", "vllm", "--quant awq", "vllm serve Qwen/Qwen3-8B-AWQ --max-model-len"],
    [
      "Qwen/Qwen3-8B",
      "vllm",
      "--quant awq",
      "Qwen/Qwen3-8B is not in awq-4-g128: quantize it into ./Qwen3-8B-awq-4-g128",
    ],
    ["qwen3-8b", "vllm", "--quant gptq", "quantize it into ./Qwen3-8B-gptq-4-g128 first"],
    ["Qwen/Qwen3-8B", "vllm", "--quant fp8", "vllm serve Qwen/Qwen3-8B --max-model-len"],
    ["qwen3-8b", "tensorrt-llm", "--quant awq", "trtllm-serve Qwen/Qwen3-8B-AWQ"],
  ])("names the checkpoint of %s for %s %s", async (model, target, more, text) => {
    const at = `${model} --hardware rtx4090 --context 4k --export ${target}`;
    const answer = await plan(more === "" ? at : `${at} ${more}`);
    expect(answer).toEqual({ code: 0, text: expect.stringContaining(text) });
  });

  it("names a format only where the engine converts to it as it loads", async () => {
    const at = "--hardware rtx4090 --context 4k --export vllm";
    expect((await plan(`Qwen/Qwen3-8B ${at} --quant fp8`)).text).toContain("--quantization fp8");
    expect((await plan(`Qwen/Qwen3-8B-AWQ ${at}`)).text).not.toContain("--quantization");
  });

  it("advises only what the same export takes", async () => {
    for (const line of [
      "llama-3.1-70b --quant q4_k_m --hardware rtx4090 --context 8k --export llama.cpp",
      "llama-3.1-70b --hardware a100 --context 8k --export vllm",
      "llama-3.1-8b --hardware v100 --context 8k --export vllm",
    ]) {
      const { code, out } = await runCli("plan", ...line.split(" "), "--json");
      const { changes } = JSON.parse(out) as { changes: readonly { change: string }[] };
      expect([code, changes.length > 0], line).toEqual([1, true]);
      for (const { change } of changes) {
        expect(change, line).not.toMatch(/--kv fp8/);
        expect((await plan(`${line} ${change}`)).code, `${line} ${change}`).toBe(0);
      }
    }
  });

  it("advises no fp8 where no engine multiplies it or reads it", async () => {
    for (const hardware of ["v100", "m3-pro"]) {
      const line = `llama-3.1-8b --hardware ${hardware} --context 32k --batch 8`;
      const { changes } = JSON.parse((await runCli("plan", ...line.split(" "), "--json")).out) as {
        changes: readonly { change: string }[];
      };
      expect(changes.length, line).toBeGreaterThan(0);
      expect(changes.map(({ change }) => change).join(), line).not.toMatch(/fp8/);
    }
  });

  it("keeps llama.cpp on the one device of a plan, where there are more", async () => {
    const line = "qwen3-4b --hardware hgx-h100-8 --quant q8_0 --context 4k --ranks 1 --export llama.cpp";
    expect((await plan(line)).text).toContain("--split-mode none");
  });

  it("says of a plan that its engine's export would refuse it", async () => {
    const { code, text } = await plan("llama-3.1-8b --hardware hgx-h100-8 --quant fp8 --constrain cp=2 --context 32k");
    expect(code).toBe(0);
    expect(text).toMatch(/note: cannot be exported to \S+ [\d.]+: cp=2 in .*--constrain cp=1/);
  });

  it("leaves memory that a server's pools cannot have", async () => {
    const at = "llama-3.1-8b --hardware h100 --context 4k --objective throughput --export";
    expect((await plan(`${at} vllm`)).text).toContain("--gpu-memory-utilization 0.95");
    expect((await plan(`${at} sglang`)).text).toMatch(/--mem-fraction-static 0\.\d+/);
    expect((await plan(`${at} vllm --gpu-memory-utilization 0.8`)).text).toContain("--gpu-memory-utilization 0.8");
  });

  it("asks for a folder or an id where no Hub id is known", async () => {
    expect((await plan("grok-1 --hardware hgx-h200-8 --context 4k --export vllm --quant fp8")).text).toContain(
      "no Hub id is known here for grok-1",
    );
  });

  it("serves and trains in f16 where the GPUs have no bf16, and says so", async () => {
    const served = await plan("qwen3-4b --hardware t4 --context 2k --export vllm");
    expect(served.text).toMatch(/# these GPUs have no bf16[\s\S]*--dtype float16/);
    const trained = await plan("qwen3-4b --hardware v100 --train lora --context 1k --batch 2 --export deepspeed");
    expect(trained.text).toMatch(/"fp16"[\s\S]*# these GPUs have no bf16/);
  });

  it("gives every launcher of several hosts a place to meet", async () => {
    const at = ["llama-3.1-70b", "--hardware", "4x hgx-h100-8", "--train", "full", "--batch", "256", "--export"];
    expect((await runCli("plan", ...at, "megatron-lm")).out).toContain("--rdzv-endpoint $HEAD_ADDRESS:29500");
    expect((await runCli("plan", ...at, "deepspeed")).out).toContain("--hostfile FILE");
  });

  it("trains within what the trainer has, where the choice is free", async () => {
    const at = "llama-3.1-8b --train full --hardware hgx-h100-8 --export";
    expect((await plan(`${at} megatron-lm --train-precision fp8 --checkpointing full`)).text).toMatch(
      /--fp8-format hybrid --grad-reduce-in-bf16 --optimizer adam --use-distributed-optimizer .*--recompute-granularity full/,
    );
    expect((await plan(`${at} deepspeed --offload all`)).text).toContain('"offload_param"');
    const alone = "qwen3-0.6b --train full --hardware h100 --context 1k --batch 2 --export deepspeed";
    expect((await plan(`${alone} --offload optimizer`)).text).toContain('"offload_optimizer"');
    expect((await plan(`${at} megatron-lm --offload optimizer`)).text).toContain("--optimizer-cpu-offload");
    expect((await plan(`${at} megatron-lm --optimizer muon`)).text).toMatch(/it has Adam and SGD/);
  });
});
