import { describe, expect, it, vi } from "vitest";
import { encodeGguf, llamaGguf } from "../../../test/planner/gguf-file.ts";
import { memorySource } from "./byte-source.ts";
import { readGgufHeader } from "./gguf.ts";

const words = (count: number) => Array.from({ length: count }, (_, i) => `tök${i}`);
const tensor = { name: "a.weight", shape: [64], type: 0, sizeBytes: 256 };

describe("long lists of strings in GGUF metadata", () => {
  it.each([999, 1000, 1001, 70_000])("are read as short ones are: %i", async (count) => {
    const [tokens, merges] = [words(count), words(count + 7).reverse()];
    const file = encodeGguf(
      {
        "tokenizer.ggml.tokens": ["strings", tokens],
        "llama.block_count": ["u32", 3],
        "tokenizer.ggml.merges": ["strings", merges],
        "general.name": ["string", "after them"],
      },
      [tensor, { ...tensor, name: "b.weight" }],
    );
    const { metadata, tensors, isHeaderOnly } = await readGgufHeader(memorySource(file));
    expect(metadata.get("tokenizer.ggml.tokens")).toEqual(tokens);
    expect(metadata.get("tokenizer.ggml.merges")).toEqual(merges);
    expect(metadata.get("llama.block_count")).toBe(3);
    expect(metadata.get("general.name")).toBe("after them");
    expect(tensors.map(({ name, sizeBytes }) => [name, sizeBytes])).toEqual([
      ["a.weight", 256],
      ["b.weight", 256],
    ]);
    expect(isHeaderOnly).toBe(false);
    // Its data reaches to the last byte: one less is refused.
    await expect(readGgufHeader(memorySource(file.subarray(0, file.length - 1)))).rejects.toThrow(/pass the end/);
  });

  it("take no decoder for each string", async () => {
    const file = encodeGguf({ "tokenizer.ggml.tokens": ["strings", words(50_000)] }, [tensor]);
    let decoders = 0;
    class Counted extends TextDecoder {
      constructor() {
        super();
        decoders++;
      }
    }
    vi.stubGlobal("TextDecoder", Counted);
    try {
      const { metadata } = await readGgufHeader(memorySource(file));
      expect(metadata.get("tokenizer.ggml.tokens")).toHaveLength(50_000);
      expect(decoders).toBeGreaterThan(0);
      expect(decoders).toBeLessThan(100);
    } finally {
      vi.unstubAllGlobals();
    }
  });

  it("leave what breaks the format to be named", async () => {
    const file = encodeGguf({ "tokenizer.ggml.tokens": ["strings", words(2000)] }, [tensor]);
    const key = 24 + 8 + "tokenizer.ggml.tokens".length;
    const with64 = (at: number, value: bigint) => {
      const copy = file.slice();
      new DataView(copy.buffer).setBigUint64(at, value, true);
      return readGgufHeader(memorySource(copy));
    };
    await expect(with64(key + 8, 1_000_001n)).rejects.toThrow(/1000001/);
    await expect(with64(key + 8, 2n ** 40n)).rejects.toThrow(/array/i);
    await expect(with64(key + 16, 2n ** 33n)).rejects.toThrow(/String length/i);
    await expect(readGgufHeader(memorySource(file.subarray(0, 5000)))).rejects.toThrow(/cut off|header/);
    expect((await readGgufHeader(memorySource(llamaGguf()))).tensors.length).toBeGreaterThan(10);
  });
});
