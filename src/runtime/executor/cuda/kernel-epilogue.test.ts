/**
 * Kernels with an epilogue, on fibers of the host whose interleavings a seed decides: launches follow each other with nothing
 * between them, so that a rank that overwrites what a peer still uses, or reads what is not there, is caught.
 */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { scratchFolder } from "../../../../test/helpers/scratch.ts";
import { HostKernels, HostRanks, hasHostCompiler } from "../../../../test/support/host-cuda/host-kernels.ts";
import { spread } from "../../../../test/support/spread.ts";
import { algorithm } from "../../../authoring/algorithms/index.ts";
import { compile } from "../../../authoring/language/index.ts";
import { proofOf } from "../../../authoring/plan/index.ts";
import type { EpilogueKernel } from "../../comm/index.ts";
import { type CudaOptions, generateCuda } from "./generate.ts";

/** Adds `more`, in place: a block's rows are not those that it made. */
const ADDED: EpilogueKernel = {
  name: "more",
  numWords: 4,
  source: `struct Epilogue { char* output; const char* more; i64 rows; i64 hidden; };
__device__ __forceinline__ i64 unitsOf(const Epilogue& E) { return E.rows; }
__device__ __forceinline__ void prepareEpilogue(const Epilogue& E, i64 row) { prefetch(E.more + row); }
template <class Meet>
__device__ inline void runEpilogue(const Epilogue& E, const char* result, i64 first, i64 end, i64 step, Meet meet) {
  meet();
  for (i64 row = first; row < end; row += step)
    for (i64 i = threadIdx.x; i < E.hidden; i += THREADS)
      ((Element*)E.output)[row * E.hidden + i] =
          ((const Element*)result)[row * E.hidden + i] + ((const Element*)E.more)[row * E.hidden + i];
}`,
};

interface Shape extends Partial<CudaOptions> {
  readonly name: string;
  readonly numRanks: number;
  readonly instances?: number;
  readonly inPlace?: boolean;
  /** As plans of which nothing is proved: ranks meet in each launch. */
  readonly unproved?: boolean;
}
const SHAPES: readonly Shape[] = [
  { name: "one-shot-packet-all-reduce", numRanks: 2, instances: 2, packets: "lines", threads: 64 },
  { name: "one-shot-packet-all-reduce", numRanks: 3, packets: "words" },
  { name: "one-shot-packet-all-reduce", numRanks: 2, packets: "lines", unproved: true },
  { name: "two-phase-read-all-reduce", numRanks: 3, instances: 2, unproved: true },
  { name: "two-phase-all-reduce", numRanks: 2, instances: 3 },
  { name: "two-phase-all-reduce", numRanks: 4, inPlace: true },
  { name: "two-shot-read-all-reduce", numRanks: 2, instances: 2 },
  { name: "streaming-all-reduce", numRanks: 2, instances: 2, blocksPerStrand: 2 },
  { name: "two-phase-packet-all-reduce", numRanks: 4, packets: "sheets", threads: 64 },
];
const labelOf = ({ name, numRanks, unproved = false }: Shape) =>
  `${name}, ${numRanks} ranks${unproved ? ", as one that nobody proved" : ""}`;

function kernelOf({ name, numRanks, instances = 1, inPlace = false, unproved, ...options }: Shape) {
  const plan = compile(algorithm(name).make({ numRanks, instances, inPlace }));
  const proof = proofOf(plan);
  const proves = proof?.ok === true && unproved !== true;
  const ends = proves ? { relaunches: proof.relaunches(), endsAlone: proof.endsAlone() } : {};
  return { plan, options: { dtype: "i32", epilogue: ADDED, ...ends, ...options } satisfies CudaOptions };
}

describe.skipIf(!hasHostCompiler())("kernels with an epilogue, compiled by g++ for the host", () => {
  const kernels = new HostKernels();
  const cases: { label: string; ranks: HostRanks; inPlace: boolean }[] = [];
  beforeAll(() => {
    for (const shape of spread(SHAPES, 2)) {
      const { plan, options } = kernelOf(shape);
      const ranks = new HostRanks(plan, kernels, { ...options, epilogueAddresses: 2 });
      cases.push({ label: labelOf(shape), ranks, inPlace: shape.inPlace === true });
    }
  });
  afterAll(() => kernels.close());

  it("read whole results, and overwrite nothing that is in use", { timeout: 600_000 }, () => {
    const wrong = cases.flatMap(({ label, ranks, inPlace }) =>
      [
        [3, 7],
        [1, 64],
        [9, 33],
        // Units that blocks can make as a whole, more than there are strands and fewer.
        [11, 36],
        [1, 36],
      ].map(([rows = 0, hidden = 0]) => {
        const isApart = ranks.kernel.ownsChunks && hidden % 4 === 0;
        const found = launchInTurn(ranks, inPlace, isApart, rows, hidden);
        return found === undefined ? undefined : `${label}, [${rows}, ${hidden}]: ${found}`;
      }),
    );
    expect(wrong.filter((one) => one !== undefined)).toEqual([]);
  });
});

