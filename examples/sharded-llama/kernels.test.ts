import { describe, expect, it } from "vitest";
import { kernelsOver, padded } from "./kernels.ts";
import { newMemory } from "./wasm.ts";

/** A memory with the kernels over it, and a bump allocator. */
function arena() {
  const memory = newMemory(64);
  const f32 = new Float32Array(memory.buffer);
  let next = 64;
  const put = (values: ArrayLike<number>) => {
    const at = next;
    f32.set(values, at / 4);
    next += padded(values.length) * 4 + 64;
    return at;
  };
  return { f32, put, room: (n: number) => put(new Float32Array(n)), kernels: kernelsOver(memory) };
}

let state = 12345;
const random = () => {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return state / 2 ** 31 - 1;
};
const randoms = (n: number) => Float32Array.from({ length: n }, random);

/** Compares with a float64 result; `scale` bounds the terms that were added up. */
function expectClose(actual: Float32Array, expected: readonly number[], scale = 1): void {
  expect(actual.length).toBe(expected.length);
  const worst = Math.max(...expected.map((value, i) => Math.abs(value - actual[i]!)));
  expect(worst).toBeLessThan(3e-6 * scale);
}

describe("kernels", () => {
  it.each([
    [1, 8, 8],
    [2, 8, 16],
    [3, 16, 8],
    [5, 24, 40],
    [4, 8, 512],
    [7, 40, 104],
  ])("matmul: %i tokens, n %i, k %i, with and without bias", (tokens, n, k) => {
    const { f32, put, room, kernels } = arena();
    const [x, w, bias] = [randoms(tokens * k), randoms(n * k), randoms(n)];
    for (const withBias of [false, true]) {
      const out = room(tokens * n);
      kernels.matmul(put(x), put(w), out, withBias ? put(bias) : 0, tokens, n, k * 4);
      const expected: number[] = [];
      for (let t = 0; t < tokens; t++) {
        for (let j = 0; j < n; j++) {
          let sum = withBias ? bias[j]! : 0;
          for (let i = 0; i < k; i++) sum += x[t * k + i]! * w[j * k + i]!;
          expected.push(sum);
        }
      }
      expectClose(f32.subarray(out / 4, out / 4 + tokens * n), expected, k);
    }
  });

  it("rmsnorm takes the mean over the unpadded width", () => {
    const { f32, put, room, kernels } = arena();
    const [tokens, width, row] = [3, 13, 16];
    const x = randoms(tokens * row).map((v, i) => (i % row < width ? v : 0));
    const weight = randoms(row).map((v, i) => (i < width ? v : 0));
    const out = room(tokens * row);
    kernels.rmsnorm(put(x), put(weight), out, tokens, row * 4, width, 1e-5);
    const expected = [...x].map((v, i) => {
      const rowOf = x.subarray(Math.floor(i / row) * row, Math.floor(i / row) * row + row);
      return (v * weight[i % row]!) / Math.sqrt(rowOf.reduce((s, y) => s + y * y, 0) / width + 1e-5);
    });
    expectClose(f32.subarray(out / 4, out / 4 + tokens * row), expected, 4);
  });

  it("rope rotates the two halves of each head", () => {
    const { f32, put, kernels } = arena();
    const [heads, half] = [3, 12];
    const x = randoms(heads * half * 2);
    const angles = randoms(half).map((v) => v * 3);
    const at = put(x);
    kernels.rope(at, put(angles.map(Math.cos)), put(angles.map(Math.sin)), heads, half * 4);
    const expected = [...x].map((v, i) => {
      const d = i % (2 * half);
      const angle = angles[d % half]!;
      return d < half
        ? v * Math.cos(angle) - x[i + half]! * Math.sin(angle)
        : v * Math.cos(angle) + x[i - half]! * Math.sin(angle);
    });
    expectClose(f32.subarray(at / 4, at / 4 + x.length), expected, 2);
  });

  it.each([1, 2, 3, 4, 5, 31, 64])("attend over %i positions, with the softmax of large scores", (positions) => {
    const { f32, put, room, kernels } = arena();
    const [head, stride, scale] = [16, 40, 0.7];
    for (const size of [1, 30]) {
      const q = randoms(head).map((v) => v * size);
      const k = randoms(positions * stride).map((v) => v * size);
      const v = randoms(positions * stride);
      const out = room(head);
      kernels.attend(put(q), put(k), put(v), room(positions + 4), out, positions, stride * 4, head * 4, scale);
      const scores = Array.from({ length: positions }, (_, p) => {
        let dot = 0;
        for (let d = 0; d < head; d++) dot += q[d]! * k[p * stride + d]!;
        return dot * scale;
      });
      const max = Math.max(...scores);
      const weights = scores.map((s) => Math.exp(s - max));
      const total = weights.reduce((a, b) => a + b);
      const expected = Array.from({ length: head }, (_, d) =>
        weights.reduce((sum, w, p) => sum + (w / total) * v[p * stride + d]!, 0),
      );
      // Scores of size 1000 carry an f32 rounding of 1e-4 into the exponent.
      expectClose(f32.subarray(out / 4, out / 4 + head), expected, size * size);
    }
  });

  it("siluMul over the whole range of f32, and add", () => {
    const { f32, put, room, kernels } = arena();
    const gate = Float32Array.of(-1e4, -100, -87, -20, -1, -1e-3, -0, 0, 1e-6, 0.5, 1, 5, 20, 87, 100, 1e4);
    const up = Float32Array.from(gate, () => 1);
    const out = room(32);
    kernels.siluMul(put([...gate, ...up, ...up, ...gate]), out, 2, 64);
    const silu = (x: number) => x / (1 + Math.exp(-x));
    for (const [i, g] of gate.entries()) {
      expect(Math.abs(f32[out / 4 + i]! - silu(g))).toBeLessThanOrEqual(3e-7 * Math.abs(g) + 1e-30);
      expect(f32[out / 4 + 16 + i]).toBeCloseTo(silu(1) * g, 2);
    }
    const [x, y] = [put(gate), put(up)];
    kernels.add(x, y, 64);
    expect(f32.subarray(x / 4, x / 4 + 16)).toEqual(gate.map((g) => g + 1));
  });

  it("reaches the upper half of a memory of 4 GiB", () => {
    const memory = newMemory(65_535);
    const kernels = kernelsOver(memory);
    const at = 65_535 * 65_536 - 4096;
    const view = (offset: number, n: number) => new Float32Array(memory.buffer, at + offset, n);
    view(0, 8).fill(2);
    view(64, 64).forEach((_, i, w) => {
      w[i] = i;
    });
    kernels.matmul(at, at + 64, at + 512, 0, 1, 8, 32);
    expect([...view(512, 8)]).toEqual(Array.from({ length: 8 }, (_, n) => 2 * (8 * 8 * n + 28)));
    kernels.add(at, at + 512, 32);
    expect(view(0, 2)).toEqual(Float32Array.of(58, 186));
  });
});
