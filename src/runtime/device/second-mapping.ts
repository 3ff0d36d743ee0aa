/**
 * A second address of memory that has been mapped by its handle (cuMemCreate, as ncclMemAlloc does): the same bytes, for
 * a library that keeps books by address. A kernel must not write one address and read the other; one that is queued
 * behind may.
 */

import { CUDA_STATUS, type CudaDriver, isSticky } from "../../foreign/cuda/index.ts";
import type { CudaDevice } from "./device.ts";

/** CUmemAccessDesc: CU_MEM_LOCATION_TYPE_DEVICE, the device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE. */
const accessOf = (ordinal: number) => Int32Array.of(1, ordinal, 3);

/**
 * Maps the allocation at `address` once more, for `device` to read and write. `unmapSecond` takes it back, which must be
 * before the allocation is freed: its memory stays as long as it is mapped.
 * @returns the second address; `undefined` for memory without a handle, such as cuMemAlloc's
 * @throws NativeError
 */
export function mapSecond(device: CudaDevice, address: bigint): bigint | undefined {
  device.activate();
  const { driver } = device;
  const api = driver.mapping;
  // Memory without a handle answers in more ways than one (invalid value, not supported).
  const handle = device.make("memoryHandle", (out) => {
    const status = api.cuMemRetainAllocationHandle(out, address);
    if (status === CUDA_STATUS.outOfMemory || isSticky(status)) driver.check("cuMemRetainAllocationHandle", status);
    if (status !== CUDA_STATUS.success) out[0] = 0n;
  });
  try {
    if (handle === 0n) return undefined;
    const [status, size] = rangeAt(driver, address);
    driver.check("cuMemGetAddressRange_v2", status);
    return device.make("secondMapping", (out) => {
      driver.check("cuMemAddressReserve", api.cuMemAddressReserve(out, size, 0, 0, 0));
      const second = out[0] ?? 0n;
      const mapped = api.cuMemMap(second, size, 0, handle, 0);
      const usable =
        mapped === CUDA_STATUS.success ? api.cuMemSetAccess(second, size, accessOf(device.ordinal), 1) : mapped;
      if (usable === CUDA_STATUS.success) return;
      if (mapped === CUDA_STATUS.success) api.cuMemUnmap(second, size);
      out[0] = 0n;
      api.cuMemAddressFree(second, size);
      throw driver.error(mapped === CUDA_STATUS.success ? "cuMemSetAccess" : "cuMemMap", usable);
    });
  } finally {
    device.ledger?.drop("memoryHandle", handle);
    if (handle !== 0n) api.cuMemRelease(handle);
  }
}

/** Takes a second mapping back. Statuses are ignored: whoever calls this frees what can be freed. */
export function unmapSecond(driver: CudaDriver, address: bigint): void {
  const [, size] = rangeAt(driver, address);
  driver.mapping.cuMemUnmap(address, size);
  driver.mapping.cuMemAddressFree(address, size);
}

/** @returns the driver's status, and the bytes of the mapping that begins at `address` */
function rangeAt(driver: CudaDriver, address: bigint): readonly [status: number, sizeBytes: number] {
  const [base, size] = [new BigUint64Array(1), new BigUint64Array(1)];
  const status = driver.mapping.cuMemGetAddressRange_v2(base, size, address);
  return [status, Number(size[0])];
}
