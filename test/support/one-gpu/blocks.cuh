/** How blocks are started on a GPU, and tell each other how far they are. */
#pragma once

inline __device__ void store(unsigned& to, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(&to), "r"(value) : "memory");
}
inline __device__ unsigned load(const unsigned& from) {
  unsigned value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(&from) : "memory");
  return value;
}

template <class... Args, class... Given>
void launch(void (*kernel)(Args...), unsigned blocks, cudaStream_t stream, const Given&... given) {
  kernel<<<blocks, THREADS, 0, stream>>>(given...);
}
