/**
 * The part of the CUDA driver API and of NVRTC that chorale calls, as C prototypes (cuda.h and nvrtc.h of CUDA 13; all
 * of them exist since CUDA 11.7). The driver API alone is enough: libcudart is never needed.
 */

/** CUDA driver functions. CUdeviceptr is passed as uint64, handles as pointers, out-parameters as typed arrays. */
export const CUDA_PROTOTYPES = {
  cuInit: "int cuInit(uint32_t flags)",
  cuDriverGetVersion: "int cuDriverGetVersion(void *version)",
  cuDeviceGetCount: "int cuDeviceGetCount(void *count)",
  cuDeviceGet: "int cuDeviceGet(void *device, int ordinal)",
  cuDeviceGetName: "int cuDeviceGetName(void *name, int len, int device)",
  cuDeviceGetUuid_v2: "int cuDeviceGetUuid_v2(void *uuid, int device)",
  cuDeviceTotalMem_v2: "int cuDeviceTotalMem_v2(void *bytes, int device)",
  cuDeviceGetPCIBusId: "int cuDeviceGetPCIBusId(void *id, int len, int device)",
  cuDeviceGetAttribute: "int cuDeviceGetAttribute(void *value, int attribute, int device)",
  cuDevicePrimaryCtxRetain: "int cuDevicePrimaryCtxRetain(void *context, int device)",
  cuDevicePrimaryCtxRelease_v2: "int cuDevicePrimaryCtxRelease_v2(int device)",
  cuCtxSetCurrent: "int cuCtxSetCurrent(void *context)",
  cuCtxSynchronize: "int cuCtxSynchronize()",
  cuMemGetInfo_v2: "int cuMemGetInfo_v2(void *free, void *total)",
  cuMemAlloc_v2: "int cuMemAlloc_v2(void *pointer, size_t bytes)",
  cuMemFree_v2: "int cuMemFree_v2(uint64_t pointer)",
  cuMemHostAlloc: "int cuMemHostAlloc(void *pointer, size_t bytes, uint32_t flags)",
  cuMemFreeHost: "int cuMemFreeHost(void *pointer)",
  cuMemHostGetDevicePointer_v2: "int cuMemHostGetDevicePointer_v2(void *pointer, void *host, uint32_t flags)",
  cuMemcpyHtoDAsync_v2: "int cuMemcpyHtoDAsync_v2(uint64_t to, void *from, size_t bytes, void *stream)",
  cuMemcpyDtoHAsync_v2: "int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)",
  cuMemcpyDtoDAsync_v2: "int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream)",
  cuMemcpyPeerAsync:
    "int cuMemcpyPeerAsync(uint64_t to, void *toContext, uint64_t from, void *fromContext, size_t bytes, void *stream)",
  cuMemsetD8Async: "int cuMemsetD8Async(uint64_t to, uint8_t value, size_t bytes, void *stream)",
  cuStreamCreate: "int cuStreamCreate(void *stream, uint32_t flags)",
  cuStreamDestroy_v2: "int cuStreamDestroy_v2(void *stream)",
  cuStreamSynchronize: "int cuStreamSynchronize(void *stream)",
  cuStreamQuery: "int cuStreamQuery(void *stream)",
  cuStreamWaitEvent: "int cuStreamWaitEvent(void *stream, void *event, uint32_t flags)",
  cuStreamWriteValue32_v2:
    "int cuStreamWriteValue32_v2(void *stream, uint64_t pointer, uint32_t value, uint32_t flags)",
  cuEventCreate: "int cuEventCreate(void *event, uint32_t flags)",
  cuEventDestroy_v2: "int cuEventDestroy_v2(void *event)",
  cuEventRecord: "int cuEventRecord(void *event, void *stream)",
  cuEventQuery: "int cuEventQuery(void *event)",
  cuEventSynchronize: "int cuEventSynchronize(void *event)",
  cuEventElapsedTime: "int cuEventElapsedTime(void *ms, void *start, void *end)",
  cuDeviceCanAccessPeer: "int cuDeviceCanAccessPeer(void *can, int device, int peer)",
  cuCtxEnablePeerAccess: "int cuCtxEnablePeerAccess(void *context, uint32_t flags)",
  cuIpcGetMemHandle: "int cuIpcGetMemHandle(void *handle, uint64_t pointer)",
  cuIpcCloseMemHandle: "int cuIpcCloseMemHandle(uint64_t pointer)",
  cuStreamBeginCapture_v2: "int cuStreamBeginCapture_v2(void *stream, int mode)",
  cuStreamEndCapture: "int cuStreamEndCapture(void *stream, void *graph)",
  cuThreadExchangeStreamCaptureMode: "int cuThreadExchangeStreamCaptureMode(void *mode)",
  cuGraphInstantiateWithFlags: "int cuGraphInstantiateWithFlags(void *exec, void *graph, uint64_t flags)",
  cuGraphLaunch: "int cuGraphLaunch(uint64_t exec, uint64_t stream)",
  cuGraphExecDestroy: "int cuGraphExecDestroy(void *exec)",
  cuGraphDestroy: "int cuGraphDestroy(void *graph)",
  cuModuleLoadData: "int cuModuleLoadData(void *module, void *image)",
  cuModuleUnload: "int cuModuleUnload(void *module)",
  cuModuleGetFunction: "int cuModuleGetFunction(void *function, void *module, const char *name)",
  cuFuncSetAttribute: "int cuFuncSetAttribute(void *function, int attribute, int value)",
  // Handles and pointers as numbers: the call of a small kernel costs koffi a quarter less than with pointers.
  cuLaunchKernel:
    "int cuLaunchKernel(uint64_t function, uint32_t gridX, uint32_t gridY, uint32_t gridZ, uint32_t blockX, uint32_t blockY, uint32_t blockZ, uint32_t sharedBytes, uint64_t stream, uint64_t params, uint64_t extra)",
  cuGetErrorName: "int cuGetErrorName(int error, void *text)",
  cuGetErrorString: "int cuGetErrorString(int error, void *text)",
} as const;
export type CudaSymbol = keyof typeof CUDA_PROTOTYPES;

