// Hand-written kernels of plans of chorale's library, for one host whose GPUs reach each other's memory directly.
// A strand of the plan is a thread block here, and an operation is a pass over the block's slice:
//
//   onePacket   one-shot-packet-all-reduce: put (pack) to every peer's scratch and to the own one, copy (unpack) of rank 0's,
//               reduce (packets) of the others. Block c * instances + i has slice i of chunk c. Scratch is double-buffered
//               by the parity of the launch, whose number is the packets' flag.
//   twoPlan     two-shot-read-all-reduce: reduce from all peers, result to the own and the next rank's output, signal; put to
//               each further peer, signal; wait for all. Nothing at the beginning, as in the plan.
//   twoFused    the same work as gpu libraries do it: all ranks meet, one pass loads from all and stores to all, all meet.
//   allGather   direct-all-gather, in place: block p * instances + i puts slice i to peer p, signals, waits for that peer's.
//
// Every spin is bounded; what ran out of patience sets `*error`.
#pragma once
#include <cstdint>

constexpr int MAX_RANKS = 8;
constexpr int MAX_BLOCKS = 256;
constexpr int THREADS = 512;
constexpr long long SPIN_LIMIT = 5ll * 1000 * 1000;

struct Peers {
  float* in[MAX_RANKS];
  float* out[MAX_RANKS];
  uint4* scratch[MAX_RANKS];          // two halves of `half` packets
  unsigned* signals[MAX_RANKS];       // [block][sender]
  unsigned* launches;                 // [block], of this rank
  int* error;                         // of this rank
  size_t half;
  int rank, n;
};

