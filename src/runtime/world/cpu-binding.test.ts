import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { InvalidArgumentError } from "../../core/index.ts";
import { parseCpus, shareCpus } from "./cpu-binding.ts";
import { launch } from "./launch.ts";

const range = (first: number, last: number) => Array.from({ length: last - first + 1 }, (_, i) => first + i);

describe("the CPUs of ranks", () => {
  it("are equal shares, neighbours of a node together, of those that may be used", () => {
    const nodes = [
      [0, 1, 2, 3, 8, 9, 10, 11],
      [4, 5, 6, 7, 12, 13, 14, 15],
    ];
    expect(shareCpus("cores", 4, range(0, 15), nodes)).toEqual([
      [0, 1, 2, 3],
      [8, 9, 10, 11],
      [4, 5, 6, 7],
      [12, 13, 14, 15],
    ]);
    expect(shareCpus("cores", 2, [2, 3, 4, 5, 6], nodes)).toEqual([
      [2, 3],
      [4, 5, 6],
    ]);
    expect(shareCpus("cores", 3, [4, 5], [])).toEqual([[4], [5], [4]]);
    expect(shareCpus("numa", 4, range(0, 15), nodes)).toEqual([nodes[0], nodes[0], nodes[1], nodes[1]]);
    expect(shareCpus("numa", 2, range(4, 7), nodes)).toEqual([range(4, 7), range(4, 7)]);
    expect(parseCpus("0-2,8\n")).toEqual([0, 1, 2, 8]);
    expect(() => parseCpus("0-x")).toThrow(InvalidArgumentError);
  });

  it.skipIf(process.platform !== "linux")(
    "are what a rank's process sees, also one that is started again",
    async () => {
      const own = /^Cpus_allowed_list:\s*(\S+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
      const all = parseCpus(own ?? "");
      const got = await launch({
        ranks: 2,
        backend: "tcp",
        bind: "cores",
        onFailure: "respawn",
        run: async (first) => {
          let world = first;
          if (world.generation === 1 && world.rank === 1) process.exit(3);
          try {
            await world.comm.barrier();
          } catch {
            world = await world.rebuild();
            await world.comm.barrier();
          }
          const status = process.getBuiltinModule("node:fs").readFileSync("/proc/self/status", "utf8");
          return [world.generation, /^Cpus_allowed_list:\s*(\S+)/m.exec(status)?.[1]] as const;
        },
        onOutput: () => {},
      });
      const half = Math.floor(all.length / 2);
      const expected = all.length === 1 ? [all, all] : [all.slice(0, half), all.slice(half)];
      expect(got.map(([generation, text]) => [generation, parseCpus(String(text))])).toEqual(
        expected.map((cpus) => [2, cpus]),
      );
      expect(readFileSync("/proc/self/status", "utf8")).toContain(`Cpus_allowed_list:\t${own}`);
      await expect(launch({ ranks: 1, bind: "cores", run: () => 1 })).rejects.toThrow(
        /"none" with ranks that are threads/,
      );
    },
  );
});
