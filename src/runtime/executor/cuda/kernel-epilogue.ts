/**
 * A step behind an all-reduce as the end of a plan's kernel, whose blocks meet first: one launch does both. The step itself is an
 * extension's (`EpilogueKernel`).
 */
import type { EpilogueKernel } from "../../comm/index.ts";

/** What epilogues stand on beside what every kernel has. */
export const EPILOGUE_PRIMITIVES = `#ifndef CHORALE_HOST
// The value of the thread of the warp whose number differs in these bits; all threads of the warp come here.
__device__ __forceinline__ float fromLane(float v, int bits) { return __shfl_xor_sync(0xffffffffu, v, bits); }
__device__ __forceinline__ float inverseRoot(float v) { return rsqrtf(v); }
// Begins to bring memory near that is needed later.
__device__ __forceinline__ void prefetch(const char* at) { asm volatile("prefetch.global.L2 [%0];" :: "l"(at)); }
#endif`;

/** @param parts whether the peers may use a rank's buffers until they have all ended: then ranks part before anything is overwritten */
const meeting = (parts: boolean) => `// All blocks of the rank meet${
  parts ? ", and then all ranks" : ""
}: the result is there, and nobody uses it any more. Blocks that have nothing more to do need not wait.
__device__ inline void meetBeforeEpilogue(const Launch& L, u32 launch, bool waits) {
  if (threadIdx.x == 0) {
    u32* const come = L.state + STATE_EPILOGUE;
    const u32 generation = loadAcquire(come + 1);
    ${parts ? "fenceSystem();" : "fenceDevice();"}
    if (addAtDevice(come, 1) == gridDim.x - 1) {
      *(volatile u32*)come = 0;
      ${parts ? "sayFarewell(L, launch);" : "(void)launch;"}
      addAtDevice(come + 1, 1);
    } else if (waits) {
      Patience patience;
      for (u32 seen = generation; seen == generation; seen = loadAcquire(come + 1))
        if (patience.isOver(L, Site{-4, 0}, seen, generation + 1)) break;
    }
  }
  __syncthreads();
}`;

/**
 * The epilogue as part of a generated kernel, behind everything else.
 * @param owned the chunk of each strand, where strands make one each, alone
 */
export function epilogueSource(
  { name, source }: EpilogueKernel,
  parts: boolean,
  owned: readonly number[] | undefined,
): string {
  const table =
    owned === undefined
      ? []
      : [`// Which chunk a strand makes.\nCHORALE_TABLE short OWNED[${owned.length}] = {${owned.join(", ")}};`];
  return [`// Epilogue: ${name}.`, EPILOGUE_PRIMITIVES, ...table, source, meeting(parts)].join("\n");
}

/**
 * Before a kernel's strands: which units the block is to do.
 * @param owned the chunk of each strand, where strands make one each, alone
 */
export function epilogueBeginning(owned: readonly number[] | undefined): readonly string[] {
  const units =
    owned === undefined
      ? ["  const i64 own = 0, unit = (i64)blockIdx.x, endUnit = unitsOf(epilogue), step = (i64)gridDim.x;"]
      : [
          "  const i64 own = L.unitsOfStrand, unit = own == 0 ? (i64)blockIdx.x : own * OWNED[strand];",
          "  const i64 endUnit = own == 0 ? unitsOf(epilogue) : least(unit + own, unitsOf(epilogue));",
          "  const i64 step = own == 0 ? (i64)gridDim.x : 1;",
        ];
  return [
    "  const Epilogue& epilogue = *(const Epilogue*)L.epilogue;",
    ...units,
    "  if (unit < endUnit) prepareEpilogue(epilogue, unit);",
  ];
}

/** Behind them: what peers are told of the end comes after it. */
export const EPILOGUE_END = [
  "  const auto meet = [&] { if (own == 0) meetBeforeEpilogue(L, launch, true); };",
  "  if (unit < endUnit) runEpilogue(epilogue, L.output, unit, endUnit, step, meet);",
  "  else if (own == 0) meetBeforeEpilogue(L, launch, false);",
  "  __syncthreads();",
];
