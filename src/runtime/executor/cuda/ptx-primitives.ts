/**
 * The bottom of every generated kernel: loads, stores and atomics with their scopes, as PTX. What stands here is all that
 * knows the machine; a host build of the same source (tests) brings its own by defining CHORALE_HOST.
 * Sources: PTX ISA 8.5, memory consistency model (sections 8 and 9.7.9); packets after NCCL's "LL" protocols, which rest on
 * aligned vector stores of a thread (8 and 16 bytes) arriving whole.
 */
export const PRIMITIVES = `typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#ifndef CHORALE_HOST
#define CHORALE_TABLE __constant__
#define CHORALE_SHARED(type, name) __shared__ type name
#ifndef CHORALE_CLUSTER
#define CHORALE_CLUSTER
#endif
#define CHORALE_KERNEL extern "C" __global__ void CHORALE_CLUSTER __launch_bounds__(THREADS, BLOCKS_PER_SM)

// Packets: volatile accesses are performed once each, and whole.
__device__ __forceinline__ uint4 loadPacket16(const char* at) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
  return v;
}
__device__ __forceinline__ uint2 loadPacket8(const char* at) {
  uint2 v;
  asm volatile("ld.volatile.global.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at) : "memory");
  return v;
}
__device__ __forceinline__ void storePacket16(char* at, uint4 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};"
               :: "l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void storePacket8(char* at, uint2 v) {
  asm volatile("st.volatile.global.v2.u32 [%0], {%1,%2};" :: "l"(at), "r"(v.x), "r"(v.y) : "memory");
}

// Counters. A release makes visible what the block did before it: a __syncthreads() stands between.
__device__ __forceinline__ void raise(u32* at) {
  asm volatile("red.release.sys.global.add.u32 [%0], 1;" :: "l"(at) : "memory");
}
__device__ __forceinline__ void raiseRelaxed(u32* at) {
  asm volatile("red.relaxed.sys.global.add.u32 [%0], 1;" :: "l"(at) : "memory");
}
__device__ __forceinline__ u32 loadAcquire(const u32* at) {
  u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}
__device__ __forceinline__ void storeRelease(u32* at, u32 v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" :: "l"(at), "r"(v) : "memory");
}
__device__ __forceinline__ u32 addAtDevice(u32* at, u32 v) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(v) : "memory");
  return before;
}
__device__ __forceinline__ u32 swapAtDevice(u32* at, u32 expected, u32 v) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(before) : "l"(at), "r"(expected), "r"(v) : "memory");
  return before;
}
__device__ __forceinline__ void fenceSystem() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ __forceinline__ void fenceDevice() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__device__ __forceinline__ u32 loadWord(const u32* at) { return *(const volatile u32*)at; }
__device__ __forceinline__ void rest() {}
__device__ __forceinline__ bool allOfWarp(bool value) { return __all_sync(0xffffffffu, value); }
// Lines of 128 bytes: stored by eight threads of a warp together, loaded by all of a warp together ("at" may be null).
// The eight come together first: where they diverged before, two stores would let the number arrive before the data.
__device__ __forceinline__ void storeLine(char* at, uint4 v) {
  __syncwarp(0xffu << (threadIdx.x & 24u));
  storePacket16(at, v);
}
__device__ __forceinline__ uint4 loadOfLine(const char* at) {
  uint4 v;
  v.x = v.y = v.z = v.w = 0;
  if (at != nullptr) v = loadPacket16(at);
  return v;
}
#endif
`;

/** Where a strand is several blocks, a cluster (PTX ISA, barrier.cluster): all their threads meet. From sm_90 on. */
export const TEAM_MEETING = `#ifdef CHORALE_HOST
inline void meetTeam() { meetBlocks(TEAM); }
#else
// What one of them did before is seen by all after it, and a release of any of them makes it visible to others.
__device__ __forceinline__ void meetTeam() {
  asm volatile("barrier.cluster.arrive;\\n\\tbarrier.cluster.wait;" ::: "memory");
}
#endif`;
