/**
 * Buffers of a call on the device: device tensors are used where they lie; anything in host memory goes through pinned
 * memory and a temporary on the device, once each way, on the communicator's stream.
 */
import { type ArrayOf, type DType, InvalidArgumentError, type Tensor, tensor } from "../../../core/index.ts";
import type { Operand } from "../../comm/index.ts";
import { type DeviceStorage, deviceAddress, deviceStorageOf, deviceTensor } from "../cuda/device-tensor.ts";
import type { RankDevice } from "../cuda/rank-device.ts";
import type { CudaStream } from "../cuda/stream.ts";

/** A buffer of a call, on the device. */
export interface Staged {
  readonly address: number;
  /** What the caller gets as the result. */
  readonly tensor: Tensor;
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
    return { address, tensor: given, after: undefined, finish: undefined };
  }
  const array = given === undefined ? operand.array : given.data;
  if (array === undefined) throw new InvalidArgumentError("input", "no memory", "a tensor or a typed array");
  const sizeBytes = array.byteLength;
  const temporary = at.pool.allocate(sizeBytes, stream, "staging");
  const pinned = at.pinned.take(sizeBytes);
  const bytes = new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, sizeBytes);
  if (use.reads && sizeBytes > 0) {
    new Uint8Array(pinned.buffer).set(bytes);
    at.device.call("cuMemcpyHtoDAsync_v2", "staging", temporary.address, pinned.address, sizeBytes, stream.handle);
  }
  return {
    address: Number(temporary.address),
    tensor: given ?? tensor(operand.dtype, [array.length], array as ArrayOf<DType>),
    after:
      use.writes && sizeBytes > 0
        ? () => {
            const from = temporary.address;
            at.device.call("cuMemcpyDtoHAsync_v2", "staging", pinned.address, from, sizeBytes, stream.handle);
          }
        : undefined,
    finish: (ok) => {
      if (ok && use.writes) bytes.set(new Uint8Array(pinned.buffer, 0, sizeBytes));
      at.pool.free(temporary);
      at.pinned.giveBack(pinned);
    },
  };
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
