/** All-reduce, residual and RMSNorm against a reference in f64: on threads, and on stand-in GPUs, in one kernel and in two. */
import { describe, expect, it } from "vitest";
import { available, library, worldOf } from "../../../test/helpers/cuda-worlds.ts";
import { launch } from "../../../test/helpers/kept-ranks.ts";
import { Random } from "../../../test/oracle/random.ts";
import { spread } from "../../../test/support/spread.ts";
import { decodeFloat, encodeFloat, newArray, type TypedArray } from "../../core/index.ts";
import type { ChoiceDocument } from "../executor/index.ts";
import { NORM_DTYPES, type NormDType } from "./norm-call.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? Date.now() % 100_000);

interface Case {
  readonly dtype: NormDType;
  readonly weightDType: NormDType;
  readonly rows: number;
  readonly hidden: number;
  readonly eps: number;
  /** By rank. */
  readonly inputs: readonly TypedArray[];
  readonly residual: TypedArray;
  readonly weight: TypedArray;
  readonly inPlace: boolean;
  /** Elements by which all buffers are shifted: memory that is not aligned. */
  readonly shift: number;
  readonly options: { readonly fuse?: boolean; readonly algorithm?: string };
}

const random = new Random(seed);
const numberOf = (dtype: NormDType, bits: number) => (dtype === "f32" ? bits : decodeFloat(dtype, bits));
function values(dtype: NormDType, count: number, scale: number): TypedArray {
  const made = newArray(dtype, count) as Float32Array;
  for (let i = 0; i < count; i++) {
    const value = scale * (2 * (random.below(1 << 20) / (1 << 20)) - 1);
    made[i] = dtype === "f32" ? value : encodeFloat(dtype, value);
  }
  return made;
}

function caseOf(numRanks: number, shape: Pick<Case, "dtype" | "rows" | "hidden"> & Partial<Case>): Case {
  const { dtype, rows, hidden } = shape;
  const weightDType = shape.weightDType ?? dtype;
  const count = rows * hidden;
  return {
    weightDType,
    // Large enough to be missed.
    eps: 0.25,
    inputs: Array.from({ length: numRanks }, () => values(dtype, count, 4)),
    residual: values(dtype, count, 8),
    weight: values(weightDType, hidden, 2),
    inPlace: false,
    shift: 0,
    options: {},
    ...shape,
  };
}

/** Half the distance from 1 to the next number, and half that of the numbers next to 0. */
const ROUNDING = { f32: [2 ** -24, 2 ** -150], f16: [2 ** -11, 2 ** -25], bf16: [2 ** -8, 2 ** -134] } as const;

interface Results {
  readonly output: TypedArray;
  readonly residual: TypedArray;
}

/** What is wrong with one call's results, by the bounds of docs/extensions.md. */
function faults(one: Case, results: readonly Results[]): string[] {
  const { dtype, weightDType, rows, hidden, eps, inputs } = one;
  const [unit, least] = ROUNDING[dtype];
  const what = `${dtype} [${rows}, ${hidden}], weight ${weightDType}, ${JSON.stringify(one.options)}, seed ${seed}`;
  const found: string[] = [];
  const [first] = results as [Results];
  for (const [rank, { output, residual }] of results.entries()) {
    for (const [name, a, b] of [
      ["output", output, first.output],
      ["residual", residual, first.residual],
    ] as const) {
      const bytes = (array: TypedArray) => Buffer.from(array.buffer, array.byteOffset, array.byteLength);
      if (!bytes(a).equals(bytes(b))) found.push(`${what}: the ${name} of rank ${rank} differs from rank 0's`);
    }
  }
  const at = (array: TypedArray, i: number) => numberOf(dtype, Number(array[i]));
  for (let row = 0; row < rows; row++) {
    let squares = 0;
    for (let i = row * hidden; i < (row + 1) * hidden; i++) {
      const terms = [...inputs.map((input) => at(input, i)), at(one.residual, i)];
      const exact = terms.reduce((a, b) => a + b, 0);
      const got = at(first.residual, i);
      const bound = (inputs.length + 1) * (unit * terms.reduce((a, b) => a + Math.abs(b), 0) + least);
      if (!(Math.abs(got - exact) <= bound)) found.push(`${what}: residual ${i} is ${got}, not ${exact}`);
      squares += got * got;
    }
    const scale = 1 / Math.sqrt(squares / hidden + Math.fround(eps));
    for (let i = 0; i < hidden; i++) {
      const exact = at(first.residual, row * hidden + i) * scale * numberOf(weightDType, Number(one.weight[i]));
      const got = at(first.output, row * hidden + i);
      const bound = (unit + (hidden / 64 + 12) * 2 ** -24) * Math.abs(exact) + least;
      if (!(Math.abs(got - exact) <= bound)) found.push(`${what}: output ${row}, ${i} is ${got}, not ${exact}`);
    }
  }
  return found.slice(0, 3);
}

