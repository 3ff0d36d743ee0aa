/** Models from every source that MODEL may name, and 10,000 broken ones. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { ChoraleError, FormatError } from "../../src/core/index.ts";
import {
  encodeSafetensors,
  memorySource,
  parseIndex,
  parseStrictJson,
  readGgufHeader,
} from "../../src/foreign/formats/index.ts";
import { parseSystem } from "../../src/machine/topology/index.ts";
import {
  countParameters,
  loadModel,
  MODEL_CONFIGS,
  MODEL_PRESETS,
  modelBytes,
  modelFromConfig,
  modelFromConfigText,
  modelFromCount,
  modelFromGguf,
  modelPreset,
  parseParameterCount,
  planModel,
  weightFormat,
} from "../../src/planner/index.ts";
import { spread } from "../support/spread.ts";
import { encodeGguf, llamaGguf } from "./gguf-file.ts";

const numRuns = Number(process.env.CHORALE_FUZZ_CASES ?? 150);
const seed = Number(process.env.CHORALE_SEED ?? Date.now() & 0x7fffffff);
const root = mkdtempSync(join(tmpdir(), "chorale-models-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

let folders = 0;
function folder(files: Readonly<Record<string, string | Uint8Array>>): string {
  const path = join(root, `model${folders++}`);
  mkdirSync(path);
  for (const [name, content] of Object.entries(files)) writeFileSync(join(path, name), content);
  return path;
}

const tensor = (shape: readonly number[], dtype: "F16" | "F32" | "U8" = "F16") => {
  const bytes = { F16: 2, F32: 4, U8: 1 }[dtype];
  return { dtype, shape, bytes: new Uint8Array(shape.reduce((a, b) => a * b, 1) * bytes) };
};

const SMALL = { hidden: 64, q: 128, kv: 128, mlp: 96, vocab: 100, layers: 2 };
const CONFIG = {
  model_type: "llama",
  hidden_size: SMALL.hidden,
  num_hidden_layers: SMALL.layers,
  num_attention_heads: 1,
  num_key_value_heads: 1,
  head_dim: 128,
  intermediate_size: SMALL.mlp,
  vocab_size: SMALL.vocab,
  max_position_embeddings: 512,
  dtype: "float16",
};

function llamaTensors(more: Readonly<Record<string, ReturnType<typeof tensor>>> = {}) {
  const { hidden, q, kv, mlp, vocab, layers } = SMALL;
  const tensors: Record<string, ReturnType<typeof tensor>> = {
    "model.embed_tokens.weight": tensor([vocab, hidden]),
    "model.norm.weight": tensor([hidden]),
    "lm_head.weight": tensor([vocab, hidden]),
  };
  for (let layer = 0; layer < layers; layer++) {
    const at = `model.layers.${layer}.`;
    Object.assign(tensors, {
      [`${at}self_attn.q_proj.weight`]: tensor([q, hidden]),
      [`${at}self_attn.k_proj.weight`]: tensor([kv, hidden]),
      [`${at}self_attn.v_proj.weight`]: tensor([kv, hidden]),
      [`${at}self_attn.o_proj.weight`]: tensor([hidden, q]),
      [`${at}mlp.gate_proj.weight`]: tensor([mlp, hidden]),
      [`${at}mlp.up_proj.weight`]: tensor([mlp, hidden]),
      [`${at}mlp.down_proj.weight`]: tensor([hidden, mlp]),
      [`${at}input_layernorm.weight`]: tensor([hidden]),
      [`${at}post_attention_layernorm.weight`]: tensor([hidden]),
    });
  }
  return { ...tensors, ...more };
}

const total = (tensors: Readonly<Record<string, ReturnType<typeof tensor>>>) =>
  Object.values(tensors).reduce((sum, { bytes }) => sum + bytes.length, 0);

describe("models from files", () => {
  it("a folder with a config alone follows the formula", async () => {
    const spec = await loadModel(folder({ "config.json": JSON.stringify(CONFIG) }));
    expect(spec.storedBytes).toBeUndefined();
    expect(modelBytes(spec, weightFormat("f16"))).toBe(total(llamaTensors()));
  });

  it("real tensor sizes win over formulas, for the format that the files are in", async () => {
    // One layer's MLP is kept in f32.
    const tensors = llamaTensors({ "model.layers.1.mlp.up_proj.weight": tensor([SMALL.mlp, SMALL.hidden], "F32") });
    const spec = await loadModel(
      folder({ "config.json": JSON.stringify(CONFIG), "model.safetensors": encodeSafetensors(tensors) }),
    );
    expect(modelBytes(spec, weightFormat("f16"))).toBe(total(tensors));
    expect(spec.storedBytes?.layers[1]).toBe((spec.storedBytes?.layers[0] ?? 0) + 2 * SMALL.mlp * SMALL.hidden);
    expect(modelBytes(spec, weightFormat("f32"))).toBe(2 * total(llamaTensors()));
  });

  it("safetensors without a config: the shape is read off the tensors, and what was assumed is said", async () => {
    const spec = await loadModel(
      join(folder({ "some.safetensors": encodeSafetensors(llamaTensors()) }), "some.safetensors"),
    );
    expect(spec).toMatchObject({
      architecture: "llama",
      numLayers: 2,
      hiddenSize: 64,
      vocabSize: 100,
      headDim: 128,
      tiedEmbeddings: false,
    });
    expect(spec.assumptions.join()).toContain("head size 128 assumed");
    expect(countParameters(spec).total * 2).toBe(total(llamaTensors()));
  });

  it("an index whose shards are elsewhere gives its total, spread over the layers", async () => {
    const index = {
      metadata: { total_size: 2 * total(llamaTensors()) },
      weight_map: Object.fromEntries(
        Object.keys(llamaTensors()).map((name) => [name, "model-00001-of-00002.safetensors"]),
      ),
    };
    const path = folder({
      "config.json": JSON.stringify(CONFIG),
      "model.safetensors.index.json": JSON.stringify(index),
    });
    const spec = await loadModel(path);
    expect(Math.abs(modelBytes(spec, weightFormat("f16")) / (2 * total(llamaTensors())) - 1)).toBeLessThan(1e-3);
    expect(await loadModel(join(path, "model.safetensors.index.json"))).toEqual(spec);
  });

  it("a GGUF file gives every tensor's own type, and its metadata the shape", async () => {
    const spec = await loadModel(join(folder({ "small.gguf": llamaGguf() }), "small.gguf"));
    expect(spec).toMatchObject({
      name: "a small llama",
      architecture: "llama",
      numLayers: 2,
      hiddenSize: 256,
      numHeads: 4,
      numKvHeads: 2,
      weightFormat: "q4_k_m",
      tiedEmbeddings: false,
      assumptions: [],
    });
    const q4 = (n: number) => (n / 256) * 144;
    const q6 = (n: number) => (n / 256) * 210;
    const layer = 2 * 256 * 4 + q4(2 * 256 * 256 + 256 * 128 + 3 * 256 * 512) + q6(256 * 128);
    expect(spec.storedBytes).toEqual({
      embeddings: q4(256 * 512),
      layers: [layer, layer],
      head: 256 * 4 + q6(256 * 512),
    });
    expect(modelBytes(spec, weightFormat("q4_k_m"))).toBe(q4(256 * 512) + 2 * layer + 256 * 4 + q6(256 * 512));
  });

  it("a Llama 4 GGUF has its experts' width, its dense layers and its windows", async () => {
    const num = (value: number) => ["u32", value] as const;
    // Maverick's text model, as llama.cpp's converter names its fields; a header without tensors.
    const file = encodeGguf(
      {
        "general.architecture": ["string", "llama4"],
        "llama4.block_count": num(48),
        "llama4.embedding_length": num(5120),
        "llama4.feed_forward_length": num(16_384),
        "llama4.expert_feed_forward_length": num(8192),
        "llama4.interleave_moe_layer_step": num(2),
        "llama4.attention.head_count": num(40),
        "llama4.attention.head_count_kv": num(8),
        "llama4.attention.key_length": num(128),
        "llama4.context_length": num(1_048_576),
        "llama4.expert_count": num(128),
        "llama4.expert_used_count": num(1),
        "llama4.vocab_size": num(202_048),
      },
      [],
    );
    const spec = modelFromGguf(await readGgufHeader(memorySource(file, "maverick.gguf")));
    const text = modelPreset("llama-4-maverick");
    expect(spec.layers.map((kind) => spec.layerKinds[kind]?.mlp.kind)).toEqual(
      text.layers.map((kind) => text.layerKinds[kind]?.mlp.kind),
    );
    const { experts, mlp, attention } = countParameters(text).byComponent;
    expect(countParameters(spec).byComponent).toMatchObject({ experts, mlp, attention });
    expect(spec.layerKinds.some(({ attention: a }) => a.kind === "gqa" && a.window === 8192)).toBe(true);
  });

  it("a folder with one GGUF is that model; a header without data is planned with, and says so", async () => {
    const spec = await loadModel(folder({ "only.gguf": llamaGguf({ withData: false }) }));
    expect(spec.assumptions).toContain("the file is a header without data");
  });

  it("names, counts and what is none of them", async () => {
    expect((await loadModel("meta-llama/Llama-3.1-8B-Instruct")).name).toBe("llama-3.1-8b");
    expect((await loadModel("Qwen/Qwen3-30B-A3B")).name).toBe("qwen3-30b-a3b");
    expect(parseParameterCount("7000M")).toBe(7e9);
    expect(parseParameterCount("1.5b")).toBe(1.5e9);
    for (const text of ["70B", "405B", "7B", "13b", "1B", "350M", "125M", "10M", "1T", "33000000000"]) {
      const spec = await loadModel(text);
      const wanted = parseParameterCount(text) ?? 0;
      expect(Math.abs(countParameters(spec).total / wanted - 1)).toBeLessThan(0.03);
      expect(spec.assumptions[0]).toContain("only a count was given");
    }
    expect(modelFromCount(70e9).numLayers).toBe(80);
    await expect(loadModel("no-such-model")).rejects.toThrow(/a folder, a config.json/);
    await expect(loadModel("0B")).rejects.toThrow(/1M to 10T/);
    await expect(loadModel(folder({}))).rejects.toThrow(/neither a config.json nor weights/);
    await expect(loadModel(folder({ "a.gguf": llamaGguf(), "b.gguf": llamaGguf() }))).rejects.toThrow(
      /name one of them/,
    );
  });

  it("every preset can be planned onto a machine that is large enough", () => {
    const inventory = parseSystem("2x hgx-b200-8");
    if (inventory === undefined) throw new Error("no preset");
    for (const name of spread(MODEL_PRESETS, 3)) {
      const { plans } = planModel({ model: modelPreset(name), inventory, contextTokens: 512 });
      expect(plans, name).toHaveLength(1);
    }
  });
});

/** What fuzzing may give: a model that planning understands, or a typed error that names a field. */
function checkError(error: unknown): void {
  if (!(error instanceof ChoraleError)) throw error;
  if (error instanceof FormatError) expect(error.field ?? "", error.message).not.toBe("");
  else expect(["UNSUPPORTED", "INVALID_ARGUMENT"]).toContain(error.code);
}

