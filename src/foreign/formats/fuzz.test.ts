/**
 * 10,000 mutated headers, indexes and configs: each is read, or refused with a FormatError; no other error, no hang, and
 * no allocation beyond the file's size. Typed arrays are counted as they are made, through their constructors.
 * Set CHORALE_FUZZ_SEED to repeat a run.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { describe, expect, it } from "vitest";
import { Random } from "../../../test/oracle/random.ts";
import { decodeTable, FormatError } from "../../core/index.ts";
import {
  encodeSafetensors,
  memorySource,
  openWeights,
  parseGenerationEos,
  parseIndex,
  parseLlamaConfig,
  readJson,
  readSafetensorsHeader,
  readSliceF32,
} from "./index.ts";

const seed = Number(process.env["CHORALE_FUZZ_SEED"] ?? 20_261_120);

function randomFrom(start: number): (below: number) => number {
  const random = new Random(start);
  return (below) => Math.floor(random.fraction() * below);
}

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const NUMBERS = [
  0,
  -0,
  1,
  -1,
  0.5,
  2,
  7,
  8,
  255,
  2 ** 31,
  2 ** 32,
  2 ** 53 - 1,
  2 ** 53,
  2 ** 63,
  1e308,
  -1e308,
  1e-300,
];
const STRINGS = [
  "",
  "F32",
  "F16",
  "BF16",
  "I64",
  "F4",
  "\u0000",
  "__proto__",
  "constructor",
  "../x",
  "a".repeat(5000),
  "💥",
  "\ud800",
];
const OTHERS: readonly (() => Json)[] = [
  () => null,
  () => true,
  () => [],
  () => ({}),
  () => [[[[[[]]]]]],
  () => Array.from({ length: 1000 }, () => 1),
];

/** Replaces, removes, doubles or renames one node of a JSON value, anywhere in it. */
function mutateJson(root: Json, random: (below: number) => number): Json {
  const paths: (readonly (string | number)[])[] = [];
  const walk = (node: Json, path: readonly (string | number)[]) => {
    paths.push(path);
    if (Array.isArray(node)) for (const [i, child] of node.entries()) walk(child, [...path, i]);
    else if (typeof node === "object" && node !== null)
      for (const key of Object.keys(node)) walk(node[key]!, [...path, key]);
  };
  walk(root, []);
  const pick = <T>(list: readonly T[]): T => list[random(list.length)]!;
  const path = pick(paths);
  const value = (old: Json): Json => {
    switch (random(4)) {
      case 0:
        return pick(STRINGS);
      case 1:
        return typeof old === "number" ? old + pick([-1, 1, 0.5, 2 ** 20]) : pick(NUMBERS);
      case 2:
        return pick(NUMBERS);
      default:
        return pick(OTHERS)();
    }
  };
  const edit = (node: Json, depth: number): Json => {
    if (depth === path.length) return value(node);
    const key = path[depth]!;
    if (Array.isArray(node)) {
      const copy = [...node];
      if (depth === path.length - 1 && random(3) === 0)
        copy.splice(key as number, random(2), ...copy.slice(0, random(3)));
      else copy[key as number] = edit(copy[key as number]!, depth + 1);
      return copy;
    }
    const copy = { ...(node as { [key: string]: Json }) };
    const last = depth === path.length - 1;
    const action = last ? random(4) : 3;
    if (action === 0) delete copy[key];
    else if (action === 1) copy[pick(STRINGS)] = copy[key]!;
    else copy[key] = edit(copy[key]!, depth + 1);
    return copy;
  };
  return edit(root, 0);
}

/** Changes bytes: flips, cuts, repeats. */
function mutateBytes(bytes: Uint8Array, random: (below: number) => number): Uint8Array {
  if (bytes.length === 0) return bytes;
  const at = random(bytes.length);
  switch (random(4)) {
    case 0:
      return bytes.slice().with(at, random(256));
    case 1:
      return bytes.slice(0, at);
    case 2: {
      const end = Math.min(bytes.length, at + 1 + random(40));
      return Uint8Array.from([...bytes.subarray(0, end), ...bytes.subarray(at)]);
    }
    default:
      return bytes.slice().with(at, bytes[at]! ^ (1 << random(8)));
  }
}

