/**
 * Which formats of weights and KV caches an engine serves, by device. A row says for each family of devices the least
 * NVIDIA compute capability or the architectures that have the kernels; formats that no row names are refused.
 */
import { wordTable } from "../../core/index.ts";
import type { Device, Family } from "../../machine/topology/index.ts";
import { deviceText } from "./device-support.ts";
import { type EngineName, engineTitle } from "./engines.ts";

interface FormatRow {
  readonly formats: RegExp;
  /** How one asks for such a format on the command line. */
  readonly option: string;
  /** Least compute capability, or architectures; true: all that the engine runs on. */
  readonly on: Partial<Record<Family, number | RegExp | true>>;
  /** Families that `on` does not name have it too. */
  readonly elsewhere?: true;
}

interface EngineFormats {
  readonly weights: readonly FormatRow[];
  readonly kv: readonly FormatRow[];
  readonly source: string;
}

const row = (formats: RegExp, option: string, on: FormatRow["on"]): FormatRow => ({ formats, option, on });
const everywhere = (formats: RegExp, option: string, on: FormatRow["on"] = {}): FormatRow => ({
  ...row(formats, option, on),
  elsewhere: true,
});

type DeviceKind = Pick<Device, "family" | "name" | "arch">;

/** AMD with FP8 units: MI300, MI350. */
const CDNA3 = /^gfx9(4\d|50)$/;

const ENGINE_FORMATS: Partial<Readonly<Record<EngineName, EngineFormats>>> = {
  vllm: {
    weights: [
      everywhere(/^(bf16|f16|f32)$/, "--dtype bf16"),
      // Below 8.9 weight-only, by Marlin's kernels.
      row(/^fp8(-block128)?$/, "--quant fp8", { "nvidia-gpu": 8, "amd-gpu": /^gfx(9(4\d|50)|12\d\d)$/, gaudi: true }),
      row(/^awq-4-/, "--quant awq-4-g128", { "nvidia-gpu": 7.5, "amd-gpu": true, "intel-gpu": true, cpu: true }),
      row(/^gptq-[2348]-/, "--quant gptq-4-g128", { "nvidia-gpu": 7, "amd-gpu": true, "intel-gpu": true, cpu: true }),
      row(/^int4$/, "--quant int4", { "nvidia-gpu": 8 }),
      row(/^int8$/, "--quant int8", { "nvidia-gpu": 7.5, tpu: true, cpu: true }),
      row(/^nf4$/, "--quant nf4", { "nvidia-gpu": 7 }),
      row(/^mxfp4(-fp8)?$/, "--quant mxfp4", { "nvidia-gpu": 8, "amd-gpu": CDNA3 }),
      row(/^nvfp4$/, "--quant nvfp4", { "nvidia-gpu": 8 }),
    ],
    kv: [
      everywhere(/^(bf16|f16|f32)$/, "--kv bf16"),
      row(/^fp8$/, "--kv fp8", { "nvidia-gpu": 8.9, "amd-gpu": CDNA3, gaudi: true }),
    ],
    source:
      "docs.vllm.ai v0.9.2 to v0.11 features/quantization, supported hardware; get_min_capability of its methods; pull request 24577 and issue 8641 (an FP8 cache below 8.9)",
  },
  sglang: {
    weights: [
      everywhere(/^(bf16|f16|f32)$/, "--dtype bf16"),
      row(/^fp8(-block128)?$/, "--quant fp8", { "nvidia-gpu": 8, "amd-gpu": CDNA3 }),
      row(/^awq-4-/, "--quant awq-4-g128", { "nvidia-gpu": 7.5, "amd-gpu": true }),
      row(/^gptq-[48]-/, "--quant gptq-4-g128", { "nvidia-gpu": 7.5, "amd-gpu": true }),
      row(/^int8$/, "--quant int8", { "nvidia-gpu": 7.5, "amd-gpu": true, cpu: true }),
      row(/^nf4$/, "--quant nf4", { "nvidia-gpu": 7.5 }),
      row(/^mxfp4(-fp8)?$/, "--quant mxfp4", { "nvidia-gpu": 8, "amd-gpu": CDNA3 }),
      row(/^nvfp4$/, "--quant nvfp4", { "nvidia-gpu": 10 }),
    ],
    kv: [everywhere(/^(bf16|f16|f32)$/, "--kv bf16"), row(/^fp8$/, "--kv fp8", { "nvidia-gpu": 8, "amd-gpu": CDNA3 })],
    source: "SGLang docs advanced_features/quantization (platform compatibility) and server_arguments",
  },
  "tensorrt-llm": {
    weights: [
      row(/^(bf16|f16)$/, "--dtype bf16", { "nvidia-gpu": 8 }),
      row(/^fp8$/, "--quant fp8", { "nvidia-gpu": 8.9 }),
      // Hopper, and data-centre Blackwell by MXFP8.
      row(/^fp8-block128$/, "--quant fp8-block128", { "nvidia-gpu": 9 }),
      row(/^(awq|gptq)-4-/, "--quant awq-4-g128", { "nvidia-gpu": 8 }),
      // On Hopper the weights alone: its perf-overview has gpt-oss on H100 and H200.
      row(/^mxfp4$/, "--quant mxfp4", { "nvidia-gpu": 9 }),
      row(/^nvfp4$/, "--quant nvfp4", { "nvidia-gpu": 10 }),
    ],
    kv: [row(/^(bf16|f16)$/, "--kv bf16", { "nvidia-gpu": 8 }), row(/^fp8$/, "--kv fp8", { "nvidia-gpu": 8 })],
    source: "TensorRT-LLM 1.0 docs features/quantization, hardware support matrix",
  },
  "llama.cpp": {
    weights: [
      everywhere(/^(f32|f16|bf16)$/, "--dtype bf16"),
      everywhere(/^(mxfp4|i?t?q\d.*)$/, "--quant q8_0, q6_k, q4_k_m, …"),
    ],
    kv: [
      everywhere(/^(f32|f16|bf16)$/, "--kv f16"),
      everywhere(/^(q8_0|q5_1|q5_0|q4_1|q4_0|int8|int4)$/, "--kv q8_0 or q4_0"),
    ],
    source: "llama.cpp tools/server/README.md (--cache-type-k); ggml's types",
  },
  chorale: {
    weights: [everywhere(/^(f32|f16|bf16)$/, "--dtype bf16")],
    kv: [everywhere(/^(f32|f16|bf16)$/, "--kv f32")],
    source: "examples/sharded-llama/README.md",
  },
};

