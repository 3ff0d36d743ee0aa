// Runs generated CUDA C++ on a CPU: every thread of every block of every rank is a fiber of one thread of the host, and
// gives way at barriers and wherever the kernel waits. Interleavings follow from a seed. Memory is strong here: what a
// missing fence would break cannot be seen. No containers of the standard library here: a kernel of its own takes g++ half the
// time without them.
#include <setjmp.h>
#include <string.h>
#include <ucontext.h>

#define CHORALE_HOST
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define CHORALE_TABLE static const
#define CHORALE_KERNEL static void
#define CHORALE_SHARED(type, name) type& name = *(type*)shim::current->block->shared

struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct Index { unsigned x; };
static Index threadIdx, blockIdx, gridDim;

namespace shim {
struct Block {
  unsigned index, numThreads;
  unsigned come = 0, generation = 0;
  bool any = false, lastAny = false;
  struct Warp {
    unsigned come = 0, generation = 0;
    bool all = true, last = true;
    unsigned mostCome = 0, mostGeneration = 0, most[32] = {}, lastMost[32];
    unsigned loads = 0, loadGeneration = 0;
    const char* from[32];
    uint4 loaded[32];
    unsigned stores[4] = {0, 0, 0, 0}, storeGeneration[4] = {0, 0, 0, 0};
    char* to[32];
    uint4 stored[32];
    float values[32];
  };
  Warp* warps;
  alignas(16) char shared[4096];
  Block(unsigned at, unsigned threads) : index(at), numThreads(threads), warps(new Warp[threads / 32]) {}
  ~Block() { delete[] warps; }
};
struct Fiber {
  ucontext_t context;  // where it begins
  jmp_buf place;       // where it goes on
  bool isBegun = false;
  Block* block;
  unsigned thread;
  bool isDone = false;
  const void* launch;
  void (*kernel)(const void*);
  unsigned gridSize;
};
static Fiber* current;
static jmp_buf scheduler;
static unsigned long long moves = 0;  // stores and barriers that let others get on

// Not by swapcontext, which asks the system to set the mask of signals each time.
inline void giveWay() {
  if (_setjmp(current->place) == 0) _longjmp(scheduler, 1);
}
inline void enter(Fiber* f) {
  current = f;
  threadIdx.x = f->thread;
  blockIdx.x = f->block->index;
  gridDim.x = f->gridSize;
  if (_setjmp(scheduler) != 0) return;
  if (f->isBegun) _longjmp(f->place, 1);
  f->isBegun = true;
  setcontext(&f->context);
}
inline bool vote(bool ready) {
  auto& warp = current->block->warps[threadIdx.x / 32];
  const unsigned generation = warp.generation;
  warp.all = warp.all && ready;
  if (++warp.come == 32) {
    warp.come = 0;
    warp.generation++;
    warp.last = warp.all;
    warp.all = true;
    moves++;
  } else
    while (warp.generation == generation) giveWay();
  return warp.last;
}
}  // namespace shim

