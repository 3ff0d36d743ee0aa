// What links between four GPUs of one host carry, by kernels written by hand: all-reduce, all-gather and reduce-scatter, pulled and
// pushed, with loads and stores of several kinds, through shared memory (bulk copies), in lines of packets, and what meeting costs.
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a links.cu -o links -cudart static -ldl
//   ./links base|lines|tma|rates|search SECONDS FILE [SEED]
// Graphs of 20 calls are replayed on all four at once. A row of FILE: operation, bytes, kernel, us a call when many graphs follow
// each other, us a call of two graphs with their launch, and how many elements were wrong. Inputs are new for every check, outputs
// poisoned, sums exact. Labels: CTAs x threads, unrolling, B: each CTA has a region of its own, G and S: all go through the data
// together, rot: whom a CTA or a warp begins with, b and e: how ranks meet at the begin and at the end (beginAll, endAll).
// Every wait is bounded.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
constexpr int N = 4, MAXCTA = 528;
constexpr int SECTOR = 8;  // u32 of a flag's sector

struct Args {
  char* in[N];
  char* out[N];
  char* scratch[N];
  u32* win[N];
  u32* state;  // per CTA: launches; [MAXCTA]: ended
  u32* err;
  int rank, begin, end, iters, rot, pdl, tileUnits, stages, op;
  i64 n;  // units of 16 bytes of a part
  i64 ctaStride, itStride, uStride, ctaLimit;
  float scale;
};

