/**
 * Modules of generated kernels, loaded once on a device however many groups use them. A driver loads and unloads code only when
 * no kernel runs on the device (seen with CUDA 13 on H200s: cuModuleLoadData and cuModuleUnload come back when a kernel of another
 * stream has ended), and a kernel of a plan may wait for a call that this thread has yet to make.
 */
import { type CudaDevice, CudaModule, requireNvrtc } from "../../device/index.ts";
import { compileCached } from "./cubin-cache.ts";

/** Modules that nobody uses stay loaded, up to so many: each is some tens of kilobytes of the device's memory. */
const MAX_UNUSED = 256;

interface Kept {
  readonly module: CudaModule;
  users: number;
}

const KEPT = new WeakMap<CudaDevice, Map<string, Kept>>();

const modulesOf = (device: CudaDevice): Map<string, Kept> => {
  const known = KEPT.get(device);
  if (known !== undefined) return known;
  const made = new Map<string, Kept>();
  KEPT.set(device, made);
  return made;
};

/** Whether a kernel can be used without the driver waiting for the device. */
export function isLoaded(device: CudaDevice, source: string): boolean {
  return KEPT.get(device)?.get(source)?.module.closed === false;
}

/**
 * The module of a source: compiled and loaded where it is not there yet. Blocks until the device is idle then.
 * @param cubin what comes of compiling it, where that is known
 * @throws UnavailableError without NVRTC, NativeError with the compiler's log
 */
export function useModule(device: CudaDevice, source: string, cubin?: Uint8Array): CudaModule {
  const modules = modulesOf(device);
  let kept = modules.get(source);
  // The last one of a Map is the one used last.
  modules.delete(source);
  if (kept === undefined || kept.module.closed) {
    kept = {
      module: CudaModule.load(device, cubin ?? compileCached(requireNvrtc(), source, device.info.computeCapability)),
      users: 0,
    };
    dropUnused(modules);
  }
  kept.users++;
  modules.set(source, kept);
  return kept.module;
}

/** Says that one of those who asked for it needs it no more. */
export function releaseModule(device: CudaDevice, source: string): void {
  const kept = KEPT.get(device)?.get(source);
  if (kept !== undefined) kept.users--;
}

/** Unloads what was not used for longest, where the device is idle anyway. */
function dropUnused(modules: Map<string, Kept>): void {
  const unused = [...modules].filter(([, { users }]) => users === 0);
  for (const [source, { module }] of unused.slice(0, Math.max(0, unused.length - MAX_UNUSED))) {
    modules.delete(source);
    module.close();
  }
}
