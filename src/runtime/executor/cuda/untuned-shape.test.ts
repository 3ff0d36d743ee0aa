import { describe, expect, it } from "vitest";
import { algorithm } from "../../../authoring/algorithms/index.ts";
import { compile } from "../../../authoring/language/index.ts";
import { generateCuda } from "./generate.ts";
import { untunedShape } from "./untuned-shape.ts";

const KI = 1024;
const H200 = { name: "NVIDIA H200", computeCapability: [9, 0], numMultiprocessors: 132 } as const;
const A100 = { name: "NVIDIA A100-SXM4-80GB", computeCapability: [8, 0], numMultiprocessors: 108 } as const;
const plan = (name: string, instances: number) =>
  compile(algorithm(name).make({ numRanks: 2, instances }), { verify: false });

describe("untunedShape", () => {
  it("has more threads where an operation of a strand moves more, of packets sooner than of plain data", () => {
    const threads = (name: string) =>
      [4 * KI, 8 * KI, 16 * KI, 64 * KI, 1024 * KI].map((bytes) => untunedShape(plan(name, 4), bytes, A100).threads);
    expect(threads("one-shot-packet-all-reduce")).toEqual([256, 512, 1024, 1024, 1024]);
    expect(threads("ring-all-reduce")).toEqual([256, 256, 256, 512, 512]);
  });

  it("has several blocks do a strand where each moves enough, there are few strands, and the device forms clusters", () => {
    const blocks = (name: string, instances: number, device: typeof A100 | typeof H200 = H200) =>
      [16, 64, 128, 256, 1024].map((bytes) => untunedShape(plan(name, instances), bytes * KI, device).blocksPerStrand);
    expect(blocks("ring-all-reduce", 4)).toEqual([1, 1, 2, 4, 8]);
    expect(blocks("ring-all-reduce", 16)).toEqual([1, 1, 2, 4, 4]);
    expect(blocks("ring-all-reduce", 64)).toEqual([1, 1, 1, 1, 1]);
    expect(blocks("ring-all-reduce", 4, A100)).toEqual([1, 1, 1, 1, 1]);
    expect(untunedShape(plan("one-shot-packet-all-reduce", 1), 1024 * KI, H200)).toMatchObject({ threads: 512 });
  });

  it("counts what a pipeline moves at once, not the chunk", () => {
    const small = compile(algorithm("streaming-all-reduce").make({ numRanks: 2, unitBytes: 8 * KI }), {
      verify: false,
    });
    const large = compile(algorithm("streaming-all-reduce").make({ numRanks: 2, unitBytes: 64 * KI }), {
      verify: false,
    });
    expect([small, large].map((one) => untunedShape(one, 1024 * KI, A100).threads)).toEqual([256, 512]);
  });

  it("leaves room for other kernels where there are many strands", () => {
    expect(untunedShape(plan("one-shot-packet-all-reduce", 64), 1024 * KI, H200).threads).toBe(512);
    expect(untunedShape(plan("ring-all-reduce", 200), 1024 * KI, H200).threads).toBe(256);
  });

  it("prefers lines where devices are linked by NVLink, and the generator takes them where packets can be lines", () => {
    const names = ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA A100-SXM4-80GB"];
    const one = plan("one-shot-packet-all-reduce", 4);
    const formats = names.map((name) => {
      const { prefersLines } = untunedShape(one, 4 * KI, { ...H200, name });
      return generateCuda(one, { dtype: "f32", ...(prefersLines !== undefined && { prefersLines }) }).packets;
    });
    expect(formats).toEqual(["lines", "lines", "words", "words"]);
    expect(generateCuda(one, { dtype: "f32", prefersLines: true, packets: "words" }).packets).toBe("words");
  });

  it("has threads load no more at once than their registers hold", () => {
    const unroll = (threads: number, numRanks: number) => {
      const plan = compile(algorithm("one-pass-all-reduce").make({ numRanks }), { verify: false });
      return /UNROLL = (\d+)/.exec(generateCuda(plan, { dtype: "f32", threads }).source)?.[1];
    };
    expect([unroll(256, 2), unroll(1024, 2), unroll(1024, 4), unroll(1024, 8)]).toEqual(["4", "4", "2", "1"]);
  });
});
