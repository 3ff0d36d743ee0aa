import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { threadPlace } from "./affinity.ts";
import { ffiProblem } from "./ffi-problem.ts";

const isLinux = process.platform === "linux";

it.skipIf(!isLinux || ffiProblem() !== undefined)(
  "moves a thread to each CPU that it may use, and leaves it free to run on all of them",
  () => {
    const place = threadPlace();
    if (place === undefined) throw new Error("no FFI here");
    const status = () =>
      /^Cpus_allowed_list:\s*(\S+)/m.exec(readFileSync("/proc/thread-self/status", "utf8"))?.[1] ?? "";
    const before = status();
    const listed = before.split(",").flatMap((part) => {
      const [first = 0, last = first] = part.split("-").map(Number);
      return Array.from({ length: last - first + 1 }, (_, i) => first + i);
    });
    expect(place.allowed()).toEqual(listed);
    for (const cpu of listed) {
      // The system may move it on at once, if rarely.
      let numTries = 0;
      do place.moveTo(cpu);
      while (place.current() !== cpu && ++numTries < 10_000);
      expect(numTries).toBeLessThan(10_000);
      expect(status()).toBe(before);
    }
  },
);

it.skipIf(isLinux)("has no place of a thread on other systems", () => {
  expect(threadPlace()).toBeUndefined();
});
