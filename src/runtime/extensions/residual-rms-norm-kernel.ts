/**
 * The step behind the all-reduce on a GPU, as CUDA C++: a block takes a row, adds the residual, and scales the row by its root mean
 * square. Rows lie anywhere elements may; those that are aligned to 16 bytes are moved so.
 */
import type { EpilogueKernel } from "../comm/index.ts";
import type { NormDType } from "./norm-call.ts";

/** [type of an element of the weight, how it becomes a float] */
const WEIGHTS: { readonly [D in NormDType]: readonly [type: string, widened: string] } = {
  f32: ["float", "w"],
  f16: ["u16", "halfToFloat(w)"],
  bf16: ["u16", "bitsToFloat((u32)w << 16)"],
};

const source = ([type, widened]: readonly [string, string]) => `struct Epilogue {
  char* output;             // [rows][hidden], as are the result and the residuals
  const char* residual;
  char* residualOutput;
  const char* weight;       // [hidden]
  i64 rows;
  i64 hidden;
  u64 eps;                  // bits of a float
};
typedef ${type} Weight;
__device__ __forceinline__ float widenWeight(Weight w) { return ${widened}; }
// The weights of a unit of a row.
union Weights {
  uint4 words[ELEMENTS * sizeof(Weight) > 16 ? 2 : 1];
  uint2 half;
  Weight element[ELEMENTS];
};
struct WarpSums { float of[32]; };
// Units of a row that a thread has on the way at once.
constexpr int KEPT = THREADS > 512 ? 2 : 4;

__device__ __forceinline__ i64 rowBytes(const Epilogue& E) { return E.hidden * (i64)sizeof(Element); }
__device__ __forceinline__ i64 unitsOf(const Epilogue& E) { return E.rows; }
// What does not depend on the result comes near while the ranks talk: of the block's first row, as much as it keeps.
__device__ __forceinline__ void prepareEpilogue(const Epilogue& E, i64 row) {
  const i64 bytes = rowBytes(E), weights = E.hidden * (i64)sizeof(Weight);
#pragma unroll 1
  for (int k = 0; k < KEPT; k++) {
    // A line of 128 bytes is asked for once.
    const i64 at = 128 * (threadIdx.x + (i64)k * THREADS);
    if (at < bytes) prefetch(E.residual + row * bytes + at);
    if (at < weights) prefetch(E.weight + at);
  }
}

template <bool WIDE> __device__ __forceinline__ Unit loadOfRow(const char* at, i64 left) {
  if constexpr (WIDE) {
    Unit v;
    v.words = *(const uint4*)at;
    return v;
  } else return loadPart(at, left);
}
template <bool WIDE> __device__ __forceinline__ void storeOfRow(char* at, Unit v, i64 left) {
  if constexpr (WIDE) *(uint4*)at = v.words;
  else storePart(at, v, left);
}
template <bool WIDE> __device__ __forceinline__ Weights loadWeights(const char* at, i64 count) {
  Weights w;
  if constexpr (WIDE && ELEMENTS * sizeof(Weight) == 8) w.half = *(const uint2*)at;
  else if constexpr (WIDE) {
#pragma unroll
    for (int i = 0; i < (int)(ELEMENTS * sizeof(Weight) / 16); i++) w.words[i] = ((const uint4*)at)[i];
  } else {
#pragma unroll
    for (int e = 0; e < ELEMENTS; e++) w.element[e] = e < count ? ((const Weight*)at)[e] : (Weight)0;
  }
  return w;
}
// The sum as the residual's type has it, so that the norm is that of what is stored.
__device__ __forceinline__ Unit addUnits(Unit a, Unit b, float& squares) {
  Unit sum;
#pragma unroll
  for (int e = 0; e < ELEMENTS; e++) {
    sum.element[e] = narrow(widen(a.element[e]) + widen(b.element[e]));
    const float x = widen(sum.element[e]);
    squares += x * x;
  }
  return sum;
}
__device__ __forceinline__ Unit scaleUnit(Unit v, const Weights& w, float scale) {
#pragma unroll
  for (int e = 0; e < ELEMENTS; e++) v.element[e] = narrow(widen(v.element[e]) * scale * widenWeight(w.element[e]));
  return v;
}
__device__ __forceinline__ float sumOfBlock(float v, WarpSums& sums) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) v += fromLane(v, bits);
  if (THREADS == 32) return v;
  if (threadIdx.x % 32 == 0) sums.of[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < THREADS / 32 ? sums.of[threadIdx.x % 32] : 0.0f;
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) v += fromLane(v, bits);
  __syncthreads();
  return v;
}

template <bool WIDE, class Meet>
__device__ inline void normalizeRows(const Epilogue& E, const char* result, i64 first, i64 end, i64 step, Meet meet) {
  CHORALE_SHARED(WarpSums, sums);
  const i64 bytes = rowBytes(E), units = (bytes + 15) / 16;
  bool hasMet = false;
#pragma unroll 1
  for (i64 row = first; row < end; row += step) {
    const i64 at = row * bytes;
    Unit kept[KEPT], added[KEPT];
    Weights weights[KEPT];
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
      const i64 u = threadIdx.x + k * THREADS;
      if (u < units) {
        added[k] = loadOfRow<WIDE>(E.residual + at + 16 * u, bytes - 16 * u);
        weights[k] = loadWeights<WIDE>(E.weight + u * ELEMENTS * sizeof(Weight), E.hidden - u * ELEMENTS);
      }
    }
    if (!hasMet) meet();
    hasMet = true;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
      const i64 u = threadIdx.x + k * THREADS;
      if (u < units) kept[k] = loadOfRow<WIDE>(result + at + 16 * u, bytes - 16 * u);
    }
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
      const i64 u = threadIdx.x + k * THREADS;
      if (u < units) {
        kept[k] = addUnits(kept[k], added[k], squares);
        storeOfRow<WIDE>(E.residualOutput + at + 16 * u, kept[k], bytes - 16 * u);
      }
    }
    // Of longer rows, what is not kept is read again.
#pragma unroll 1
    for (i64 u = threadIdx.x + KEPT * THREADS; u < units; u += THREADS) {
      const i64 left = bytes - 16 * u;
      const Unit sum = addUnits(loadOfRow<WIDE>(result + at + 16 * u, left), loadOfRow<WIDE>(E.residual + at + 16 * u, left), squares);
      storeOfRow<WIDE>(E.residualOutput + at + 16 * u, sum, left);
    }
    const float scale = inverseRoot(sumOfBlock(squares, sums) / (float)E.hidden + bitsToFloat((u32)E.eps));
#pragma unroll
    for (int k = 0; k < KEPT; k++) {
      const i64 u = threadIdx.x + k * THREADS;
      if (u < units) storeOfRow<WIDE>(E.output + at + 16 * u, scaleUnit(kept[k], weights[k], scale), bytes - 16 * u);
    }
#pragma unroll 1
    for (i64 u = threadIdx.x + KEPT * THREADS; u < units; u += THREADS) {
      const i64 left = bytes - 16 * u;
      const Weights w = loadWeights<WIDE>(E.weight + u * ELEMENTS * sizeof(Weight), E.hidden - u * ELEMENTS);
      const Unit sum = loadOfRow<WIDE>(E.residualOutput + at + 16 * u, left);
      storeOfRow<WIDE>(E.output + at + 16 * u, scaleUnit(sum, w, scale), left);
    }
  }
}
template <class Meet>
__device__ __forceinline__ void runEpilogue(const Epilogue& E, const char* result, i64 first, i64 end, i64 step, Meet meet) {
  const u64 all = (u64)E.output | (u64)E.residual | (u64)E.residualOutput | (u64)E.weight | (u64)result | (u64)rowBytes(E);
  if ((all & 15u) == 0) normalizeRows<true>(E, result, first, end, step, meet);
  else normalizeRows<false>(E, result, first, end, step, meet);
}`;

/** The step for weights of a type; elements are the call's. */
export function residualRmsNorm(weight: NormDType): EpilogueKernel {
  return { name: `residual + RMSNorm (weight ${weight})`, source: source(WEIGHTS[weight]), numWords: 7 };
}