inline bool __syncthreads_or(bool one) {
  auto* block = shim::current->block;
  const unsigned generation = block->generation;
  block->any = block->any || one;
  if (++block->come == block->numThreads) {
    block->come = 0;
    block->generation++;
    block->lastAny = block->any;
    block->any = false;
    shim::moves++;
  } else
    while (block->generation == generation) shim::giveWay();
  return block->lastAny;
}
inline void __syncthreads() { __syncthreads_or(false); }
// Blocks of a launch that follow each other meet, so many as a strand has.
inline void meetBlocks(unsigned team) {
  struct Meeting { const void* launch; unsigned team, come, generation; Meeting* before; };
  static Meeting* latest = nullptr;
  auto* block = shim::current->block;
  const void* launch = shim::current->launch;
  Meeting* meeting = latest;
  while (meeting && (meeting->launch != launch || meeting->team != block->index / team)) meeting = meeting->before;
  if (!meeting) meeting = latest = new Meeting{launch, block->index / team, 0, 0, latest};
  const unsigned generation = meeting->generation;
  if (++meeting->come == team * block->numThreads) {
    meeting->come = 0;
    meeting->generation++;
    shim::moves++;
  } else
    while (meeting->generation == generation) shim::giveWay();
}
// The largest of each so many lanes; all of a warp come.
inline unsigned largestOfGroup(unsigned value, int lanes) {
  auto& warp = shim::current->block->warps[threadIdx.x / 32];
  const unsigned generation = warp.mostGeneration, group = threadIdx.x % 32 / lanes;
  if (value > warp.most[group]) warp.most[group] = value;
  if (++warp.mostCome == 32) {
    for (int g = 0; g < 32; g++) { warp.lastMost[g] = warp.most[g]; warp.most[g] = 0; }
    warp.mostCome = 0;
    warp.mostGeneration++;
    shim::moves++;
  } else
    while (warp.mostGeneration == generation) shim::giveWay();
  return warp.lastMost[group];
}
inline bool allOfWarp(bool value) { return shim::vote(value); }
inline float fromLane(float v, int bits) {
  auto& warp = shim::current->block->warps[threadIdx.x / 32];
  warp.values[threadIdx.x % 32] = v;
  shim::vote(true);
  const float other = warp.values[threadIdx.x % 32 ^ bits];
  shim::vote(true);
  return other;
}
inline void prefetch(const char*) {}
inline float inverseRoot(float v) { return 1.0f / __builtin_sqrtf(v); }
// What a warp does in one instruction, the last thread to come does for all.
inline uint4 loadOfLine(const char* at) {
  auto& warp = shim::current->block->warps[threadIdx.x / 32];
  const unsigned lane = threadIdx.x % 32, generation = warp.loadGeneration;
  warp.from[lane] = at;
  if (++warp.loads == 32) {
    for (int i = 0; i < 32; i++) warp.loaded[i] = warp.from[i] == nullptr ? uint4{0, 0, 0, 0} : *(const uint4*)warp.from[i];
    warp.loads = 0;
    warp.loadGeneration++;
  } else
    while (warp.loadGeneration == generation) shim::giveWay();
  return warp.loaded[lane];
}
inline void storeLine(char* at, uint4 v) {
  auto& warp = shim::current->block->warps[threadIdx.x / 32];
  const unsigned lane = threadIdx.x % 32, line = lane / 8, generation = warp.storeGeneration[line];
  warp.to[lane] = at;
  warp.stored[lane] = v;
  if (++warp.stores[line] == 8) {
    for (unsigned i = 8 * line; i < 8 * line + 8; i++) *(uint4*)warp.to[i] = warp.stored[i];
    warp.stores[line] = 0;
    warp.storeGeneration[line]++;
    shim::moves++;
  } else
    while (warp.storeGeneration[line] == generation) shim::giveWay();
}

inline uint4 loadPacket16(const char* at) { return *(const uint4*)at; }
inline uint2 loadPacket8(const char* at) { return *(const uint2*)at; }
inline void storePacket16(char* at, uint4 v) { shim::moves++; *(uint4*)at = v; }
inline void storePacket8(char* at, uint2 v) { shim::moves++; *(uint2*)at = v; }
inline void raise(unsigned* at) { shim::moves++; ++*at; }
inline void raiseRelaxed(unsigned* at) { raise(at); }
inline unsigned loadAcquire(const unsigned* at) { return *at; }
inline void storeRelease(unsigned* at, unsigned v) { shim::moves++; *at = v; }
inline unsigned addAtDevice(unsigned* at, unsigned v) { shim::moves++; const unsigned before = *at; *at += v; return before; }
inline unsigned swapAtDevice(unsigned* at, unsigned expected, unsigned v) {
  const unsigned before = *at;
  if (before == expected) *at = v;
  return before;
}
inline void fenceSystem() {}
inline void fenceDevice() {}
inline unsigned loadWord(const unsigned* at) { return *at; }
inline void rest() { shim::giveWay(); }
inline float bitsToFloat(unsigned x) { float v; memcpy(&v, &x, 4); return v; }
inline unsigned floatToBits(float x) { unsigned v; memcpy(&v, &x, 4); return v; }
inline float halfToFloat(unsigned short x) { _Float16 v; memcpy(&v, &x, 2); return (float)v; }
inline unsigned short floatToHalf(float x) { const _Float16 v = (_Float16)x; unsigned short bits; memcpy(&bits, &v, 2); return bits; }
