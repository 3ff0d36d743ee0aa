import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FormatError, InvalidArgumentError } from "chorale";
import { afterAll, describe, expect, it } from "vitest";
import { parseArguments } from "./arguments.ts";
import { demoPlan } from "./testing/demo.ts";
import { encodePrompt, openTokenizer } from "./tokenizer.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-arguments-"));
afterAll(() => rmSync(folder, { recursive: true }));

describe("parseArguments", () => {
  it("reads prompts of all kinds in their order", () => {
    const words =
      "--model m --tp 2 --pp 3 --prompt-tokens 5,6 --prompt Hi --prompt-bytes 72,105 --max-new-tokens 7 --json";
    expect(parseArguments(words.split(" "))).toEqual({
      model: "m",
      tp: 2,
      pp: 3,
      prompts: [{ tokens: [5, 6] }, { text: "Hi" }, { bytes: [72, 105] }],
      maxNewTokens: 7,
      json: true,
    });
  });

  it("takes --dp with and without a number", () => {
    const dp = (...words: string[]) => parseArguments(["--model", "m", "--prompt", "x", ...words]).dp;
    expect([dp(), dp("--dp"), dp("--dp", "--json"), dp("--dp", "2"), dp("--dp=3")]).toEqual([
      undefined,
      "auto",
      "auto",
      2,
      3,
    ]);
  });

  it("reads a plan", () => {
    const path = join(folder, "plan.json");
    writeFileSync(path, JSON.stringify(demoPlan({ tp: 1, stages: [[0, 6]] })));
    const { plan } = parseArguments(["--model", "m", "--prompt", "x", "--plan", path]);
    expect(plan?.ranks[0]?.layers).toEqual({ first: 0, end: 6 });
    writeFileSync(path, "{}");
    expect(() => parseArguments(["--model", "m", "--prompt", "x", "--plan", path])).toThrow(FormatError);
  });

  it.each([
    ["--prompt x"],
    ["--model m"],
    ["--model m --prompt x --tp 0"],
    ["--model m --prompt x --tp two"],
    ["--model m --prompt-tokens 1,,2"],
    ["--model m --prompt-tokens 1.5"],
    ["--model m --prompt x --max-new-tokens -1"],
    ["--model m --prompt x --unknown"],
    ["--model m --prompt x stray"],
  ])("refuses %s", (words) => {
    expect(() => parseArguments(words.split(" "))).toThrow(InvalidArgumentError);
  });
});

describe("tokenizers", () => {
  it("takes bytes as tokens when the vocabulary is that of bytes", () => {
    const codec = openTokenizer(folder, 256);
    expect(encodePrompt({ text: "é!" }, codec, 256)).toEqual([0xc3, 0xa9, 0x21]);
    expect(encodePrompt({ bytes: [255, 0] }, codec, 256)).toEqual([255, 0]);
    expect(codec?.decode([0xc3, 0xa9, 0x21])).toBe("é!");
  });

  it("refuses text without a tokenizer, empty prompts, and ids outside the vocabulary", () => {
    const none = openTokenizer(folder, 300);
    expect(none).toBeUndefined();
    expect(() => encodePrompt({ text: "x" }, none, 300)).toThrow(/no tokenizer.json/);
    expect(() => encodePrompt({ tokens: [] }, none, 300)).toThrow(/empty/);
    expect(() => encodePrompt({ tokens: [1, 300] }, none, 300)).toThrow(/prompt is 300/);
    expect(() => encodePrompt({ tokens: [-1] }, none, 300)).toThrow(InvalidArgumentError);
    expect(() => encodePrompt({ bytes: [256] }, openTokenizer(folder, 256), 256)).toThrow(/bytes/);
  });

  it("reads tokenizer.json, and says when it cannot", () => {
    const dir = mkdtempSync(join(folder, "t-"));
    const tokenizer = {
      version: "1.0",
      added_tokens: [
        { id: 0, content: "<s>", special: true, lstrip: false, rstrip: false, normalized: false, single_word: false },
      ],
      normalizer: null,
      pre_tokenizer: { type: "Whitespace" },
      post_processor: {
        type: "TemplateProcessing",
        single: [{ SpecialToken: { id: "<s>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
        pair: [],
        special_tokens: { "<s>": { id: "<s>", ids: [0], tokens: ["<s>"] } },
      },
      decoder: null,
      model: { type: "WordLevel", vocab: { "<s>": 0, hello: 1, world: 2, "[UNK]": 3 }, unk_token: "[UNK]" },
    };
    writeFileSync(join(dir, "tokenizer.json"), JSON.stringify(tokenizer));
    const codec = openTokenizer(dir, 4);
    // Start token included, as transformers' tokenizers do; special tokens are left out of text.
    expect(encodePrompt({ text: "hello world" }, codec, 4)).toEqual([0, 1, 2]);
    expect(encodePrompt({ bytes: [...new TextEncoder().encode("world")] }, codec, 4)).toEqual([0, 2]);
    expect(codec?.decode([0, 2, 1])).toBe("world hello");
    writeFileSync(join(dir, "tokenizer.json"), '{"model": {"type": "none"}}');
    expect(() => openTokenizer(dir, 4)).toThrow(FormatError);
    writeFileSync(join(dir, "tokenizer.json"), "{");
    expect(() => openTokenizer(dir, 4)).toThrow(FormatError);
  });
});
