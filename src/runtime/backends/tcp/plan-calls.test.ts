/** Plans over sockets: `comm.run` and `algorithm:`, their results, refusals, fingerprints, hangs. */
import { afterAll, describe, expect, it } from "vitest";
import { closeRankPool, runRanks } from "../../world/index.ts";

afterAll(closeRankPool);

const TCP = { backend: "tcp", isolation: "thread" } as const;

describe.skipIf(process.platform === "win32")("plans over sockets", () => {
  it("give what each algorithm's collective means, at one size after the other", { timeout: 60_000 }, async () => {
    const wrongs = await runRanks(
      3,
      async ({ comm, rank, size: n }, data) => {
        const { ALGORITHMS } = await import("chorale/algorithms");
        const { compile } = await import("chorale/language");
        const wrong: string[] = [];
        const value = (r: number, i: number) => ((r * 31 + i * 7) % 100) + 1;
        for (const { name, collective, legal, make } of ALGORITHMS) {
          const whole = ["all_reduce", "broadcast", "reduce"].includes(collective);
          if (!legal(n) || !(whole || collective === "all_gather" || collective === "all_to_all")) continue;
          // Puts, reads, packets, ports, loops and switches: far-run.test.ts has all algorithms.
          const isOne =
            /^(one-shot-read|two-shot-packet|ring-all|switch-all-r|chain|staged-all-g|packet-r|pairwise)/.test(name);
          if (!isOne && data !== "all") continue;
          // Their proofs are what takes long: the library's own tests have them.
          const plan = compile(make({ numRanks: n }), { verify: false });
          for (const count of [5, 0, 40_001]) {
            const length = count * (collective === "all_to_all" ? n : 1);
            const input = Int32Array.from({ length }, (_, i) => value(rank, i));
            const gives = collective !== "broadcast" || rank === 0;
            const takes = collective !== "reduce" || rank === 0;
            const output = new Int32Array(collective === "all_gather" ? n * count : length).fill(-1);
            const result = await comm.run(plan, {
              force: true,
              ...(gives ? { input } : {}),
              ...(takes ? { output } : {}),
            });
            if ((result === undefined) === takes) wrong.push(`${name}: result`);
            for (let i = 0; takes && i < output.length; i++) {
              let expected = 0;
              if (collective === "broadcast") expected = value(0, i);
              else if (collective === "all_gather") expected = value(Math.floor(i / count), i % count);
              else if (collective === "all_to_all") expected = value(Math.floor(i / count), rank * count + (i % count));
              else for (let r = 0; r < n; r++) expected += value(r, i);
              if (output[i] === expected) continue;
              wrong.push(`${name}, ${count} elements: output ${i} is ${output[i]}, expected ${expected}`);
              break;
            }
          }
        }
        return wrong;
      },
      { ...TCP, data: process.env["CHORALE_FULL"] === undefined ? "some" : "all" },
    );
    expect(wrongs).toEqual([[], [], []]);
  });

  it("round once whatever the plan, and give all ranks the same bits", { timeout: 60_000 }, async () => {
    const values = await runRanks(
      3,
      async ({ comm, rank, size: n }) => {
        const { algorithm } = await import("chorale/algorithms");
        const { decodeFloat, encodeFloat } = await import("chorale/core");
        const program = algorithm("ring-all-reduce").make({ numRanks: n });
        const wrong: string[] = [];
        const bits: string[] = [];
        for (const dtype of ["f16", "bf16", "f8e4m3"] as const) {
          for (const op of ["sum", "avg", comm.preMulSum(2)] as const) {
            const raw = (r: number, i: number) => encodeFloat(dtype, ((r * 37 + i * 11) % 29) / 8 - 1);
            const array = dtype.startsWith("f8") ? new Uint8Array(1003) : new Uint16Array(1003);
            for (let i = 0; i < array.length; i++) array[i] = raw(rank, i);
            const result = await comm.run(program, { input: array, dtype, op });
            const got = result?.data as Uint16Array;
            bits.push(got.join());
            for (let i = 0; i < array.length; i++) {
              let sum = 0;
              // Small multiples of 1/8: exact in f32 in any order.
              for (let r = 0; r < n; r++) sum += decodeFloat(dtype, raw(r, i)) * (typeof op === "string" ? 1 : 2);
              const expected = encodeFloat(dtype, op === "avg" ? sum / n : sum);
              if (got[i] !== expected) wrong.push(`${dtype} ${JSON.stringify(op)}: ${i} is ${got[i]}, not ${expected}`);
            }
          }
        }
        return { wrong, bits: bits.join(";") };
      },
      TCP,
    );
    expect(values.map(({ wrong }) => wrong)).toEqual([[], [], []]);
    expect(new Set(values.map(({ bits }) => bits)).size).toBe(1);
  });

  it("end though a rank that had its part closes its group at once", { timeout: 60_000 }, async () => {
    const failures = await runRanks(
      3,
      async ({ comm, rank }) => {
        // The root's last signal waits for what the first rank has, which may have gone meanwhile.
        for (let round = 0; round < 3; round++) {
          const group = await comm.split(0, rank);
          const data = new Int32Array(rank === 1 ? 6_000_000 : 2_000_000).fill(round);
          const part = await group?.scatter(data, { root: 1, algorithm: "direct-scatter", timeoutMs: 5_000 });
          if (part?.data[1_999_999] !== round) return `round ${round}: ${part?.data[1_999_999]}`;
          await group?.close();
        }
        return "";
      },
      TCP,
    );
    expect(failures).toEqual(["", "", ""]);
  });

  it("serve a call that names an algorithm, refuse one that is none, and are counted", async () => {
    const values = await runRanks(
      2,
      async ({ comm, rank }) => {
        const input = new Float32Array(100).fill(rank + 1);
        const named = await comm.allReduce(input, { algorithm: "ring-all-reduce", output: new Float32Array(100) });
        await comm.allReduce(input, { algorithm: "socket-kernel" });
        let refused = "";
        try {
          comm.allReduce(input, { algorithm: "ring-all-gather" });
        } catch (error) {
          refused = (error as Error).message;
        }
        const { choices = {} } = comm.stats();
        return [named.data[99], input[7], choices["all_reduce ring-all-reduce"], refused];
      },
      TCP,
    );
    for (const value of values) {
      expect(value).toEqual([3, 3, 1, expect.stringMatching(/one of socket-kernel, .*ring-all-reduce/)]);
    }
  });

  it("tell ranks that run different plans, or other sizes, on both sides", async () => {
    for (const what of ["plan", "size"] as const) {
      const said = await runRanks(
        2,
        async ({ comm, rank, size: n }, what) => {
          const { algorithm } = await import("chorale/algorithms");
          const name = rank === 1 && what === "plan" ? "binomial-all-reduce" : "ring-all-reduce";
          const input = new Float32Array(rank === 1 && what === "size" ? 16 : 8);
          const failed = comm.run(algorithm(name).make({ numRanks: n }), { input });
          return failed.then(
            () => "nothing",
            (error: Error) => `${(error as { code?: string }).code}: ${error.message}`,
          );
        },
        { ...TCP, data: what },
      );
      for (const text of said) {
        expect(text).toMatch(
          what === "plan" ? /^MISMATCH[\s\S]*plan (ring|binomial)-all-reduce/ : /8 x f32[\s\S]*16|16/,
        );
      }
    }
  });

  it("end a forced plan that hangs at its deadline, and say where each strand stands", async () => {
    const said = await runRanks(
      2,
      async ({ comm, size: n }) => {
        const { algorithm } = await import("chorale/algorithms");
        const good = algorithm("ring-all-reduce").make({ numRanks: n }).plan();
        const plan = structuredClone(good) as unknown as { ranks: { strands: { ops: { kind: string }[] }[] }[] };
        // Rank 1 forgets its first signal.
        const ops = plan.ranks[1]?.strands[0]?.ops ?? [];
        ops.splice(
          ops.findIndex(({ kind }) => kind === "signal"),
          1,
        );
        await comm.barrier();
        const failed = comm.run(plan as never, { input: new Float32Array(8), force: true, timeoutMs: 1500 });
        return failed.then(
          () => "nothing",
          (error: Error) => error.message,
        );
      },
      TCP,
    );
    for (const text of said) {
      expect(text).toMatch(/plan ring-all-reduce \(\w{16}\), which was not verified did not complete within 1500 ms/);
    }
    expect(said.join()).toMatch(/rank \d strand 0 at op \d+, wait memory \d+ \(.*ring.*:\d+:\d+\)/);
  });

  it("give all memory back when the group closes, and keep 32 plans at most", async () => {
    const values = await runRanks(
      2,
      async ({ comm, rank, size: n }) => {
        const { algorithm } = await import("chorale/algorithms");
        const input = new Float32Array(64).fill(rank + 1);
        const output = new Float32Array(64);
        const run = (on: typeof comm, most: number) =>
          on.run(algorithm("one-shot-packet-all-reduce").make({ numRanks: n, maxMessageSizeBytes: most }), {
            input,
            output,
          });
        // The code's own context stays.
        await run(comm, 1_000_000);
        const before = comm.stats().memory.usedBytes;
        const group = await comm.split(0);
        if (group === undefined) throw new Error("no group");
        let bound = 0;
        for (let i = 1; i <= 50; i++) {
          await run(group, 1_000_000 + i);
          if (i === 34) bound = comm.stats().memory.usedBytes;
        }
        const kept = comm.stats().memory.usedBytes;
        await group.close();
        return [kept <= bound, comm.stats().memory.usedBytes - before, output[63]];
      },
      TCP,
    );
    expect(values).toEqual([
      [true, 0, 3],
      [true, 0, 3],
    ]);
  });
});