/** Counts the largest typed array made while `fn` runs. */
function largestAllocation(fn: () => void): number {
  let largest = 0;
  const original = { Uint8Array: globalThis.Uint8Array, Float32Array: globalThis.Float32Array };
  const counted = <T extends typeof Uint8Array | typeof Float32Array>(base: T): T =>
    new Proxy(base, {
      construct(target, args: unknown[], newTarget) {
        const made = Reflect.construct(
          target,
          args,
          newTarget === counter.get(target) ? target : newTarget,
        ) as Uint8Array;
        if (typeof args[0] === "number") largest = Math.max(largest, made.byteLength);
        return made;
      },
    });
  const counter = new Map<unknown, unknown>();
  globalThis.Uint8Array = counted(original.Uint8Array);
  globalThis.Float32Array = counted(original.Float32Array);
  counter.set(original.Uint8Array, globalThis.Uint8Array).set(original.Float32Array, globalThis.Float32Array);
  try {
    fn();
  } finally {
    Object.assign(globalThis, original);
  }
  return largest;
}

const text = (value: Json, random: (below: number) => number): Uint8Array => {
  let out = JSON.stringify(value);
  // A duplicate of some key, which no JSON value can express.
  if (random(20) === 0) out = out.replace(/"(\w+)":(\d+)/, '"$1":$2,"$1":$2');
  return new TextEncoder().encode(out);
};

const HEADER: Json = {
  __metadata__: { format: "pt" },
  a: { dtype: "F32", shape: [4, 3], data_offsets: [0, 48] },
  b: { dtype: "F16", shape: [8], data_offsets: [48, 64] },
  c: { dtype: "BF16", shape: [2, 2, 2], data_offsets: [64, 80] },
  d: { dtype: "I64", shape: [], data_offsets: [80, 88] },
  e: { dtype: "F4", shape: [0, 5], data_offsets: [88, 88] },
};
const INDEX: Json = {
  metadata: { total_size: 88 },
  weight_map: { a: "model-00001-of-00002.safetensors", b: "model-00002-of-00002.safetensors" },
};
const CONFIG: Json = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  hidden_size: 192,
  intermediate_size: 512,
  num_hidden_layers: 6,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  head_dim: 24,
  vocab_size: 256,
  max_position_embeddings: 512,
  rms_norm_eps: 1e-5,
  hidden_act: "silu",
  rope_parameters: {
    rope_theta: 1e4,
    rope_type: "llama3",
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 256,
  },
  attention_bias: false,
  tie_word_embeddings: true,
  eos_token_id: [1, 2],
};

/** Reads the file; says how it ended. Anything but a FormatError is thrown on. */
function outcome(read: () => void): "valid" | "refused" {
  try {
    read();
    return "valid";
  } catch (error) {
    if (error instanceof FormatError && error.message.length < 4000) return "refused";
    throw error;
  }
}

function headerFile(random: (below: number) => number): Uint8Array {
  let json = HEADER;
  for (let i = random(4) % 3; i >= 0; i--) json = mutateJson(json, random);
  let header = text(json, random);
  if (random(4) === 0) header = mutateBytes(header, random);
  const dataBytes = random(8) === 0 ? random(200) : 88;
  const bytes = new Uint8Array(8 + header.length + dataBytes);
  const stated = random(8) === 0 ? BigInt(NUMBERS[5 + random(8)]!) * BigInt(1 + random(9)) : BigInt(header.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt.asUintN(64, stated), true);
  bytes.set(header, 8);
  return random(6) === 0 ? mutateBytes(bytes, random) : bytes;
}