/** Functions that stand-ins and old drivers may lack; each caller says what is missing without them. */
export const CUDA_OPTIONAL_PROTOTYPES = {
  /** The 64-byte handle is passed by value. */
  cuIpcOpenMemHandle_v2: "int cuIpcOpenMemHandle_v2(void *pointer, ChoraleIpcMemHandle handle, uint32_t flags)",
  cuFuncGetAttribute: "int cuFuncGetAttribute(void *value, int attribute, void *function)",
  /** Since CUDA 12.4. */
  cuFuncGetParamInfo: "int cuFuncGetParamInfo(void *function, size_t index, void *offset, void *size)",
} as const;

/** Virtual memory management (CUDA 10.2): memory with handles, which only `registerBuffers` uses. */
export const CUDA_MAPPING_PROTOTYPES = {
  cuMemRetainAllocationHandle: "int cuMemRetainAllocationHandle(void *handle, uint64_t address)",
  cuMemRelease: "int cuMemRelease(uint64_t handle)",
  cuMemGetAddressRange_v2: "int cuMemGetAddressRange_v2(void *base, void *size, uint64_t address)",
  cuMemAddressReserve:
    "int cuMemAddressReserve(void *address, size_t size, size_t alignment, uint64_t wanted, uint64_t flags)",
  cuMemAddressFree: "int cuMemAddressFree(uint64_t address, size_t size)",
  cuMemMap: "int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags)",
  cuMemUnmap: "int cuMemUnmap(uint64_t address, size_t size)",
  cuMemSetAccess: "int cuMemSetAccess(uint64_t address, size_t size, void *access, size_t count)",
} as const;
export type CudaMappingSymbol = keyof typeof CUDA_MAPPING_PROTOTYPES;

export const NVRTC_PROTOTYPES = {
  nvrtcVersion: "int nvrtcVersion(void *major, void *minor)",
  nvrtcCreateProgram:
    "int nvrtcCreateProgram(void *program, const char *source, const char *name, int numHeaders, void *headers, void *names)",
  nvrtcCompileProgram: "int nvrtcCompileProgram(void *program, int numOptions, const char **options)",
  nvrtcGetCUBINSize: "int nvrtcGetCUBINSize(void *program, void *size)",
  nvrtcGetCUBIN: "int nvrtcGetCUBIN(void *program, void *image)",
  nvrtcGetProgramLogSize: "int nvrtcGetProgramLogSize(void *program, void *size)",
  nvrtcGetProgramLog: "int nvrtcGetProgramLog(void *program, void *log)",
  nvrtcDestroyProgram: "int nvrtcDestroyProgram(void *program)",
} as const;
export type NvrtcSymbol = keyof typeof NVRTC_PROTOTYPES;

/** CUresult values on which callers branch. */
export const CUDA_STATUS = {
  success: 0,
  invalidValue: 1,
  outOfMemory: 2,
  peerAccessAlreadyEnabled: 704,
  notReady: 600,
} as const;

/**
 * Statuses after which the context returns the same error from every call: ECC (214), NVLink (220), illegal address
 * (700), launch time-out (702), and 709 to 721 (context destroyed, assert, misaligned, launch failure ...).
 */
export function isSticky(status: number): boolean {
  return status === 214 || status === 220 || status === 700 || status === 702 || (status >= 709 && status <= 721);
}

/** CUdevice_attribute values (cuda.h). */
export const DEVICE_ATTRIBUTE = {
  maxThreadsPerBlock: 1,
  multiprocessorCount: 16,
  computeCapabilityMajor: 75,
  computeCapabilityMinor: 76,
} as const;
