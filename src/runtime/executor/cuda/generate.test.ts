import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { isFull, spread } from "../../../../test/support/spread.ts";
import { algorithm } from "../../../authoring/algorithms/index.ts";
import { planFromJson, planToJson } from "../../../authoring/interchange/index.ts";
import { compile } from "../../../authoring/language/index.ts";
import { PlanError } from "../../../core/index.ts";
import { generateCuda } from "./generate.ts";
import { kernelFor, largestChunk } from "./loaded-plan.ts";

const make = (name: string, instances = 1, numRanks = 2) =>
  compile(algorithm(name).make({ numRanks, instances }), { verify: false });
/** What a plan's own part of the source is: the rest is the same for all. */
const ownPart = (source: string) => source.slice(source.indexOf("// Strands")).replace(/([\w-]+\.ts):\d+/g, "$1");

describe("the source", () => {
  it("is one function for all strands that differ only in numbers", () => {
    const options = { dtype: "f32", relaunches: true, endsAlone: true } as const;
    expect(ownPart(generateCuda(make("packet-all-gather", 8), options).source)).toMatchInlineSnapshot(`
      "// Strands 0-7 of ranks 0-1.
      __device__ __forceinline__ void strand_0(const Launch& L, const int rank, const int strand, const u32 launch,
                                               const i64 slot) {
        // put (pack) rank 1 scratch[0] <- input[0] via memory 0  all-pairs.ts
        {
          i64 bytes = least(L.chunk, L.part - (strand * L.chunk));
          const char* const in[] = {L.input + strand * L.chunk};
          char* const out[] = {L.window[(-1) * rank + 1] + L.packets + slot * L.packetsSlot + 2 * ((8 * rank + strand) * L.chunk)};
          pack<1>(in[0], out, bytes, launch);
        }
        // copy output[0] <- input[0]  all-pairs.ts
        {
          i64 bytes = least(L.chunk, L.part - (strand * L.chunk));
          const char* const in[] = {L.input + strand * L.chunk};
          char* const out[] = {L.output + rank * L.part + strand * L.chunk};
          copy<1, 1>(in, out, bytes);
        }
        // copy (unpack) output[8] <- scratch[8]  all-pairs.ts
        {
          i64 bytes = least(L.chunk, L.part - (strand * L.chunk));
          const char* const in[] = {L.window[rank] + L.packets + slot * L.packetsSlot + 2 * (((-8) * rank + strand + 8) * L.chunk)};
          char* const out[] = {L.output + ((-1) * rank + 1) * L.part + strand * L.chunk};
          reducePackets<Op_none, 0, 1, 1>(L, in, out, bytes, (Wide)0, launch, Site{2, 0});
        }
      }

      CHORALE_KERNEL chorale_plan(const __grid_constant__ Launch L) {
        const int rank = (int)L.rank, strand = (int)blockIdx.x;
        const uint4 last = loadPacket16(blockState(L, strand));
        const u32 launch = last.x + 1, told = last.w + (L.done == nullptr ? 0u : 1u);
        if (L.part == 0) meetAfterResize(L, launch);
        const i64 slot = launch & 1u;
        strand_0(L, rank, strand, launch, slot);
        __syncthreads();
        if (threadIdx.x == 0) storePacket16(blockState(L, strand), remembered(L, launch, told));
        tellEnd(L, blockIdx.x, gridDim.x, told);
      }
      "
    `);
  });

  it("meets before a launch of another size only where a rank may end without having heard of each peer", () => {
    const meetsWhen = (name: string, numRanks: number) => {
      const { source } = generateCuda(make(name, 2, numRanks), { dtype: "f32", relaunches: true, endsAlone: true });
      return /if \((.*)\) meetAfterResize/.exec(source)?.[1];
    };
    const hearing = ["one-shot-packet-all-reduce", "packet-all-gather", "packet-reduce-scatter", "packet-all-to-all"];
    for (const name of hearing)
      for (const numRanks of [2, 3]) expect([name, meetsWhen(name, numRanks)]).toEqual([name, "L.part == 0"]);
    // Of three ranks, the third reduces nothing of a small message: nobody hears of it.
    expect(meetsWhen("two-shot-packet-all-reduce", 3)).toBe("isResized(L, last)");
    // The root hears of nobody.
    expect(meetsWhen("packet-broadcast", 2)).toBe("isResized(L, last)");
  });

  it("folds the sizes of kernels that send packets and reach no buffers, and nothing else", () => {
    const sizes = { part: 1024, chunk: 512, scratch: 384, packets: 384, scratchSlot: 0, packetsSlot: 3072 };
    const of = (name: string) => generateCuda(make(name, 2), { dtype: "f32", relaunches: true, endsAlone: true });
    const { source, foldedSource } = of("one-shot-packet-all-reduce");
    const folded = foldedSource?.({ ...sizes, slots: 2, packetChunk: 640 }).split("\n") ?? [];
    const before = source.split("\n");
    expect(folded.filter((line) => !before.includes(line))).toMatchInlineSnapshot(`
      [
        "  WHOLE_UNITS = 1,",
        "  i64 partWord; static constexpr i64 part = 1024;             // bytes of a part of the collective's buffers, and of a chunk",
        "  i64 chunkWord; static constexpr i64 chunk = 512;",
        "  i64 scratchWord; static constexpr i64 scratch = 384;          // where data and packets lie in a window, how far the slots of launches are apart, and how many there are",
        "  i64 packetsWord; static constexpr i64 packets = 384;",
        "  i64 scratchSlotWord; static constexpr i64 scratchSlot = 0;",
        "  i64 packetsSlotWord; static constexpr i64 packetsSlot = 3072;",
        "  i64 slotsWord; static constexpr i64 slots = 2;",
        "  i64 packetChunkWord; static constexpr i64 packetChunk = 640;      // bytes of a chunk in lines of 128 or in sheets",
      ]
    `);
    expect(folded.length).toBe(before.length);
    for (const name of ["two-phase-all-reduce", "streaming-all-reduce"]) expect(of(name).foldedSource).toBe(undefined);
  });

  it("loads what is packed first before it waits for the number of the launch", () => {
    const options = { dtype: "f32", relaunches: true, endsAlone: true } as const;
    const own = (packets: "lines" | "words") =>
      ownPart(generateCuda(make("packet-reduce-scatter", 2), { ...options, packets }).source);
    expect(own("lines").split("\n").slice(0, 9).join("\n")).toMatchInlineSnapshot(`
      "// Strands 0-1 of ranks 0-1.
      __device__ __forceinline__ void strand_0(const Launch& L, const int rank, const int strand, const u32 launch,
                                               const i64 slot, const Unit first) {
        // put (pack) rank 1 scratch[0] <- input[2] via memory 0  all-pairs.ts
        {
          i64 bytes = least(L.chunk, L.part - (strand * L.chunk));
          const char* const in[] = {L.input + ((-1) * rank + 1) * L.part + strand * L.chunk};
          char* const out[] = {L.window[(-1) * rank + 1] + L.packets + slot * L.packetsSlot + (2 * rank + strand) * L.packetChunk};
          pack<1>(first, in[0], out, bytes, launch);"
    `);
    expect(/.*loadFirst.*\n.*blockState.*/.exec(own("lines"))?.[0]).toMatchInlineSnapshot(`
      "  const Unit first = loadFirst(L.input + ((-1) * rank + 1) * L.part + strand * L.chunk, least(L.chunk, L.part - (strand * L.chunk)));
        const uint4 last = loadPacket16(blockState(L, strand));"
    `);
    expect(own("words")).not.toContain("loadFirst");
  });

  it("has the meetings that the plan does not make itself", () => {
    expect(ownPart(generateCuda(make("two-shot-read-all-reduce"), { dtype: "bf16" }).source)).toMatchInlineSnapshot(`
      "// Strands 0 of ranks 0-1.
      __device__ __forceinline__ void strand_0(const Launch& L, const int rank, const int strand, const u32 launch,
                                               const i64 slot, Buffers& buffers) {
        (void)strand; (void)slot;
        if (!meetRanks(L, launch, buffers)) return;
        // reduce output[0], rank 1 output[0] <- sum(input[0], rank 1 input[0]) via memory 0,0  all-pairs.ts
        {
          i64 bytes = least(L.chunk, L.part - (rank * L.chunk));
          const char* const in[] = {L.input + rank * L.chunk, buffers.input[(-1) * rank + 1] + rank * L.chunk};
          char* const out[] = {L.output + rank * L.chunk, buffers.output[(-1) * rank + 1] + rank * L.chunk};
          move<Op_sum, 2, 2>(in, out, bytes, (Wide)0);
        }
        // sync  all-pairs.ts
        __syncthreads();
        // signal memory 0  all-pairs.ts
        if (threadIdx.x == 0) raise(counterOf(L, (-1) * rank + 1, 0));
        // wait memory 0
        if (threadIdx.x == 0) await(L, counterOf(L, rank, 0), (u32)((launch - 1) + 1), Site{3, 0});
        __syncthreads();
      }

      CHORALE_KERNEL chorale_plan(const __grid_constant__ Launch L) {
        const int rank = (int)L.rank, strand = (int)blockIdx.x;
        const uint4 last = loadPacket16(blockState(L, strand));
        const u32 launch = last.x + 1, told = last.w + (L.done == nullptr ? 0u : 1u);
        CHORALE_SHARED(Buffers, buffers);
        if (strand == 0) greet(L, launch);
        const i64 slot = 0;
        strand_0(L, rank, strand, launch, slot, buffers);
        __syncthreads();
        if (threadIdx.x == 0) storePacket16(blockState(L, strand), remembered(L, launch, told));
        partRanks(L, gridDim.x, launch, told);
      }
      "
    `);
  });

  it("does not grow with instances, nor with the ranks of a symmetric algorithm by more than their operations", () => {
    const length = (instances: number) =>
      generateCuda(make("one-shot-packet-all-reduce", instances), { dtype: "f32" }).source.length;
    expect(length(64) - length(2)).toBeLessThan(40);
    expect(generateCuda(make("one-shot-packet-all-reduce", 64, 4), { dtype: "f32" }).source).not.toContain("TABLE_0");
  });

  it("has the blocks of a strand share its work, meet as a cluster, and signal and wait once", () => {
    const options = { dtype: "f32", relaunches: true, endsAlone: true, blocksPerStrand: 4 } as const;
    const { source, blocks, state } = generateCuda(make("ring-all-reduce", 2), options);
    expect(ownPart(source).replace(/\{\n(?: {4}.*\n)* {2}\}/g, "{…}")).toMatchInlineSnapshot(`
      "// Strands 0-1 of ranks 0-1.
      __device__ __forceinline__ void strand_0(const Launch& L, const int rank, const int strand, const u32 launch,
                                               const i64 slot, Buffers& buffers) {
        // put rank 1 scratch[0] <- input[0] via memory 0  ring.ts
        {…}
        // sync  ring.ts
        meetTeam();
        // signal memory 0  ring.ts
        if (position() == 0) raise(counterOf(L, (-1) * rank + 1, strand));
        // wait memory 0  ring.ts
        if (position() == 0) await(L, counterOf(L, rank, strand), (u32)(2 * ((launch - 1)) + 1), Site{3, 0});
        meetTeam();
        // sync  ring.ts
        if (!meetRanks(L, launch, buffers)) return;
        // reduce output[2], rank 1 output[2] <- sum(input[2], scratch[0]) via memory 0  ring.ts
        {…}
        // sync  ring.ts
        meetTeam();
        // signal memory 0  ring.ts
        if (position() == 0) raise(counterOf(L, (-1) * rank + 1, strand));
        // wait memory 0
        if (position() == 0) await(L, counterOf(L, rank, strand), (u32)(2 * ((launch - 1)) + 2), Site{8, 0});
        meetTeam();
      }

      CHORALE_KERNEL chorale_plan(const __grid_constant__ Launch L) {
        const int rank = (int)L.rank, block = (int)blockIdx.x, strand = block / TEAM;
        const uint4 last = loadPacket16(blockState(L, block));
        const u32 launch = last.x + 1, told = last.w + (L.done == nullptr ? 0u : 1u);
        if (isResized(L, last)) meetAfterResize(L, launch);
        CHORALE_SHARED(Buffers, buffers);
        if (block == 0) greet(L, launch);
        const i64 slot = 0;
        strand_0(L, rank, strand, launch, slot, buffers);
        __syncthreads();
        if (threadIdx.x == 0) storePacket16(blockState(L, block), remembered(L, launch, told));
        tellEnd(L, blockIdx.x, gridDim.x, told);
      }
      "
    `);
    expect(source).toContain("#define CHORALE_CLUSTER __cluster_dims__(TEAM, 1, 1)");
    expect([blocks, state.taken]).toEqual([[8, 8], 32]);
    expect(() => generateCuda(make("ring-all-reduce"), { dtype: "f32", blocksPerStrand: 3 })).toThrow(/1, 2, 4, 8/);
  });

  it("has senders that hear nothing back wait for a slot of scratch, not for their peers' launches", () => {
    const promises = { dtype: "f32", endsAlone: true, relaunches: false } as const;
    const { source, runsAhead } = generateCuda(make("packet-broadcast"), promises);
    expect(runsAhead).toBe(true);
    expect(source).toContain("WAITS_FOR[NUM_RANKS][NUM_RANKS] = {{0, 1}, {0, 0}};");
    const [sends, receives] = ownPart(source).split("// Strands").slice(1);
    expect([sends, receives].map((text) => text?.includes("awaitSlot(L, rank, launch);"))).toEqual([true, false]);
    expect(source).not.toContain("greet(L, launch);");
    // What meets at its end, and what may be relaunched as it is, waits as before.
    for (const other of [{ endsAlone: false }, { relaunches: true }])
      expect(generateCuda(make("packet-broadcast"), { ...promises, ...other }).runsAhead).toBe(false);
    // Peers' buffers are told anew in each launch.
    expect(generateCuda(make("read-reduce-scatter"), promises).runsAhead).toBe(false);
  });

  it("has windows in which every rank finds the same places, though some have smaller buffers", () => {
    // The root of two ranks holds both parts; half of the largest size is a part, and half of that one of its two chunks.
    for (const name of ["packet-gather", "packet-scatter"]) expect(largestChunk(make(name, 2), 8192)).toBe(2048);
    expect(largestChunk(make("packet-broadcast", 2), 8192)).toBe(4096);
  });

  it("refuses what it cannot do, with what it can", () => {
    const plan = make("ring-all-reduce", 1, 3);
    expect(() => generateCuda(plan, { dtype: "f16" })).toThrow(/combines partial results/);
    expect(() => generateCuda(plan, { dtype: "f32", op: "avg" })).toThrow(/combines partial results/);
    expect(() => generateCuda(plan, { dtype: "f32", threads: 100 })).toThrow(/multiple of 32, from 32 to 1024/);
    expect(() => generateCuda(plan, { dtype: "f32", unroll: 0 })).toThrow(/whole number from 1 to 16/);
    expect(() => generateCuda(plan, { dtype: "f32", op: "bxor" })).toThrow(/an operator that f32 has/);
  });

  it("has clusters only where the device forms them, and where all find their place", () => {
    const plan = make("ring-all-reduce", 8);
    const blocksOf = (major: number, blocksPerStrand: number) => {
      const device = { numMultiprocessors: 100, computeCapability: [major, 0] } as const;
      const { source } = kernelFor(plan, device, { dtype: "f32", blocksPerStrand }, false);
      return /BLOCKS_PER_SM = (\d+)/.exec(source)?.[1];
    };
    // 32 blocks, and all but one of a cluster left over in each group of multiprocessors; 64 are too many with that.
    expect([blocksOf(8, 1), blocksOf(9, 4), blocksOf(9, 8)]).toEqual(["1", "1", "2"]);
    expect(() => blocksOf(8, 2)).toThrow(/2 blocks a strand on a device of compute capability 8.0 is not supported/);
  });

  it("refuses an operation outside its buffers, of which it would write a piece for each chunk", () => {
    const plan = JSON.parse(planToJson(make("ring-all-reduce")));
    const { ops } = plan.ranks[1].strands[0];
    const op = ops.find(({ src }: { src?: unknown }) => src !== undefined);
    op.src[0].size = 2 ** 40;
    const write = () => generateCuda(planFromJson(plan), { dtype: "f32" });
    expect(write).toThrow(PlanError);
    expect(write).toThrow(/source is chunks \[\d, 109951162777\d\)/);
    const none = { ...make("ring-all-reduce"), ranks: [] };
    expect(() => generateCuda(none, { dtype: "f32" })).toThrow(/has 0 ranks/);
  });
});