/** Values that no size field may have. */
const broken = fc.constantFrom<unknown>(
  -1,
  0,
  1.5,
  Number.MAX_SAFE_INTEGER,
  2 ** 31,
  "12",
  "",
  [],
  {},
  [1],
  true,
  false,
  Number.NaN,
  -0.5,
  "NaN",
  1e308,
);
/** Fields without which, or with a broken value in which, a config describes nothing. */
const REQUIRED: Readonly<Record<string, readonly string[]>> = {
  llama: [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "num_key_value_heads",
  ],
  deepseek_v3: [
    "hidden_size",
    "num_hidden_layers",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "n_routed_experts",
    "moe_intermediate_size",
    "v_head_dim",
  ],
  mixtral: ["hidden_size", "num_local_experts", "num_experts_per_tok", "intermediate_size"],
  gpt2: ["n_embd", "n_layer", "n_head", "vocab_size", "n_positions"],
  bert: ["hidden_size", "num_hidden_layers", "max_position_embeddings", "vocab_size"],
};
const SAMPLES = ["llama-3.1-8b", "deepseek-v3", "mixtral-8x7b", "gpt2", "bert-base"].map(
  (name) => MODEL_CONFIGS[name] ?? {},
);

describe(`broken models (seed ${seed}, ${numRuns} each)`, () => {
  it("a config whose size field is broken is refused, and the error names the field", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...SAMPLES),
        fc.nat(),
        fc.option(broken, { nil: undefined }),
        (sample, pick, value) => {
          const fields = REQUIRED[String(sample["model_type"])] ?? [];
          const field = fields[pick % fields.length] ?? "";
          const config: Record<string, unknown> = { ...sample, [field]: value };
          // Absent, this one has a default in every architecture.
          if (value === undefined) {
            if (field === "num_key_value_heads") return;
            delete config[field];
          }
          let thrown: unknown;
          try {
            modelFromConfig(JSON.parse(JSON.stringify(config)), "config.json");
          } catch (error) {
            thrown = error;
          }
          // JSON has no NaN: it becomes null, which counts as absent.
          if (field === "num_key_value_heads" && typeof value === "number" && Number.isNaN(value)) return;
          expect(thrown, `${field} = ${String(value)}`).toBeInstanceOf(FormatError);
          expect((thrown as FormatError).field).toContain(field);
        },
      ),
      { numRuns, seed },
    );
  });

  it("any field with any JSON gives a model that can be planned, or a typed error", () => {
    const inventory = parseSystem("hgx-h100-8");
    if (inventory === undefined) throw new Error("no preset");
    fc.assert(
      fc.property(
        fc.constantFrom(...Object.values(MODEL_CONFIGS)),
        fc.nat(),
        fc.jsonValue({ maxDepth: 2 }),
        fc.boolean(),
        (sample, pick, value, nested) => {
          const text = nested && typeof sample["text_config"] === "object" ? "text_config" : undefined;
          const target = (text === undefined ? sample : sample[text]) as Record<string, unknown>;
          const fields = Object.keys(target);
          const mutated = { ...target, [fields[pick % fields.length] ?? "x"]: value };
          const config = text === undefined ? mutated : { ...sample, [text]: mutated };
          try {
            const spec = modelFromConfig(config, "config.json");
            const { total: parameters } = countParameters(spec);
            expect(Number.isSafeInteger(parameters) && parameters > 0).toBe(true);
            planModel({
              model: spec,
              inventory,
              contextTokens: Math.min(64, spec.contextLength ?? 64),
              constrain: { pp: 1, dp: 1 },
            });
          } catch (error) {
            checkError(error);
          }
        },
      ),
      { numRuns, seed },
    );
  });

  it("a config cut off or with bytes changed gives a model or a typed error", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...SAMPLES),
        fc.nat(),
        fc.nat({ max: 255 }),
        fc.boolean(),
        (sample, at, byte, cut) => {
          const text = JSON.stringify(sample);
          const index = at % text.length;
          const changed = cut
            ? text.slice(0, index)
            : text.slice(0, index) + String.fromCharCode(byte) + text.slice(index + 1);
          try {
            modelFromConfigText(changed, "config.json");
            expect(cut).toBe(false);
          } catch (error) {
            checkError(error);
          }
        },
      ),
      { numRuns, seed },
    );
  });

  it("an index with bytes changed, entries broken or its end cut off gives files or a typed error", () => {
    const whole = JSON.stringify({
      metadata: { total_size: 16_060_522_496 },
      weight_map: Object.fromEntries(
        Object.keys(llamaTensors()).map((name, at) => [name, `model-0000${1 + (at % 4)}-of-00004.safetensors`]),
      ),
    });
    fc.assert(
      fc.property(fc.nat(), fc.nat({ max: 255 }), fc.boolean(), (at, byte, cut) => {
        const index = at % whole.length;
        const text = cut
          ? whole.slice(0, index)
          : whole.slice(0, index) + String.fromCharCode(byte) + whole.slice(index + 1);
        try {
          const files = parseIndex(parseStrictJson(text, "index.json"), "index.json");
          expect(files.size).toBeGreaterThan(0);
          expect(cut).toBe(false);
        } catch (error) {
          expect(error).toBeInstanceOf(FormatError);
        }
      }),
      { numRuns, seed },
    );
  });

  it("a GGUF header with bytes changed or its end cut off gives a model or a typed error naming the field", async () => {
    const whole = llamaGguf({ withData: false });
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(), fc.nat({ max: 255 })), { minLength: 1, maxLength: 4 }),
        fc.option(fc.nat(), { nil: undefined, freq: 3 }),
        async (changes, cut) => {
          const file = whole.slice(0, cut === undefined ? whole.length : cut % whole.length);
          for (const [at, byte] of changes) if (file.length > 0) file[at % file.length] = byte;
          try {
            const spec = modelFromGguf(await readGgufHeader(memorySource(file, "small.gguf")));
            expect(spec.numLayers).toBeGreaterThan(0);
            // A header whose counts were changed may well end before the cut.
            const countsChanged = changes.some(([at]) => at % file.length >= 8 && at % file.length < 24);
            expect(cut === undefined || countsChanged || cut % whole.length > whole.length - 64).toBe(true);
          } catch (error) {
            checkError(error);
          }
        },
      ),
      { numRuns: Math.ceil(numRuns / 2), seed },
    );
  }, 1_800_000);

  it("GGUF counts beyond the file, unknown types, wrong blocks and foreign architectures are named", async () => {
    const read = async (file: Uint8Array) => modelFromGguf(await readGgufHeader(memorySource(file, "x.gguf")));
    const huge = llamaGguf();
    new DataView(huge.buffer).setBigUint64(8, 2n ** 40n, true);
    await expect(read(huge)).rejects.toThrow(/tensor_count: is 1099511627776/);
    const entries = llamaGguf();
    new DataView(entries.buffer).setBigUint64(16, 2n ** 62n, true);
    await expect(read(entries)).rejects.toThrow(/metadata_kv_count/);
    await expect(read(new Uint8Array(30))).rejects.toThrow(/magic/);
    const one = (type: number, shape: readonly number[]) =>
      read(encodeGguf({ "general.architecture": ["string", "llama"] }, [{ name: "t", shape, type, sizeBytes: 64 }]));
    await expect(one(99, [256])).rejects.toThrow(/tensor t.type: is 99/);
    await expect(one(12, [100])).rejects.toThrow(/tensor t.shape: begins with 100, not a multiple of the 256/);
    await expect(one(0, [1 << 20])).rejects.toThrow(/tensor t.offset: is 0: 4194304 bytes from there pass the end/);
    await expect(read(encodeGguf({ "general.architecture": ["string", "mamba"] }, []))).rejects.toThrow(
      /known ones are llama/,
    );
    await expect(
      read(encodeGguf({ "general.architecture": ["string", "llama"], "llama.block_count": ["u32", 0] }, [])),
    ).rejects.toThrow(/llama.embedding_length: is missing|vocab_size/);
  });
});
