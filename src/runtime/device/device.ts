/**
 * One CUDA device as this thread uses it: its primary context, its facts, and the health of that context. CUDA keeps
 * the current context per thread, so a device is opened in the thread that uses it; other threads open their own (the
 * primary context is shared by the process).
 *
 * A sticky error (illegal address, launch failure, ...) ends a context for good. The device is then poisoned: every
 * later call is refused with the operation that found it. Only ending the process clears it.
 */
import { ClosedError, InvalidArgumentError, type NativeError } from "../../core/index.ts";
import { CUDA_STATUS, CudaDriver, type CudaSymbol, DEVICE_ATTRIBUTE, isSticky } from "../../foreign/cuda/index.ts";
import type { NativeValue } from "../../foreign/native/index.ts";
import type { HeldKind, ResourceLedger } from "../memory/index.ts";
import { checkMade, MADE_HERE, type MadeHere } from "./construction-key.ts";
import type { DeviceWaiting } from "./device-waiting.ts";

/** What a device is, from the driver. Memory in bytes. */
export interface CudaDeviceInfo {
  readonly ordinal: number;
  readonly name: string;
  readonly uuid: string;
  readonly pciAddress: string;
  readonly memoryBytes: number;
  readonly computeCapability: readonly [major: number, minor: number];
  readonly numMultiprocessors: number;
}

/** What poisoned a context. */
export interface Poison {
  readonly operation: string;
  readonly error: NativeError;
}

/** CU_STREAM_CAPTURE_MODE_RELAXED */
const CAPTURE_MODE_RELAXED = 2;

/** The device whose context is current in this thread; all devices of a thread share the driver. */
const currentDevice = new WeakMap<CudaDriver, CudaDevice>();

let isDevice: (one: object) => boolean;

/** A device as this thread uses it. `openDevice` makes it; in a world `deviceOf(world).device` is the rank's. */
export class CudaDevice implements Disposable {
  readonly driver: CudaDriver;
  readonly ordinal: number;
  readonly info: CudaDeviceInfo;
  readonly context: bigint;
  /** The ledger of what this rank holds, if it is a thread, which may be killed. */
  readonly ledger: ResourceLedger | undefined;
  /** How threads of a world wait for it; the driver blocks them otherwise. */
  waiting: DeviceWaiting | undefined;
  /** Captures that are open: an event that is recorded on a captured stream can never be asked whether it is done. */
  numCaptures = 0;
  /** The streams that were made here and not closed yet. */
  readonly streams = new Set<{ isDone(operation?: string): boolean; throwSourceFailure(): void }>();
  #poison: Poison | undefined;
  #closed = false;
  readonly #atClose: (() => void)[] = [];
  /** What was made on this device and not closed yet, in the order of making. */
  readonly #open = new Set<{ close(): void }>();

  /** For `openDevice`: anybody else is refused. */
  constructor(
    key: MadeHere,
    driver: CudaDriver,
    ordinal: number,
    info: CudaDeviceInfo,
    context: bigint,
    ledger?: ResourceLedger,
  ) {
    checkMade(key, "CudaDevice", "openDevice(driver, ordinal)");
    this.driver = driver;
    this.ordinal = ordinal;
    this.info = info;
    this.context = context;
    this.ledger = ledger;
  }

  static {
    isDevice = (one) => #poison in one;
  }