__device__ __forceinline__ u64 now() { u64 t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
struct Patience {
  u32 turns = 0; u64 begun = 0;
  __device__ __forceinline__ bool over(const Args& A) {
    if ((++turns & 1023u) != 0) return false;
    if (*(volatile u32*)A.err != 0) return true;
    const u64 t = now();
    if (begun == 0) begun = t;
    if (t - begun > 100000000ull) { *(volatile u32*)A.err = 1; return true; }
    return false;
  }
};
__device__ __forceinline__ u32 ldAcq(const u32* p) { u32 v; asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
__device__ __forceinline__ void stRel(u32* p, u32 v) { asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory"); }
__device__ __forceinline__ void stRlx(u32* p, u32 v) { asm volatile("st.relaxed.sys.global.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory"); }
__device__ __forceinline__ u32 addDev(u32* p, u32 v) { u32 r; asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(v) : "memory"); return r; }
__device__ __forceinline__ u32* flagAt(const Args& A, int of, int kind, int cta, int src) {
  return A.win[of] + (((i64)kind * MAXCTA + cta) * N + src) * SECTOR;
}
__device__ __forceinline__ void waitFor(const Args& A, const u32* p, u32 v) {
  Patience patience;
  while ((int)(ldAcq(p) - v) < 0) if (patience.over(A)) return;
}
// 1: flags of each CTA; 2: CTA 0 tells, all wait; 0: none
__device__ __forceinline__ u32 beginAll(const Args& A) {
  if (A.pdl) { asm volatile("griddepcontrol.wait;" ::: "memory"); asm volatile("griddepcontrol.launch_dependents;"); }
  const int cta = blockIdx.x, t = threadIdx.x;
  const u32 epoch = ((volatile u32*)A.state)[cta] + 1;
  if (A.begin) {
    const int slot = A.begin == 1 ? cta : 0;
    if (t < N && t != A.rank) {
      if (A.begin == 1 || cta == 0) stRlx(flagAt(A, t, 0, slot, A.rank), epoch);
      waitFor(A, flagAt(A, A.rank, 0, slot, t), epoch);
    }
    __syncthreads();
  }
  return epoch;
}
__device__ __forceinline__ void midAll(const Args& A, u32 epoch) {
  const int cta = blockIdx.x, t = threadIdx.x;
  __syncthreads();
  if (t < N && t != A.rank) {
    stRel(flagAt(A, t, 1, cta, A.rank), epoch);
    waitFor(A, flagAt(A, A.rank, 1, cta, t), epoch);
  }
  __syncthreads();
}
// 1: flags of each CTA; 2: the last CTA tells and waits; 3: each CTA tells, CTA 0 waits for all; 0 none
__device__ __forceinline__ void endAll(const Args& A, u32 epoch) {
  const int cta = blockIdx.x, t = threadIdx.x;
  __syncthreads();
  if (t == 0) ((volatile u32*)A.state)[cta] = epoch;
  if (A.end == 1 || A.end == 3) {
    if (t < N && t != A.rank) {
      stRel(flagAt(A, t, 2, cta, A.rank), epoch);
      if (A.end == 1) waitFor(A, flagAt(A, A.rank, 2, cta, t), epoch);
    }
    if (A.end == 3 && cta == 0)
      for (int i = t; i < (int)gridDim.x * N; i += blockDim.x)
        if (i % N != A.rank) waitFor(A, flagAt(A, A.rank, 2, i / N, i % N), epoch);
  } else if (A.end == 2 && t == 0) {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    if (addDev(A.state + MAXCTA, 1) == gridDim.x - 1) {
      *(volatile u32*)(A.state + MAXCTA) = 0;
      asm volatile("fence.acq_rel.sys;" ::: "memory");
      for (int p = 0; p < N; p++) if (p != A.rank) stRel(flagAt(A, p, 2, 0, A.rank), epoch);
      for (int p = 0; p < N; p++) if (p != A.rank) waitFor(A, flagAt(A, A.rank, 2, 0, p), epoch);
    }
  }
}

template <int LD> __device__ __forceinline__ float4 ld(const char* p) {
  float4 v;
  if constexpr (LD == 0) v = *(const float4*)p;
  else if constexpr (LD == 1) asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  else if constexpr (LD == 2) asm volatile("ld.relaxed.sys.global.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
  else if constexpr (LD == 3) asm volatile("ld.volatile.global.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
  else asm volatile("ld.global.L1::no_allocate.L2::256B.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
  return v;
}
template <int ST> __device__ __forceinline__ void st(char* p, float4 v) {
  if constexpr (ST == 0) *(float4*)p = v;
  else if constexpr (ST == 1) asm volatile("st.global.cs.v4.f32 [%0], {%1,%2,%3,%4};" :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
  else if constexpr (ST == 2) asm volatile("st.global.wt.v4.f32 [%0], {%1,%2,%3,%4};" :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
  else if constexpr (ST == 3) {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1,%2,%3,%4}, %5;" :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "l"(policy) : "memory");
  } else asm volatile("st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%4};" :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
__device__ __forceinline__ float4 add(float4 a, float4 b) { a.x += b.x; a.y += b.y; a.z += b.z; a.w += b.w; return a; }
__device__ __forceinline__ float4 mul(float4 a, float s) { a.x *= s; a.y *= s; a.z *= s; a.w *= s; return a; }
__device__ __forceinline__ int firstPeer(const Args& A) {
  const int r = A.rot == 1 ? (int)blockIdx.x : A.rot == 2 ? (int)(threadIdx.x / 32) : 0;
  return (A.rank + r) % N;
}
#define UNITS(it) const i64 base = (i64)blockIdx.x * A.ctaStride + (i64)(it) * A.itStride + threadIdx.x; \
  const i64 limit = (i64)blockIdx.x * A.ctaStride + A.ctaLimit < A.n ? (i64)blockIdx.x * A.ctaStride + A.ctaLimit : A.n;
#define UNIT(u) (base + (u) * A.uStride)
#define EACH(u) _Pragma("unroll") for (int u = 0; u < U; u++)
#define PEERS(k) _Pragma("unroll") for (int k = 0; k < N; k++)

// All-reduce, fused: load my chunk from all, store the sum to all.
template <int LD, int ST, int U> __global__ void arFused(const __grid_constant__ Args A) {
  const u32 epoch = beginAll(A);
  const char* s[N]; char* d[N];
  const int f = firstPeer(A);
  PEERS(k) { s[k] = A.in[(f + k) % N] + 16 * A.n * A.rank; d[k] = A.out[(f + k) % N] + 16 * A.n * A.rank; }
  for (int it = 0; it < A.iters; it++) {
    UNITS(it)
    float4 v[U][N];
    EACH(u) if (UNIT(u) < limit) PEERS(k) v[u][k] = ld<LD>(s[k] + 16 * UNIT(u));
    EACH(u) if (UNIT(u) < limit) {
      float4 sum = mul(add(add(v[u][0], v[u][1]), add(v[u][2], v[u][3])), A.scale);
      PEERS(k) st<ST>(d[k] + 16 * UNIT(u), sum);
    }
  }
  endAll(A, epoch);
}
// Reduce-scatter: op 0. All-reduce in two phases, pull then push: op 1 (no meeting between).
template <int LD, int ST, int U> __global__ void rsPull(const __grid_constant__ Args A) {
  const u32 epoch = beginAll(A);
  const char* s[N];
  const int f = firstPeer(A);
  PEERS(k) s[k] = A.in[(f + k) % N] + 16 * A.n * A.rank;
  char* own = A.out[A.rank] + (A.op == 0 ? 0 : 16 * A.n * A.rank);
  for (int it = 0; it < A.iters; it++) {
    UNITS(it)
    float4 v[U][N];
    EACH(u) if (UNIT(u) < limit) PEERS(k) v[u][k] = ld<LD>(s[k] + 16 * UNIT(u));
    EACH(u) if (UNIT(u) < limit) st<0>(own + 16 * UNIT(u), mul(add(add(v[u][0], v[u][1]), add(v[u][2], v[u][3])), A.scale));
  }
  if (A.op == 1) {
    for (int it = 0; it < A.iters; it++) {
      UNITS(it)
      float4 v[U];
      EACH(u) if (UNIT(u) < limit) v[u] = ld<3>(own + 16 * UNIT(u));
      PEERS(k) { const int p = (f + k) % N; if (p != A.rank) { EACH(u) if (UNIT(u) < limit) st<ST>(A.out[p] + 16 * A.n * A.rank + 16 * UNIT(u), v[u]); } }
    }
  } else if (A.op == 2) {  // pull, meet, pull
    midAll(A, epoch);
    for (int it = 0; it < A.iters; it++) {
      UNITS(it)
      float4 v[U][N];
      PEERS(k) { const int p = (f + k) % N; if (p != A.rank) { EACH(u) if (UNIT(u) < limit) v[u][k] = ld<2>(A.out[p] + 16 * A.n * p + 16 * UNIT(u)); } }
      PEERS(k) { const int p = (f + k) % N; if (p != A.rank) { EACH(u) if (UNIT(u) < limit) st<ST>(A.out[A.rank] + 16 * A.n * p + 16 * UNIT(u), v[u][k]); } }
    }
  }
  endAll(A, epoch);
}
// All-gather by loads. in: n units; out: N x n.
template <int LD, int ST, int U> __global__ void agPull(const __grid_constant__ Args A) {
  const u32 epoch = beginAll(A);
  const int f = firstPeer(A);
  const char* s[N]; char* d[N];
  PEERS(k) { s[k] = A.in[(f + k) % N]; d[k] = A.out[A.rank] + 16 * A.n * ((f + k) % N); }
  for (int it = 0; it < A.iters; it++) {
    UNITS(it)
    float4 v[U][N];
    EACH(u) if (UNIT(u) < limit) PEERS(k) v[u][k] = ld<LD>(s[k] + 16 * UNIT(u));
    EACH(u) if (UNIT(u) < limit) PEERS(k) st<ST>(d[k] + 16 * UNIT(u), v[u][k]);
  }
  endAll(A, epoch);
}
// All-gather by stores.
template <int LD, int ST, int U> __global__ void agPush(const __grid_constant__ Args A) {
  const u32 epoch = beginAll(A);
  const int f = firstPeer(A);
  const char* s = A.in[A.rank];
  char* d[N];
  PEERS(k) d[k] = A.out[(f + k) % N] + 16 * A.n * A.rank;
  for (int it = 0; it < A.iters; it++) {
    UNITS(it)
    float4 v[U];
    EACH(u) if (UNIT(u) < limit) v[u] = ld<LD>(s + 16 * UNIT(u));
    if (A.op == 0) { EACH(u) if (UNIT(u) < limit) PEERS(k) st<ST>(d[k] + 16 * UNIT(u), v[u]); }
    else { PEERS(k) EACH(u) if (UNIT(u) < limit) st<ST>(d[k] + 16 * UNIT(u), v[u]); }
  }
  endAll(A, epoch);
}
// Push to scratch, meet, add: op 0 reduce-scatter, op 1 all-reduce (sums are pushed too).
template <int LD, int ST, int U> __global__ void pushAdd(const __grid_constant__ Args A) {
  const u32 epoch = beginAll(A);
  const int f = firstPeer(A);
  for (int it = 0; it < A.iters; it++) {
    UNITS(it)
    float4 v[U][N];
    PEERS(k) { const int p = (f + k) % N; if (p != A.rank) { EACH(u) if (UNIT(u) < limit) v[u][k] = ld<LD>(A.in[A.rank] + 16 * A.n * p + 16 * UNIT(u)); } }
    PEERS(k) { const int p = (f + k) % N; if (p != A.rank) { EACH(u) if (UNIT(u) < limit) st<ST>(A.scratch[p] + 16 * A.n * A.rank + 16 * UNIT(u), v[u][k]); } }
  }
  midAll(A, epoch);
  for (int it = 0; it < A.iters; it++) {
    UNITS(it)
    float4 v[U][N];
    EACH(u) if (UNIT(u) < limit) PEERS(k) v[u][k] = ld<2>((k == A.rank ? A.in[A.rank] : A.scratch[A.rank]) + 16 * A.n * k + 16 * UNIT(u));
    EACH(u) if (UNIT(u) < limit) {
      const float4 sum = mul(add(add(v[u][0], v[u][1]), add(v[u][2], v[u][3])), A.scale);
      if (A.op == 0) st<0>(A.out[A.rank] + 16 * UNIT(u), sum);
      else PEERS(k) st<ST>(A.out[(f + k) % N] + 16 * A.n * A.rank + 16 * UNIT(u), sum);
    }
  }
  endAll(A, epoch);
}
__global__ void emptyK(const __grid_constant__ Args A) {
  const u32 epoch = beginAll(A);
  if (A.op) midAll(A, epoch);
  endAll(A, epoch);
}

// TMA. MODE 0: all-reduce fused; 1: all-gather push; 2: all-gather pull; 3: reduce-scatter pull; 4: reduce-scatter by adding stores.
extern __shared__ __align__(128) char smem[];
__device__ __forceinline__ u32 sh(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void bulkLoad(void* to, const char* from, u32 bytes, u64* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(sh(to)), "l"(from), "r"(bytes), "r"(sh(bar)) : "memory");
}
__device__ __forceinline__ void bulkStore(char* to, const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(to), "r"(sh(from)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bulkAdd(char* to, const void* from, u32 bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" :: "l"(to), "r"(sh(from)), "r"(bytes) : "memory");
}
__device__ __forceinline__ bool tryWait(u64* bar, u32 parity) {
  u32 ok;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(ok) : "r"(sh(bar)), "r"(parity) : "memory");
  return ok != 0;
}
template <int MODE> __global__ void tma(const __grid_constant__ Args A) {
  constexpr int NS = MODE == 0 || MODE == 3 ? N : 1;
  const u32 epoch = beginAll(A);
  const u32 TB = A.tileUnits * 16, S = A.stages;
  u64* bars = (u64*)(smem + (i64)S * NS * TB);
  const int t = threadIdx.x, G = gridDim.x, f = firstPeer(A);
  const i64 perPart = (A.n + A.tileUnits - 1) / A.tileUnits;
  const i64 tiles = MODE == 2 || MODE == 4 ? N * perPart : perPart;
  const i64 mine = (i64)blockIdx.x < tiles ? (tiles - blockIdx.x + G - 1) / G : 0;
  if (t == 0) {
    for (u32 s = 0; s < S; s++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(sh(bars + s)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  auto at = [&](i64 j, int& peer, i64& unit, u32& bytes) {  // of my j-th tile
    const i64 tile = j * G + blockIdx.x;
    if (MODE == 2 || MODE == 4) { peer = (int)((tile + A.rank) % N); unit = tile / N * A.tileUnits; }
    else { peer = 0; unit = tile * A.tileUnits; }
    const i64 left = A.n - unit;
    bytes = (u32)(16 * (left < A.tileUnits ? left : A.tileUnits));
  };
  auto load = [&](i64 j) {
    int peer; i64 unit; u32 bytes;
    at(j, peer, unit, bytes);
    const u32 s = (u32)(j % S);
    char* to = smem + (i64)s * NS * TB;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(sh(bars + s)), "r"(bytes * NS) : "memory");
    if (MODE == 0 || MODE == 3) { for (int k = 0; k < N; k++) bulkLoad(to + k * TB, A.in[(f + k) % N] + 16 * (A.n * A.rank + unit), bytes, bars + s); }
    else if (MODE == 1) bulkLoad(to, A.in[A.rank] + 16 * unit, bytes, bars + s);
    else if (MODE == 2) bulkLoad(to, A.in[peer] + 16 * unit, bytes, bars + s);
    else bulkLoad(to, A.in[A.rank] + 16 * (A.n * peer + unit), bytes, bars + s);
  };
  if (t == 0) for (i64 j = 0; j < (i64)S && j < mine; j++) load(j);
  for (i64 j = 0; j < mine; j++) {
    const u32 s = (u32)(j % S), parity = (u32)(j / S) & 1;
    int peer; i64 unit; u32 bytes;
    at(j, peer, unit, bytes);
    char* here = smem + (i64)s * NS * TB;
    if (NS > 1 || t == 0) {
      u32 turns = 0;
      while (!tryWait(bars + s, parity)) { if (++turns > 1000000u || *(volatile u32*)A.err != 0) { *(volatile u32*)A.err = 2; break; } }
    }
    if (NS > 1) {
      for (int i = t; i < (int)(bytes / 16); i += blockDim.x) {
        float4 v[N];
        PEERS(k) v[k] = *(float4*)(here + k * TB + 16 * i);
        *(float4*)(here + 16 * i) = mul(add(add(v[0], v[1]), add(v[2], v[3])), A.scale);
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
    }
    if (t == 0) {
      if (MODE == 0 || MODE == 1) { for (int k = 0; k < N; k++) bulkStore(A.out[(f + k) % N] + 16 * (A.n * A.rank + unit), here, bytes); }
      else if (MODE == 2) bulkStore(A.out[A.rank] + 16 * (A.n * peer + unit), here, bytes);
      else if (MODE == 3) bulkStore(A.out[A.rank] + 16 * unit, here, bytes);
      else bulkAdd(A.out[peer] + 16 * unit, here, bytes);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      if (j >= 1 && j - 1 + S < mine) {
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        load(j - 1 + S);
      }
    }
  }
  if (t == 0) {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  endAll(A, epoch);
}

// Lines of 128 bytes: DATA 120 or 112 of data. A warp handles 8 lines at a time.
__device__ __forceinline__ float4 ldv(const char* p) { return ld<3>(p); }
__device__ __forceinline__ void stv(char* p, float4 v) { asm volatile("st.volatile.global.v4.f32 [%0], {%1,%2,%3,%4};" :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory"); }
template <int DATA> struct Item {
  static constexpr int IU = DATA == 120 ? 60 : 56;
  float4 a, b;
  static __device__ __forceinline__ bool isFlag() { return (threadIdx.x & 7) == 7; }
  static __device__ __forceinline__ int second() { const int l = threadIdx.x & 31; return DATA == 120 ? 32 + l - l / 8 : 28 + l - l / 8; }
  static __device__ __forceinline__ int first() { const int l = threadIdx.x & 31; return DATA == 120 ? l : l - l / 8; }
  __device__ __forceinline__ void load(const char* p, i64 left) {
    a = b = make_float4(0, 0, 0, 0);
    if ((DATA == 120 || !isFlag()) && first() < left) a = ld<0>(p + 16 * first());
    if (!isFlag() && second() < left) b = ld<0>(p + 16 * second());
    if (DATA == 120 && isFlag()) { b.x = a.z; b.y = a.w; }
  }
  __device__ __forceinline__ void loadNc(const char* p, i64 left) {
    a = b = make_float4(0, 0, 0, 0);
    if ((DATA == 120 || !isFlag()) && first() < left) a = ld<1>(p + 16 * first());
    if (!isFlag() && second() < left) b = ld<1>(p + 16 * second());
    if (DATA == 120 && isFlag()) { b.x = a.z; b.y = a.w; }
  }
  __device__ __forceinline__ void store(char* p, i64 left) const {
    if (!isFlag()) {
      if (first() < left) st<0>(p + 16 * first(), a);
      if (second() < left) st<0>(p + 16 * second(), b);
    } else if (DATA == 120 && first() < left) st<0>(p + 16 * first(), make_float4(a.x, a.y, b.x, b.y));
  }
  __device__ __forceinline__ void send(char* p, u32 flag) const {
    float4 x = a, y = b;
    const float g = __uint_as_float(flag);
    if (isFlag()) { x.z = x.w = y.z = y.w = g; if (DATA == 112) x.x = x.y = y.x = y.y = g; }
    const int l = threadIdx.x & 31;
    __syncwarp();
    stv(p + 16 * l, x);
    stv(p + 512 + 16 * l, y);
  }
  __device__ __forceinline__ bool poll(const char* p, u32 flag) {
    const int l = threadIdx.x & 31;
    a = ldv(p + 16 * l); b = ldv(p + 512 + 16 * l);
    return !isFlag() || (__float_as_uint(a.w) == flag && __float_as_uint(b.w) == flag);
  }
  __device__ __forceinline__ void plus(const Item& o) { a = add(a, o.a); b = add(b, o.b); }
};
// op 0: all-reduce; 1: all-gather; 2: all-reduce whose first phase is plain loads (after a barrier).
template <int DATA> __global__ void lines(const __grid_constant__ Args A) {
  typedef Item<DATA> I;
  const u32 epoch = beginAll(A);
  const int rank = A.rank, warps = blockDim.x / 32, w = blockIdx.x * warps + threadIdx.x / 32, W = gridDim.x * warps;
  const i64 items = (A.n + I::IU - 1) / I::IU;
  const i64 phaseBytes = N * items * 1024, slot = (epoch & 1) * 2 * phaseBytes;
  auto box = [&](int of, int phase, int src, i64 item) { return A.scratch[of] + slot + phase * phaseBytes + (src * items + item) * 1024; };
  if (A.op != 2)
    for (i64 item = w; item < items; item += W) {
      const i64 u = item * I::IU, left = A.n - u;
      if (A.op == 0) {
        I x[N - 1];
#pragma unroll
        for (int k = 1; k < N; k++) { const int p = (rank + k) % N; x[k - 1].load(A.in[rank] + 16 * (A.n * p + u), left); }
#pragma unroll
        for (int k = 1; k < N; k++) x[k - 1].send(box((rank + k) % N, 0, rank, item), epoch);
      } else {
        I x;
        x.load(A.in[rank] + 16 * u, left);
#pragma unroll
        for (int k = 1; k < N; k++) x.send(box((rank + k) % N, 0, rank, item), epoch);
        x.store(A.out[rank] + 16 * (A.n * rank + u), left);
      }
    }
  if (A.op != 1)
    for (i64 item = w; item < items; item += W) {
      const i64 u = item * I::IU, left = A.n - u;
      I own;
      if (A.op == 0) {
        own.load(A.in[rank] + 16 * (A.n * rank + u), left);
        I x[N - 1];
        Patience patience;
        for (;;) {
          bool ok = true;
#pragma unroll
          for (int k = 1; k < N; k++) { const bool r = x[k - 1].poll(box(rank, 0, (rank + k) % N, item), epoch); ok = ok && r; }
          if (__all_sync(0xffffffffu, ok)) break;
          if (__any_sync(0xffffffffu, patience.over(A))) break;
        }
#pragma unroll
        for (int k = 1; k < N; k++) own.plus(x[k - 1]);
      } else {
        I x[N];
#pragma unroll
        for (int k = 0; k < N; k++) x[k].loadNc(A.in[(rank + k) % N] + 16 * (A.n * rank + u), left);
        own = x[0];
#pragma unroll
        for (int k = 1; k < N; k++) own.plus(x[k]);
      }
      own.a = mul(own.a, A.scale); own.b = mul(own.b, A.scale);
#pragma unroll
      for (int k = 1; k < N; k++) own.send(box((rank + k) % N, 1, rank, item), epoch);
      own.store(A.out[rank] + 16 * (A.n * rank + u), left);
    }
  for (i64 item = w; item < items; item += W) {
    const i64 u = item * I::IU, left = A.n - u;
    I x[N - 1];
    Patience patience;
    for (;;) {
      bool ok = true;
#pragma unroll
      for (int k = 1; k < N; k++) { const bool r = x[k - 1].poll(box(rank, A.op == 1 ? 0 : 1, (rank + k) % N, item), epoch); ok = ok && r; }
      if (__all_sync(0xffffffffu, ok)) break;
      if (__any_sync(0xffffffffu, patience.over(A))) break;
    }
#pragma unroll
    for (int k = 1; k < N; k++) x[k - 1].store(A.out[rank] + 16 * (A.n * ((rank + k) % N) + u), left);
  }
  endAll(A, epoch);
}

// ---- Values and checks
__device__ __forceinline__ float valueOf(u64 i, int rank, int turn) {
  u64 h = (i * 4 + rank) * 0x9e3779b97f4a7c15ull + (u64)turn * 0xd1b54a32d192ed03ull;
  h ^= h >> 31; h *= 0xbf58476d1ce4e5b9ull; h ^= h >> 29;
  return (float)((int)(h & 0xffff) - 32768) * (1.0f / 1024);
}
__global__ void fill(float* p, u64 count, int rank, int turn) {
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) p[i] = valueOf(i, rank, turn);
}
// kind 0: all-reduce, 1: all-gather, 2: reduce-scatter
__global__ void checkK(const float* p, u64 count, int kind, int rank, int turn, double scale, u64* wrong) {
  const u64 part = kind == 1 ? count / N : count;
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
    double want = 0;
    if (kind == 1) want = valueOf(i % part, (int)(i / part), turn);
    else {
      const u64 at = kind == 0 ? i : (u64)rank * count + i;
      for (int r = 0; r < N; r++) want += (double)valueOf(at, r, turn);
      want *= scale;
    }
    if (!(p[i] == (float)want)) atomicAdd(wrong, 1ull);
  }
}

// ---- Host
#define CK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { snprintf(errorText, sizeof errorText, "%s: %s", #call, cudaGetErrorString(e_)); return false; } } while (0)
static char errorText[512];
typedef void (*Kernel)(Args);
struct Variant {
  std::string name; Kernel kernel; int kind;  // 0 all-reduce, 1 all-gather, 2 reduce-scatter, 3 nothing to check
  int U = 1, threads = 512, ctas = 128; char map = 'S'; int rot = 0, begin = 1, end = 1, op = 0, pdl = 0, tileUnits = 0, stages = 0, numSources = 1;
  bool inPlace = false, accumulates = false;
  std::function<bool(int dev, cudaStream_t)> other;  // instead of a kernel
  std::function<bool()> otherAll;
};
struct Device { char *in, *out, *scratch; u32 *win, *state, *err; u64* wrong; cudaStream_t stream, side[3]; cudaEvent_t fork, join[3]; };
static Device D[N];
static const size_t MOST = 64u << 20, SCRATCH = 320u << 20, WIN = (size_t)4 * 3 * MAXCTA * N * SECTOR;
static FILE* out;
static int turn = 0;
static auto begun = std::chrono::steady_clock::now();
static double elapsed() { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); }

static bool setup() {
  for (int d = 0; d < N; d++) {
    CK(cudaSetDevice(d));
    for (int p = 0; p < N; p++) if (p != d) CK(cudaDeviceEnablePeerAccess(p, 0));
    CK(cudaMalloc(&D[d].in, MOST)); CK(cudaMalloc(&D[d].out, MOST)); CK(cudaMalloc(&D[d].scratch, SCRATCH));
    CK(cudaMalloc(&D[d].win, WIN)); CK(cudaMalloc(&D[d].state, 4 * (MAXCTA + 8))); CK(cudaMalloc(&D[d].err, 128)); CK(cudaMalloc(&D[d].wrong, 8));
    CK(cudaMemset(D[d].err, 0, 128));
    CK(cudaStreamCreateWithFlags(&D[d].stream, cudaStreamNonBlocking));
    for (int s = 0; s < 3; s++) { CK(cudaStreamCreateWithFlags(&D[d].side[s], cudaStreamNonBlocking)); CK(cudaEventCreateWithFlags(&D[d].join[s], cudaEventDisableTiming)); }
    CK(cudaEventCreateWithFlags(&D[d].fork, cudaEventDisableTiming));
  }
  return true;
}
static bool syncAll() { for (int d = 0; d < N; d++) { CK(cudaSetDevice(d)); CK(cudaDeviceSynchronize()); } return true; }

static i64 ceilDiv(i64 a, i64 b) { return (a + b - 1) / b; }
static Args argsOf(const Variant& v, size_t bytes, int d, float scale) {
  Args a = {};
  for (int p = 0; p < N; p++) { a.in[p] = D[p].in; a.out[p] = v.inPlace ? D[p].in : D[p].out; a.scratch[p] = D[p].scratch; a.win[p] = D[p].win; }
  a.state = D[d].state; a.err = D[d].err; a.rank = d; a.begin = v.begin; a.end = v.end; a.rot = v.rot; a.pdl = v.pdl; a.op = v.op;
  a.tileUnits = v.tileUnits; a.stages = v.stages; a.scale = scale;
  a.n = (i64)(bytes / 16 / N);
  const i64 G = v.ctas, T = v.threads, U = v.U;
  if (v.map == 'B') { a.ctaStride = ceilDiv(ceilDiv(a.n, G), 32) * 32; a.itStride = U * T; a.uStride = T; a.iters = (int)ceilDiv(a.ctaStride, U * T); a.ctaLimit = a.ctaStride; }
  else if (v.map == 'G') { a.ctaStride = U * T; a.itStride = G * U * T; a.uStride = T; a.iters = (int)ceilDiv(a.n, G * U * T); a.ctaLimit = 1ll << 60; }
  else { a.ctaStride = T; a.itStride = G * U * T; a.uStride = G * T; a.iters = (int)ceilDiv(a.n, G * U * T); a.ctaLimit = 1ll << 60; }
  return a;
}
static size_t smemOf(const Variant& v) { return v.stages == 0 ? 0 : (size_t)v.stages * v.numSources * v.tileUnits * 16 + 8 * v.stages; }
static bool launchOne(const Variant& v, const Args& a, int d) {
  if (v.other) return v.other(d, D[d].stream);
  cudaLaunchConfig_t c = {};
  c.gridDim = dim3(v.ctas); c.blockDim = dim3(v.threads); c.dynamicSmemBytes = smemOf(v); c.stream = D[d].stream;
  cudaLaunchAttribute attr[1];
  if (v.pdl) { attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization; attr[0].val.programmaticStreamSerializationAllowed = 1; c.attrs = attr; c.numAttrs = 1; }
  CK(cudaLaunchKernelEx(&c, v.kernel, a));
  return true;
}
static bool launchAll(const Variant& v, const Args* a) {
  if (v.otherAll) return v.otherAll();
  for (int d = 0; d < N; d++) { CK(cudaSetDevice(d)); if (!launchOne(v, a[d], d)) return false; }
  return true;
}
static bool resetFlags() {
  for (int d = 0; d < N; d++) {
    CK(cudaSetDevice(d));
    CK(cudaMemsetAsync(D[d].win, 0, WIN, D[d].stream)); CK(cudaMemsetAsync(D[d].state, 0, 4 * (MAXCTA + 8), D[d].stream));
    CK(cudaMemsetAsync(D[d].scratch, 0xff, SCRATCH, D[d].stream)); CK(cudaMemsetAsync(D[d].err, 0, 128, D[d].stream)); CK(cudaMemsetAsync(D[d].wrong, 0, 8, D[d].stream));
  }
  return syncAll();
}
static bool prepareData(const Variant& v, size_t inBytes, size_t outBytes) {
  turn++;
  for (int d = 0; d < N; d++) {
    CK(cudaSetDevice(d));
    fill<<<264, 512, 0, D[d].stream>>>((float*)D[d].in, inBytes / 4, d, turn);
    if (!v.inPlace) CK(cudaMemsetAsync(D[d].out, v.accumulates ? 0 : 0xff, outBytes, D[d].stream));
  }
  return syncAll();
}
static bool checkData(const Variant& v, size_t outBytes, double scale, u64& wrong) {
  for (int d = 0; d < N; d++) {
    CK(cudaSetDevice(d));
    checkK<<<264, 512, 0, D[d].stream>>>((float*)(v.inPlace ? D[d].in : D[d].out), outBytes / 4, v.kind, d, turn, scale, D[d].wrong);
    CK(cudaGetLastError());
  }
  if (!syncAll()) return false;
  for (int d = 0; d < N; d++) { u64 w; u32 e; CK(cudaMemcpy(&w, D[d].wrong, 8, cudaMemcpyDeviceToHost)); CK(cudaMemcpy(&e, D[d].err, 4, cudaMemcpyDeviceToHost)); wrong += w; if (e) { snprintf(errorText, sizeof errorText, "a wait gave up (%u)", e); return false; } }
  return true;
}
struct Timing { double steady, whole; u64 wrong; };
static bool measure(const Variant& v, size_t bytes, double giveUpAbove, Timing& t) {
  const size_t inBytes = v.kind == 1 ? bytes / N : bytes, outBytes = v.kind == 2 ? bytes / N : bytes;
  const float scale = v.inPlace ? 0.25f : 1.0f;
  Args a[N];
  for (int d = 0; d < N; d++) a[d] = argsOf(v, bytes, d, scale);
  if (v.kernel) for (int d = 0; d < N; d++) {
    CK(cudaSetDevice(d));
    if (smemOf(v) > 48 * 1024) CK(cudaFuncSetAttribute((const void*)v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smemOf(v)));
    int perSm = 0;
    CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&perSm, (const void*)v.kernel, v.threads, smemOf(v)));
    if (perSm * 132 < v.ctas) { snprintf(errorText, sizeof errorText, "does not fit (%d a multiprocessor)", perSm); return false; }
  }
  t.wrong = 0;
  if (!resetFlags()) return false;
  const bool checks = v.kind < 3;
  if (checks && !prepareData(v, inBytes, outBytes)) return false;
  if (!launchAll(v, a) || !syncAll()) return false;
  if (!checkData(v, checks ? outBytes : 0, scale, t.wrong)) return false;
  const int CALLS = 20;
  cudaGraphExec_t exec[N] = {};
  for (int d = 0; d < N; d++) { CK(cudaSetDevice(d)); CK(cudaStreamBeginCapture(D[d].stream, cudaStreamCaptureModeRelaxed)); }
  bool fine = true;
  for (int c = 0; c < CALLS && fine; c++) fine = launchAll(v, a);
  for (int d = 0; d < N; d++) {
    cudaGraph_t g = nullptr;
    CK(cudaSetDevice(d));
    CK(cudaStreamEndCapture(D[d].stream, &g));
    CK(cudaGraphInstantiate(&exec[d], g, 0)); CK(cudaGraphDestroy(g));
  }
  if (!fine) return false;
  auto replay = [&](int times) -> double {
    const auto b = std::chrono::steady_clock::now();
    for (int k = 0; k < times; k++) for (int d = 0; d < N; d++) { cudaSetDevice(d); cudaGraphLaunch(exec[d], D[d].stream); }
    for (int d = 0; d < N; d++) { cudaSetDevice(d); cudaStreamSynchronize(D[d].stream); }
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - b).count();
  };
  // In place, sums stay as large as they are; elsewhere calls repeat what they do.
  replay(1);
  std::vector<double> steady, whole;
  const int rounds = bytes >= (64u << 20) ? 3 : 7;
  for (int r = 0; r < rounds; r++) {
    const double two = replay(2), four = replay(4);
    steady.push_back((four - two) / (2 * CALLS)); whole.push_back(two / (2 * CALLS));
    if (r == 1 && std::min(steady[0], steady[1]) > giveUpAbove) break;
  }
  CK(cudaGetLastError());
  if (checks && !v.accumulates && !v.inPlace) {
    if (!prepareData(v, inBytes, outBytes)) return false;
    replay(1);
    if (!checkData(v, outBytes, scale, t.wrong)) return false;
  } else if (!checkData(v, 0, scale, t.wrong)) return false;
  for (int d = 0; d < N; d++) { cudaSetDevice(d); cudaGraphExecDestroy(exec[d]); }
  auto median = [](std::vector<double>& x) { std::sort(x.begin(), x.end()); return x[x.size() / 2]; };
  t.steady = median(steady); t.whole = median(whole);
  return true;
}
static std::string labelOf(const Variant& v) {
  char text[200];
  if (!v.kernel) return v.name;
  snprintf(text, sizeof text, "%s %dx%d u%d %c rot%d b%de%d%s%s", v.name.c_str(), v.ctas, v.threads, v.U, v.map, v.rot, v.begin, v.end, v.pdl ? " pdl" : "", v.inPlace ? " inplace" : "");
  std::string s = text;
  if (v.stages) { snprintf(text, sizeof text, " tile%d st%d", v.tileUnits * 16, v.stages); s += text; }
  return s;
}
static const char* KINDS[] = {"all_reduce", "all_gather", "reduce_scatter", "none"};
static double deadline = 1e30;
static double runVariant(const Variant& v, size_t bytes, double giveUpAbove = 1e30) {
  if (elapsed() > deadline) return 1e30;
  Timing t;
  if (!measure(v, bytes, giveUpAbove, t)) {
    fprintf(out, "%s\t%zu\t%s\terror: %s\n", KINDS[v.kind], bytes, labelOf(v).c_str(), errorText); fflush(out);
    const cudaError_t last = cudaGetLastError();
    if (strstr(errorText, "does not fit") || strstr(errorText, "gave up")) { for (int d = 0; d < N; d++) { cudaSetDevice(d); cudaGetLastError(); } return 1e30; }
    if (last == cudaErrorIllegalAddress || last == cudaErrorLaunchFailure || last == cudaErrorMisalignedAddress || last == cudaErrorIllegalInstruction || cudaDeviceSynchronize() != cudaSuccess) { fprintf(out, "# device broken, this group ends\n"); fclose(out); _Exit(3); }
    // A capture may be left open.
    for (int d = 0; d < N; d++) { cudaSetDevice(d); cudaStreamCaptureStatus s; if (cudaStreamIsCapturing(D[d].stream, &s) == cudaSuccess && s != cudaStreamCaptureStatusNone) { cudaGraph_t g; cudaStreamEndCapture(D[d].stream, &g); } cudaGetLastError(); }
    return 1e30;
  }
  fprintf(out, "%s\t%zu\t%s\t%.2f\t%.2f\twrong %llu\n", KINDS[v.kind], bytes, labelOf(v).c_str(), t.steady, t.whole, t.wrong); fflush(out);
  return t.wrong ? 1e30 : t.steady;
}

// ---- Variants
typedef int (*NcclInit)(void**, int, const int*);
typedef int (*NcclAr)(const void*, void*, size_t, int, int, void*, cudaStream_t);
typedef int (*NcclAg)(const void*, void*, size_t, int, void*, cudaStream_t);
typedef int (*NcclGroup)();
static void* comms[N];
static NcclAr ncclAr, ncclRs; static NcclAg ncclAg; static NcclGroup gs, ge;
static bool ncclUp() {
  void* l = dlopen("libnccl.so.2", RTLD_NOW);
  if (!l) { fprintf(out, "# %s\n", dlerror()); return false; }
  auto init = (NcclInit)dlsym(l, "ncclCommInitAll");
  ncclAr = (NcclAr)dlsym(l, "ncclAllReduce"); ncclRs = (NcclAr)dlsym(l, "ncclReduceScatter"); ncclAg = (NcclAg)dlsym(l, "ncclAllGather");
  gs = (NcclGroup)dlsym(l, "ncclGroupStart"); ge = (NcclGroup)dlsym(l, "ncclGroupEnd");
  const int devs[N] = {0, 1, 2, 3};
  return init && ncclAr && ncclRs && ncclAg && gs && ge && init(comms, N, devs) == 0;
}
static Variant ncclOf(int kind, size_t bytes, bool inPlace) {
  Variant v; v.name = inPlace ? "NCCL inplace" : "NCCL"; v.kernel = nullptr; v.kind = kind; v.inPlace = inPlace;
  v.otherAll = [=]() {
    gs();
    int bad = 0;
    for (int d = 0; d < N; d++) {
      char* o = inPlace ? D[d].in : D[d].out;
      if (kind == 0) bad |= ncclAr(D[d].in, o, bytes / 4, 7, inPlace ? 4 : 0, comms[d], D[d].stream);
      else if (kind == 1) bad |= ncclAg(D[d].in, o, bytes / 4 / N, 7, comms[d], D[d].stream);
      else bad |= ncclRs(D[d].in, o, bytes / 4 / N, 7, 0, comms[d], D[d].stream);
    }
    bad |= ge();
    if (bad) snprintf(errorText, sizeof errorText, "NCCL said %d", bad);
    return bad == 0;
  };
  return v;
}
static Variant copyEngines(size_t bytes) {
  Variant v; v.name = "copy engines push, no barrier"; v.kernel = nullptr; v.kind = 1;
  v.other = [=](int d, cudaStream_t s) -> bool {
    const size_t part = bytes / N;
    CK(cudaEventRecord(D[d].fork, s));
    for (int k = 1; k < N; k++) {
      const int p = (d + k) % N;
      CK(cudaStreamWaitEvent(D[d].side[k - 1], D[d].fork, 0));
      CK(cudaMemcpyAsync(D[p].out + part * d, D[d].in, part, cudaMemcpyDefault, D[d].side[k - 1]));
      CK(cudaEventRecord(D[d].join[k - 1], D[d].side[k - 1]));
    }
    CK(cudaMemcpyAsync(D[d].out + part * d, D[d].in, part, cudaMemcpyDefault, s));
    for (int k = 1; k < N; k++) CK(cudaStreamWaitEvent(s, D[d].join[k - 1], 0));
    return true;
  };
  return v;
}
static Variant mk(const char* name, Kernel k, int kind, int U) { Variant v; v.name = name; v.kernel = k; v.kind = kind; v.U = U; return v; }
#define FUSED(LD, ST, U) mk("fused ld" #LD " st" #ST, arFused<LD, ST, U>, 0, U)
#define RS(LD, ST, U) mk("rsPull ld" #LD " st" #ST, rsPull<LD, ST, U>, 2, U)
#define AGPULL(LD, ST, U) mk("agPull ld" #LD " st" #ST, agPull<LD, ST, U>, 1, U)
#define AGPUSH(LD, ST, U) mk("agPush ld" #LD " st" #ST, agPush<LD, ST, U>, 1, U)
static Variant two(Variant v, const char* name, int op) { v.name = name; v.kind = 0; v.op = op; return v; }
static Variant pushAddOf(int op, int U) { Variant v = U == 2 ? mk("pushAdd", pushAdd<0, 0, 2>, op ? 0 : 2, 2) : mk("pushAdd", pushAdd<0, 0, 4>, op ? 0 : 2, 4); v.op = op; return v; }
static Variant linesOf(int data, int op) {
  Variant v = data == 120 ? mk("lines120", lines<120>, op == 1 ? 1 : 0, 1) : mk("lines112", lines<112>, op == 1 ? 1 : 0, 1);
  v.op = op; v.begin = op == 2 ? 1 : 0; v.end = 0; if (op == 2) v.name = "pull+" + v.name;
  return v;
}
static Variant tmaOf(int mode, int tile, int stages, int ctas = 132, int threads = 256) {
  Variant v;
  switch (mode) {
    case 0: v = mk("tma fused", tma<0>, 0, 1); break;
    case 1: v = mk("tma agPush", tma<1>, 1, 1); break;
    case 2: v = mk("tma agPull", tma<2>, 1, 1); break;
    case 3: v = mk("tma rsPull", tma<3>, 2, 1); break;
    default: v = mk("tma rsAddPush", tma<4>, 2, 1); v.accumulates = true;
  }
  v.tileUnits = tile / 16; v.stages = stages; v.ctas = ctas; v.threads = threads; v.numSources = mode == 0 || mode == 3 ? N : 1;
  return v;
}
static std::vector<Variant> fusedAll() {
  return {FUSED(0, 0, 1), FUSED(0, 0, 2), FUSED(0, 0, 4), FUSED(0, 0, 8), FUSED(1, 0, 1), FUSED(1, 0, 2), FUSED(1, 0, 4), FUSED(1, 0, 8),
          FUSED(2, 0, 2), FUSED(2, 0, 4), FUSED(3, 0, 4), FUSED(4, 0, 4), FUSED(1, 1, 4), FUSED(1, 2, 4), FUSED(1, 3, 4), FUSED(1, 4, 4)};
}
static std::vector<Variant> twoAll() {
  return {two(RS(0, 0, 2), "pull,push ld0", 1), two(RS(0, 0, 4), "pull,push ld0", 1), two(RS(1, 0, 2), "pull,push ld1", 1), two(RS(1, 0, 4), "pull,push ld1", 1), two(RS(1, 0, 8), "pull,push ld1", 1),
          two(RS(1, 0, 2), "pull,pull ld1", 2), two(RS(1, 0, 4), "pull,pull ld1", 2), pushAddOf(1, 2), pushAddOf(1, 4)};
}

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  const double seconds = argc > 2 ? atof(argv[2]) : 10;
  out = argc > 3 ? fopen(argv[3], "a") : stdout;
  if (!out) return 2;
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  if (!setup()) { fprintf(out, "# setup: %s\n", errorText); return 1; }
  fprintf(out, "# group %s, ready after %.2f s\n", group.c_str(), elapsed());
  const size_t M4 = 4u << 20, M16 = 16u << 20, M64 = 64u << 20;
  // An idle device is slow at first.
  { Variant w = FUSED(0, 0, 4); for (int k = 0; k < 3; k++) { Timing t; measure(w, M16, 1e30, t); } }
  begun = std::chrono::steady_clock::now();
  deadline = seconds;
  auto late = [&]() { return elapsed() > seconds; };
  if (group == "base") {
    const bool nccl = ncclUp();
    if (nccl) {
      for (size_t b : {M4, M16, M64}) { runVariant(ncclOf(0, b, false), b); runVariant(ncclOf(0, b, true), b); }
      for (size_t b : {M4, M16, M64}) { runVariant(ncclOf(1, b, false), b); runVariant(ncclOf(2, b, false), b); }
    } else fprintf(out, "# no NCCL\n");
    for (int ctas : {1, 32, 128}) for (int pdl : {0, 1}) for (auto be : {std::pair<int, int>{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 1}, {2, 2}, {2, 3}, {1, 3}}) {
      Variant v = mk("empty", emptyK, 3, 1); v.ctas = ctas; v.begin = be.first; v.end = be.second; v.pdl = pdl;
      runVariant(v, M16);
    }
    // Around one shape, one thing at a time.
    for (size_t b : {M16, M4, M64}) for (bool in : {false, true}) {
      if (late()) break;
      auto go = [&](Variant v) { v.inPlace = in; runVariant(v, b); };
      for (char map : {'S', 'G', 'B'}) { Variant v = FUSED(1, 0, 4); v.map = map; go(v); v = FUSED(0, 0, 4); v.map = map; go(v); }
      for (auto v : fusedAll()) go(v);
      for (auto v : twoAll()) go(v);
      for (int rot : {1, 2}) { Variant v = FUSED(1, 0, 4); v.rot = rot; go(v); v = twoAll()[3]; v.rot = rot; go(v); }
      for (int ctas : {32, 64, 96, 132}) { Variant v = FUSED(1, 0, 4); v.ctas = ctas; go(v); v = twoAll()[3]; v.ctas = ctas; go(v); }
      for (auto be : {std::pair<int, int>{0, 0}, {2, 2}, {2, 3}, {2, 1}}) { Variant v = FUSED(1, 0, 4); v.begin = be.first; v.end = be.second; go(v); }
      { Variant v = FUSED(1, 0, 4); v.pdl = 1; go(v); }
    }
  } else if (group == "rates") {
    for (size_t b : {M16, M64}) {
      if (late()) break;
      for (auto be : {std::pair<int, int>{1, 1}, {0, 0}}) {
        auto go = [&](Variant v) { v.begin = be.first; v.end = be.second; runVariant(v, b); };
        for (auto v : {AGPULL(0, 0, 2), AGPULL(1, 0, 1), AGPULL(1, 0, 2), AGPULL(1, 0, 4), AGPULL(2, 0, 2), AGPUSH(1, 0, 2), AGPUSH(1, 0, 4), AGPUSH(1, 0, 8), AGPUSH(0, 0, 4), AGPUSH(1, 1, 4), AGPUSH(1, 2, 4), AGPUSH(1, 3, 4), AGPUSH(1, 4, 4),
                       RS(1, 0, 1), RS(1, 0, 2), RS(1, 0, 4), RS(0, 0, 4), pushAddOf(0, 4)})
          for (char map : {'S', 'B'}) { Variant w = v; w.map = map; go(w); }
        for (int ctas : {16, 32, 64, 132}) { Variant v = AGPUSH(1, 0, 4); v.ctas = ctas; go(v); v.op = 1; v.name += " dst outer"; go(v); v = AGPULL(1, 0, 2); v.ctas = ctas; go(v); v = RS(1, 0, 4); v.ctas = ctas; go(v); }
        for (int rot : {1, 2}) { Variant v = AGPUSH(1, 0, 4); v.rot = rot; go(v); v.op = 1; v.name += " dst outer"; go(v); v = AGPULL(1, 0, 2); v.rot = rot; go(v); v = RS(1, 0, 4); v.rot = rot; go(v); }
      }
      runVariant(copyEngines(b), b);
    }
  } else if (group == "tma") {
    for (size_t b : {M16, M64, M4}) {
      if (late()) break;
      for (int rot : {0, 1}) for (int tile : {4096, 8192, 16384}) for (int stages : {2, 3}) for (int mode : {0, 1, 2, 3}) {
        Variant v = tmaOf(mode, tile, stages); v.rot = rot; runVariant(v, b);
        if (mode == 0) { v.inPlace = true; runVariant(v, b); }
      }
      for (int mode : {0, 1, 2, 3}) { runVariant(tmaOf(mode, 2048, 6, 264), b); runVariant(tmaOf(mode, 8192, 3, 64), b); Variant v = tmaOf(mode, 8192, 3); v.begin = v.end = 0; runVariant(v, b); }
    }
    for (size_t b : {M16, M64}) runVariant(tmaOf(4, 8192, 4), b);
  } else if (group == "lines") {
    for (size_t b : {M4, M16, (size_t)1 << 20, M64}) for (int op : {0, 1, 2}) for (int data : {120, 112}) {
      if (late()) break;
      for (auto shape : {std::pair<int, int>{64, 512}, {128, 288}, {128, 512}, {128, 608}, {128, 1024}, {256, 512}, {132, 640}, {132, 256}}) {
        Variant v = linesOf(data, op); v.ctas = shape.first; v.threads = shape.second;
        if (data == 112 && shape.second != 512 && shape.second != 608) continue;
        runVariant(v, b);
        if (shape.first == 128 && shape.second == 608) { v.pdl = 1; runVariant(v, b); }
      }
    }
  } else if (group == "search") {
    // At random, what is slow being given up.
    std::mt19937 random((u32)(argc > 4 ? atoi(argv[4]) : 1));
    auto pick = [&](auto list) { return list[random() % list.size()]; };
    std::vector<Variant> kernels = fusedAll();
    for (auto v : twoAll()) kernels.push_back(v);
    double best[3][2] = {{1e30, 1e30}, {1e30, 1e30}, {1e30, 1e30}};
    const size_t sizes[] = {M16, M64, M4};
    for (int k = 0; !late(); k++) {
      const int s = k % 4 == 3 ? 1 : k % 4 == 1 ? 2 : 0;
      Variant v = pick(kernels);
      const int tm = random() % 4;
      if (tm == 0) v = tmaOf(0, pick(std::vector<int>{2048, 4096, 8192}), pick(std::vector<int>{2, 3, 4}));
      v.ctas = pick(std::vector<int>{48, 64, 80, 96, 112, 120, 128, 132, 256, 264});
      v.threads = pick(std::vector<int>{128, 256, 384, 512, 768, 1024});
      v.map = pick(std::vector<char>{'S', 'G', 'B'});
      v.rot = (int)(random() % 3); v.inPlace = random() % 3 == 0;
      const int be = random() % 3;
      v.begin = be == 0 ? 1 : 2; v.end = be + 1;
      double& b = best[s][v.inPlace];
      b = std::min(b, runVariant(v, sizes[s], 1.1 * b));
    }
  }
  fprintf(out, "# group %s ended after %.2f s\n", group.c_str(), elapsed());
  fclose(out);
  _Exit(0);
}
