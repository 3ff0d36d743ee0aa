/**
 * The CUDA device runtime, for programs that run kernels of their own beside the collectives: devices, streams, events,
 * graphs, memory, memory of peers, modules and NVRTC. A rank's own device comes from `deviceOf(world)` of chorale/world.
 */
export { CudaDevice, type CudaDeviceInfo, openDevice, type Poison } from "./device.ts";
export { DeviceStorage, devicePtr, deviceStorageOf, deviceTensor } from "./device-tensor.ts";
export { CUDA_LIBRARY, CudaDriver, loadCudaDriver, requireCudaDriver } from "./driver.ts";
export { type Allocation, MemoryPool, type PoolStats } from "./memory-pool.ts";
export { CudaKernel, CudaModule, type KernelArgument, KernelArguments, type LaunchShape } from "./module.ts";
export { loadNvrtc, Nvrtc, nvrtcLibrary, requireNvrtc } from "./nvrtc.ts";
export { enablePeerAccess, PeerMemory, type PeerPiece } from "./peer-memory.ts";
export { PinnedBuffer, PinnedPool } from "./pinned.ts";
export { type CopyOptions, download, RankDevice, upload } from "./rank-device.ts";
export { CudaEvent, CudaGraph, CudaStream } from "./stream.ts";
