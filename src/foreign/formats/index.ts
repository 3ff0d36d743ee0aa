/**
 * Readers of foreign files: safetensors, GGUF, Hugging Face configurations, JSON; files as bounded bytes and text.
 * Refuses what breaks a format, with a FormatError that names the file and the field, and files that are not regular.
 * Start with the file that is named after the format; text-file.ts opens what users name.
 */
export { type ByteSource, fileSource, memorySource } from "./byte-source.ts";
export { type EncodeTensor, encodeSafetensors } from "./encode-safetensors.ts";
export { type GgufHeader, type GgufTensor, type GgufValue, readGgufHeader } from "./gguf.ts";
export { ConfigReader, type IntOptions, MAX_CONFIG_BYTES, parseConfigText, readConfigFile } from "./hf-config.ts";
export {
  LLAMA_ARCHITECTURES,
  type LlamaArchitecture,
  type LlamaConfig,
  parseGenerationEos,
  parseLlamaConfig,
  type RopeScaling,
  readLlamaConfig,
} from "./hf-config-llama.ts";
export { checkSchema, MAX_JSON_BYTES, parseStrictJson, readJson, readJsonFile } from "./json.ts";
export { INDEX_FILE, openWeights, parseIndex, WEIGHTS_FILE, type Weights } from "./model-folder.ts";
export {
  type NcclGpu,
  type NcclLink,
  type NcclNet,
  type NcclPci,
  type NcclTopology,
  parseNcclTopology,
} from "./nccl-topology.ts";
export { readSliceF32, type Slice } from "./read-slice.ts";
export {
  MAX_HEADER_BYTES,
  readSafetensorsHeader,
  SAFETENSORS_DTYPE_BITS,
  type SafetensorsDType,
  type SafetensorsHeader,
  type SafetensorsTensor,
} from "./safetensors.ts";
export { readBytesFile, readTextFile } from "./text-file.ts";