  get poison(): Poison | undefined {
    return this.#poison;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Creates an object of the driver: `make` has its handle written into `out`.
   * @throws what `make` throws; nothing is held then
   */
  make(kind: HeldKind, make: (out: BigUint64Array) => void): bigint {
    const out = this.ledger?.open(kind, this.ordinal) ?? new BigUint64Array(1);
    try {
      make(out);
    } catch (error) {
      this.ledger?.cancel(out);
      throw error;
    }
    this.ledger?.keep(kind, out);
    return out[0] ?? 0n;
  }

  /** Remembers something to be closed with the device. */
  track(resource: { close(): void }): void {
    this.#open.add(resource);
  }

  /** Says that something that only holds other things is closed. */
  forget(resource: { close(): void }): void {
    this.#open.delete(resource);
  }

  /** Notes that something is being closed: neither the device closes it again, nor does whoever reaps this rank free it. */
  untrack(resource: { close(): void }, kind: HeldKind, handle: bigint): void {
    this.#open.delete(resource);
    this.ledger?.drop(kind, handle);
  }

  /** Closes everything that was made here and passes `which`; what fails to close is left to the driver. */
  closeAll(which: (resource: object) => boolean = () => true): void {
    for (const resource of [...this.#open].reverse()) {
      if (!which(resource)) continue;
      try {
        resource.close();
      } catch {
        // A context that is lost, or work that failed: the driver frees it with the context.
      }
      this.#open.delete(resource);
    }
  }

  /** Makes the context current in this thread. @throws ClosedError when the device was closed or its context poisoned */
  activate(): void {
    if (this.#closed) throw new ClosedError(`CUDA device ${this.ordinal}`, "was closed");
    if (this.#poison !== undefined) throw this.poisonError(this.#poison);
    if (currentDevice.get(this.driver) === this) return;
    this.driver.check("cuCtxSetCurrent", this.driver.api.cuCtxSetCurrent(this.context));
    currentDevice.set(this.driver, this);
  }

  /**
   * Calls a driver function in this device's context.
   * @throws NativeError, ClosedError; a sticky status poisons the context and says that `operation` found it
   */
  call(symbol: CudaSymbol, operation: string, ...args: readonly NativeValue[]): void {
    this.activate();
    const status = this.driver.api[symbol](...args);
    if (status !== CUDA_STATUS.success) this.fail(symbol, status, operation);
  }

  /** Runs `fn`, which may make calls that the driver refuses to a thread that captures. None of them goes into the graph. */
  relaxed<T>(fn: () => T): T {
    const mode = Int32Array.of(CAPTURE_MODE_RELAXED);
    this.call("cuThreadExchangeStreamCaptureMode", "capture", mode);
    try {
      return fn();
    } finally {
      this.driver.api.cuThreadExchangeStreamCaptureMode(mode);
    }
  }

  /** Asks for a state that may be "not ready". @returns whether it is ready */
  poll(symbol: "cuEventQuery" | "cuStreamQuery", operation: string, handle: bigint): boolean {
    this.activate();
    const status = this.driver.api[symbol](handle);
    if (status === CUDA_STATUS.success) return true;
    if (status === CUDA_STATUS.notReady) return false;
    return this.fail(symbol, status, operation);
  }

  /** Free and total memory of the device, bytes. */
  memoryInfo(): { readonly freeBytes: number; readonly totalBytes: number } {
    const out = new BigUint64Array(2);
    this.call("cuMemGetInfo_v2", "memory info", out.subarray(0, 1), out.subarray(1, 2));
    return { freeBytes: Number(out[0]), totalBytes: Number(out[1]) };
  }

  /**
   * Waits for all work of the device; in a world, for that of this rank's streams. Blocks the thread.
   * @throws in a world: TimeoutError, and the failure of the world, or of a group that a stream was ordered behind
   */
  synchronize(operation = "synchronize"): void {
    this.untilIdle(operation);
    for (const stream of this.streams) stream.throwSourceFailure();
  }

  /** Waits for all work of the device, whatever became of it. @throws as `synchronize`, but for the failure of groups */
  untilIdle(operation: string, timeoutMs?: number): void {
    if (this.waiting === undefined) this.call("cuCtxSynchronize", operation);
    else this.waiting.until(() => this.isIdle(operation), operation, timeoutMs === undefined ? {} : { timeoutMs });
  }

  /** Says whether everything is done that was issued on the streams made here. */
  isIdle(operation = "stream query"): boolean {
    for (const stream of this.streams) if (!stream.isDone(operation)) return false;
    return true;
  }

  /** Turns a status into the error to throw; remembers it when the context is lost. */
  fail(symbol: string, status: number, operation: string): never {
    const error = this.driver.error(symbol, status);
    if (isSticky(status)) {
      this.#poison ??= { operation, error };
      throw this.poisonError(this.#poison);
    }
    throw error;
  }

  private poisonError(poison: Poison): ClosedError {
    return new ClosedError(
      `the CUDA context of device ${this.ordinal}`,
      `was lost: ${poison.operation} found ${poison.error.message}. Every allocation of this process on the device is gone; end the process and start another`,
      { cause: poison.error },
    );
  }

  /** Runs `fn` when the device is closed. */
  onClose(fn: () => void): void {
    this.#atClose.push(fn);
  }

  /** Closes what is still open here and gives the primary context back. Idempotent; also for a poisoned context. */
  close(): void {
    if (this.#closed) return;
    this.closeAll();
    this.#closed = true;
    if (currentDevice.get(this.driver) === this) {
      currentDevice.delete(this.driver);
      this.driver.api.cuCtxSetCurrent(null);
    }
    for (const fn of this.#atClose) fn();
    this.ledger?.drop("context", BigInt(this.ordinal + 1));
    this.driver.api.cuDevicePrimaryCtxRelease_v2(this.ordinal);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** @throws InvalidArgumentError for what `openDevice` did not make */
export function checkDevice(device: CudaDevice): void {
  if (typeof device === "object" && device !== null && isDevice(device)) return;
  throw new InvalidArgumentError("device", device, "a CUDA device that openDevice(driver, ordinal) made");
}

function text(buffer: Uint8Array): string {
  const end = buffer.indexOf(0);
  return Buffer.from(buffer.subarray(0, end < 0 ? buffer.length : end)).toString("latin1");
}

/** Reads what the driver knows of a device, without making a context. */
export function deviceInfo(driver: CudaDriver, ordinal: number): CudaDeviceInfo {
  const { api } = driver;
  const device = new Int32Array(1);
  driver.check("cuDeviceGet", api.cuDeviceGet(device, ordinal));
  const handle = device[0] ?? 0;
  const name = new Uint8Array(256);
  driver.check("cuDeviceGetName", api.cuDeviceGetName(name, name.length, handle));
  const uuid = new Uint8Array(16);
  driver.check("cuDeviceGetUuid_v2", api.cuDeviceGetUuid_v2(uuid, handle));
  const pci = new Uint8Array(32);
  driver.check("cuDeviceGetPCIBusId", api.cuDeviceGetPCIBusId(pci, pci.length, handle));
  const memory = new BigUint64Array(1);
  driver.check("cuDeviceTotalMem_v2", api.cuDeviceTotalMem_v2(memory, handle));
  const attribute = (id: number) => {
    const value = new Int32Array(1);
    driver.check("cuDeviceGetAttribute", api.cuDeviceGetAttribute(value, id, handle));
    return value[0] ?? 0;
  };
  const hex = Buffer.from(uuid).toString("hex");
  return {
    ordinal,
    name: text(name),
    uuid: `GPU-${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`,
    pciAddress: text(pci).toLowerCase(),
    memoryBytes: Number(memory[0]),
    computeCapability: [
      attribute(DEVICE_ATTRIBUTE.computeCapabilityMajor),
      attribute(DEVICE_ATTRIBUTE.computeCapabilityMinor),
    ],
    numMultiprocessors: attribute(DEVICE_ATTRIBUTE.multiprocessorCount),
  };
}

/**
 * Opens a device in this thread: retains its primary context and makes it current.
 * @param ordinal as CUDA counts the visible devices, from 0
 * @throws InvalidArgumentError for a value that is not a driver, and for an ordinal that does not exist; NativeError
 * @example
 * import { openDevice, requireCudaDriver } from "chorale/device";
 *
 * const device = openDevice(requireCudaDriver(), 0);
 * console.log(device.info.name, device.memoryInfo().freeBytes);
 * device.close();
 */
export function openDevice(
  driver: CudaDriver,
  ordinal: number,
  options: { readonly ledger?: ResourceLedger | undefined } = {},
): CudaDevice {
  if (!(driver instanceof CudaDriver)) {
    throw new InvalidArgumentError("driver", driver, "what requireCudaDriver() gives");
  }
  if (!Number.isInteger(ordinal) || ordinal < 0 || ordinal >= driver.numDevices) {
    throw new InvalidArgumentError(
      "device",
      ordinal,
      driver.numDevices === 0
        ? "a machine with a visible CUDA device (CUDA_VISIBLE_DEVICES may mask all of them)"
        : `a visible CUDA device, 0 to ${driver.numDevices - 1}`,
    );
  }
  const info = deviceInfo(driver, ordinal);
  const context = retainContext(driver, ordinal, options.ledger);
  const device = new CudaDevice(MADE_HERE, driver, ordinal, info, context, options.ledger);
  device.activate();
  return device;
}

/** Retains a primary context, and writes that down. */
export function retainContext(driver: CudaDriver, ordinal: number, ledger?: ResourceLedger): bigint {
  const context = new BigUint64Array(1);
  driver.check("cuDevicePrimaryCtxRetain", driver.api.cuDevicePrimaryCtxRetain(context, ordinal));
  ledger?.note("context", ordinal, BigInt(ordinal + 1));
  return context[0] ?? 0n;
}

/** Runs `fn` with a device's primary context current in this thread, which is left without a current context. */
export function withContext(driver: CudaDriver, ordinal: number, fn: () => void): void {
  const context = new BigUint64Array(1);
  if (driver.api.cuDevicePrimaryCtxRetain(context, ordinal) !== CUDA_STATUS.success) return;
  currentDevice.delete(driver);
  driver.api.cuCtxSetCurrent(context[0] ?? 0n);
  try {
    fn();
  } finally {
    driver.api.cuCtxSetCurrent(null);
    driver.api.cuDevicePrimaryCtxRelease_v2(ordinal);
  }
}
