/**
 * GGUF headers: the metadata, and each tensor's type, shape and size, read by `@huggingface/gguf` over our own byte source
 * (no network), with every number checked against the file before it is used. Sizes of the tensor types:
 * llama.cpp ggml-common.h. The tensors' data is never touched.
 */
import { FormatError, show, wordTable } from "../../core/index.ts";
import type { ByteSource } from "./byte-source.ts";
import { readLongStrings } from "./gguf-strings.ts";

export type GgufValue = string | number | bigint | boolean | readonly GgufValue[];

export interface GgufTensor {
  readonly name: string;
  /** GGML's name of the type, lower case: `q4_k`, `f16`. */
  readonly type: string;
  /** As stored: the first dim is contiguous. */
  readonly shape: readonly number[];
  readonly numElements: number;
  readonly sizeBytes: number;
}

export interface GgufHeader {
  readonly where: string;
  readonly version: number;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly GgufTensor[];
  /** The file ends where its data would begin: enough to plan with, not to run. */
  readonly isHeaderOnly: boolean;
}

/** [elements of a block, bytes of a block] */
const BLOCKS: Readonly<Record<string, readonly [number, number]>> = wordTable({
  F32: [1, 4],
  F16: [1, 2],
  BF16: [1, 2],
  F64: [1, 8],
  I8: [1, 1],
  I16: [1, 2],
  I32: [1, 4],
  I64: [1, 8],
  Q4_0: [32, 18],
  Q4_1: [32, 20],
  Q5_0: [32, 22],
  Q5_1: [32, 24],
  Q8_0: [32, 34],
  Q8_1: [32, 36],
  Q2_K: [256, 84],
  Q3_K: [256, 110],
  Q4_K: [256, 144],
  Q5_K: [256, 176],
  Q6_K: [256, 210],
  Q8_K: [256, 292],
  IQ2_XXS: [256, 66],
  IQ2_XS: [256, 74],
  IQ2_S: [256, 82],
  IQ3_XXS: [256, 98],
  IQ3_S: [256, 110],
  IQ1_S: [256, 50],
  IQ1_M: [256, 56],
  IQ4_NL: [32, 18],
  IQ4_XS: [256, 136],
  TQ1_0: [256, 54],
  TQ2_0: [256, 66],
  MXFP4: [32, 17],
  NVFP4: [64, 36],
});

/** A tensor's description takes at least this many bytes, a metadata entry at least that many. */
const MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8;
const MIN_ENTRY_BYTES = 8 + 4 + 1;
const DEFAULT_ALIGNMENT = 32;

/** The largest header that the library reads. */
const MAX_HEADER_BYTES = 50e6;

/**
 * Reads and checks the header of a GGUF file (versions 2 and 3, little-endian).
 * @throws FormatError naming the field: what is cut off, out of range, of an unknown type, or does not fit the file
 */
