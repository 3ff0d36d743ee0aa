/** What nccl.cu calls of CUDA's runtime, over the stand-in driver, whose device memory is the host's. */
#include <cuda_runtime.h>
#include <cstdlib>
#include <cstring>

extern "C" {
cudaError_t cudaMalloc(void** at, size_t bytes) { return (*at = aligned_alloc(128, bytes)) ? cudaSuccess : cudaErrorMemoryAllocation; }
cudaError_t cudaHostAlloc(void** at, size_t bytes, unsigned) { return cudaMalloc(at, bytes); }
cudaError_t cudaHostGetDevicePointer(void** at, void* host, unsigned) { return *at = host, cudaSuccess; }
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) { return memset(at, value, bytes), cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = nullptr, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void*) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
// Ranks are threads here.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void*) { return *handle = {}, cudaSuccess; }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return cudaErrorNotSupported; }
}