describe("foreign files", () => {
  it(`are read or refused with a FormatError: 10,000 mutants, seed ${seed}`, () => {
    const random = randomFrom(seed);
    // Made before the counting: the target of the reads, and the table of f16 values that is built once.
    const target = new Float32Array(4096);
    decodeTable("f16");
    const counts: Record<string, number> = {};
    let slowestMs = 0;
    for (let n = 0; n < 10_000; n++) {
      const kind = (["header", "index", "config", "generation"] as const)[
        n % 8 < 4 ? 0 : n % 8 < 6 ? 2 : n % 8 === 6 ? 1 : 3
      ]!;
      let bytes: Uint8Array;
      if (kind === "header") bytes = headerFile(random);
      else {
        let json = kind === "index" ? INDEX : kind === "config" ? CONFIG : ({ eos_token_id: [1, 2] } as Json);
        for (let i = random(4) % 3; i >= 0; i--) json = mutateJson(json, random);
        bytes = text(json, random);
        if (random(4) === 0) bytes = mutateBytes(bytes, random);
      }
      const source = memorySource(bytes, "mutant");
      const read = () => {
        if (kind === "index") parseIndex(readJson(source), "mutant");
        else if (kind === "config") parseLlamaConfig(readJson(source), "mutant");
        else if (kind === "generation") parseGenerationEos(readJson(source), "mutant");
        else {
          // A header that is accepted must also be readable to its last element.
          for (const tensor of readSafetensorsHeader(source).tensors.values()) {
            if (/^(F32|F64|F16|BF16)$/.test(tensor.dtype)) {
              readSliceF32(source, tensor, target);
            }
          }
        }
      };
      const start = performance.now();
      let result = "";
      const largest = largestAllocation(() => {
        try {
          result = outcome(read);
        } catch (error) {
          const shown = new TextDecoder().decode(bytes.subarray(0, 2000));
          throw new Error(`seed ${seed}, mutant ${n} (${kind}): ${String(error)}\n${shown}`, { cause: error });
        }
      });
      slowestMs = Math.max(slowestMs, performance.now() - start);
      if (largest > bytes.length) expect.fail(`mutant ${n}: ${largest} bytes for a file of ${bytes.length}`);
      counts[`${kind} ${result}`] = (counts[`${kind} ${result}`] ?? 0) + 1;
    }
    expect(slowestMs).toBeLessThan(10_000);
    // The mutations are neither all harmless nor all fatal.
    for (const key of ["header valid", "header refused", "index refused", "config valid", "config refused"]) {
      expect(counts[key], `${key} of ${JSON.stringify(counts)}`).toBeGreaterThan(100);
    }
  });

  it(`are read or refused from disk too: 300 folders with mutated weights and indexes, seed ${seed}`, () => {
    const random = randomFrom(seed + 1);
    const dir = mkdtempSync(join(tmpdir(), "chorale-fuzz-"));
    const counts = { valid: 0, refused: 0 };
    try {
      for (let n = 0; n < 300; n++) {
        // One file, or two with an index: one of the three is mutated, the others are sound.
        const sharded = n % 3 > 0;
        const sound = (name: string) =>
          encodeSafetensors({ [name]: { dtype: "U8", shape: [16], bytes: new Uint8Array(16) } });
        const files: Record<string, Uint8Array> = sharded
          ? {
              "model-00001-of-00002.safetensors": sound("a"),
              "model-00002-of-00002.safetensors": sound("b"),
              "model.safetensors.index.json": text(n % 3 === 1 ? mutateJson(INDEX, random) : INDEX, random),
            }
          : { "model.safetensors": headerFile(random) };
        if (n % 3 === 2) {
          files["model-00001-of-00002.safetensors"] = mutateBytes(sound("a"), random);
        }
        for (const [name, bytes] of Object.entries(files)) writeFileSync(join(dir, name), bytes);
        counts[outcome(() => openWeights(dir).close())]++;
        for (const name of Object.keys(files)) rmSync(join(dir, name));
      }
    } finally {
      rmSync(dir, { recursive: true });
    }
    expect(counts.valid, JSON.stringify(counts)).toBeGreaterThan(20);
    expect(counts.refused, JSON.stringify(counts)).toBeGreaterThan(100);
  });

  it("would notice an allocation", () => {
    expect(largestAllocation(() => new Uint8Array(1000))).toBe(1000);
    const file = encodeSafetensors({ t: { dtype: "U8", shape: [500], bytes: new Uint8Array(500) } });
    expect(largestAllocation(() => readSafetensorsHeader(memorySource(file)))).toBe(file.length - 508);
  });
});
