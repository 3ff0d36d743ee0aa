/** `comm.run` on threads: results, refusals, fingerprints, hangs. The executor's own tests are in executor/cpu. */
import { describe, expect, it } from "vitest";
import { onRanks, type Rank, valuesOf } from "../../../../test/helpers/threads-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";
import type * as Algorithms from "../../../authoring/algorithms/index.ts";
import { createThreadsHost, dumpFlight } from "./index.ts";

describe("run on threads", () => {
  it.each(spread([2, 4], 2))(
    "gives what each algorithm's collective means, on %i ranks, at one size after the other",
    async (n) => {
      const outcomes = await onRanks(n, async ({ comm, backend, n, rank, load }) => {
        const { ALGORITHMS } = await load<typeof Algorithms>("authoring/algorithms");
        const { compile } = await load<typeof import("../../../authoring/compiler/index.ts")>("authoring/compiler");
        const wrong: string[] = [];
        const value = (r: number, i: number) => ((r * 31 + i * 7) % 100) + 1;
        for (const [index, entry] of ALGORITHMS.entries()) {
          // On four ranks every fourth: executor/cpu runs all of them on more.
          if (n !== 2 && index % 4 !== 0) continue;
          const whole = ["all_reduce", "broadcast", "reduce"].includes(entry.collective);
          if (!entry.legal(n) || !(whole || entry.collective === "all_gather" || entry.collective === "all_to_all"))
            continue;
          // Proofs of four ranks on four ranks are most of a minute; those of two are of the same programs.
          const program = entry.make({ numRanks: n });
          const plan = n === 2 ? program : compile(program, { verify: false });
          for (const count of [5, 1000, 0, 70_001]) {
            const parts = entry.collective === "all_to_all" ? n : 1;
            const length = count * parts;
            const isRoot = rank === 0;
            const input = backend.tensor("i32", [length]);
            for (let i = 0; i < length; i++) input.data[i] = value(rank, i);
            const gives = entry.collective !== "broadcast" || isRoot;
            const takes = entry.collective !== "reduce" || isRoot;
            const outLength = entry.collective === "all_gather" ? n * count : length;
            const output = backend.tensor("i32", [outLength]);
            output.data.fill(-1);
            const result = await comm.run(plan, {
              force: n !== 2,
              ...(gives ? { input } : {}),
              ...(takes ? { output } : {}),
            });
            if ((result === undefined) === takes) wrong.push(`${entry.name}: result`);
            for (let i = 0; takes && i < outLength; i++) {
              let expected = 0;
              if (entry.collective === "broadcast") expected = value(0, i);
              else if (entry.collective === "all_gather") expected = value(Math.floor(i / count), i % count);
              else if (entry.collective === "all_to_all")
                expected = value(Math.floor(i / count), rank * count + (i % count));
              else for (let r = 0; r < n; r++) expected += value(r, i);
              if (output.data[i] === expected) continue;
              wrong.push(`${entry.name}, ${count} elements: output ${i} is ${output.data[i]}, expected ${expected}`);
              break;
            }
            backend.free(input);
            backend.free(output);
          }
        }
        await comm.close();
        return wrong;
      });
      expect(valuesOf(outcomes)).toEqual(Array.from({ length: n }, () => []));
    },
  );

  it("proves a plan on one rank: what that one finds, the others are told", async () => {
    const outcomes = await onRanks(4, async ({ comm, n, rank, load }) => {
      const { twoShotFusedReadAllReduce } = await load<typeof Algorithms>("authoring/algorithms");
      const { compile } = await load<typeof import("../../../authoring/compiler/index.ts")>("authoring/compiler");
      const { provePlanOnce } = await load<typeof import("../../../authoring/verifier/index.ts")>("authoring/verifier");
      const { askOnce, hashPlan, proofOf } =
        await load<typeof import("../../../authoring/plan/index.ts")>("authoring/plan");
      const plan = compile(twoShotFusedReadAllReduce({ numRanks: n }), { verify: false });
      let proofs = 0;
      // One after the other: of two at a time, one would wait for the other, but not for ever.
      if (rank !== 0) comm.barrier().wait();
      if (provePlanOnce(plan) !== undefined) proofs++;
      const proof = proofOf(plan);
      const promises = proof?.ok === true ? [proof.endsAlone(), proof.relaunches()] : [];
      if (rank === 0) comm.barrier().wait();
      comm.barrier().wait();
      for (const promise of ["", " ends alone", " relaunches"]) {
        askOnce(`${hashPlan(plan)}${promise}`, () => {
          proofs++;
          return true;
        });
      }
      await comm.close();
      return { proofs, promises };
    });
    const found = valuesOf(outcomes) as { proofs: number; promises: boolean[] }[];
    expect(found.map(({ proofs }) => proofs)).toEqual([1, 0, 0, 0]);
    expect(found.map(({ promises }) => promises)).toEqual(Array.from({ length: 4 }, () => found[0]?.promises));
    expect(found[0]?.promises).toHaveLength(2);
  });

  it("rounds once whatever the plan, and gives all ranks the same bits", async () => {
    const outcomes = await onRanks(4, async ({ comm, n, rank, load }) => {
      const { algorithm } = await load<typeof Algorithms>("authoring/algorithms");
      const { decodeFloat, encodeFloat } = await load<typeof import("../../../core/index.ts")>("core");
      const wrong: string[] = [];
      const bits: string[] = [];
      for (const name of ["ring-all-reduce", "two-shot-fused-read-all-reduce", "binomial-all-reduce"]) {
        for (const inPlace of [false, true]) {
          const program = algorithm(name).make({ numRanks: n, inPlace });
          for (const dtype of ["f16", "bf16", "f8e4m3", "f8e5m2"] as const) {
            for (const op of ["sum", "avg", comm.preMulSum(2)] as const) {
              const count = 1003;
              const raw = (r: number, i: number) => encodeFloat(dtype, ((r * 37 + i * 11) % 29) / 8 - 1);
              const array = dtype.startsWith("f8") ? new Uint8Array(count) : new Uint16Array(count);
              for (let i = 0; i < count; i++) array[i] = raw(rank, i);
              const options = inPlace ? { input: array } : { input: array, output: array.slice().fill(0x5a) };
              const result = await comm.run(program, { ...options, dtype, op });
              const got = result?.data as Uint16Array;
              bits.push(got.join());
              for (let i = 0; i < count; i++) {
                let sum = 0;
                // Small multiples of 1/8: exact in f32 in any order.
                for (let r = 0; r < n; r++) sum += decodeFloat(dtype, raw(r, i)) * (typeof op === "string" ? 1 : 2);
                const expected = encodeFloat(dtype, op === "avg" ? sum / n : sum);
                if (got[i] === expected) continue;
                wrong.push(
                  `${name} ${inPlace} ${dtype} ${JSON.stringify(op)}: ${i} is ${got[i]}, expected ${expected}`,
                );
                break;
              }
            }
          }
          for (const dtype of ["i32", "f64", "u8"] as const) {
            const Kind = { i32: Int32Array, f64: Float64Array, u8: Uint8Array }[dtype];
            const input = new Kind(77);
            for (let i = 0; i < 77; i++) input[i] = (i % 13) + rank;
            const result = await comm.run(
              program,
              inPlace ? { input, op: "avg" } : { input, output: input.slice(), op: "avg" },
            );
            for (let i = 0; i < 77; i++) {
              const mean = (n * (i % 13) + 6) / n;
              const expected = dtype === "f64" ? mean : Math.trunc(mean);
              if (Number(result?.data[i]) !== expected)
                wrong.push(`${name} ${inPlace} ${dtype} avg ${i}: ${result?.data[i]}`);
            }
          }
        }
      }
      return { wrong, bits: bits.join(";") };
    });
    const values = valuesOf(outcomes) as { wrong: string[]; bits: string }[];
    expect(values.map(({ wrong }) => wrong)).toEqual([[], [], [], []]);
    expect(new Set(values.map(({ bits }) => bits)).size).toBe(1);
  });

  it("refuses what is not proved, not for this group, or does not fit, before anything is sent", async () => {
    const outcomes = await onRanks(2, async ({ comm, load }) => {
      const { algorithm } = await load<typeof Algorithms>("authoring/algorithms");
      const { compile } = await load<typeof import("../../../authoring/compiler/index.ts")>("authoring/compiler");
      const ring = algorithm("ring-all-reduce");
      const input = new Float32Array(8);
      const unproved = compile(ring.make({ numRanks: 2 }), { verify: false });
      const says = (make: () => unknown) => {
        try {
          make();
          return "nothing";
        } catch (error) {
          return (error as Error).message;
        }
      };
      const said = [
        says(() => comm.run(unproved, { input })),
        says(() => comm.run(ring.make({ numRanks: 3 }), { input })),
        says(() => comm.run(ring.make({ numRanks: 2 }))),
        says(() => comm.run(ring.make({ numRanks: 2 }), { input, output: new Float32Array(7) })),
        says(() => comm.run(ring.make({ numRanks: 2 }), { input, output: new Float64Array(8) })),
        says(() => comm.run(ring.make({ numRanks: 2, op: "max" }), { input, op: "sum" })),
        says(() => comm.run(ring.make({ numRanks: 2 }), { input, op: "band" })),
        says(() => comm.run(7 as never)),
      ];
      // And the group is as good as before; forced, the same plan runs.
      const result = await comm.run(unproved, { input: input.fill(2), force: true });
      return [...said, result?.data[7]];
    });
    const [first] = valuesOf(outcomes) as [string[]];
    expect(first).toEqual([
      expect.stringMatching(/which was not verified.*compile\(\).*force: true/),
      expect.stringMatching(/plan is for 3 ranks; expected one for the group's 2 ranks/),
      expect.stringMatching(/input is undefined; expected a tensor or a typed array/),
      expect.stringMatching(/output of rank \d is 28 bytes; expected 32 bytes/),
      expect.stringMatching(/output's dtype is "f64"; expected f32/),
      expect.stringMatching(/op is "sum"; expected max, for which the plan is right/),
      expect.stringMatching(/band on f32/),
      expect.stringMatching(/plan is "7"|plan is 7/),
      4,
    ]);
  });

  it("leaves as it was what a plan by force does not write, and makes new results of zeros", async () => {
    const outcomes = await onRanks(2, async ({ comm, load }) => {
      const { algorithm } = await load<typeof import("../../../authoring/algorithms/index.ts")>("authoring/algorithms");
      const whole = algorithm("direct-all-gather").make({ numRanks: 2 }).plan();
      const idle = structuredClone(whole) as unknown as { ranks: { strands: { ops: unknown[] }[] }[] };
      for (const { strands } of idle.ranks) for (const strand of strands) strand.ops = [];
      const found: unknown[] = [];
      for (const dtype of ["f32", "f16"] as const) {
        const make = (count: number) => (dtype === "f32" ? new Float32Array(count) : new Uint16Array(count));
        // Their memory has held results before.
        await comm.run(whole, { input: make(4).fill(1), output: make(8), dtype });
        const output = make(8).fill(15_360);
        await comm.run(idle as never, { input: make(4), output, dtype, force: true });
        const made = await comm.run(idle as never, { input: make(4), dtype, force: true });
        found.push([new Set(output), new Set(made?.data as Iterable<number>)]);
      }
      return found;
    });
    const each = [new Set([15_360]), new Set([0])];
    for (const found of valuesOf(outcomes)) expect(found).toEqual([each, each]);
  });

  it("proves a plan once in a world, not on every rank, and tells every rank what is wrong with one", async () => {
    const outcomes = await onRanks(4, async ({ comm, n, rank, load }) => {
      const { algorithm } = await load<typeof Algorithms>("authoring/algorithms");
      const plans = await load<typeof import("../../../authoring/plan/index.ts")>("authoring/plan");
      const language = await load<typeof import("../../../authoring/language/index.ts")>("authoring/language");
      await comm.barrier();
      const program = algorithm("two-shot-fused-read-all-reduce").make({ numRanks: n });
      const result = await comm.run(program, { input: new Float32Array(64).fill(rank) });
      const plan = program.plan();
      const asked: string[] = [];
      // Whoever asks now hears what the first one found.
      const finds = (question: string) => plans.askOnce(question, () => asked.push(question) > 0);
      const known = finds(plans.hashPlan(plan));
      finds(`${plans.hashPlan(plan)} ends alone`);
      await comm.barrier();
      finds("0123456789abcdef of nobody");
      const options = { name: "forgetful", collective: language.allGather(n), autoSync: "full" } as const;
      const wrong = language.program(options, (p) => {
        for (const to of p.ranks) p.copy(to.output.at(to.id), to.input.at(0));
      });
      let said = "";
      try {
        comm.run(wrong, { input: new Float32Array(4) });
      } catch (error) {
        said = (error as Error).message;
      }
      await comm.barrier();
      return [result?.data[7], known, asked.length, said];
    });
    const values = valuesOf(outcomes) as [number, boolean, number, string][];
    for (const [sum, proved, , said] of values) {
      expect([sum, proved]).toEqual([6, true]);
      expect(said).toMatch(/forgetful/);
    }
    // Of the three questions only the last one was new, and one rank found it out.
    expect(values.reduce((all, [, , asked]) => all + asked, 0)).toBe(1);
  });

  it("tells ranks that run different plans, or other sizes, on both sides", async () => {
    for (const what of ["plan", "size"] as const) {
      const text = `async ({ comm, rank, n, load }) => {
        const { algorithm } = await load("authoring/algorithms");
        const name = rank === 1 && ${what === "plan"} ? "binomial-all-reduce" : "ring-all-reduce";
        const input = new Float32Array(rank === 1 && ${what === "size"} ? 16 : 8);
        await comm.run(algorithm(name).make({ numRanks: n }), { input });
      }`;
      const outcomes = await onRanks(2, { toString: () => text } as never);
      for (const { error } of outcomes) {
        expect(error?.code).toBe("MISMATCH");
        expect(error?.message).toMatch(
          what === "plan" ? /of plan (ring|binomial)-all-reduce/ : /8 x f32[\s\S]*16 x f32|16[\s\S]*8/,
        );
      }
    }
  });

  it("ends a forced plan that hangs at its deadline, says where each strand stands, and lives on", async () => {
    const handle = createThreadsHost({ ranks: 2 });
    const run = async ({ comm, backend, n, load }: Rank) => {
      const { algorithm } = await load<typeof Algorithms>("authoring/algorithms");
      const { deepFreeze } = await load<typeof import("../../../core/index.ts")>("core");
      const { provePlan } = await load<typeof import("../../../authoring/verifier/index.ts")>("authoring/verifier");
      const good = algorithm("ring-all-reduce").make({ numRanks: n }).plan();
      const plan = JSON.parse(JSON.stringify(good, (_, v) => (typeof v === "bigint" ? 0 : v)));
      plan.options.maxMessageSizeBytes = good.options.maxMessageSizeBytes;
      plan.options.minMessageSizeBytes = good.options.minMessageSizeBytes;
      // Rank 1 forgets its first signal.
      const { ops } = plan.ranks[1].strands[0];
      ops.splice(
        ops.findIndex((op: { kind: string }) => op.kind === "signal"),
        1,
      );
      provePlan(deepFreeze(plan));
      const input = new Float32Array(8);
      let refused = "";
      try {
        comm.run(plan, { input });
      } catch (error) {
        refused = (error as Error).message;
      }
      const group = await backend.group("other", [0, 1]);
      // Proofs take their time on a busy machine: from here on, both are there.
      await group.barrier();
      const error = (await comm.run(plan, { input, force: true, timeoutMs: 1500 }).then(
        () => undefined,
        (e: unknown) => e,
      )) as Error;
      const after = await group.run(algorithm("ring-all-reduce").make({ numRanks: n }), { input: input.fill(1) });
      return [refused, error.message, after?.data[0]];
    };
    const outcomes = await onRanks(2, run, { handle });
    const strands = [expect.stringMatching(/^strand 0 at op \d+, wait memory \d+ \(.*ring.*:\d+:\d+\)$/)];
    expect(dumpFlight(handle).ranks[0]?.entries).toContainEqual(
      expect.objectContaining({ op: "run", state: "failed", strands }),
    );
    for (const value of valuesOf(outcomes) as [string, string, number][]) {
      expect(value[0]).toMatch(/force: true[\s\S]*(deadlock|unmatched)/);
      expect(value[1]).toMatch(
        /run\(sum, parts of 8 x f32\) of plan ring-all-reduce.*wrong[\s\S]*did not complete within 1500 ms/,
      );
      expect(value[1]).toMatch(/rank 0 strand 0 at op \d+, wait memory \d+ \(.*ring.*:\d+:\d+\)/);
      expect(value[2]).toBe(2);
    }
  });

  it("refuses a forced plan that reaches beyond its buffers, and lives on", async () => {
    const outcomes = await onRanks(2, async ({ comm, n, load }) => {
      const { algorithm } = await load<typeof Algorithms>("authoring/algorithms");
      const good = algorithm("ring-all-reduce").make({ numRanks: n });
      const plan = structuredClone(good.plan()) as unknown as { ranks: { input: { chunks: number } }[] };
      for (const rank of plan.ranks) rank.input.chunks = 1;
      const input = new Float32Array(8);
      const refused = await (async () => comm.run(plan as never, { input, force: true }))().catch((e: Error) => e);
      const after = await comm.run(good, { input: input.fill(1) });
      return [(refused as Error).name, (refused as Error).message, after?.data[0]];
    });
    for (const [name, message, after] of valuesOf(outcomes) as [string, string, number][]) {
      expect(name).toBe("PlanError");
      expect(message).toMatch(/input buffer|of the input of rank/);
      expect(after).toBe(2);
    }
  });

  it("names the buffer that was given when its size does not fit", async () => {
    const outcomes = await onRanks(2, async ({ comm, n, load }) => {
      const { algorithm } = await load<typeof Algorithms>("authoring/algorithms");
      const plan = algorithm("ring-all-gather").make({ numRanks: n, inPlace: true });
      const run = async () => comm.run(plan, { output: new Float32Array(5) });
      return run().then(
        () => "",
        (error: Error) => error.message,
      );
    });
    const said = "output is cut into parts of 10 bytes; expected whole elements of f32, 4 bytes";
    expect(valuesOf(outcomes)).toEqual([said, said]);
  });

  it("gives all memory back when the group closes, and keeps 64 plans at most", async () => {
    const outcomes = await onRanks(2, async ({ comm, backend, n, load }) => {
      const { algorithm } = await load<typeof Algorithms>("authoring/algorithms");
      await comm.barrier();
      const before = comm.stats().memory.usedBytes;
      await comm.barrier();
      const group = await backend.group("plans", [0, 1]);
      const [tensor, tensor2] = [backend.tensor("f32", [64]), backend.tensor("f32", [64])];
      let bound = 0;
      for (let i = 1; i <= 90; i++) {
        const program = algorithm("one-shot-packet-all-reduce").make({
          numRanks: n,
          maxMessageSizeBytes: 1_000_000 + i,
        });
        await group.run(program, { input: tensor, output: tensor2 });
        if (i === 70) bound = comm.stats().memory.usedBytes;
      }
      await comm.barrier();
      const kept = comm.stats().memory.usedBytes;
      await group.close();
      backend.free(tensor);
      backend.free(tensor2);
      await comm.barrier();
      return [kept <= bound + 65_536, comm.stats().memory.usedBytes - before];
    });
    expect(valuesOf(outcomes)).toEqual([
      [true, 0],
      [true, 0],
    ]);
  });
});