/** Launches three times, each on what the one before gave. @returns what is wrong */
function launchInTurn(
  ranks: HostRanks,
  inPlace: boolean,
  isApart: boolean,
  rows: number,
  hidden: number,
): string | undefined {
  const [bytes, count, numRanks] = [4 * rows * hidden, rows * hidden, ranks.plan.ranks.length];
  const fill = (of: (i: number) => number) => {
    const at = ranks.memory.allocate(bytes);
    ranks.view("i32", at, bytes).set(Int32Array.from({ length: count }, (_, i) => of(i)));
    return at;
  };
  const sites = ranks.plan.ranks.map(({ rank }) => ({
    buffers: inPlace ? Array(2).fill(fill((i) => i * (rank + 1))) : [fill((i) => i * (rank + 1)), fill(() => -1)],
    more: fill(() => 100 * (rank + 1)),
  }));
  const launches = [0, 1, 0].map((from, turn) => ({
    partBytes: bytes,
    buffers: sites.map(({ buffers }) => {
      const [input, output] = [buffers[from], buffers[1 - from]] as [number, number];
      return { input, inputBytes: bytes, output, outputBytes: bytes };
    }),
    epilogues: sites.map(({ buffers, more }) => ({
      words: [buffers[1 - from] as number, more, rows, hidden].map(BigInt),
      // In the second launch blocks meet: it has other chunks than those before and behind it.
      unitBytes: isApart && turn !== 1 ? 4 * hidden : 0,
    })),
  }));
  const found = ranks.launchAll(launches);
  if (found !== undefined) return found;
  let values = sites.map((_, rank) => Int32Array.from({ length: count }, (_, i) => i * (rank + 1)));
  for (const _ of launches) {
    const sum = Int32Array.from({ length: count }, (_, i) =>
      values.reduce((total, own) => total + (own[i] as number), 0),
    );
    values = values.map((own, rank) => own.map((_, i) => (sum[i] as number) + 100 * (rank + 1)));
  }
  for (let rank = 0; rank < numRanks; rank++) {
    const got = ranks.view("i32", sites[rank]?.buffers[1] as number, bytes);
    const at = got.findIndex((value, i) => value !== values[rank]?.[i]);
    if (at >= 0) return `rank ${rank}'s element ${at} is ${got[at]}, not ${values[rank]?.[at]}`;
  }
  return undefined;
}

describe("the source of a kernel with an epilogue", () => {
  const endOf = (shape: Shape) => {
    const { plan, options } = kernelOf(shape);
    const { source } = generateCuda(plan, options);
    const [, kernel = ""] = source.split("CHORALE_KERNEL chorale_plan");
    return kernel.slice(kernel.indexOf("  __syncthreads();"));
  };

  it("has blocks meet before it, and tells of the end behind it", () => {
    expect(endOf(SHAPES[0] as Shape)).toMatchInlineSnapshot(`
      "  __syncthreads();
        if (threadIdx.x == 0) storePacket16(blockState(L, strand), remembered(L, launch, told));
        const auto meet = [&] { if (own == 0) meetBeforeEpilogue(L, launch, true); };
        if (unit < endUnit) runEpilogue(epilogue, L.output, unit, endUnit, step, meet);
        else if (own == 0) meetBeforeEpilogue(L, launch, false);
        __syncthreads();
        tellEnd(L, blockIdx.x, gridDim.x, told);
      }
      "
    `);
  });

  it("knows strands that make a chunk each, of plans of which it is proved that ranks end alone", () => {
    const owns = (shape: Shape) => {
      const { plan, options } = kernelOf(shape);
      return generateCuda(plan, options).ownsChunks;
    };
    expect(SHAPES.map((shape) => [labelOf(shape), owns(shape)])).toMatchInlineSnapshot(`
      [
        [
          "one-shot-packet-all-reduce, 2 ranks",
          true,
        ],
        [
          "one-shot-packet-all-reduce, 3 ranks",
          true,
        ],
        [
          "one-shot-packet-all-reduce, 2 ranks, as one that nobody proved",
          false,
        ],
        [
          "two-phase-read-all-reduce, 3 ranks, as one that nobody proved",
          false,
        ],
        [
          "two-phase-all-reduce, 2 ranks",
          false,
        ],
        [
          "two-phase-all-reduce, 4 ranks",
          false,
        ],
        [
          "two-shot-read-all-reduce, 2 ranks",
          false,
        ],
        [
          "streaming-all-reduce, 2 ranks",
          false,
        ],
        [
          "two-phase-packet-all-reduce, 4 ranks",
          false,
        ],
      ]
    `);
  });

  it("has ranks part first where they may still use each other's buffers", () => {
    const meetingOf = (shape: Shape) => {
      const { plan, options } = kernelOf(shape);
      return /void meetBeforeEpilogue[\s\S]*?\n\}/.exec(generateCuda(plan, options).source)?.[0];
    };
    expect(meetingOf(SHAPES[0] as Shape)).not.toContain("sayFarewell");
    expect(meetingOf(SHAPES[2] as Shape)).toContain("sayFarewell(L, launch);");
  });

  const nvcc = ["nvcc", "/usr/local/bin/nvcc", "/usr/local/cuda/bin/nvcc"].find(
    (path) => spawnSync(path, ["--version"]).status === 0,
  );
  const targets = spread(["80", "90", "100"], 3);
  it.skipIf(nvcc === undefined)(`compiles for sm_${targets.join(", sm_")} (needs nvcc)`, { timeout: 120_000 }, () => {
    const folder = scratchFolder("epilogue");
    const { plan, options } = kernelOf(SHAPES[0] as Shape);
    const file = join(folder, "kernel.cu");
    writeFileSync(file, generateCuda(plan, options).source);
    const codes = targets.map((arch) => `-gencode=arch=compute_${arch},code=sm_${arch}`);
    const args = ["-std=c++17", "-fatbin", "--threads=2", ...codes, "-o", join(folder, "kernel.fatbin"), file];
    const { status, stderr } = spawnSync(nvcc as string, args, { encoding: "utf8" });
    expect([status, stderr]).toEqual([0, ""]);
  });
});