describe.skipIf(spawnSync("nvcc", ["--version"]).status !== 0)("nvcc", () => {
  const folder = mkdtempSync(join(tmpdir(), "chorale-nvcc-"));
  afterAll(() => {
    rmSync(folder, { recursive: true });
  });

  const sources = [
    ["one-shot-packet-all-reduce", "f8e4m3", "words"],
    ["two-shot-packet-all-reduce", "bf16", "lines"],
    ["two-phase-packet-all-reduce", "f16", "sheets"],
    ["two-phase-all-reduce", "f32", undefined, 4],
    // Of processes.
    ["two-phase-all-reduce", "bf16", undefined, 1, true],
  ] as const;
  // One with every seed: 5 has no divisor in common with the numbers of targets, so that each is compiled for each in turn.
  const numbered = sources.map((source, index) => [index, ...source] as const);
  it.each(spread(numbered, 5))(
    `compiles source %i, %s of %s, without a warning for ${isFull ? "sm_80, sm_90 and sm_100" : "one of sm_80, sm_90 and sm_100"}`,
    { timeout: 600_000 },
    (index, name, dtype, packets, blocksPerStrand: number = 1, interprocess: boolean = false) => {
      const { source } = generateCuda(make(name, 4), {
        dtype,
        op: "max",
        debugTurns: 1000,
        blocksPerStrand,
        interprocess,
        ...(packets && { packets }),
      });
      writeFileSync(join(folder, "plan.cu"), source);
      // Clusters are there from sm_90 on.
      const targets = spread(blocksPerStrand > 1 ? [90, 100] : [80, 90, 100], 3, index).map(
        (sm) => `-gencode=arch=compute_${sm},code=sm_${sm}`,
      );
      const { status, stderr } = spawnSync("nvcc", [...targets, "-fatbin", "-o", "plan.fatbin", "plan.cu"], {
        cwd: folder,
        encoding: "utf8",
      });
      expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    },
  );
});
