// Runs CUDA kernels on the host, one block after another: each thread is a fiber that runs to its next barrier or
// shuffle. What kernels.ts has and no more. Slow, exact about indices; barriers that not all threads reach hang no one:
// the launch ends with an abort.
#pragma once
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace emulator {
// Fortified longjmp refuses to change stacks.
extern "C" [[noreturn]] void raw_longjmp(jmp_buf, int) __asm__("_longjmp");

struct Dim { unsigned x = 1, y = 1, z = 1; };
enum State { RUNNING, AT_WARP, AT_BLOCK, DONE };
struct Fiber { ucontext_t first; jmp_buf here; std::vector<char> stack; bool started = false; State state = DONE; unsigned shuffles = 0; };
inline std::vector<Fiber*> fibers;
inline Fiber* self;
inline jmp_buf scheduler;
inline std::function<void()>* body;
inline Dim threadIdx, blockIdx, blockDim, gridDim;
inline float* dynamic;
inline uint32_t slots[32][2][32];

inline void yield(State state) {
  self->state = state;
  if (!_setjmp(self->here)) raw_longjmp(scheduler, 1);
}
inline void fiberMain() { for (;;) { (*body)(); yield(DONE); } }
inline void resume(unsigned t) {
  Fiber* f = fibers[t];
  self = f;
  threadIdx.x = t;
  f->state = RUNNING;
  if (_setjmp(scheduler)) return;
  if (f->started) raw_longjmp(f->here, 1);
  f->started = true;
  setcontext(&f->first);
}
inline void runBlock(unsigned threads) {
  while (fibers.size() < threads) {
    Fiber* f = new Fiber;
    f->stack.resize(65536);
    getcontext(&f->first);
    f->first.uc_stack.ss_sp = f->stack.data();
    f->first.uc_stack.ss_size = f->stack.size();
    f->first.uc_link = nullptr;
    makecontext(&f->first, fiberMain, 0);
    fibers.push_back(f);
  }
  for (unsigned t = 0; t < threads; t++) { fibers[t]->state = AT_BLOCK; fibers[t]->shuffles = 0; }
  for (unsigned left = threads; left > 0;) {
    unsigned waiting = 0;
    for (unsigned w = 0; w < threads; w += 32) {
      unsigned end = w + 32 < threads ? w + 32 : threads;
      for (unsigned t = w; t < end; t++) if (fibers[t]->state != DONE) resume(t);
      for (;;) {
        unsigned atWarp = 0;
        for (unsigned t = w; t < end; t++) atWarp += fibers[t]->state == AT_WARP;
        if (atWarp == 0) break;
        if (atWarp != 32) abort();   // a shuffle that not all lanes take part in
        for (unsigned t = w; t < end; t++) resume(t);
      }
    }
    left = 0;
    for (unsigned t = 0; t < threads; t++) { left += fibers[t]->state != DONE; waiting += fibers[t]->state == AT_BLOCK; }
    if (waiting != left || (waiting != 0 && waiting != threads)) abort();   // a barrier that not all threads reach
  }
}
inline void run(Dim grid, Dim block, unsigned sharedBytes, std::function<void()> fn) {
  std::vector<float> memory(sharedBytes / 4 + 1, NAN);
  dynamic = memory.data();
  body = &fn;
  gridDim = grid;
  blockDim = block;
  for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) runBlock(block.x);
}

template <class T> T shuffle(T value, int with) {
  unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, parity = self->shuffles++ & 1;
  memcpy(&slots[warp][parity][lane], &value, 4);
  yield(AT_WARP);
  T other;
  memcpy(&other, &slots[warp][parity][lane ^ (unsigned)with], 4);
  return other;
}

using Bound = std::function<void()>;
using Kernel = std::function<Bound(void**)>;
template <class... A, size_t... I> Kernel wrap(void (*fn)(A...), std::index_sequence<I...>) {
  return [fn](void** params) -> Bound {
    std::tuple<A...> args{*(A*)params[I]...};
    return [fn, args] { std::apply(fn, args); };
  };
}
template <class... A> Kernel wrap(void (*fn)(A...)) { return wrap(fn, std::index_sequence_for<A...>{}); }
inline std::map<std::string, Kernel> kernels;
}  // namespace emulator

struct uint4 { uint32_t x, y, z, w; };
struct float4 { float x, y, z, w; };
#define __global__ static
#define __device__ static
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(n)
#define threadIdx emulator::threadIdx
#define blockIdx emulator::blockIdx
#define blockDim emulator::blockDim
#define gridDim emulator::gridDim
#define __syncthreads() emulator::yield(emulator::AT_BLOCK)
#define __shfl_xor_sync(mask, value, with) emulator::shuffle(value, with)
static inline float __uint_as_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint32_t __float_as_uint(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
static inline uint4 __ldcs(const uint4* p) { if ((uintptr_t)p % 16) abort(); return *p; }
static inline float4 __ldg(const float4* p) { if ((uintptr_t)p % 16) abort(); return *p; }
#define __expf expf
