/** Timed copies between the memories of GPUs, through the CUDA driver alone: plain memory, streams, events. */
import { CUDA_STATUS, type CudaDriver, type CudaSymbol } from "../../foreign/cuda/index.ts";
import { cString, type NativeValue } from "../../foreign/native/index.ts";
import { pciAddress } from "./field-readers.ts";

/** CU_STREAM_NON_BLOCKING */
const NON_BLOCKING = 1;

export interface CopyDevice {
  readonly ordinal: number;
  readonly pciAddress: string | undefined;
  readonly context: bigint;
}

/** One end of a copy. */
export interface CopyEnd {
  readonly device: CopyDevice;
  readonly address: bigint;
}

/** Holds the devices' primary contexts until it is disposed. Every call throws NativeError when it fails. */
export class PeerCopies implements Disposable {
  readonly #driver: CudaDriver;
  readonly devices: readonly CopyDevice[];

  constructor(driver: CudaDriver) {
    this.#driver = driver;
    this.devices = Array.from({ length: driver.numDevices }, (_, ordinal) => {
      const bus = Buffer.alloc(32);
      this.#call("cuDeviceGetPCIBusId", bus, bus.length, ordinal);
      const context = this.#made("cuDevicePrimaryCtxRetain", ordinal);
      return { ordinal, pciAddress: pciAddress(cString(bus)), context };
    });
  }

  #call(symbol: CudaSymbol, ...values: NativeValue[]): void {
    this.#driver.check(symbol, this.#driver.api[symbol](...values));
  }

  /** The handle or address that a call writes to its first argument. */
  #made(symbol: CudaSymbol, ...values: NativeValue[]): bigint {
    const out = new BigUint64Array(1);
    this.#call(symbol, out, ...values);
    return out[0] ?? 0n;
  }

  /** Makes the device current for the calls that follow. */
  use({ context }: CopyDevice): void {
    this.#call("cuCtxSetCurrent", context);
  }

  canAccessPeer(device: CopyDevice, peer: CopyDevice): boolean {
    const can = new Int32Array(1);
    this.#call("cuDeviceCanAccessPeer", can, device.ordinal, peer.ordinal);
    return can[0] === 1;
  }

  /** Lets the current device read and write the peer's memory. */
  enablePeer({ context }: CopyDevice): void {
    const status = this.#driver.api.cuCtxEnablePeerAccess(context, 0);
    if (status !== CUDA_STATUS.peerAccessAlreadyEnabled) this.#driver.check("cuCtxEnablePeerAccess", status);
  }

  /** Allocates on the current device. */
  allocate(sizeBytes: number): bigint {
    return this.#made("cuMemAlloc_v2", sizeBytes);
  }

  free(address: bigint): void {
    this.#call("cuMemFree_v2", address);
  }

  /** Times copies that the current device makes one after another, ms, behind one that is not counted. */
  timeMs(from: CopyEnd, to: CopyEnd, sizeBytes: number, numCopies: number): number {
    const held: [CudaSymbol, bigint][] = [];
    const make = (create: CudaSymbol, destroy: CudaSymbol, flags: number): bigint => {
      const handle = this.#made(create, flags);
      held.push([destroy, handle]);
      return handle;
    };
    try {
      const stream = make("cuStreamCreate", "cuStreamDestroy_v2", NON_BLOCKING);
      const [begin, end] = [0, 0].map((flags) => make("cuEventCreate", "cuEventDestroy_v2", flags));
      const copy = () => {
        const [source, target] = [from.device.context, to.device.context];
        this.#call("cuMemcpyPeerAsync", to.address, target, from.address, source, sizeBytes, stream);
      };
      copy();
      this.#call("cuEventRecord", begin, stream);
      for (let i = 0; i < numCopies; i++) copy();
      this.#call("cuEventRecord", end, stream);
      this.#call("cuEventSynchronize", end);
      const ms = new Float32Array(1);
      this.#call("cuEventElapsedTime", ms, begin, end);
      return ms[0] ?? 0;
    } finally {
      for (const [destroy, handle] of held.reverse()) this.#call(destroy, handle);
    }
  }

  [Symbol.dispose](): void {
    for (const { ordinal } of this.devices) this.#call("cuDevicePrimaryCtxRelease_v2", ordinal);
  }
}
