/** What the kernels use of CUDA, where a block is a thread of the host: to check them without a GPU. */
#pragma once
#include <sched.h>
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
