/**
 * What every backend with a queue of calls needs: call numbers and fingerprints, agreement, deadlines, settlement, polling.
 * It calls no engine: a backend gives completion marks, a timer and entries of its own.
 * Start reading at queue-entry.ts and call-queue.ts, then agreement.ts and call-settlement.ts.
 */
export { Agreement, type Joining } from "./agreement.ts";
export { batchTimeout, checkRoom } from "./batches.ts";
export { disagreement } from "./call-disagreement.ts";
export { CallQueue, type CallQueueOptions } from "./call-queue.ts";
export { type CallTimer, wantsTimings } from "./call-recorder.ts";
export { type Arrival, CallSequence, type Extras, IN_PLACE, JOIN_SEQ, placeOf } from "./call-sequence.ts";
export { FirstCalls } from "./first-calls.ts";
export { dumpSegment } from "./flight-dump.ts";
export { blockUntil, Poller } from "./poller.ts";
export { ALWAYS_COLD, type CallKind, type EntryParts, mayOvertake, QueueEntry } from "./queue-entry.ts";
export { QueuedWork } from "./queued-work.ts";
export { readChoices } from "./split-choices.ts";
export { FINISH_MS, InFlight } from "./unsettled-calls.ts";
export { WorldWaiting } from "./world-waiting.ts";
