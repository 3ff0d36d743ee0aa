/**
 * What every backend with a queue of calls needs: call numbers and fingerprints, agreement, deadlines, settlement, polling.
 * It calls no engine: a backend gives a queue, a timer and entries of its own.
 * Start reading at queue-entry.ts and call-queue.ts, then agreement.ts and call-settlement.ts.
 */
export { Agreement, type Joining } from "./agreement.ts";
export { batchTimeout, checkRoom } from "./batches.ts";
export { disagreement } from "./call-disagreement.ts";
export { CallQueue, type CallQueueOptions, FINISH_MS } from "./call-queue.ts";
export type { CallTimer } from "./call-recorder.ts";
export { type Arrival, CallSequence, type Extras, IN_PLACE, JOIN_SEQ, placeOf } from "./call-sequence.ts";
export type { CallSettlement } from "./call-settlement.ts";
export { dumpSegment } from "./flight-dump.ts";
export { type MirrorMessage, NoticeMirror } from "./host-mirror.ts";
export { openWorldDevice, type WorldDevice } from "./open-world-device.ts";
export { blockUntil, Poller } from "./poller.ts";
export { ALWAYS_COLD, type CallKind, type EntryParts, mayOvertake, QueueEntry } from "./queue-entry.ts";
export { QueuedWork } from "./queued-work.ts";
export { readChoices } from "./split-choices.ts";
export type { WorldWaiting } from "./world-waiting.ts";