/** NVIDIA's GPUs before Ampere multiply in f16 and not in bf16. */
export const lacksBf16 = ({ family, arch }: DeviceKind): boolean => family === "nvidia-gpu" && Number(arch) < 8;

function hasRow({ on, elsewhere }: FormatRow, { family, arch }: DeviceKind): boolean {
  const rule = on[family];
  if (rule === undefined) return elsewhere === true;
  if (rule === true || arch === undefined) return true;
  if (typeof rule !== "number") return rule.test(arch);
  return !(Number(arch) < rule);
}

/** Narrow floats, which need units or kernels for the device; integers are expanded by PyTorch's libraries almost anywhere. */
const NARROW_FLOATS = /^(fp8|fp8-block128|mxfp4|mxfp4-fp8|nvfp4)$/;
/** Families whose engines' tables are complete for narrow floats: what they do not list there is not served. */
const TABLED: ReadonlySet<Family> = new Set(["nvidia-gpu", "amd-gpu", "apple-gpu"]);

/** Says whether the engines' tables name all that is served on a device. */
export const hasTables = ({ family }: DeviceKind): boolean => TABLED.has(family);

/** Says whether a format cannot be served on a device where no engine lists it. NVFP4 is NVIDIA's own. */
export const isTiedToHardware = (format: string, { family }: DeviceKind): boolean =>
  (NARROW_FLOATS.test(format) && TABLED.has(family)) || (format === "nvfp4" && family !== "cpu");

/** Says whether narrow floats are expanded to 16 bits on a device: FP8 needs NVIDIA's 8.9, FP4 its 10.0. */
export function expandsWeights(format: string, { family, arch }: DeviceKind): boolean {
  if (!NARROW_FLOATS.test(format) || family !== "nvidia-gpu") return false;
  return Number(arch) < (format.startsWith("fp8") ? 8.9 : 10);
}

export type FormatUse = "weights" | "kv";

/** Says whether an engine serves weights or a KV cache in a format on a device; engines without a table serve all. */
export function servesFormat(engine: EngineName, use: FormatUse, format: string, device: DeviceKind): boolean {
  const rows = ENGINE_FORMATS[engine]?.[use];
  return rows === undefined || rows.some((item) => item.formats.test(format) && hasRow(item, device));
}

/** What to ask for in its place on this device. */
export function servedOptions(engine: EngineName, use: FormatUse, device: DeviceKind): readonly string[] {
  const rows = ENGINE_FORMATS[engine]?.[use] ?? [];
  return rows.filter((item) => hasRow(item, device)).map(({ option }) => option);
}

/** Why an engine cannot serve a format on a device, as the two halves of an UnsupportedError; undefined where it can. */
export function formatProblem(
  engine: EngineName,
  use: FormatUse,
  format: string,
  device: DeviceKind,
): readonly [what: string, accepted: string] | undefined {
  if (servesFormat(engine, use, format, device)) return undefined;
  const subject = use === "kv" ? `a KV cache in ${format}` : `weights in ${format}`;
  return [
    `${subject} in ${engineTitle(engine)} on ${deviceText(device)}`,
    `plan with ${servedOptions(engine, use, device).join(", ")}`,
  ];
}

/** Where each engine's formats were looked up. */
export const FORMAT_SOURCES: Readonly<Record<string, string>> = wordTable(
  Object.fromEntries(Object.entries(ENGINE_FORMATS).map(([engine, { source }]) => [engine, source])),
);

/** Says whether linear layers can be trained in FP8 on a device: NVIDIA by Transformer Engine, AMD from MI300, Gaudi 2 and 3. */
export function trainsInFp8({ family, arch }: DeviceKind): boolean {
  // docs.nvidia.com Transformer Engine, support matrix; ROCm's Transformer Engine; Gaudi docs, FP8 training.
  if (family === "nvidia-gpu") return arch === undefined || Number(arch) >= 8.9;
  if (family === "amd-gpu") return arch === undefined || CDNA3.test(arch);
  return family === "gaudi" && arch !== "gaudi";
}

export const FP8_TRAINING_DEVICES =
  "NVIDIA GPUs from compute capability 8.9, AMD MI300 and MI350, and Gaudi 2 and 3 multiply in FP8";
