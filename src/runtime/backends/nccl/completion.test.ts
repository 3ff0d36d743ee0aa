import { afterEach, expect, it, vi } from "vitest";
import { InvalidArgumentError } from "../../../core/index.ts";
import type { RankDevice } from "../../device/rank-device.ts";
import type { CudaStream } from "../../device/stream.ts";
import { Completion } from "./completion.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

/** A completion whose numbers go on from `first`, as those of a plan's launches do, and the words of the plan and the stream. */
function completionFrom(first: number) {
  const buffer = new ArrayBuffer(4);
  const device = { activate: () => {}, driver: { api: { cuStreamWriteValue32_v2: () => 0 } } };
  const at = { pinned: { take: () => ({ buffer }) }, device } as unknown as RankDevice;
  const completion = new Completion(at, {} as CudaStream, first);
  completion.open();
  const ofKernels = new Int32Array(8).fill(first);
  let count = first;
  const launch = (words = ofKernels) => {
    completion.launched(words, ++count);
    return completion.lastOfKernel;
  };
  return { completion, launch, ofKernels, ofStream: new Int32Array(buffer) };
}

it.each([0, 2 ** 31, 2 ** 32, 3 * 2 ** 31, 2 ** 45])(
  "knows which marks around number %i a stream has reached, whoever writes them",
  (wrap) => {
    const first = Math.max(0, wrap - 4);
    const { completion, launch, ofKernels, ofStream } = completionFrom(first);
    let count = first;
    for (let i = 0; i < 12; i++) {
      const isOfStream = i % 3 === 2;
      const marker = isOfStream ? completion.mark() : launch();
      const before = [1, 2, 3, 1000].map((less) => marker - less).filter((one) => one > first);
      expect([marker, 0].map((one) => completion.reached(one))).toEqual([false, false]);
      if (isOfStream) ofStream.fill(marker);
      else ofKernels.fill(++count);
      expect([marker, ...before].every((one) => completion.reached(one))).toBe(true);
      expect([marker + 1, marker + 1001].some((one) => completion.reached(one))).toBe(false);
    }
  },
);

it("takes what the stream wrote last, long ago, for no later mark", () => {
  const { completion, launch, ofStream } = completionFrom(2 ** 31 + 5);
  // Some 2^31 launches since.
  ofStream.fill(1);
  const others = launch();
  expect(completion.reached(others)).toBe(false);
  const own = completion.mark();
  expect([others, own].some((one) => completion.reached(one))).toBe(false);
  ofStream.fill(own);
  expect([others, own].every((one) => completion.reached(one))).toBe(true);
});

it("knows how far a stream has come with launches of several plans, and forgets those that have ended", () => {
  const { completion, ofKernels, launch } = completionFrom(0);
  const others = new Int32Array(8);
  // Plans count their own launches: 1 to 1499 of one, by turns with 2 to 1500 of another.
  const markers = Array.from({ length: 1500 }, (_, i) => launch(i % 2 === 0 ? ofKernels : others));
  expect(markers.filter((one) => completion.reached(one))).toEqual([]);
  ofKernels.fill(1499);
  expect(markers.filter((one) => completion.reached(one))).toEqual([1]);
  others.fill(700);
  expect(markers.filter((one) => completion.reached(one))).toEqual(markers.slice(0, 701));
  others.fill(1500);
  expect(markers.every((one) => completion.reached(one))).toBe(true);
  ofKernels.fill(1501);
  expect(completion.reached(launch())).toBe(true);
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
  const { completion, launch, ofKernels } = completionFrom(0);
  const marker = launch();
  for (let i = 7; i >= 0; i--) {
    expect(completion.reached(marker)).toBe(false);
    ofKernels[i] = 1;
  }
  expect(completion.reached(marker)).toBe(true);
});
