/**
 * What a program asks of a communicator's stream: to stand before or behind another one, and to wait for it. Calls that
 * are held back are not on the stream yet, so these wait for them first, and look after the group meanwhile.
 */
import { TimeoutError } from "../../../core/index.ts";
import { runningTime } from "../../comm/index.ts";
import type { CudaStream } from "../../device/index.ts";
import { blockUntil } from "../../progress/index.ts";
import type { CommQueue } from "./queue.ts";

/** Makes what is issued on `stream` from now on wait for every call made so far. @throws the group's failure */
export function orderBefore(queue: CommQueue, stream: CudaStream): void {
  queue.refuseAfterFailure();
  if (!queue.launched) {
    blockUntil(queue.poller, (now) => {
      queue.poll(now);
      queue.refuseAfterFailure();
      return queue.launched;
    });
  }
  queue.order.precede(stream);
}

/** Makes calls made from now on wait for what `stream` has been given so far. @throws the group's failure */
export function orderAfter(queue: CommQueue, stream: CudaStream): void {
  queue.refuseAfterFailure();
  queue.order.follow(stream);
}

/** Blocks this thread until the stream has done everything. @throws the group's failure, TimeoutError */
export function synchronize(queue: CommQueue, timeoutMs: number): void {
  const { stream, group } = queue.options;
  const until = runningTime() + timeoutMs;
  blockUntil(queue.poller, (now) => {
    queue.poll(now);
    queue.refuseAfterFailure();
    if (queue.launched && stream.isDone(`work of ${group}`)) {
      // What is there may have ended by a failure that came after the look at it.
      queue.refuseAfterFailure();
      // Calls that ended since the poll are over for the program too: it may capture, or free what they used.
      queue.settleIssued();
      return true;
    }
    if (runningTime(now) > until) throw new TimeoutError(`work on the stream of ${group}`, timeoutMs);
    return false;
  });
}
