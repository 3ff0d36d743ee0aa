import { describe, expect, it } from "vitest";
import { UnsupportedError } from "../../core/index.ts";
import { modelFromConfig } from "./from-config.ts";
import { loadModel } from "./load.ts";
import { MODEL_CONFIGS, MODEL_PRESETS, modelPreset } from "./presets.ts";

describe("encoder-decoders", () => {
  it.each([
    "google-t5/t5-base",
    "google/flan-t5-xxl",
    "google/mt5-large",
    "google/umt5-xxl",
    "google/byt5-small",
    "google/long-t5-tglobal-base",
    "Salesforce/codet5p-16b",
    "google/t5gemma-2b-2b-prefixlm-it",
    "google/flan-ul2",
    "bigscience/mt0-xxl",
    "bigscience/T0pp",
    "facebook/bart-large-cnn",
    "facebook/mbart-large-50",
    "facebook/nllb-200-3.3B",
    "facebook/m2m100_418M",
    "Helsinki-NLP/opus-mt-en-de",
    "google/pegasus-xsum",
    "google/madlad400-10b-mt",
    "openai/whisper-large-v3-turbo",
    "whisper large v3",
    "distil-whisper/distil-large-v3.5",
    "Systran/faster-whisper-large-v3",
    "facebook/seamless-m4t-v2-large",
  ])("%s is refused as one", async (name) => {
    await expect(loadModel(name)).rejects.toThrow(UnsupportedError);
    await expect(loadModel(name)).rejects.toThrow(/it is an encoder-decoder/);
    expect(() => modelPreset(name)).toThrow(/it is an encoder-decoder/);
  });

  it.each(["t5", "whisper", "bart", "marian"])("a config of %s is refused", (model_type) => {
    expect(() => modelFromConfig({ model_type, d_model: 512 })).toThrow(/encoder-decoder/);
  });

  it("a config that says so itself is refused, whatever its type", () => {
    const llama = MODEL_CONFIGS["llama-2-7b"];
    expect(() => modelFromConfig({ ...llama, is_encoder_decoder: true })).toThrow(/encoder-decoder/);
    expect(modelFromConfig({ ...llama, is_encoder_decoder: false }).numLayers).toBe(32);
  });

  it("no preset is taken for one", () => {
    for (const name of MODEL_PRESETS) expect(() => modelPreset(name), name).not.toThrow();
  });
});
