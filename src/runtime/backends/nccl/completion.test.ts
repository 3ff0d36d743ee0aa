import { afterEach, expect, it, vi } from "vitest";
import { InvalidArgumentError } from "../../../core/index.ts";
import type { RankDevice } from "../../device/rank-device.ts";
import type { CudaStream } from "../../device/stream.ts";
import { Completion } from "./completion.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

/** A completion whose numbers go on from `first`, and the words that kernels and the stream write. */
function completionFrom(first: number) {
  const buffer = new ArrayBuffer(36);
  const device = { activate: () => {}, driver: { api: { cuStreamWriteValue32_v2: () => 0 } } };
  const at = { pinned: { take: () => ({ buffer }) }, device } as unknown as RankDevice;
  const completion = new Completion(at, {} as CudaStream, first);
  completion.open();
  const words = new Int32Array(buffer);
  return { completion, ofKernels: words.subarray(0, 8), ofStream: words.subarray(8) };
}

it.each([0, 2 ** 31, 2 ** 32, 3 * 2 ** 31, 2 ** 45])(
  "knows which marks around number %i a stream has reached, whoever writes them",
  (wrap) => {
    const { completion, ofKernels, ofStream } = completionFrom(Math.max(0, wrap - 4));
    for (let i = 0; i < 12; i++) {
      const isOfStream = i % 3 === 2;
      const marker = isOfStream ? completion.mark() : completion.next();
      const before = [1, 2, 3, 1000].map((less) => marker - less).filter((one) => one > Math.max(0, wrap - 4));
      expect([marker, 0].map((one) => completion.reached(one))).toEqual([false, false]);
      (isOfStream ? ofStream : ofKernels).fill(marker);
      expect([marker, ...before].every((one) => completion.reached(one))).toBe(true);
      expect([marker + 1, marker + 1001].some((one) => completion.reached(one))).toBe(false);
    }
  },
);

it.each(["kernels", "the stream"])("takes what %s wrote last, long ago, for no later mark", (who) => {
  // The other one wrote some 2^31 numbers since.
  const { completion, ofKernels, ofStream } = completionFrom(2 ** 31 + 5);
  (who === "kernels" ? ofKernels : ofStream).fill(1);
  const others = who === "kernels" ? completion.mark() : completion.next();
  expect(completion.reached(others)).toBe(false);
  const own = who === "kernels" ? completion.next() : completion.mark();
  expect([others, own].some((one) => completion.reached(one))).toBe(false);
  (who === "kernels" ? ofKernels : ofStream).fill(own);
  expect([others, own].every((one) => completion.reached(one))).toBe(true);
});

it("lets kernels tell of their ends, or the stream alone, and refuses other words", () => {
  const at = { pinned: { take: () => ({ buffer: new ArrayBuffer(36) }) } } as unknown as RankDevice;
  const make = (word: string) => {
    vi.stubEnv("CHORALE_CUDA_COMPLETION", word);
    return new Completion(at, {} as CudaStream).ofKernels !== undefined;
  };
  expect(["", "kernel", "stream"].map(make)).toEqual([true, true, false]);
  expect(() => make("Stream")).toThrow(InvalidArgumentError);
});

it("takes a launch for ended once every word says so", () => {
  const { completion, ofKernels } = completionFrom(0);
  const turn = completion.next();
  for (let i = 7; i >= 0; i--) {
    expect(completion.reached(turn)).toBe(false);
    ofKernels[i] = turn;
  }
  expect(completion.reached(turn)).toBe(true);
});
