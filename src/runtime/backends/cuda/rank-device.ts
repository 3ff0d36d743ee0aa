/** What one rank holds of its device, and copies between host values and device tensors. */
import { type ArrayOf, type DType, InvalidArgumentError, sizeOf, type Tensor, viewAs } from "../../../core/index.ts";
import type { CudaDevice } from "./device.ts";
import { devicePtr } from "./device-tensor.ts";
import type { MemoryPool } from "./memory-pool.ts";
import type { PinnedBuffer, PinnedPool } from "./pinned.ts";
import type { CudaStream } from "./stream.ts";

/** What a rank's communicators share: device, memory, and the stream that the program's own kernels run on. */
export interface RankDevice {
  readonly device: CudaDevice;
  readonly pool: MemoryPool;
  readonly pinned: PinnedPool;
  readonly main: CudaStream;
  readonly generation: number;
}

/** Copies go through pinned memory in pieces of this size: enough for full speed, little enough to keep. */
const PIECE_BYTES = 32 * 1024 * 1024;

/** Copies host values to a device tensor of as many elements, and waits. @throws InvalidArgumentError */
export function upload<D extends DType>(target: Tensor<D>, values: ArrayOf<D>, at: RankDevice): void {
  if (values.length !== target.size) {
    throw new InvalidArgumentError("values", `${values.length} elements`, `${target.size}, as the tensor has`);
  }
  const to = devicePtr(target, at.device, at.generation);
  inPieces(values, at, (pinned, bytes, offset) => {
    new Uint8Array(pinned.buffer).set(bytes);
    const { device, main } = at;
    device.call("cuMemcpyHtoDAsync_v2", "upload", to + BigInt(offset), pinned.address, bytes.length, main.handle);
    main.synchronize("upload");
  });
}

/** Copies a device tensor to the host and waits. */
export function download<D extends DType>(source: Tensor<D>, at: RankDevice): ArrayOf<D> {
  const values = viewAs(source.dtype, new ArrayBuffer(source.size * sizeOf(source.dtype)), 0, source.size);
  const from = devicePtr(source, at.device, at.generation);
  inPieces(values, at, (pinned, bytes, offset) => {
    const { device, main } = at;
    device.call("cuMemcpyDtoHAsync_v2", "download", pinned.address, from + BigInt(offset), bytes.length, main.handle);
    main.synchronize("download");
    bytes.set(new Uint8Array(pinned.buffer, 0, bytes.length));
  });
  return values;
}

function inPieces(
  values: ArrayBufferView,
  at: RankDevice,
  run: (pinned: PinnedBuffer, bytes: Uint8Array, offset: number) => void,
): void {
  const all = new Uint8Array(values.buffer as ArrayBuffer, values.byteOffset, values.byteLength);
  if (all.length === 0) return;
  const pinned = at.pinned.take(Math.min(PIECE_BYTES, all.length));
  try {
    for (let offset = 0; offset < all.length; offset += PIECE_BYTES) {
      run(pinned, all.subarray(offset, offset + PIECE_BYTES), offset);
    }
  } finally {
    at.pinned.giveBack(pinned);
  }
}