/** What every rank does: sent as text, sees nothing of this file. */
const onRanks = async (
  world: import("chorale").World,
  { cases, onDevice }: { readonly cases: readonly Case[]; readonly onDevice: boolean },
) => {
  const { allReduceResidualRmsNorm } = await import("chorale/extensions");
  const { comm } = world;
  const found: Results[] = [];
  for (const { dtype, weightDType, rows, hidden, eps, inputs, residual, weight, inPlace, shift, options } of cases) {
    const count = rows * hidden;
    const bring = (type: NormDType, from: TypedArray | undefined, size: number) => {
      const whole = world.tensor(type, [size + shift]);
      const poisoned = new (whole.dtype === "f32" ? Float32Array : Uint16Array)(size + shift).fill(
        whole.dtype === "f32" ? Number.NaN : 0x7fff,
      );
      if (from !== undefined) poisoned.set(from as Float32Array, shift);
      if (onDevice) world.upload(whole, poisoned as never);
      else (whole.data as Float32Array).set(poisoned);
      return whole.slice(shift, shift + size);
    };
    const given = {
      input: bring(dtype, inputs[world.rank] as TypedArray, count),
      residual: bring(dtype, residual, count),
      weight: bring(weightDType, weight, hidden),
    };
    const outputs = inPlace
      ? { output: given.input, residualOutput: given.residual }
      : { output: bring(dtype, undefined, count), residualOutput: bring(dtype, undefined, count) };
    const result = await allReduceResidualRmsNorm(comm, { ...given, ...(!inPlace && outputs), eps, ...options });
    const read = (t: typeof result) => (onDevice ? world.download(t) : t.data).slice() as TypedArray;
    found.push({ output: read(result), residual: read(outputs.residualOutput) });
    // What is not given as an output stays as it was.
    const kept = [...(inPlace ? [] : [[given.residual, residual] as const]), [given.weight, weight] as const];
    for (const [tensor, wanted] of kept) {
      if (read(tensor).some((value, i) => value !== wanted[i])) throw new Error("an input was changed");
    }
  }
  return { found, choices: comm.stats().choices };
};

type World = { readonly ranks: number } & Partial<Parameters<typeof launch>[0]>;

async function check(cases: readonly Case[], world: World, onDevice: boolean) {
  const ranks = await launch({ ...world, data: { cases, onDevice }, run: onRanks } as Parameters<typeof launch>[0]);
  const told = ranks as readonly Awaited<ReturnType<typeof onRanks>>[];
  const wrong = cases.flatMap((one, i) =>
    faults(
      one,
      told.map(({ found }) => found[i] as Results),
    ),
  );
  expect(wrong).toEqual([]);
  return told[0]?.choices;
}

