/**
 * The CUDA kernels of the Llama forward pass, compiled by NVRTC for the device at hand. Activations are f32, weights stay
 * as the file has them (bf16, f16 or f32; macro WEIGHT), sums are f32. Decoding is bound by reading the weights, so the
 * matrix product gives each warp whole rows and reads them with 16-byte loads; up to 8 tokens share one reading.
 * Shapes: T tokens, H hidden, K inner size, N rows, D head_dim.
 */

/** Largest T of one launch; longer prompts take several. */
export const MAX_TOKENS_PER_PASS = 8;

/** Value of the WEIGHT macro by dtype. */
export const WEIGHT_MACRO = { bf16: 0, f16: 1, f32: 2 } as const;

export const source = `
typedef unsigned short u16;
typedef unsigned int u32;

#if WEIGHT == 2
typedef float weight_t;
#define LANE_VALUES 4
__device__ __forceinline__ float to_float(weight_t w) { return w; }
#else
typedef u16 weight_t;
#define LANE_VALUES 8
__device__ __forceinline__ float to_float(weight_t w) {
#if WEIGHT == 0
  return __uint_as_float((u32)w << 16);
#else
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(w));
  return f;
#endif
}
#endif

union Chunk { uint4 raw; weight_t w[LANE_VALUES]; };

__device__ __forceinline__ float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
  for (int offset = 16; offset > 0; offset >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}
__device__ float block_sum(float v, float* shared) {
  v = warp_sum(v);
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
  __syncthreads();
  v = threadIdx.x < (blockDim.x >> 5) ? shared[threadIdx.x] : 0.f;
  if (threadIdx.x < 32) { v = warp_sum(v); if (threadIdx.x == 0) shared[0] = v; }
  __syncthreads();
  v = shared[0];
  __syncthreads();
  return v;
}
__device__ float block_max(float v, float* shared) {
  v = warp_max(v);
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = v;
  __syncthreads();
  v = threadIdx.x < (blockDim.x >> 5) ? shared[threadIdx.x] : -3.4e38f;
  if (threadIdx.x < 32) { v = warp_max(v); if (threadIdx.x == 0) shared[0] = v; }
  __syncthreads();
  v = shared[0];
  __syncthreads();
  return v;
}

// out[t] = table[tokens[t] - first], or 0 where another rank has the row. grid (T), any block.
extern "C" __global__ void embed(float* out, const weight_t* table, const int* tokens, int hidden, int first, int rows) {
  int row = tokens[blockIdx.x] - first;
  bool mine = row >= 0 && row < rows;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    out[(size_t)blockIdx.x * hidden + i] = mine ? to_float(table[(size_t)row * hidden + i]) : 0.f;
}

// out[t] = x[t] * rsqrt(mean(x[t]^2) + eps) * w. grid (T), block a multiple of 32.
extern "C" __global__ void rms_norm(float* out, const float* x, const weight_t* w, int hidden, float eps) {
  __shared__ float shared[32];
  const float* row = x + (size_t)blockIdx.x * hidden;
  float sum = 0.f;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) sum += row[i] * row[i];
  float scale = rsqrtf(block_sum(sum, shared) / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    out[(size_t)blockIdx.x * hidden + i] = row[i] * scale * to_float(w[i]);
}

// x[t] += y[t], then as rms_norm.
extern "C" __global__ void __launch_bounds__(1024) add_rms_norm(float* out, float* x, const float* y, const weight_t* w, int hidden, float eps) {
  __shared__ float shared[32];
  float* row = x + (size_t)blockIdx.x * hidden;
  const float* more = y + (size_t)blockIdx.x * hidden;
  float sum = 0.f;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    float v = row[i] + more[i];
    row[i] = v;
    sum += v * v;
  }
  float scale = rsqrtf(block_sum(sum, shared) / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    out[(size_t)blockIdx.x * hidden + i] = row[i] * scale * to_float(w[i]);
}

// y[t][n] = sum_k w[n][k] * x[t][k] (+ bias[n]) (+ y[t][n] if accumulate). A warp takes rows n, n + warps, ...
template <int T>
__device__ void matmul_rows(float* y, const weight_t* w, const float* x, const weight_t* bias, int N, int K, int accumulate) {
  int lane = threadIdx.x & 31;
  int warps = (gridDim.x * blockDim.x) >> 5;
  bool wide = K % LANE_VALUES == 0;
  for (int n = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; n < N; n += warps) {
    const weight_t* row = w + (size_t)n * K;
    float sum[T];
    for (int t = 0; t < T; t++) sum[t] = 0.f;
    if (wide) {
      #pragma unroll 4
      for (int k = lane * LANE_VALUES; k < K; k += 32 * LANE_VALUES) {
        Chunk c;
        c.raw = __ldcs((const uint4*)(row + k));
        float f[LANE_VALUES];
        #pragma unroll
        for (int i = 0; i < LANE_VALUES; i++) f[i] = to_float(c.w[i]);
        #pragma unroll
        for (int t = 0; t < T; t++) {
          const float4* v = (const float4*)(x + (size_t)t * K + k);
          #pragma unroll
          for (int i = 0; i < LANE_VALUES / 4; i++) {
            float4 a = __ldg(v + i);
            sum[t] += f[4 * i] * a.x + f[4 * i + 1] * a.y + f[4 * i + 2] * a.z + f[4 * i + 3] * a.w;
          }
        }
      }
    } else {
      for (int k = lane; k < K; k += 32) {
        float f = to_float(row[k]);
        for (int t = 0; t < T; t++) sum[t] += f * x[(size_t)t * K + k];
      }
    }
    for (int t = 0; t < T; t++) {
      float total = warp_sum(sum[t]);
      if (lane == 0) {
        if (bias) total += to_float(bias[n]);
        size_t at = (size_t)t * N + n;
        y[at] = accumulate ? y[at] + total : total;
      }
    }
  }
}
// One token: decoding. Fewer registers, so that more warps read at once.
extern "C" __global__ void __launch_bounds__(256) matmul_one(float* y, const weight_t* w, const float* x, const weight_t* bias, int N, int K, int accumulate) {
  matmul_rows<1>(y, w, x, bias, N, K, accumulate);
}
extern "C" __global__ void __launch_bounds__(256) matmul(float* y, const weight_t* w, const float* x, const weight_t* bias, int T, int N, int K, int accumulate) {
  switch (T) {
    case 1: matmul_rows<1>(y, w, x, bias, N, K, accumulate); break;
    case 2: matmul_rows<2>(y, w, x, bias, N, K, accumulate); break;
    case 3: matmul_rows<3>(y, w, x, bias, N, K, accumulate); break;
    case 4: matmul_rows<4>(y, w, x, bias, N, K, accumulate); break;
    case 5: matmul_rows<5>(y, w, x, bias, N, K, accumulate); break;
    case 6: matmul_rows<6>(y, w, x, bias, N, K, accumulate); break;
    case 7: matmul_rows<7>(y, w, x, bias, N, K, accumulate); break;
    default: matmul_rows<8>(y, w, x, bias, N, K, accumulate); break;
  }
}

// Rotates the q and k heads of T tokens at positions *start + t (halves, as Hugging Face lays them out) and appends k and
// v to the cache [position][kvHeads][D]. qkv[t] = q heads, k heads, v heads. grid (T, heads + 2 * kvHeads), block D / 2.
extern "C" __global__ void rope_and_cache(float* qkv, float* keys, float* values, const float* cosines, const float* sines,
    const int* start, int heads, int kvHeads, int headDim) {
  int t = blockIdx.x, head = blockIdx.y, position = *start + t, half = headDim / 2;
  int stride = (heads + 2 * kvHeads) * headDim;
  float* at = qkv + (size_t)t * stride + (size_t)head * headDim;
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    float a = at[i], b = at[i + half];
    if (head < heads + kvHeads) {
      float c = cosines[(size_t)position * half + i], s = sines[(size_t)position * half + i];
      float ra = a * c - b * s, rb = b * c + a * s;
      a = ra;
      b = rb;
    }
    if (head < heads) { at[i] = a; at[i + half] = b; continue; }
    int kv = head < heads + kvHeads ? head - heads : head - heads - kvHeads;
    float* cache = (head < heads + kvHeads ? keys : values) + ((size_t)position * kvHeads + kv) * headDim;
    cache[i] = a;
    cache[i + half] = b;
  }
}

// Causal attention of T tokens over the cache, of the last window positions where window > 0. out[t] = heads * D.
// grid (T, heads), block a multiple of 32 and at least D. Dynamic shared memory: 32 + context + blockDim floats, where
// context is the number of positions that the cache holds.
extern "C" __global__ void __launch_bounds__(1024) attention(float* out, const float* qkv, const float* keys, const float* values, const int* start,
    int heads, int kvHeads, int headDim, int context, int window, float scale) {
  extern __shared__ float shared[];
  float* scores = shared + 32;
  float* parts = scores + context;
  int t = blockIdx.x, head = blockIdx.y, kv = head / (heads / kvHeads), length = *start + t + 1;
  int first = window > 0 && length > window ? length - window : 0;
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const float* q = qkv + (size_t)t * (heads + 2 * kvHeads) * headDim + (size_t)head * headDim;
  float best = -3.4e38f;
  // Four positions at a time: their loads do not wait for each other.
  size_t step = (size_t)kvHeads * headDim;
  for (int p = first + 4 * warp; p < length; p += 4 * warps) {
    const float* k = keys + (size_t)p * step + (size_t)kv * headDim;
    int some = length - p < 4 ? length - p : 4;
    float dots[4] = {0.f, 0.f, 0.f, 0.f};
    for (int i = lane; i < headDim; i += 32) {
      #pragma unroll
      for (int j = 0; j < 4; j++) if (j < some) dots[j] += q[i] * k[j * step + i];
    }
    #pragma unroll
    for (int j = 0; j < 4; j++) {
      float dot = warp_sum(dots[j]) * scale;
      if (j < some) {
        if (lane == 0) scores[p + j] = dot;
        best = fmaxf(best, dot);
      }
    }
  }
  best = block_max(best, shared);
  float sum = 0.f;
  for (int p = first + threadIdx.x; p < length; p += blockDim.x) {
    float e = __expf(scores[p] - best);
    scores[p] = e;
    sum += e;
  }
  sum = block_sum(sum, shared);
  float inverse = 1.f / sum;
  // Threads in groups of D: each group sums every groups-th position.
  int groups = blockDim.x / headDim, group = threadIdx.x / headDim, i = threadIdx.x - group * headDim;
  float acc = 0.f;
  if (group < groups) {
    #pragma unroll 8
    for (int p = first + group; p < length; p += groups) acc += scores[p] * values[((size_t)p * kvHeads + kv) * headDim + i];
    parts[threadIdx.x] = acc;
  }
  __syncthreads();
  if (group == 0) {
    for (int g = 1; g < groups; g++) acc += parts[g * headDim + i];
    out[(size_t)t * heads * headDim + (size_t)head * headDim + i] = acc * inverse;
  }
}

// out[t][i] = silu(gateUp[t][i]) * gateUp[t][inner + i].
extern "C" __global__ void silu_mul(float* out, const float* gateUp, int inner, int total) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= total) return;
  int t = at / inner, i = at - t * inner;
  float g = gateUp[(size_t)t * 2 * inner + i];
  out[at] = g / (1.f + __expf(-g)) * gateUp[(size_t)t * 2 * inner + inner + i];
}

// x += y
extern "C" __global__ void add(float* x, const float* y, int total) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < total) x[at] += y[at];
}

// token[0] = first index of the largest of logits[0, n); *position += 1 where given. grid 1, block 1024.
extern "C" __global__ void argmax(int* token, const float* logits, int n, int* position) {
  __shared__ float bestOf[32];
  __shared__ int indexOf[32];
  float best = -3.4e38f;
  int index = 0x7fffffff;
  #pragma unroll 8
  for (int i = threadIdx.x; i < n; i += blockDim.x) if (logits[i] > best) { best = logits[i]; index = i; }
  for (int offset = 16; offset > 0; offset >>= 1) {
    float other = __shfl_xor_sync(0xffffffffu, best, offset);
    int otherIndex = __shfl_xor_sync(0xffffffffu, index, offset);
    if (other > best || (other == best && otherIndex < index)) { best = other; index = otherIndex; }
  }
  if ((threadIdx.x & 31) == 0) { bestOf[threadIdx.x >> 5] = best; indexOf[threadIdx.x >> 5] = index; }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < (int)(blockDim.x >> 5); w++)
      if (bestOf[w] > best || (bestOf[w] == best && indexOf[w] < index)) { best = bestOf[w]; index = indexOf[w]; }
    token[0] = index == 0x7fffffff ? 0 : index;
    if (position) *position += 1;
  }
}

// position += by. grid 1, block 1.
extern "C" __global__ void advance(int* position, int by) { *position += by; }

// Random weights for size tests: uniform in [-scale, scale), from a counter-based hash.
extern "C" __global__ void fill_random(weight_t* w, unsigned long long count, u32 seed, float scale) {
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (unsigned long long)gridDim.x * blockDim.x) {
    u32 h = (u32)i * 2654435761u ^ (u32)(i >> 32) ^ seed;
    h ^= h >> 16; h *= 0x85ebca6bu; h ^= h >> 13; h *= 0xc2b2ae35u; h ^= h >> 16;
    float f = ((float)h * (2.f / 4294967296.f) - 1.f) * scale;
#if WEIGHT == 2
    w[i] = f;
#elif WEIGHT == 0
    w[i] = (u16)(__float_as_uint(f) >> 16);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(w[i]) : "f"(f));
#endif
  }
}
`;

/** Names of the kernels in the source. */
export const KERNEL_NAMES = [...source.matchAll(/__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(/g)].map(
  ([, name]) => name as string,
);
