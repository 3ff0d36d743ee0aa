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

/** The epilogue as part of a generated kernel, behind everything else. */
export function epilogueSource({ name, source }: EpilogueKernel, parts: boolean): string {
  return [`// Epilogue: ${name}.`, EPILOGUE_PRIMITIVES, source, meeting(parts)].join("\n");
}

/** Before a kernel's strands. */
export const EPILOGUE_BEGINNING = [
  "  const Epilogue& epilogue = *(const Epilogue*)L.epilogue;",
  "  prepareEpilogue(epilogue);",
];

/** Behind them: what peers are told of the end comes after it. */
export const EPILOGUE_END = [
  "  if (hasEpilogue(epilogue)) runEpilogue(epilogue, L.output, [&] { meetBeforeEpilogue(L, launch, true); });",
  "  else meetBeforeEpilogue(L, launch, false);",
  "  __syncthreads();",
];
