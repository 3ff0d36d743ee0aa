/** Tensors of a world in a rank's device memory: how they are made and given back, and what is refused. */
import {
  ClosedError,
  type DType,
  InvalidArgumentError,
  parseDType,
  Tensor,
  UnsupportedError,
} from "../../core/index.ts";
import { described, tensorInUse } from "../../core/internal.ts";
import { devicePtr, deviceStorageOf, deviceTensor } from "./device-tensor.ts";
import type { RankDevice } from "./rank-device.ts";

/** Allocates a tensor of zeros. @throws OutOfMemoryError with the pool's state, InvalidArgumentError, UnsupportedError in a capture */
export function worldDeviceTensor<D extends DType>(at: RankDevice, dtype: D, shape: readonly number[]): Tensor<D> {
  // CUDA refuses allocations to a thread that captures, and the capture with them.
  if (at.device.numCaptures > 0)
    throw new UnsupportedError("world.tensor inside capture()", "make the tensor before it");
  const made = deviceTensor(at.pool, at.main, parseDType(dtype) as D, shape, { generation: at.generation });
  if (made.sizeBytes > 0) setZero(at, devicePtr(made, at.device), made.sizeBytes, "tensor");
  return made;
}

/** Sets memory to zero, in the order of the main stream. @throws NativeError, ClosedError */
export function setZero(at: RankDevice, address: bigint, sizeBytes: number, what: string): void {
  at.device.call("cuMemsetD8Async", what, address, 0, sizeBytes, at.main.handle);
  at.main.touched = true;
}

/**
 * Gives a tensor's memory back.
 * @param rank of the world @param look notices calls that have ended
 * @throws InvalidArgumentError, ClosedError
 */
export function freeWorldTensor(at: RankDevice, tensor: unknown, rank: number, look: () => void): void {
  const storage = tensor instanceof Tensor ? deviceStorageOf(tensor) : undefined;
  if (storage === undefined) {
    const what = tensor instanceof Tensor ? described(`a tensor in ${tensor.storage.kind} memory`) : tensor;
    throw new InvalidArgumentError("tensor", what, "a device tensor that this world allocated");
  }
  if (storage.closed !== undefined) throw new ClosedError("device tensor", storage.closed);
  if (storage.pool.closed) throw new ClosedError("device tensor", "belongs to a world that ended");
  if (storage.pool !== at.pool) {
    throw new InvalidArgumentError(
      "tensor",
      described(
        `a tensor of another world, rank or pool (generation ${storage.generation}, CUDA device ${storage.device.ordinal})`,
      ),
      `one that rank ${rank} allocated in generation ${at.generation} of this world`,
    );
  }
  // Finished calls may not have been noticed yet.
  if (storage.allocation.pendingUses > 0) look();
  const { pendingUses } = storage.allocation;
  if (pendingUses > 0) throw tensorInUse(`${pendingUses} pending call${pendingUses === 1 ? "" : "s"}`);
  storage.free();
}