describe("all-reduce, residual and RMSNorm on threads", () => {
  it.each(spread([1, 2, 3, 4], 2))("gives what the reference does, %d ranks", async (ranks) => {
    const cases = NORM_DTYPES.flatMap((dtype, i) => [
      caseOf(ranks, { dtype, rows: 1 + random.below(5), hidden: 1 + random.below(300) }),
      caseOf(ranks, { dtype, weightDType: NORM_DTYPES[(i + 1) % 3]!, rows: 2, hidden: 64, inPlace: true, shift: 3 }),
      caseOf(ranks, { dtype, rows: 0, hidden: 7 }),
      caseOf(ranks, { dtype, rows: 3, hidden: 1, eps: 0 }),
    ]);
    await check(cases, { ranks }, false);
  });
});

describe("what all-reduce, residual and RMSNorm refuse", () => {
  it("is said before anything is sent, and the group goes on", async () => {
    const [found] = await launch({
      ranks: 2,
      run: async (world) => {
        const { allReduceResidualRmsNorm } = await import("chorale/extensions");
        const { tensor } = await import("chorale");
        const { comm, rank } = world;
        const f32 = (count: number) => new Float32Array(count).fill(1);
        const [input, residual, weight] = [f32(12), f32(12), f32(4)];
        const both = f32(24);
        const good = { input, residual, weight };
        const wrong: readonly Record<string, unknown>[] = [
          { ...good, residual: f32(8) },
          { ...good, residual: new Float64Array(12) },
          { ...good, residual: undefined },
          { ...good, weight: f32(5) },
          { ...good, weight: f32(0) },
          { ...good, weight: new Int32Array(4) },
          { ...good, input: new Float64Array(12) },
          { ...good, input: new Uint16Array(12) },
          { ...good, input: tensor("f32", [4, 3]) },
          { ...good, residualOutput: tensor("f32", [2, 6]) },
          { ...good, output: residual },
          { ...good, residualOutput: input },
          { ...good, input: both.subarray(0, 12), residual: both.subarray(6, 18) },
          { ...good, input: both.subarray(0, 12), output: both.subarray(4, 16) },
          { ...good, weight: input.subarray(0, 4) },
          { ...good, eps: -1 },
          { ...good, eps: "1e-5" },
          { ...good, fuse: 1 },
          { ...good, epsilon: 1 },
          { ...good, timeoutMs: -1 },
        ];
        const said: string[] = [];
        // One rank alone: nobody waits for it.
        if (rank === 0)
          for (const options of wrong) {
            try {
              allReduceResidualRmsNorm(comm, options as never);
              said.push("accepted");
            } catch (error) {
              said.push(`${(error as { code?: string }).code}: ${(error as Error).message}`);
            }
          }
        const last = allReduceResidualRmsNorm(comm, good);
        const { data } = last.wait();
        return { said, output: [...data].map(Number), residual: [...residual] };
      },
    });
    expect(found?.residual).toEqual(Array(12).fill(3));
    for (const value of found?.output ?? []) expect(value).toBeCloseTo(1, 6);
    expect(found?.said).toMatchInlineSnapshot(`
      [
        "INVALID_ARGUMENT: residual is 8 elements; expected as many as the input has, 12",
        "INVALID_ARGUMENT: residual is a Float64Array; expected an array that holds f32, as the dtype option says",
        "INVALID_ARGUMENT: residual is undefined; expected a tensor or a typed array",
        "INVALID_ARGUMENT: input is 12 elements; expected a multiple of the weight's 5: [rows, hidden]",
        "INVALID_ARGUMENT: weight is no elements; expected hidden elements, 1 at least",
        "INVALID_ARGUMENT: weight's dtype is "i32"; expected one of f32, f16, bf16",
        "INVALID_ARGUMENT: input's dtype is "f64"; expected one of f32, f16, bf16",
        "INVALID_ARGUMENT: input is a Uint16Array; expected an array whose class tells its element type, or the dtype option (f16 or bf16)",
        "INVALID_ARGUMENT: input is the shape [4, 3]; expected rows of 4, as many as the weight has",
        "INVALID_ARGUMENT: residualOutput is the shape [2, 6]; expected rows of 4, as many as the weight has",
        "INVALID_ARGUMENT: output is memory that overlaps the residual; expected memory apart from the residual",
        "INVALID_ARGUMENT: output is memory that overlaps the residualOutput; expected memory apart from the residualOutput",
        "INVALID_ARGUMENT: output is memory that overlaps the residual; expected memory apart from the residual",
        "INVALID_ARGUMENT: output is memory that overlaps the input; expected memory apart from the input",
        "INVALID_ARGUMENT: output is memory that overlaps the weight; expected memory apart from the weight",
        "INVALID_ARGUMENT: eps is -1; expected a finite number, 0 or more",
        "INVALID_ARGUMENT: eps is "1e-5"; expected a finite number, 0 or more",
        "INVALID_ARGUMENT: fuse is 1; expected true or false",
        "INVALID_ARGUMENT: options of allReduceResidualRmsNorm is "epsilon"; expected one of input, residual, weight, eps, output, residualOutput, fuse, algorithm, timeoutMs, signal, dtype",
        "INVALID_ARGUMENT: timeoutMs is -1; expected a number of milliseconds above 0",
      ]
    `);
  });
});

