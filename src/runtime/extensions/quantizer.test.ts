/** The local steps and the bound, over members that this thread plays: every result beside a model in plain JavaScript. */
import { expect, it } from "vitest";
import { decodeFloat, encodeFloat, InvalidArgumentError, type Tensor, tensor } from "../../core/index.ts";
import { BLOCK_SIZES, blockLayout, type QuantizedCall, SCALED_FORMATS } from "./block-layout.ts";
import { quantizedAllReduceErrorBound } from "./error-bound.ts";
import { HostQuantizer } from "./host-quantizer.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? (Math.random() * 2 ** 31) | 0);
const say = `seed ${seed}`;

/** Mulberry32. */
function randomFrom(state: number): () => number {
  let a = state | 0;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const decode = (dtype: QuantizedCall["dtype"], bits: number) => (dtype === "f32" ? bits : decodeFloat(dtype, bits));

/** What every rank gets, step by step as docs/extensions.md tells it, as f32. */
function model(call: QuantizedCall, inputs: readonly (readonly number[])[]): number[] {
  const { dtype: small, mostBits } = SCALED_FORMATS[call.format];
  const { maxFinite } = { f8e4m3: { maxFinite: 448 }, f8e5m2: { maxFinite: 57344 } }[small];
  const most = new Float32Array(Uint32Array.of(mostBits).buffer)[0] as number;
  const quantized = (values: readonly number[]): number[] => {
    const largest = values.filter(Number.isFinite).reduce((max, x) => Math.max(max, Math.abs(x)), 0);
    let scale = 2 ** -127;
    while (largest / scale > maxFinite) scale *= 2;
    return values.map((x) => {
      if (!Number.isFinite(x)) return Number.NaN;
      const clamped = Math.sign(x) * Math.min(Math.abs(x), most);
      return decodeFloat(small, encodeFloat(small, clamped / scale)) * scale;
    });
  };
  const sums: number[] = [];
  for (let from = 0; from < call.count; from += call.blockSize) {
    const parts = inputs.map((input) => quantized(input.slice(from, from + call.blockSize)));
    const sum = (parts[0] as number[]).map((_, i) => {
      const whole = parts
        .slice(1)
        .reduce((all, part) => Math.fround(all + (part[i] as number)), parts[0]?.[i] as number);
      return call.op === "avg" ? Math.fround(whole / inputs.length) : whole;
    });
    // Two ranks sum everything themselves.
    sums.push(...(inputs.length === 2 ? sum.map((x) => (Number.isFinite(x) ? x : Number.NaN)) : quantized(sum)));
  }
  return sums;
}

/** Each has a memory of its own, which takes long to make. */
const MEMBERS = Array.from({ length: 8 }, () => new HostQuantizer());

/** Runs a call for all members, whose bytes this thread carries. */
function reduce(call: QuantizedCall, given: readonly Tensor[]): Tensor[] {
  const n = given.length;
  const members = MEMBERS.slice(0, n);
  const buffers = members.map((member, rank) => {
    const made = member.buffers(call, n);
    member.quantize(call, n, rank, given[rank] as Tensor);
    return made;
  });
  const part = (buffers[0]?.sent.length ?? 0) / n;
  const gather = () => {
    for (const { sent } of buffers) {
      for (const [from, other] of buffers.entries())
        sent.set(other.sent.subarray(from * part, (from + 1) * part), from * part);
    }
  };
  const outputs = given.map(() => tensor(call.dtype, [call.count]));
  for (const { data } of outputs) data.fill(0x55);
  const ranks = given.map((_, rank) => rank);
  if (n === 2) {
    gather();
    for (const [rank, member] of members.entries()) {
      member.checkHeaders(call, n, ranks, rank);
      member.sumAll(call, n, outputs[rank] as Tensor);
    }
    return outputs;
  }
  for (const [to, { received }] of buffers.entries()) {
    for (const [from, { sent }] of buffers.entries())
      received.set(sent.subarray(to * part, (to + 1) * part), from * part);
  }
  for (const [rank, member] of members.entries()) {
    member.checkHeaders(call, n, ranks, rank);
    member.sum(call, n, rank);
  }
  gather();
  for (const [rank, member] of members.entries()) member.restore(call, n, outputs[rank] as Tensor);
  return outputs;
}

/** Bits of a value of the dtype. */
function bitsOf(dtype: QuantizedCall["dtype"], value: number): number {
  return dtype === "f32" ? Math.fround(value) : encodeFloat(dtype, value);
}

const KINDS = ["plain", "mixed", "tiny", "huge", "zeros", "even", "broken"] as const;

/** Values of a block that is hard in some way. */
function hardBlock(kind: (typeof KINDS)[number], length: number, random: () => number): number[] {
  const sign = () => (random() < 0.5 ? -1 : 1);
  const value = (): number => {
    switch (kind) {
      case "plain":
        return sign() * random();
      case "mixed":
        return sign() * random() * 2 ** (random() * 60 - 30);
      case "tiny":
        return sign() * random() * 2 ** -(120 + random() * 30);
      case "huge":
        return sign() * (1 + random()) * 2 ** (127 - Math.floor(random() * 4));
      case "zeros":
        return random() < 0.9 ? sign() * 0 : sign() * 2 ** -140;
      case "even":
        // In the middle between two values of the format.
        return sign() * (16 + Math.floor(random() * 16) + 0.5) * 2 ** (Math.floor(random() * 6) - 3);
      case "broken":
        return random() < 0.02 ? [Number.NaN, Infinity, -Infinity][Math.floor(random() * 3)]! : sign() * random();
    }
  };
  return Array.from({ length }, value);
}

it(`gives what the model gives, within the bound, on all ranks alike (${say})`, () => {
  const random = randomFrom(seed);
  const pick = <T>(list: readonly T[]) => list[Math.floor(random() * list.length)] as T;
  let numFinite = 0;
  for (let round = 0; round < 60; round++) {
    const call: QuantizedCall = {
      dtype: pick(["f32", "f16", "bf16"]),
      format: pick(["e4m3", "e5m2"]),
      blockSize: pick(BLOCK_SIZES),
      op: pick(["sum", "avg"]),
      count: Math.floor(random() ** 3 * 9000),
    };
    const n = 2 + Math.floor(random() * 7);
    const tensors = Array.from({ length: n }, () => {
      const one = tensor(call.dtype, [call.count]);
      for (let from = 0; from < call.count; from += call.blockSize) {
        const block = hardBlock(pick(KINDS), Math.min(call.blockSize, call.count - from), random);
        one.data.set(block.map((x) => bitsOf(call.dtype, x)) as never, from);
      }
      return one;
    });
    const inputs = tensors.map(({ data }) => Array.from(data as Float32Array, (bits) => decode(call.dtype, bits)));
    const results = reduce(call, tensors);
    const said = `${say}, round ${round}: ${JSON.stringify({ ...call, n })}`;
    const expected = model(call, inputs).map((x) => (Number.isNaN(x) ? Number.NaN : x));
    const bytes = results.map(({ data }) => Buffer.from(data.buffer as ArrayBuffer));
    for (const one of bytes) expect(one.equals(bytes[0] as Buffer), said).toBe(true);
    const bits = results[0]?.data as Float32Array;
    const largest = Array.from({ length: Math.ceil(call.count / call.blockSize) }, (_, block) => {
      const range = [block * call.blockSize, (block + 1) * call.blockSize] as const;
      const ofEach = inputs.map((input) =>
        Math.max(
          0,
          ...input
            .slice(...range)
            .filter(Number.isFinite)
            .map(Math.abs),
        ),
      );
      return ofEach.reduce((a, b) => a + b, 0);
    });
    for (let i = 0; i < call.count; i++) {
      const result = decode(call.dtype, bits[i] as number);
      const right = decode(call.dtype, bitsOf(call.dtype, expected[i] as number));
      if (!Object.is(result, right)) expect.fail(`${said}: element ${i} is ${result}, not ${right}`);
      const values = inputs.map((input) => input[i] as number);
      if (!values.every(Number.isFinite)) {
        if (!Number.isNaN(result)) expect.fail(`${said}: element ${i} is ${result}, of ${values}`);
        continue;
      }
      const sum = values.reduce((a, b) => a + b, 0);
      const bound = quantizedAllReduceErrorBound(
        {
          magnitude: values.reduce((a, b) => a + Math.abs(b), 0),
          largest: largest[Math.floor(i / call.blockSize)] as number,
          sum: Math.abs(sum),
        },
        { ...call, numRanks: n },
      );
      const exact = call.op === "avg" ? sum / n : sum;
      if (bound === Number.POSITIVE_INFINITY) continue;
      numFinite++;
      if (!(Math.abs(result - exact) <= bound)) {
        expect.fail(`${said}: element ${i} is ${result}, ${exact} exactly: off by more than ${bound}`);
      }
    }
  }
  expect(numFinite).toBeGreaterThan(5_000);
});

it("gives large scratch back when calls stay small, and is right before and after", () => {
  const small: QuantizedCall = { dtype: "f32", format: "e4m3", blockSize: 128, op: "sum", count: 1000 };
  const large = { ...small, count: 100 << 20 };
  const inputs = [0, 1].map((rank) =>
    tensor(
      "f32",
      [1000],
      Float32Array.from({ length: 1000 }, (_, i) => i + rank),
    ),
  );
  const results: Tensor[][] = [];
  const [one] = MEMBERS as [HostQuantizer];
  const held = () => one.heldBytes >> 20;
  const seen: number[] = [];
  for (let round = 0; round < 2; round++) {
    // Nobody writes there, so it takes no memory.
    for (const member of MEMBERS.slice(0, 2)) member.buffers(large, 2);
    for (let call = 0; call < 16; call++) {
      seen.push(held());
      results.push(reduce(small, inputs));
    }
  }
  const most = Math.max(...seen);
  expect(seen).toEqual([...Array(16).fill(most), ...Array(16).fill(most)]);
  expect([most > 200, held()]).toEqual([true, 0]);
  const [first] = results.flat() as [Tensor];
  for (const result of results.flat()) expect(result.data).toEqual(first.data);
  expect(first.data[1]).toBeGreaterThan(2);
});

it("has a bound that is reached to nine tenths", () => {
  // Half-way between two values: 17 becomes 16.
  const inputs = [tensor("f32", [1], Float32Array.of(17)), tensor("f32", [1], Float32Array.of(0))];
  const call: QuantizedCall = { dtype: "f32", format: "e4m3", blockSize: 32, op: "sum", count: 1 };
  const [result] = reduce(call, inputs);
  expect(result?.data[0]).toBe(16);
  const bound = quantizedAllReduceErrorBound({ magnitude: 17, largest: 17 }, { numRanks: 2 });
  expect(bound).toBeGreaterThan(1);
  expect(bound).toBeLessThan(1.1);
  // The sum of three ranks, 17 again, once more.
  const third = tensor("f32", [1], Float32Array.of(1));
  expect(reduce(call, [...inputs, third])[0]?.data[0]).toBe(16);
  const twice = quantizedAllReduceErrorBound({ magnitude: 18, largest: 18 }, { numRanks: 3 });
  expect(twice).toBeGreaterThan(2);
  expect(twice).toBeLessThan(2.4);
});

it("keeps a block's other elements where one of them is no number", () => {
  const values = Float32Array.from({ length: 64 }, (_, i) => i);
  const broken = values.slice();
  broken[3] = Number.POSITIVE_INFINITY;
  broken[40] = Number.NaN;
  const call: QuantizedCall = { dtype: "f32", format: "e5m2", blockSize: 32, op: "sum", count: 64 };
  const [result] = reduce(call, [tensor("f32", [64], broken), tensor("f32", [64], values)]);
  const wrong = Array.from(result?.data ?? [], Number).flatMap((x, i) => (Number.isNaN(x) ? [i] : []));
  expect(wrong).toEqual([3, 40]);
});

it("says who was asked for something else", () => {
  const call: QuantizedCall = { dtype: "f32", format: "e5m2", blockSize: 32, op: "sum", count: 40 };
  const member = MEMBERS[0] as HostQuantizer;
  member.buffers(call, 2);
  member.quantize({ ...call, op: "avg" }, 2, 0, tensor("f32", [40]));
  expect(() => member.checkHeaders(call, 2, [4, 7], 1)).toThrow(
    /rank 7: quantizedAllReduce\(40 x f32, sum, e5m2 in blocks of 32\)\n {2}rank 4: quantizedAllReduce\(40 x f32, avg, e5m2/,
  );
});

it("cuts tensors into parts of whole blocks", () => {
  expect(blockLayout(1000, 128, 3)).toEqual({ partBlocks: 3, partElements: 384, scalesAt: 384, endAt: 400 });
  expect(blockLayout(0, 128, 3)).toMatchObject({ partBlocks: 0, endAt: 0 });
});

it.each([
  [{ magnitude: -1, largest: 1 }, { numRanks: 2 }, /magnitude/],
  [{ magnitude: 1, largest: Number.NaN }, { numRanks: 2 }, /largest/],
  [{ magnitude: 1, largest: 1 }, { numRanks: 0 }, /numRanks/],
  [{ magnitude: 1, largest: 1 }, { numRanks: 1.5 }, /numRanks is 1.5; expected a whole number/],
  [undefined as never, undefined as never, /magnitudes is undefined; expected an object, such as/],
  [{ magnitude: 1, largest: 1 }, undefined as never, /options is undefined; expected an object, such as/],
  [{ magnitude: 1, largest: 1 }, { numRanks: 2, format: "e3m4" as never }, /e4m3, e5m2/],
])("refuses a bound for %j, %j", (element, options, message) => {
  const bound = () => quantizedAllReduceErrorBound(element, options);
  expect(bound).toThrow(InvalidArgumentError);
  expect(bound).toThrow(message);
});
