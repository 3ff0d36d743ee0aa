import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import {
  type ByteSource,
  encodeSafetensors,
  memorySource,
  openWeights,
  readSafetensorsHeader,
  readSliceF32,
  type Slice,
} from "./index.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-formats-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** A file written by hand, not by our writer: a header text and a number of data bytes. */
function file(header: string, dataBytes: number): Uint8Array {
  const text = new TextEncoder().encode(header);
  const bytes = new Uint8Array(8 + text.length + dataBytes);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(text, 8);
  return bytes;
}
const parse = (bytes: Uint8Array) => readSafetensorsHeader(memorySource(bytes, "t.safetensors"));
const entry = (dtype: string, shape: number[], begin: number, end: number) =>
  JSON.stringify({ dtype, shape, data_offsets: [begin, end] });

describe("readSafetensorsHeader", () => {
  it("reads what a header says, padded with spaces, in the order of the data", () => {
    const header = `{"b":${entry("F16", [2, 3], 4, 16)},"__metadata__":{"format":"pt"},"a":${entry("F32", [], 0, 4)},"e":${entry("U8", [0, 7], 16, 16)}}  `;
    const { tensors, metadata, dataOffset } = parse(file(header, 16));
    expect(metadata).toEqual({ format: "pt" });
    expect(dataOffset).toBe(8 + header.length);
    expect([...tensors.keys()]).toEqual(["a", "b", "e"]);
    expect(tensors.get("b")).toEqual({
      name: "b",
      dtype: "F16",
      shape: [2, 3],
      numElements: 6,
      begin: dataOffset + 4,
      end: dataOffset + 16,
    });
  });

  const bad: readonly [string, Uint8Array, RegExp][] = [
    ["fewer than 8 bytes", new Uint8Array(7), /at least 8/],
    ["a header longer than the file", Uint8Array.of(9, 0, 0, 0, 0, 0, 0, 0, 0x7b, 0x7d), /states a header of 9 bytes/],
    ["a header of 2^63 bytes", Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0x80, 0x7b), /9223372036854775808/],
    ["no brace at the start", file(" {}", 0), /does not begin/],
    ["an empty header", file("", 0), /does not begin/],
    ["broken JSON", file('{"a":', 0), /not valid JSON/],
    ["broken UTF-8", file("{}", 0).with(9, 0xff), /UTF-8/],
    ["a duplicate key", file(`{"a":${entry("U8", [1], 0, 1)},"\\u0061":${entry("U8", [1], 1, 2)}}`, 2), /"a" twice/],
    [
      "a duplicate key inside an entry",
      file(`{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, 1),
      /"dtype" twice/,
    ],
    ["an unknown dtype", file(`{"a":${entry("F12", [1], 0, 1)}}`, 1), /"a": dtype is "F12"/],
    ["a dtype from the prototype", file(`{"a":${entry("toString", [1], 0, 1)}}`, 1), /dtype/],
    ["a negative dim", file(`{"a":${entry("U8", [-1], 0, 1)}}`, 1), /shape/],
    ["a fractional dim", file(`{"a":${entry("U8", [0.5], 0, 1)}}`, 1), /shape/],
    ["a shape whose product overflows", file(`{"a":${entry("U8", [2 ** 40, 2 ** 40], 0, 1)}}`, 1), /2\^53/],
    ["a size that is not shape times dtype", file(`{"a":${entry("F32", [2], 0, 4)}}`, 4), /8 bytes.*span 4/],
    ["half a byte", file(`{"a":${entry("F4", [3], 0, 1)}}`, 1), /1.5 bytes/],
    ["offsets in the wrong order", file(`{"a":${entry("U8", [0], 1, 0)}}`, 1), /begin <= end/],
    ["an end beyond the file", file(`{"a":${entry("U8", [2], 0, 2)}}`, 1), /<= 1/],
    ["three offsets", file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}}`, 0), /data_offsets/],
    ["an overlap", file(`{"a":${entry("U8", [2], 0, 2)},"b":${entry("U8", [2], 1, 3)}}`, 3), /overlaps/],
    ["a hole", file(`{"a":${entry("U8", [1], 0, 1)},"b":${entry("U8", [1], 2, 3)}}`, 3), /hole/],
    ["bytes that no tensor covers", file(`{"a":${entry("U8", [1], 0, 1)}}`, 2), /1 bytes after/],
    ["metadata that is not strings", file(`{"__metadata__":{"a":1}}`, 0), /__metadata__/],
    ["an unknown key", file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}}`, 0), /unknown key "x"/],
    ["a list", file("[]", 0), /does not begin/],
  ];
  it.each(bad)("refuses %s", (_, bytes, message) => {
    expect(() => parse(bytes)).toThrow(FormatError);
    expect(() => parse(bytes)).toThrow(message);
  });

  it("survives a very deep header", () => {
    const deep = `{"a":${"[".repeat(200_000)}${"]".repeat(200_000)}}`;
    expect(() => parse(file(deep, 0))).toThrow(FormatError);
  });

  it("never reads the data, nor more than the file has", () => {
    const bytes = file(`{"a":${entry("U8", [1000], 0, 1000)}}`, 1000);
    const reads: number[] = [];
    const source = memorySource(bytes);
    readSafetensorsHeader({
      ...source,
      read(into, at) {
        reads.push(into.length);
        source.read(into, at);
      },
    });
    expect(reads).toEqual([8, bytes.length - 1008]);
  });
});

describe("readSliceF32", () => {
  // Values that all four dtypes hold exactly: small integers and halves.
  const rows = 7;
  const columns = 10;
  const value = (r: number, c: number) => ((r * columns + c) % 31) / 2 - 7;
  const f32 = Float32Array.from({ length: rows * columns }, (_, i) => value(Math.floor(i / columns), i % columns));
  const bits = new Uint32Array(f32.buffer);
  const bf16 = Uint16Array.from(bits, (b) => b >>> 16);
  // f16 by its definition: sign, exponent + 15, top ten bits of the fraction. No subnormals among these values.
  const f16 = Uint16Array.from(bits, (b) =>
    b << 1 === 0 ? b >>> 16 : ((b >>> 16) & 0x8000) | ((((b >>> 23) & 255) - 112) << 10) | ((b >>> 13) & 1023),
  );
  const bytesOf = (array: Float32Array | Float64Array | Uint16Array) => new Uint8Array(array.buffer.slice(0));
  const data = {
    F32: bytesOf(f32),
    F64: bytesOf(Float64Array.from(f32)),
    F16: bytesOf(f16),
    BF16: bytesOf(bf16),
  };

  // A byte of u8 first, so that nothing is aligned in the file.
  const source = (dtype: keyof typeof data, shape: number[] = [rows, columns]) => {
    const length = data[dtype].length;
    const bytes = file(`{"pad":${entry("U8", [1], 0, 1)},"t":${entry(dtype, shape, 1, 1 + length)}}`, 1 + length);
    bytes.set(data[dtype], bytes.length - length);
    return memorySource(bytes);
  };

  for (const dtype of ["F32", "F64", "F16", "BF16"] as const) {
    it(`reads rows and columns of ${dtype}, with and without a stride, from unaligned data`, () => {
      const from = source(dtype);
      const tensor = readSafetensorsHeader(from).tensors.get("t")!;
      for (const [r0, r1, c0, c1, gap] of [
        [0, rows, 0, columns, 0],
        [2, 5, 0, columns, 0],
        [0, rows, 3, 4, 0],
        [1, 6, 2, 9, 3],
        [3, 4, 0, columns, 2],
        [2, 2, 1, 5, 0],
        [0, rows, 4, 4, 0],
      ] as const) {
        const stride = c1 - c0 + gap;
        const into = new Float32Array((r1 - r0) * stride + 3).fill(-99);
        readSliceF32(from, tensor, into, { rows: [r0, r1], columns: [c0, c1], stride });
        const expected = new Float32Array(into.length).fill(-99);
        for (let r = r0; r < r1; r++) {
          for (let c = c0; c < c1; c++) expected[(r - r0) * stride + c - c0] = value(r, c);
        }
        expect(into).toEqual(expected);
      }
    });
  }

  it("converts every bf16 and f16 bit pattern of interest", () => {
    const patterns = Uint16Array.of(0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0x7c00, 0xfc00);
    const bytes = encodeSafetensors({
      t: { dtype: "F16", shape: [9], bytes: new Uint8Array(patterns.buffer) },
    });
    const from = memorySource(bytes);
    const into = new Float32Array(9);
    readSliceF32(from, readSafetensorsHeader(from).tensors.get("t")!, into);
    expect([...into]).toEqual([0, -0, 2 ** -24, 1023 * 2 ** -24, 2 ** -14, 1, 65504, Infinity, -Infinity]);
  });

  it("refuses slices outside the tensor, targets that are too small, and integer tensors, before reading", () => {
    const from = { ...source("F32"), read: () => expect.unreachable("read") };
    const tensor = readSafetensorsHeader(source("F32")).tensors.get("t")!;
    const read =
      (slice: object, length = 100) =>
      () =>
        readSliceF32(from, tensor, new Float32Array(length), slice);
    expect(read({ rows: [0, 8] })).toThrow(InvalidArgumentError);
    expect(read({ rows: [-1, 2] })).toThrow(InvalidArgumentError);
    expect(read({ columns: [4, 3] })).toThrow(InvalidArgumentError);
    expect(read({ stride: 9 })).toThrow(InvalidArgumentError);
    expect(read({}, 69)).toThrow(InvalidArgumentError);
    expect(() => readSliceF32(from, { ...tensor, dtype: "I32" }, new Float32Array(70))).toThrow(FormatError);
  });

  it("reads only the rank's part: its rows, and its columns where they are worth a read of their own", () => {
    const count = (shape: [number, number], slice: Slice) => {
      const size = shape[0] * shape[1];
      const bytes = encodeSafetensors({ t: { dtype: "F16", shape, bytes: new Uint8Array(size * 2) } });
      const from = memorySource(bytes);
      let total = 0;
      const counting: ByteSource = {
        ...from,
        read(into, at) {
          total += into.length;
          from.read(into, at);
        },
      };
      readSliceF32(counting, readSafetensorsHeader(from).tensors.get("t")!, new Float32Array(size), slice);
      return total;
    };
    expect(count([64, 100], { rows: [16, 32], stride: 104 })).toBe(16 * 100 * 2);
    expect(count([64, 20_000], { columns: [10_000, 20_000] })).toBe(64 * 10_000 * 2);
    // Narrow columns: the rows between the first and the last element that is wanted.
    expect(count([64, 100], { columns: [50, 60] })).toBe((63 * 100 + 10) * 2);
  });

  it("reads wide column slices, larger than the bounce buffer, in parts", () => {
    const wide = 1_500_000;
    const values = new Float64Array(2 * wide).map((_, i) => i % 1000);
    const from = memorySource(
      encodeSafetensors({ t: { dtype: "F64", shape: [2, wide], bytes: new Uint8Array(values.buffer) } }),
    );
    const tensor = readSafetensorsHeader(from).tensors.get("t")!;
    const into = new Float32Array(2 * (wide - 2));
    readSliceF32(from, tensor, into, { columns: [1, wide - 1] });
    const wrong = into.findIndex((x, i) => x !== (i < wide - 2 ? i + 1 : i - (wide - 2) + 1 + wide) % 1000);
    expect(wrong).toBe(-1);
  });
});

describe("openWeights", () => {
  const tensor = (values: number[]) => ({
    dtype: "F32" as const,
    shape: [values.length],
    bytes: new Uint8Array(Float32Array.from(values).buffer),
  });
  const make = (files: Record<string, Uint8Array | string>) => {
    const dir = mkdtempSync(join(folder, "m-"));
    for (const [name, bytes] of Object.entries(files)) writeFileSync(join(dir, name), bytes);
    return dir;
  };
  const index = (map: Record<string, unknown>) => JSON.stringify({ metadata: { total_size: 1 }, weight_map: map });

  it("reads one file", () => {
    const weights = openWeights(make({ "model.safetensors": encodeSafetensors({ a: tensor([1, 2, 3]) }) }));
    const into = new Float32Array(2);
    weights.readF32("a", into, { rows: [1, 3] });
    weights.close();
    expect([...into]).toEqual([2, 3]);
    expect(() => weights.expect("a", [4])).toThrow(/shape \[3\]; the config makes it \[4\]/);
    expect(() => weights.readF32("b", into)).toThrow(FormatError);
  });

  it("reads several files by their index, which decides where a tensor is", () => {
    const dir = make({
      "model-1.safetensors": encodeSafetensors({ a: tensor([1]), b: tensor([9]) }),
      "model-2.safetensors": encodeSafetensors({ b: tensor([2]), unnamed: tensor([7]) }),
      "model.safetensors.index.json": index({ b: "model-2.safetensors", a: "model-1.safetensors" }),
    });
    const weights = openWeights(dir);
    const read = (name: string) => {
      const into = new Float32Array(1);
      weights.readF32(name, into);
      return into[0];
    };
    expect([read("a"), read("b"), read("a")]).toEqual([1, 2, 1]);
    expect([...weights.tensors.keys()].sort()).toEqual(["a", "b"]);
    weights.close();
  });

  it.each([
    ["no weights", {}, /neither/],
    ["a file outside the folder", { "model.safetensors.index.json": index({ a: "../x.safetensors" }) }, /weight_map/],
    ["an absolute path", { "model.safetensors.index.json": index({ a: "/x.safetensors" }) }, /weight_map/],
    ["a missing file", { "model.safetensors.index.json": index({ a: "x.safetensors" }) }, /does not exist/],
    ["a number for a file", { "model.safetensors.index.json": index({ a: 1 }) }, /weight_map/],
    ["an empty map", { "model.safetensors.index.json": index({}) }, /weight_map/],
    ["a list", { "model.safetensors.index.json": "[]" }, /expected an object/],
    [
      "a tensor that its file does not hold",
      { "x.safetensors": encodeSafetensors({}), "model.safetensors.index.json": index({ a: "x.safetensors" }) },
      /does not hold it/,
    ],
    [
      "a truncated file",
      { "model.safetensors": encodeSafetensors({ a: tensor([1]) }).subarray(0, -1) },
      /data_offsets/,
    ],
  ] as const)("refuses %s", (_, files, message) => {
    const dir = make(files);
    expect(() => openWeights(dir)).toThrow(FormatError);
    expect(() => openWeights(dir)).toThrow(message);
  });
});
