import { afterEach, expect, it, vi } from "vitest";
import { InvalidArgumentError } from "../../../core/index.ts";
import type { RankDevice } from "../../device/rank-device.ts";
import type { CudaStream } from "../../device/stream.ts";
import { Completion } from "./completion.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

it.each([0, 2 ** 31, 2 ** 32, 3 * 2 ** 31, 2 ** 45])(
  "knows which marks around number %i a stream has reached",
  (wrap) => {
    const buffer = new ArrayBuffer(4);
    // What the stream writes, as the driver is told to: marks are numbered by 32-bit words there.
    const at = { pinned: { take: () => ({ buffer }) } } as unknown as RankDevice;
    const completion = new Completion(at, {} as CudaStream);
    for (let done = Math.max(1, wrap - 3); done < wrap + 3; done++) {
      new Uint32Array(buffer)[0] = done;
      for (const behind of [0, 1, 2, 1000]) {
        if (done > behind) expect(completion.reached(done - behind)).toBe(true);
        expect(completion.reached(done + behind + 1)).toBe(false);
      }
      expect(completion.reached(0)).toBe(false);
    }
  },
);

it("lets kernels tell of their ends, or the stream alone, and refuses other words", () => {
  const at = { pinned: { take: () => ({ buffer: new ArrayBuffer(4) }) } } as unknown as RankDevice;
  const make = (word: string) => {
    vi.stubEnv("CHORALE_CUDA_COMPLETION", word);
    return new Completion(at, {} as CudaStream).ofKernels !== undefined;
  };
  expect(["", "kernel", "stream"].map(make)).toEqual([true, true, false]);
  expect(() => make("Stream")).toThrow(InvalidArgumentError);
});
