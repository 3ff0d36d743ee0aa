/**
 * The CUDA driver and NVRTC as libraries: finds them, binds their functions, and wraps their errors.
 * It owns no device, stream or memory: that is runtime/device's, and reading what a machine has is machine/hardware's.
 * Start reading at driver.ts.
 */
export { CUDA_LIBRARY, CudaDriver, loadCudaDriver, requireCudaDriver } from "./driver.ts";
export { kernelNodesOf } from "./kernel-nodes.ts";
export { loadNvrtc, Nvrtc, nvrtcLibrary, requireNvrtc } from "./nvrtc.ts";
export { DEFAULT_TOOLKIT, DRIVER_FOLDERS, toolkitFolders } from "./search-folders.ts";
export { CUDA_STATUS, type CudaSymbol, DEVICE_ATTRIBUTE, isSticky } from "./symbols.ts";
