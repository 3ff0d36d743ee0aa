/** The watchdog of a queue over NCCL: asks NCCL and the driver what went wrong without anybody being told. */
import type { CudaStream } from "../../device/index.ts";
import { type Agreement, type CallRecorder, QueueWatchdog } from "../../progress/index.ts";
import type { CommHandle } from "./comm-handle.ts";

export interface EngineWatchOptions {
  readonly stream: CudaStream;
  readonly group: string;
}

/** Makes the watchdog. What it finds is thrown by its `look`: NativeError of NCCL or of the driver, TimeoutError. */
export function watchEngine(
  handle: CommHandle,
  recorder: CallRecorder,
  agreement: Agreement,
  { stream, group }: EngineWatchOptions,
): QueueWatchdog {
  const ask = (oldest: string) => {
    if (handle.comm === undefined) return;
    const { failure } = handle;
    if (failure !== undefined) throw failure;
    recorder.look();
    stream.isDone(oldest);
  };
  return new QueueWatchdog({ agreement, group, ask });
}
