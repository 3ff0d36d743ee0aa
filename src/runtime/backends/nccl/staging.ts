/**
 * Buffers of a call on the device: device tensors are used where they lie; anything in host memory goes through pinned
 * memory and a temporary on the device, once each way, on the communicator's stream.
 */
import {
  type ArrayOf,
  type DType,
  InvalidArgumentError,
  type Tensor,
  type TypedArray,
  tensor,
} from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import type { Operand } from "../../comm/index.ts";
import {
  type Allocation,
  type CudaStream,
  type DeviceStorage,
  deviceStorageOf,
  deviceTensor,
  type PinnedBuffer,
  type RankDevice,
} from "../../device/index.ts";
import { deviceAddress } from "../../device/internal.ts";

/** A buffer of a call, on the device. */
export interface Staged {
  readonly address: number;
  /** What the caller gets as the result. */
  readonly tensor: Tensor;
  /** The tensor's memory, if it is on the device. */
  readonly storage: DeviceStorage | undefined;
  /** Issued on the stream after the call: copies the result towards the host. */
  readonly after: (() => void) | undefined;
  /** Run when the stream is done: writes the result into the caller's memory and gives the buffers back. */
  readonly finish: ((ok: boolean) => void) | undefined;
}

/** Brings a caller's buffer to the device. `reads` and `writes` say what the call does with it. */
export function stage(
  operand: Operand,
  at: RankDevice,
  stream: CudaStream,
  use: { readonly reads: boolean; readonly writes: boolean },
): Staged {
  const given = operand.tensor;
  if (given !== undefined && deviceStorageOf(given) !== undefined) {
    const address = deviceAddress(given, at.device, at.generation);
    const storage = deviceStorageOf(given) as DeviceStorage;
    storage.pool.recordUse(storage.allocation, stream);
    return { address, tensor: given, storage, after: undefined, finish: undefined };
  }
  const array = given === undefined ? operand.array : given.data;
  if (array === undefined) throw new InvalidArgumentError("input", described("no memory"), "a tensor or a typed array");
  const bytes = bytesOf(array);
  const sizeBytes = bytes.length;
  const temporary = at.pool.allocate(sizeBytes, stream, "staging");
  let pinned: PinnedBuffer | undefined;
  try {
    pinned = at.pinned.take(sizeBytes);
    if (use.reads && sizeBytes > 0) {
      new Uint8Array(pinned.buffer).set(bytes);
      at.device.call("cuMemcpyHtoDAsync_v2", "staging", temporary.address, pinned.address, sizeBytes, stream.handle);
    }
  } catch (error) {
    at.pool.free(temporary);
    if (pinned !== undefined) at.pinned.giveBack(pinned);
    throw error;
  }
  return staged(operand, array, { at, stream, use, temporary, pinned, bytes });
}

/** What a buffer in host memory is staged with. */
interface Staging {
  readonly at: RankDevice;
  readonly stream: CudaStream;
  readonly use: { readonly writes: boolean };
  readonly temporary: Allocation;
  readonly pinned: PinnedBuffer;
  readonly bytes: Uint8Array;
}

function staged(operand: Operand, array: TypedArray, staging: Staging): Staged {
  const { at, stream, use, temporary, pinned, bytes } = staging;
  const sizeBytes = bytes.length;
  let copied = false;
  return {
    address: Number(temporary.address),
    tensor: operand.tensor ?? tensor(operand.dtype, [array.length], array as ArrayOf<DType>),
    storage: undefined,
    after:
      use.writes && sizeBytes > 0
        ? () => {
            const from = temporary.address;
            copied = true;
            at.device.call("cuMemcpyDtoHAsync_v2", "staging", pinned.address, from, sizeBytes, stream.handle);
          }
        : undefined,
    finish: (ok) => {
      const gone = ok && use.writes && bytes.length !== sizeBytes;
      if (ok && use.writes && !gone) bytes.set(new Uint8Array(pinned.buffer, 0, sizeBytes));
      at.pool.free(temporary);
      // The stream of a call that failed may come to the copy at any time, also when somebody else has the buffer: such
      // a one stays out of use.
      if (ok || !copied) at.pinned.giveBack(pinned);
      if (gone) {
        const given = "an array whose buffer was transferred, or made smaller, while its call was pending";
        throw new InvalidArgumentError(
          "output",
          described(given),
          "an array that keeps its memory until the call has ended",
        );
      }
    },
  };
}

/** @throws InvalidArgumentError for an array whose buffer was transferred away */
function bytesOf(array: TypedArray): Uint8Array {
  try {
    return new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);
  } catch {
    throw new InvalidArgumentError(
      "data",
      described("an array whose buffer was transferred"),
      "an array that has its memory",
    );
  }
}

/** A result that the caller gave no memory for: on the device when the input was there, in private memory otherwise. */
export function freshOperand(input: Operand, count: number, at: RankDevice, stream: CudaStream): Operand {
  const onDevice = input.tensor?.storage.kind === "device";
  const made: Tensor = onDevice
    ? deviceTensor(at.pool, stream, input.dtype, [count], { generation: at.generation })
    : tensor(input.dtype, [count]);
  const region = { storage: made.storage.buffer ?? made.storage, byteOffset: 0, sizeBytes: made.sizeBytes };
  return { dtype: input.dtype, count, tensor: made, array: undefined, region };
}
