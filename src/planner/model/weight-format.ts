/** In which format a config says its weights are: `dtype`, or `quantization_config`. */
import type { ConfigReader } from "../../foreign/formats/index.ts";

const DTYPES: Readonly<Record<string, string>> = {
  float32: "f32",
  float16: "f16",
  bfloat16: "bf16",
  float8_e4m3fn: "fp8",
  float64: "f32",
};

/** The format's name, as in memory/formats.ts, and what had to be assumed. */
export function weightFormatOf(config: ConfigReader): { name: string; assumptions: readonly string[] } {
  const quantization = config.optionalObject("quantization_config");
  if (quantization !== undefined) return { name: quantizationFormat(quantization), assumptions: [] };
  const nested = config.optionalObject("text_config");
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

function quantizationFormat(quantization: ConfigReader): string {
  const method = quantization.optionalString("quant_method");
  const bits = quantization.optionalInt("bits", { min: 2, max: 16 });
  const group = quantization.optionalInt(["group_size", "q_group_size"], { min: -1, max: 1 << 16 });
  switch (method) {
    case "gptq":
    case "awq":
      return `${method}-${bits ?? 4}-g${group === undefined || group <= 0 ? "channel" : group}`;
    case "fp8":
    case "fbgemm_fp8":
      return quantization.optionalInts("weight_block_size") === undefined ? "fp8" : "fp8-block128";
    case "mxfp4":
      return "mxfp4";
    case "bitsandbytes":
      return quantization.bool("load_in_8bit", false) ? "int8" : "nf4";
    case "compressed-tensors": {
      const format = quantization.optionalString("format") ?? "";
      if (format.startsWith("float") || format.includes("fp8")) return "fp8";
      if (format.includes("nvfp4")) return "nvfp4";
      if (format.includes("pack")) return "awq-4-g128";
      return "int8";
    }
    case "modelopt":
      return (quantization.optionalString("quant_algo") ?? "").toUpperCase() === "NVFP4" ? "nvfp4" : "fp8";
    default:
      throw quantization.error(
        "quant_method",
        `is ${JSON.stringify(method)}; known are gptq, awq, fp8, mxfp4, bitsandbytes, compressed-tensors, modelopt`,
      );
  }
}
