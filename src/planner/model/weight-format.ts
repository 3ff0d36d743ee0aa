/** In which format a config says its weights are: `dtype`, or `quantization_config`. */
import { wordTable } from "../../core/index.ts";
import type { ConfigReader } from "../../foreign/formats/index.ts";

const DTYPES: Readonly<Record<string, string>> = wordTable({
  float32: "f32",
  float16: "f16",
  bfloat16: "bf16",
  float8_e4m3fn: "fp8",
  float64: "f32",
});

/** The format's name, as in memory/formats.ts, and what had to be assumed. */
export function weightFormatOf(config: ConfigReader): { name: string; assumptions: readonly string[] } {
  // MLX writes both names; its quantization says bits and group, and no method. Kimi K2.5 has it in the text model.
  const nested = config.optionalObject("text_config");
  const quantization =
    config.optionalObject("quantization_config") ??
    config.optionalObject("quantization") ??
    nested?.optionalObject("quantization_config");
  if (quantization !== undefined) {
    const isFp8 = quantization.optionalString("quant_method") === "fp8";
    if (isFp8 && config.optionalString("expert_dtype") === "fp4") return sure("mxfp4-fp8");
    return quantizationFormat(quantization);
  }
  const dtype =
    config.optionalString("dtype") ??
    config.optionalString("torch_dtype") ??
    nested?.optionalString("dtype") ??
    nested?.optionalString("torch_dtype");
  if (dtype === undefined) return { name: "bf16", assumptions: ["the config names no dtype: bf16 assumed"] };
  const name = dtype.replace(/^torch\./, "");
  const known = Object.hasOwn(DTYPES, name) ? DTYPES[name] : undefined;
  if (known === undefined) {
    throw config.error(
      config.has("dtype") ? "dtype" : "torch_dtype",
      `is ${JSON.stringify(dtype)}; known are ${Object.keys(DTYPES).join(", ")}`,
    );
  }
  return { name: known, assumptions: [] };
}

interface Read {
  readonly name: string;
  readonly assumptions: readonly string[];
}

const sure = (name: string): Read => ({ name, assumptions: [] });

const groupName = (group: number | undefined) => (group === undefined || group <= 0 ? "channel" : String(group));

function quantizationFormat(quantization: ConfigReader): Read {
  const method = quantization.optionalString("quant_method");
  const bits = quantization.optionalInt("bits", { min: 2, max: 16 });
  const group = quantization.optionalInt(["group_size", "q_group_size"], { min: -1, max: 1 << 16 });
  switch (method) {
    case undefined:
      if (bits === undefined) break;
      return bits >= 16 ? sure("bf16") : sure(`mlx-${bits}-g${groupName(group ?? 64)}`);
    case "gptq":
    case "gptq_marlin":
    case "auto-round":
    case "awq":
    case "awq_marlin":
      return sure(`${method.startsWith("awq") ? "awq" : "gptq"}-${bits ?? 4}-g${groupName(group)}`);
    case "fp8":
    case "fbgemm_fp8":
      return sure(quantization.optionalInts("weight_block_size") === undefined ? "fp8" : "fp8-block128");
    case "mxfp4":
      return sure("mxfp4");
    case "bitsandbytes":
      return sure(quantization.bool("load_in_8bit", false) ? "int8" : "nf4");
    case "hqq":
      return hqqFormat(quantization);
    case "quark":
      return quarkFormat(quantization);
    case "compressed-tensors":
      return compressedFormat(quantization);
    case "modelopt":
    case "modelopt_fp4":
      return sure(
        method === "modelopt_fp4" || (quantization.optionalString("quant_algo") ?? "").toUpperCase() === "NVFP4"
          ? "nvfp4"
          : "fp8",
      );
    default:
      break;
  }
  throw quantization.error(
    "quant_method",
    `is ${JSON.stringify(method)}; known are gptq, awq, auto-round, fp8, mxfp4, bitsandbytes, hqq, quark, compressed-tensors, modelopt, and MLX's bits and group_size`,
  );
}

function hqqFormat(quantization: ConfigReader): Read {
  const weights = quantization.optionalObject("quant_config")?.optionalObject("weight_quant_params");
  const bits = weights?.optionalInt("nbits", { min: 2, max: 8 });
  const group = weights?.optionalInt("group_size", { min: 1, max: 1 << 16 });
  const name = `hqq-${bits ?? 4}-g${group ?? 64}`;
  return bits === undefined
    ? { name, assumptions: [`the config does not say HQQ's bits: ${name} assumed`] }
    : sure(name);
}

function quarkFormat(quantization: ConfigReader): Read {
  const weights = quantization.optionalObject("global_quant_config")?.optionalObject("weight");
  const dtype = weights?.optionalString("dtype");
  if (dtype === undefined) return { name: "fp8", assumptions: ["the config does not say Quark's dtype: fp8 assumed"] };
  if (/fp4/.test(dtype)) return sure("mxfp4-linear");
  if (/int4/.test(dtype)) return sure(`awq-4-g${groupName(weights?.optionalInt("group_size", { min: -1 }))}`);
  return sure(/int8/.test(dtype) ? "int8" : "fp8");
}

/** Bits and group stand in the first of `config_groups`; `pack-quantized` alone says neither. */
function compressedFormat(quantization: ConfigReader): Read {
  const format = quantization.optionalString("format") ?? "";
  const groups = quantization.optionalObject("config_groups");
  const first = groups?.names().map((name) => groups.optionalObject(name))[0];
  const weights = first?.optionalObject("weights");
  const bits = weights?.optionalInt("num_bits", { min: 2, max: 16 });
  const isFloat = weights?.optionalString("type") === "float";
  if (format.includes("nvfp4") || (isFloat && bits === 4)) return sure("nvfp4");
  if (format.startsWith("float") || format.includes("fp8") || (isFloat && bits === 8)) return sure("fp8");
  if (!format.includes("pack")) return sure("int8");
  const group = weights?.optionalInt("group_size", { min: -1, max: 1 << 16 });
  const name = `awq-${bits ?? 4}-g${bits === undefined ? 128 : groupName(group)}`;
  return bits === undefined ? { name, assumptions: [`the config names no bits: ${name} assumed`] } : sure(name);
}
