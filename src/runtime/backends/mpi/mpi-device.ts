/** A rank's CUDA device on mpi, where its world has tensors in device memory: opened with the world, and closed with it. */
import type { ArrayOf, DType, Tensor } from "../../../core/index.ts";
import { requireCudaDriver } from "../../../foreign/cuda/index.ts";
import { download, type RankDevice, upload } from "../../device/index.ts";
import { freeWorldTensor, worldDeviceTensor } from "../../device/internal.ts";
import type { ControlSegment } from "../../memory/index.ts";
import { openWorldDevice, type Poller, type WorldWaiting } from "../../progress/index.ts";

export class MpiDevice {
  readonly at: RankDevice;
  readonly #rank: number;
  readonly #waiting: WorldWaiting;

  /** @throws UnavailableError without a driver, InvalidArgumentError where it has no such device */
  constructor(
    ordinal: number,
    place: { readonly rank: number; readonly generation: number; readonly timeoutMs: number },
    segment: ControlSegment,
    poller: Poller,
  ) {
    this.#rank = place.rank;
    const world = { segment, timeoutMs: place.timeoutMs, poller };
    const { at, waiting } = openWorldDevice(requireCudaDriver(), world, {
      ordinal,
      generation: place.generation,
      ledger: undefined,
      limitBytes: undefined,
      interprocess: true,
      peers: undefined,
      segments: undefined,
    });
    this.at = at;
    this.#waiting = waiting;
  }

  /** Why this process cannot use it any more; `undefined` while it can. */
  get lost(): string | undefined {
    const { poison } = this.at.device;
    return poison && `${poison.operation} found ${poison.error.message}`;
  }

  tensor<D extends DType>(dtype: D, shape: readonly number[]): Tensor<D> {
    return worldDeviceTensor(this.at, dtype, shape);
  }

  /** @param look notices calls that have ended */
  free(tensor: unknown, look: () => void): void {
    freeWorldTensor(this.at, tensor, this.#rank, look);
  }

  upload<D extends DType>(target: Tensor<D>, values: ArrayOf<D>): void {
    upload(target, values, this.at);
  }

  download<D extends DType>(source: Tensor<D>): ArrayOf<D> {
    return download(source, this.at);
  }

  /** Frees all of it. @param inUse MPI may still write to page-locked memory: all is left to the end of the process then */
  close(inUse: boolean): void {
    this.#waiting.close();
    if (inUse) return;
    for (const free of [() => this.at.pinned.close(), () => this.at.device.closeAll(), () => this.at.pool.close()]) {
      try {
        free();
      } catch {
        // A context that is lost: nothing of it can be given back one by one.
      }
    }
    this.at.device.close();
  }
}