describe.each(["threads", "tcp"] as const)("all-reduce, residual and RMSNorm on %s", (backend) => {
  it("is a mismatch where ranks give something else, and a failure that nobody saw is told at the end", async () => {
    const results = await launch({
      ranks: 2,
      backend,
      run: async (world) => {
        const { allReduceResidualRmsNorm } = await import("chorale/extensions");
        const { comm, rank } = world;
        const f32 = (count: number) => new Float32Array(count).fill(1);
        const given = (hidden = 4) => ({ input: f32(12), residual: f32(12), weight: f32(hidden) });
        const said: string[] = [];
        const hear = async (fn: (group: typeof comm) => unknown) => {
          const group = (await comm.split(0)) as typeof comm;
          try {
            await fn(group);
            said.push("accepted");
          } catch (error) {
            said.push(`${(error as { code?: string }).code}: ${(error as Error).message}`);
          }
          await group.close().catch(() => {});
        };
        await hear((group) => allReduceResidualRmsNorm(group, given(rank === 0 ? 4 : 6)));
        await hear((group) => allReduceResidualRmsNorm(group, { ...given(), eps: rank }));
        await hear((group) => (rank === 0 ? allReduceResidualRmsNorm(group, given()) : group.allReduce(f32(12))));
        await hear((group) => group.batch((one) => void allReduceResidualRmsNorm(one, given())));
        await hear(async (group) => {
          if (rank === 0) allReduceResidualRmsNorm(group, { ...given(), timeoutMs: 50 });
          else await comm.recv(f32(1), 0);
          await group.close().finally(() => (rank === 0 ? comm.send(f32(1), 1) : undefined));
        });
        return said;
      },
    });
    for (const said of results) {
      expect(said[0]).toMatch(/^MISMATCH.*residual \+ RMSNorm \(rows of [46], weight f32, eps 0.000001\) behind it/s);
      expect(said[1]).toMatch(/^MISMATCH.*rows of 4, weight f32, eps [01]\) behind it/s);
      expect(said[2]).toMatch(/^MISMATCH/);
      expect(said[3]).toMatch(/^UNSUPPORTED: allReduceResidualRmsNorm inside a batch/);
    }
    expect(results[0]?.[4]).toMatch(/^TIMEOUT/);
  });
});

const rowsOf = (...list: readonly (readonly [number, string])[]) =>
  list.map(([fromBytes, use]) => ({ fromBytes, use }));
const PLANS = [
  [0, "one-shot-packet-all-reduce@32.lines"],
  [2048, "two-phase-all-reduce*2@64"],
  [6144, "streaming-all-reduce@32.unit1K"],
  [12_288, "one-shot-packet-all-reduce*2@64.sheets"],
  [16_384, "nccl"],
] as const;
const choices: ChoiceDocument = {
  schemaVersion: 1,
  source: "test",
  date: "2026-11-29",
  tables: [{ backend: "cuda", collective: "all_reduce", ranks: [2, 4], rows: rowsOf(...PLANS) }],
};

