/**
 * What a rank or a program holds on a CUDA device: devices, streams, events, graphs, memory, memory of peers, modules.
 * It starts no collectives. A rank's own device comes from `deviceOf(world)` of chorale/world.
 * Start reading at device.ts, then stream.ts and memory-pool.ts.
 */
export {
  CUDA_LIBRARY,
  CudaDriver,
  loadCudaDriver,
  loadNvrtc,
  Nvrtc,
  nvrtcLibrary,
  requireCudaDriver,
  requireNvrtc,
} from "../../foreign/cuda/index.ts";

export { CudaDevice, type CudaDeviceInfo, openDevice, type Poison } from "./device.ts";
export { DeviceStorage, devicePtr, deviceStorageOf, deviceTensor } from "./device-tensor.ts";
export { type Allocation, MemoryPool, type PoolStats } from "./memory-pool.ts";
export { CudaKernel, CudaModule, type KernelArgument, KernelArguments, type LaunchShape } from "./module.ts";
export { enablePeerAccess, PeerMemory, type PeerPiece } from "./peer-memory.ts";
export { PinnedBuffer, PinnedPool } from "./pinned.ts";
export { type CopyOptions, download, RankDevice, upload } from "./rank-device.ts";
export { CudaEvent, CudaGraph, CudaStream } from "./stream.ts";
