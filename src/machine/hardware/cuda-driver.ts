/**
 * The few calls of the CUDA driver that a bandwidth measurement needs: contexts, plain device memory, copies between
 * peers, events. Signatures follow cuda.h. Needs the driver only, no toolkit.
 */
import {
  checkStatus,
  cString,
  type LibrarySpec,
  type LibraryUnavailable,
  type NativeLibrary,
  type NativeValue,
  openLibrary,
  outFloat,
  outInt32,
  outUint64,
} from "../../foreign/native/index.ts";
import { pciAddress } from "./text.ts";

export const CUDA_DRIVER: LibrarySpec = {
  name: "the CUDA driver",
  files: process.platform === "win32" ? ["nvcuda.dll"] : ["libcuda.so.1", "libcuda.so"],
  folders: [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
  ],
  variable: "CHORALE_CUDA_LIBRARY",
  requires: ["cuInit", "cuMemAlloc_v2", "cuMemcpyPeerAsync"],
  howToGetIt: "It comes with the NVIDIA driver; in a container, start it with the NVIDIA container toolkit.",
};

export interface CudaDevice {
  readonly ordinal: number;
  readonly pciAddress: string | undefined;
  readonly context: bigint;
}

/** A handle on the driver; all calls throw NativeError when they fail. */
export class CudaDriver implements Disposable {
  readonly #library: NativeLibrary;
  readonly #retained: number[] = [];

  private constructor(library: NativeLibrary) {
    this.#library = library;
  }

  /** Opens and initialises the driver. @throws NativeError when initialisation fails */
  static open(spec: LibrarySpec = CUDA_DRIVER): CudaDriver | LibraryUnavailable {
    const library = openLibrary(spec);
    if (!library.available) return library;
    const driver = new CudaDriver(library);
    driver.#call("cuInit", ["uint32_t"], 0);
    return driver;
  }

  #call(symbol: string, types: readonly string[], ...values: NativeValue[]): void {
    const status = this.#library.bind(symbol, "int", types)(...values);
    checkStatus("libcuda", symbol, status, (code) => this.#errorText(code));
  }

  #errorText(code: number): string {
    if (!this.#library.has("cuGetErrorString")) return "no text for this code";
    const text = this.#library.bind("cuGetErrorString", "int", ["int", "_Out_ const char **"]);
    const out: [string | null] = [null];
    text(code, out);
    return out[0] ?? "no text for this code";
  }

  /** Opens every device and retains its primary context. */
  devices(): CudaDevice[] {
    const count = outInt32();
    this.#call("cuDeviceGetCount", ["void *"], count.buffer);
    return Array.from({ length: count.read() }, (_, ordinal) => {
      const bus = Buffer.alloc(32);
      this.#call("cuDeviceGetPCIBusId", ["void *", "int", "int"], bus, bus.length, ordinal);
      const context = outUint64();
      this.#call("cuDevicePrimaryCtxRetain", ["void *", "int"], context.buffer, ordinal);
      this.#retained.push(ordinal);
      return { ordinal, pciAddress: pciAddress(cString(bus)), context: context.read() };
    });
  }

  use(device: CudaDevice): void {
    this.#call("cuCtxSetCurrent", ["uint64_t"], device.context);
  }

  canAccessPeer(device: CudaDevice, peer: CudaDevice): boolean {
    const can = outInt32();
    this.#call("cuDeviceCanAccessPeer", ["void *", "int", "int"], can.buffer, device.ordinal, peer.ordinal);
    return can.read() === 1;
  }

  /** Lets the current device read and write the peer's memory; 704 says that it already may. */
  enablePeer(peer: CudaDevice): void {
    const status = this.#library.bind("cuCtxEnablePeerAccess", "int", ["uint64_t", "uint32_t"])(peer.context, 0);
    if (status !== 704) checkStatus("libcuda", "cuCtxEnablePeerAccess", status, (code) => this.#errorText(code));
  }

  alloc(sizeBytes: number): bigint {
    const pointer = outUint64();
    this.#call("cuMemAlloc_v2", ["void *", "uint64_t"], pointer.buffer, sizeBytes);
    return pointer.read();
  }

  free(pointer: bigint): void {
    this.#call("cuMemFree_v2", ["uint64_t"], pointer);
  }

  newStream(): bigint {
    const stream = outUint64();
    this.#call("cuStreamCreate", ["void *", "uint32_t"], stream.buffer, 1);
    return stream.read();
  }

  newEvent(): bigint {
    const event = outUint64();
    this.#call("cuEventCreate", ["void *", "uint32_t"], event.buffer, 0);
    return event.read();
  }

  destroy(kind: "stream" | "event", handle: bigint): void {
    this.#call(kind === "stream" ? "cuStreamDestroy_v2" : "cuEventDestroy_v2", ["uint64_t"], handle);
  }

  record(event: bigint, stream: bigint): void {
    this.#call("cuEventRecord", ["uint64_t", "uint64_t"], event, stream);
  }

  copyPeer(
    to: CudaDevice,
    toPointer: bigint,
    from: CudaDevice,
    fromPointer: bigint,
    sizeBytes: number,
    stream: bigint,
  ): void {
    const types = ["uint64_t", "uint64_t", "uint64_t", "uint64_t", "uint64_t", "uint64_t"];
    this.#call("cuMemcpyPeerAsync", types, toPointer, to.context, fromPointer, from.context, sizeBytes, stream);
  }

  /** Waits for the event. */
  wait(event: bigint): void {
    this.#call("cuEventSynchronize", ["uint64_t"], event);
  }

  elapsedMs(begin: bigint, end: bigint): number {
    const out = outFloat();
    this.#call("cuEventElapsedTime", ["void *", "uint64_t", "uint64_t"], out.buffer, begin, end);
    return out.read();
  }

  [Symbol.dispose](): void {
    for (const ordinal of this.#retained.splice(0)) this.#call("cuDevicePrimaryCtxRelease_v2", ["int"], ordinal);
  }
}