export async function readGgufHeader(source: ByteSource): Promise<GgufHeader> {
  const { where, sizeBytes } = source;
  const fail = (field: string, problem: string, cause?: unknown): never => {
    throw new FormatError(where, problem, { field, cause });
  };
  if (sizeBytes < 24) fail("header", `the file has ${sizeBytes} bytes; a GGUF header has at least 24`);
  const start = new DataView(read(source, 0, 24));
  if (start.getUint32(0, true) !== 0x46554747) fail("magic", "is not GGUF");
  const version = start.getUint32(4, true);
  if (version !== 2 && version !== 3) fail("version", `is ${version}; expected 2 or 3`);
  const numTensors = start.getBigUint64(8, true);
  const numEntries = start.getBigUint64(16, true);
  if (numTensors > BigInt(Math.floor(sizeBytes / MIN_TENSOR_BYTES))) {
    fail("tensor_count", `is ${numTensors}, more than a file of ${sizeBytes} bytes can describe`);
  }
  if (numEntries > BigInt(Math.floor(sizeBytes / MIN_ENTRY_BYTES))) {
    fail("metadata_kv_count", `is ${numEntries}, more than a file of ${sizeBytes} bytes can hold`);
  }
  // Most commands read no such file, and loading the library takes 60 ms.
  const { GGMLQuantizationType, gguf } = await import("@huggingface/gguf");
  const { lists, rest, removedBytes } = readLongStrings(source, Number(numEntries), MAX_HEADER_BYTES);
  const parsed = await gguf("https://file.invalid/model.gguf", { fetch: fetchFrom(rest) }).catch((cause: unknown) =>
    fail(fieldOf(cause), messageOf(cause), cause),
  );
  const metadata = new Map<string, GgufValue>(Object.entries(parsed.metadata as unknown as Record<string, GgufValue>));
  for (const [key, strings] of lists) metadata.set(key, strings);
  const headerEnd = parsed.tensorInfoByteRange[1] + removedBytes;
  if (headerEnd > sizeBytes) fail("header", `ends at byte ${headerEnd} of a file of ${sizeBytes} bytes: it is cut off`);
  const alignment = metadata.get("general.alignment") ?? DEFAULT_ALIGNMENT;
  if (typeof alignment !== "number" || alignment < 1 || !Number.isInteger(Math.log2(alignment))) {
    return fail("general.alignment", `is ${show(alignment)}; expected a power of two`);
  }
  const dataOffset = Math.ceil(headerEnd / alignment) * alignment;
  const isHeaderOnly = sizeBytes <= dataOffset;
  const names = new Set<string>();
  const tensors = parsed.tensorInfos.map((info): GgufTensor => {
    const field = info.name === "" ? "tensor name" : `tensor ${info.name}`;
    if (info.name === "" || names.has(info.name)) fail(field, info.name === "" ? "is empty" : "is described twice");
    names.add(info.name);
    const type: unknown = GGMLQuantizationType[info.dtype];
    const block = typeof type === "string" ? BLOCKS[type] : undefined;
    if (typeof type !== "string" || block === undefined)
      return fail(`${field}.type`, `is ${info.dtype}, which is not known`);
    const shape = info.shape.map(Number);
    if (shape.length < 1 || shape.length > 4 || shape.some((dim) => dim < 1)) {
      fail(`${field}.shape`, `is [${shape.join(", ")}]; expected 1 to 4 dims of 1 or more`);
    }
    const numElements = shape.reduce((product, dim) => product * dim, 1);
    if (!Number.isSafeInteger(numElements)) fail(`${field}.shape`, `is [${shape.join(", ")}]: too many elements`);
    if ((shape[0] ?? 0) % block[0] !== 0) {
      fail(`${field}.shape`, `begins with ${shape[0]}, not a multiple of the ${block[0]} elements of a ${type} block`);
    }
    const size = (numElements / block[0]) * block[1];
    const offset = Number(info.offset);
    if (offset % (alignment as number) !== 0)
      fail(`${field}.offset`, `is ${offset}, not a multiple of the alignment ${show(alignment)}`);
    if (!Number.isSafeInteger(offset) || (!isHeaderOnly && dataOffset + offset + size > sizeBytes)) {
      fail(`${field}.offset`, `is ${offset}: ${size} bytes from there pass the end of the file (${sizeBytes} bytes)`);
    }
    return { name: info.name, type: type.toLowerCase(), shape, numElements, sizeBytes: size };
  });
  return { where, version, metadata, tensors, isHeaderOnly };
}

function read(source: ByteSource, begin: number, end: number): ArrayBuffer {
  const bytes = new Uint8Array(Math.max(0, Math.min(end, source.sizeBytes) - begin));
  if (bytes.length > 0) source.read(bytes, begin);
  return bytes.buffer;
}

/** Gives the library our bytes in place of a download. */
function fetchFrom(source: ByteSource): typeof fetch {
  return async (_input, init) => {
    const range = (init?.headers as Record<string, string> | undefined)?.["Range"] ?? "";
    const match = /^bytes=(\d+)-(\d+)$/.exec(range);
    const begin = Number(match?.[1] ?? 0);
    if (begin >= Math.min(source.sizeBytes, MAX_HEADER_BYTES)) throw new RangeError("the header is cut off");
    return new Response(read(source, begin, Number(match?.[2] ?? -1) + 1), {
      headers: { "content-range": `bytes ${begin}-*/${source.sizeBytes}` },
    });
  };
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** The part of the header that the library's message is about. */
function fieldOf(cause: unknown): string {
  const message = messageOf(cause);
  const tensor = /Tensor "([^"]*)"/.exec(message);
  if (tensor !== null) return `tensor ${tensor[1]}`;
  if (message.includes("n_dims")) return "tensor n_dims";
  if (/metadata type|array|ARRAY/.test(message)) return "metadata value";
  if (message.includes("String length")) return "string length";
  return "header";
}