describe.skipIf(!available)("all-reduce, residual and RMSNorm on stand-in GPUs (needs g++)", () => {
  const worlds = [
    ["thread", 2],
    ["thread", 3],
    ["process", 2],
  ] as const;
  it.each(spread(worlds, 3))(
    "gives what the reference does, ranks as %s, %d of them",
    { timeout: 240_000 },
    async (isolation, ranks) => {
      const cases = [
        caseOf(ranks, { dtype: "f32", rows: 3, hidden: 33, weightDType: "bf16" }),
        caseOf(ranks, { dtype: "bf16", rows: 2, hidden: 256 }),
        caseOf(ranks, { dtype: "bf16", rows: 2, hidden: 256, inPlace: true }),
        caseOf(ranks, { dtype: "bf16", rows: 1, hidden: 1500, weightDType: "f32" }),
        caseOf(ranks, { dtype: "bf16", rows: 5, hidden: 301, shift: 1 }),
        caseOf(ranks, { dtype: "f16", rows: 7, hidden: 640, inPlace: true }),
        caseOf(ranks, { dtype: "f16", rows: 3, hidden: 2200 }),
        caseOf(ranks, { dtype: "f32", rows: 2, hidden: 2100 }),
        caseOf(ranks, { dtype: "bf16", rows: 2, hidden: 256, options: { fuse: false } }),
        caseOf(ranks, { dtype: "bf16", rows: 2, hidden: 256, options: { algorithm: "nccl" }, inPlace: true }),
        caseOf(ranks, { dtype: "bf16", rows: 0, hidden: 256 }),
      ];
      const choicesMade = await check(cases, { ...worldOf(isolation), ranks, backendOptions: { choices } }, true);
      const names = Object.keys(choicesMade ?? {});
      // Where blocks make whole rows by themselves, and otherwise by what serves the all-reduce.
      for (const [, use] of PLANS.slice(0, 3)) expect(names).toContain(`all_reduce ${use}`);
      const apart = names.filter((name) =>
        /^all_reduce one-shot-packet-all-reduce[*]\d@\d+[.](?:lines|sheets)$/.test(name),
      );
      expect(apart.length).toBeGreaterThanOrEqual(2);
      expect(names).toContain("all_reduce nccl");
    },
  );

  it("is one launch a call where a plan serves, two otherwise, and goes into graphs", {
    timeout: 240_000,
  }, async () => {
    const results = await launch({
      ...worldOf(),
      backendOptions: { choices },
      data: { library, turns: new Int32Array(new SharedArrayBuffer(4)) },
      run: async (world, { library, turns }) => {
        const { default: koffi } = await import("koffi");
        const { allReduceResidualRmsNorm } = await import("chorale/extensions");
        const called = koffi.load(library).func("int fakeGpuCalled(void *out)");
        /** Launches of all ranks, as kernels and as graphs of one. */
        const launches = () => {
          const out = new BigInt64Array(5);
          called(out);
          return Number(out[2]) + Number(out[3]);
        };
        const comm = world.comm as import("chorale/nccl").NcclCommunicator;
        /** All ranks are here. No call is made for it. */
        let met = 0;
        const meet = () => {
          met += 2;
          Atomics.add(turns, 0, 1);
          while (Atomics.load(turns, 0) < met) Atomics.wait(turns, 0, Atomics.load(turns, 0), 1);
        };
        const [input, residual, weight] = [64, 64, 32].map((count) => {
          const made = world.tensor("f32", [count]);
          world.upload(made, new Float32Array(count).fill(1));
          return made;
        }) as [never, never, never];
        const counts: number[] = [];
        for (const options of [{}, { fuse: false }]) {
          const call = () => allReduceResidualRmsNorm(comm, { input, residual, weight, ...options });
          await call();
          meet();
          const before = launches();
          meet();
          for (let i = 0; i < 4; i++) await call();
          meet();
          counts.push(launches() - before);
          meet();
        }
        const graph = comm.capture((group) => {
          for (let i = 0; i < 3; i++) allReduceResidualRmsNorm(group, { input, residual, weight });
        });
        world.upload(input, new Float32Array(64).fill(1));
        world.upload(residual, new Float32Array(64).fill(0));
        await comm.replay(graph);
        const after = [world.download(residual)[63], world.download(input)[0]].map(
          (v) => Math.round(1e4 * Number(v)) / 1e4,
        );
        await comm.replay(graph);
        graph.close();
        const refused: string[] = [];
        const hear = async (fn: () => unknown) => {
          try {
            await fn();
            refused.push("accepted");
          } catch (error) {
            refused.push(`${(error as { code?: string }).code}: ${(error as Error).message}`);
          }
        };
        await hear(() => comm.batch((group) => void allReduceResidualRmsNorm(group, { input, residual, weight })));
        await hear(() =>
          comm.capture(
            (group) => void allReduceResidualRmsNorm(group, { input: new Float32Array(64), residual, weight }),
          ),
        );
        const wide = world.tensor("f32", [64]);
        const first = world.rank === 0;
        const others = [await comm.split(0), await comm.split(0)] as import("chorale").Communicator[];
        await hear(() => allReduceResidualRmsNorm(comm, { input, residual, weight: first ? weight : wide }));
        for (const [i, options] of [
          { fuse: first },
          { algorithm: first ? "nccl" : "two-phase-all-reduce*2@64" },
        ].entries()) {
          const group = others[i] as import("chorale").Communicator;
          await hear(() => allReduceResidualRmsNorm(group, { input, residual, weight, ...options }));
        }
        return { counts, after, refused };
      },
    });
    // Both ranks' launches.
    expect(results.map(({ counts }) => counts)).toEqual([
      [8, 16],
      [8, 16],
    ]);
    // Sums of 2, then of 2 and 4 and so on: inputs are normed to 1 each time.
    expect(results.map(({ after }) => after)).toEqual([
      [6, 1],
      [6, 1],
    ]);
    for (const { refused } of results) {
      // Of two ranks one tells its side in words, whichever it is.
      expect(refused[3]).toMatch(/^MISMATCH.*eps 0.000001(, fuse false)?\) behind it/s);
      expect(refused[4]).toMatch(/^MISMATCH.*behind it and algorithm (nccl|two-phase)/s);
      expect(refused[0]).toMatch(/^UNSUPPORTED.*inside a batch/);
      expect(refused[1]).toMatch(/^INVALID_ARGUMENT.*host memory/);
      expect(refused[2]).toMatch(
        /^MISMATCH.*residual \+ RMSNorm \(rows of (32|64), weight f32, eps 0.000001\) behind it/s,
      );
    }
  });

  it("steps behind NCCL's all-reduce on the nccl backend, in host memory too", { timeout: 240_000 }, async () => {
    const cases = [
      caseOf(2, { dtype: "bf16", rows: 3, hidden: 40 }),
      caseOf(2, { dtype: "f32", rows: 3, hidden: 7, inPlace: true, weightDType: "f16" }),
    ];
    await check(cases, { ...worldOf(), backend: "nccl", backendOptions: {} }, true);
    const results = await launch({
      ...worldOf(),
      backend: "nccl",
      backendOptions: {},
      run: async (world) => {
        const { allReduceResidualRmsNorm } = await import("chorale/extensions");
        const [input, residual, residualOutput] = [2, 4, Number.NaN].map((v) => new Float32Array(8).fill(v));
        const given = { input, residual, residualOutput, weight: new Float32Array(4).fill(3) } as Parameters<
          typeof allReduceResidualRmsNorm
        >[1];
        const { data } = await allReduceResidualRmsNorm(world.comm, given);
        return [data[7], residual?.[0], residualOutput?.[7]].map((v) => Math.round(1000 * Number(v)) / 1000);
      },
    });
    expect(results).toEqual([
      [3, 4, 8],
      [3, 4, 8],
    ]);
  });
});
