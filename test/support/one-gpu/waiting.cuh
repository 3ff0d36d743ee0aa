/** How a block of one rank tells and awaits what is in another's slab. On a GPU, or where a thread of the host is a block. */
#pragma once
#ifndef __CUDACC__
#include "blocks-on-host.hpp"
#else
inline __device__ void store(unsigned& to, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(&to), "r"(value) : "memory");
}
inline __device__ unsigned load(const unsigned& from) {
  unsigned value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(&from) : "memory");
  return value;
}
#endif

inline __device__ void publish(Counter& counter, unsigned value) {
  __threadfence_system();
  store(counter.value, value);
}

inline __device__ bool isAborted(const Group& group) { return *(const volatile unsigned*)group.aborted != 0; }

/** Waits until a counter has come to a value. False: the communicator was aborted. */
inline __device__ bool reaches(const Counter& counter, unsigned value, const Group& group) {
  for (unsigned turn = 1; (int)(load(counter.value) - value) < 0; turn++) {
    if (turn % 64 != 0) continue;
    if (isAborted(group)) return false;
    __nanosleep(200);
  }
  return true;
}
