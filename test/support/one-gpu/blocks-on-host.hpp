/**
 * The same where there is no GPU: a block is a thread of the host, and a launch goes to a stream of the stand-in driver
 * (test/fixtures/native/fake-gpu.cpp), so that kernels, and all of nccl.cu, can be checked anywhere.
 */
#pragma once
#include <sched.h>
#include <functional>
#include <thread>
#include <vector>
#undef __shared__
#undef __global__
#undef __launch_bounds__
#undef __grid_constant__
#define __shared__
#define __global__ static
#define __launch_bounds__(threads)
#define __grid_constant__

struct Place {
  unsigned x;
};
static thread_local Place threadIdx{0}, blockIdx{0}, gridDim{1};
static constexpr Place blockDim{1};

inline void store(unsigned& to, unsigned value) { __atomic_store_n(&to, value, __ATOMIC_RELEASE); }
inline unsigned load(const unsigned& from) { return __atomic_load_n(&from, __ATOMIC_ACQUIRE); }
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { sched_yield(); }
inline void __syncthreads() {}
inline bool __syncthreads_or(bool one) { return one; }
inline bool __syncthreads_and(bool one) { return one; }
template <class T>
T __ldcv(const T* at) {
  return *at;
}

/** Of the stand-in driver: has a stream begin something, each time it comes to it, and go on once that says it has ended. */
extern "C" int fakeGpuEnqueue(void* stream, void* (*begin)(void*), int (*hasEnded)(void*), void* what);

struct BlocksOnHost {
  std::atomic<unsigned> running;
};
template <class... Args, class... Given>
void launch(void (*kernel)(Args...), unsigned blocks, cudaStream_t stream, const Given&... given) {
  using Body = std::function<BlocksOnHost*()>;
  // As long as graphs may replay it, which is to the end.
  auto* const body = new Body([=] {
    auto* const all = new BlocksOnHost{{blocks}};
    for (unsigned block = 0; block < blocks; block++)
      std::thread([=] {
        blockIdx.x = block;
        gridDim.x = blocks;
        kernel(given...);
        all->running--;
      }).detach();
    return all;
  });
  const auto hasEnded = [](void* at) {
    auto* const all = (BlocksOnHost*)at;
    if (all->running > 0) return 0;
    delete all;
    return 1;
  };
  fakeGpuEnqueue(stream, [](void* at) { return (void*)(*(Body*)at)(); }, hasEnded, body);
}