__device__ __forceinline__ void storePacket(uint4* at, float a, float b, unsigned flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(__float_as_uint(a)), "r"(flag),
               "r"(__float_as_uint(b)), "r"(flag) : "memory");
}
__device__ __forceinline__ float2 loadPacket(const uint4* at, unsigned flag, int* error) {
  unsigned a, f, b, g;
  long long spins = 0;
  do {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(f), "=r"(b), "=r"(g) : "l"(at) : "memory");
    if (++spins > SPIN_LIMIT) { *error = 1; break; }
  } while (f != flag || g != flag);
  return make_float2(__uint_as_float(a), __uint_as_float(b));
}
__device__ __forceinline__ void signal(unsigned* at, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void await(const unsigned* at, unsigned value, int* error) {
  unsigned seen;
  long long spins = 0;
  do {
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(at) : "memory");
    if (++spins > SPIN_LIMIT) { *error = 2; return; }
  } while ((int)(seen - value) < 0);
}
/** Slice i of m of [0, count), in whole units. */
__device__ __forceinline__ void slice(size_t count, int i, int m, size_t& begin, size_t& end) {
  begin = count * i / m;
  end = count * (i + 1) / m;
}
__device__ __forceinline__ float4 add(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

__global__ void __launch_bounds__(THREADS) empty() {}

__global__ void __launch_bounds__(THREADS) onePacket(Peers p, size_t count, int instances) {
  const int chunk = blockIdx.x / instances, instance = blockIdx.x % instances;
  const unsigned flag = p.launches[blockIdx.x] + 1;
  const size_t packets = count / 2;
  const size_t base = packets * chunk / p.n;
  size_t begin, end;
  slice(packets * (chunk + 1) / p.n - base, instance, instances, begin, end);
  begin += base;
  end += base;
  const size_t parity = (flag & 1) * p.half;
  const float2* in = (const float2*)p.in[p.rank];
  float2* out = (float2*)p.out[p.rank];
  for (size_t i = begin + threadIdx.x; i < end; i += THREADS) {
    const float2 v = in[i];
    for (int k = 1; k <= p.n; k++) {
      const int to = (p.rank + k) % p.n;
      storePacket(p.scratch[to] + parity + p.rank * packets + i, v.x, v.y, flag);
    }
  }
  const uint4* mine = p.scratch[p.rank] + parity;
  for (size_t i = begin + threadIdx.x; i < end; i += THREADS) {
    float2 sum = loadPacket(mine + i, flag, p.error);
    for (int from = 1; from < p.n; from++) {
      const float2 v = loadPacket(mine + from * packets + i, flag, p.error);
      sum.x += v.x;
      sum.y += v.y;
    }
    out[i] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) p.launches[blockIdx.x] = flag;
}

/** Adds up what all ranks have at [begin, end) and stores the result to the own output and to `targets` further ones. */
template <int UNROLL>
__device__ __forceinline__ void reduceTo(const Peers& p, size_t begin, size_t end, int targets) {
  for (size_t i = begin + threadIdx.x; i < end; i += THREADS * UNROLL) {
    float4 sum[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (i + u * THREADS < end) sum[u] = ((const float4*)p.in[p.rank])[i + u * THREADS];
    for (int k = 1; k < p.n; k++) {
      const float4* from = (const float4*)p.in[(p.rank + k) % p.n];
      float4 v[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
        if (i + u * THREADS < end) v[u] = from[i + u * THREADS];
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
        if (i + u * THREADS < end) sum[u] = add(sum[u], v[u]);
    }
    for (int k = 0; k <= targets; k++) {
      float4* to = (float4*)p.out[(p.rank + k) % p.n];
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
        if (i + u * THREADS < end) to[i + u * THREADS] = sum[u];
    }
  }
}
template <int UNROLL>
__device__ __forceinline__ void put(float4* to, const float4* from, size_t begin, size_t end) {
  for (size_t i = begin + threadIdx.x; i < end; i += THREADS * UNROLL) {
    float4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (i + u * THREADS < end) v[u] = from[i + u * THREADS];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (i + u * THREADS < end) to[i + u * THREADS] = v[u];
  }
}
/** After a block-wide synchronisation: says to a peer that what this block stored there is there. */
__device__ __forceinline__ void tell(const Peers& p, int peer, unsigned value) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    signal(p.signals[peer] + blockIdx.x * MAX_RANKS + p.rank, value);
  }
}
__device__ __forceinline__ void awaitAll(const Peers& p, unsigned value) {
  if (threadIdx.x < p.n && threadIdx.x != p.rank)
    await(p.signals[p.rank] + blockIdx.x * MAX_RANKS + threadIdx.x, value, p.error);
  __syncthreads();
}

template <int UNROLL>
__global__ void __launch_bounds__(THREADS) twoPlan(Peers p, size_t count, int instances) {
  const unsigned launch = p.launches[blockIdx.x] + 1;
  const size_t part = count / 4 / p.n;
  size_t begin, end;
  slice(part, blockIdx.x, instances, begin, end);
  begin += part * p.rank;
  end += part * p.rank;
  reduceTo<UNROLL>(p, begin, end, 1);
  tell(p, (p.rank + 1) % p.n, launch);
  for (int k = 2; k < p.n; k++) {
    const int to = (p.rank + k) % p.n;
    put<UNROLL>((float4*)p.out[to], (const float4*)p.out[p.rank], begin, end);
    tell(p, to, launch);
  }
  awaitAll(p, launch);
  if (threadIdx.x == 0) p.launches[blockIdx.x] = launch;
}

template <int UNROLL>
__global__ void __launch_bounds__(THREADS) twoFused(Peers p, size_t count, int instances) {
  const unsigned before = p.launches[blockIdx.x];
  const size_t part = count / 4 / p.n;
  size_t begin, end;
  slice(part, blockIdx.x, instances, begin, end);
  begin += part * p.rank;
  end += part * p.rank;
  for (int meeting = 1; meeting <= 2; meeting++) {
    __syncthreads();
    if (threadIdx.x < p.n && threadIdx.x != p.rank) {
      if (meeting == 2) __threadfence_system();
      signal(p.signals[threadIdx.x] + blockIdx.x * MAX_RANKS + p.rank, before + meeting);
    }
    awaitAll(p, before + meeting);
    if (meeting == 1) reduceTo<UNROLL>(p, begin, end, p.n - 1);
  }
  if (threadIdx.x == 0) p.launches[blockIdx.x] = before + 2;
}

template <int UNROLL>
__global__ void __launch_bounds__(THREADS) allGather(Peers p, size_t count, int instances) {
  const unsigned launch = p.launches[blockIdx.x] + 1;
  const int other = blockIdx.x / instances, instance = blockIdx.x % instances;
  // Peers in ascending order without the own rank, as the plan's strands are.
  const int peer = other < p.rank ? other : other + 1;
  const size_t part = count / 4 / p.n;
  size_t begin, end;
  slice(part, instance, instances, begin, end);
  begin += part * p.rank;
  end += part * p.rank;
  put<UNROLL>((float4*)p.out[peer], (const float4*)p.out[p.rank], begin, end);
  // The peer's block that waits for this one is the one that sends here.
  const int back = (p.rank < peer ? p.rank : p.rank - 1) * instances + instance;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    signal(p.signals[peer] + back * MAX_RANKS + p.rank, launch);
    await(p.signals[p.rank] + blockIdx.x * MAX_RANKS + peer, launch, p.error);
  }
  __syncthreads();
  if (threadIdx.x == 0) p.launches[blockIdx.x] = launch;
}

// Inputs that every rank can compute, and the check against their sum in float64.

__device__ __forceinline__ float valueOf(int rank, size_t i) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)(rank + 1) * 0xbf58476d1ce4e5b9ull;
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  return (float)((double)(x >> 11) / 9007199254740992.0 * 2 - 1);
}
__global__ void fill(float* to, int rank, size_t first, size_t count) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
    to[i] = valueOf(rank, first + i);
}
/**
 * What element i of the output must be: mode 0 the sum over all ranks of element `first + i`, 1 all-gather (part r is rank
 * r's input), 2 all-to-all (part r is rank r's part for this rank). Counts what is off by more than the rounding of n sums.
 */
__global__ void check(const float* out, size_t count, int n, int rank, size_t first, int mode, unsigned long long* wrong) {
  const size_t part = count / n;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    double want = 0, size = 0;
    if (mode == 0) {
      for (int r = 0; r < n; r++) {
        const double v = valueOf(r, first + i);
        want += v;
        size += fabs(v);
      }
    } else
      want = valueOf((int)(i / part), mode == 1 ? i % part : rank * part + i % part);
    const double off = fabs((double)out[i] - want);
    if (!(off <= size * n * 6e-8)) atomicAdd(wrong, 1ull);
  }
}
