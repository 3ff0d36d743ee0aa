/**
 * The memory that ranks of one host share to talk about their work: mapped segments, control words, presence, failures,
 * the flight recorder's notes, the ledger of native resources; and in which a world's tensors lie, so that others can read them.
 * It moves no user data and knows no engine.
 * Start reading at control-segment.ts (a world), then group-control.ts (a group in it).
 */
export type { Attendance } from "./attendance.ts";
export type { Bulletin } from "./bulletin.ts";
export { controlBytes, MAX_GROUPS } from "./control-layout.ts";
export { ControlSegment } from "./control-segment.ts";
export { type EnteredControl, enterControl, openControl } from "./enter-control.ts";
export type { FlightNote, FlightNotes, PairNotes } from "./flight-notes.ts";
export { FreeList, wholeUnits } from "./free-list.ts";
export type { HeldOffers } from "./grant.ts";
export type { Fingerprint, GroupControl } from "./group-control.ts";
export {
  createGrowingArena,
  type GrowingArena,
  type OpenArena,
  openGrowingArena,
  removeGrowingArena,
} from "./growing-arena.ts";
export { emptyAddress, HostAddresses, isReadableMeanwhile, overlaps, part, type Span } from "./host-addresses.ts";
export { createHostControl, hostSegment, releaseHostControl } from "./host-control.ts";
export { type JointTurn, MAX_JOINT_RANKS } from "./joint-turn.ts";
export { COLLECTIVE, COLLECTIVE_RING, LANE_RING, type Lane, oppositeOf, ringOf, sameLane } from "./lanes.ts";
export type { MappedControl, OpenControl } from "./mapped-segment.ts";
export { nap, napUntil, pauseUntil } from "./nap.ts";
export { bytesOf, type GroupKey, laneOf, NOTICE, noticeOf, numberOf } from "./outbox.ts";
export { machine, makeOwnFolder, removeOwnFolder } from "./owned-files.ts";
export {
  HELD_KINDS,
  type Held,
  type HeldKind,
  holdsAny,
  ledgerBytes,
  ResourceLedger,
  readLedger,
  takeLedger,
  whileOthersFreeNothing,
} from "./resource-ledger.ts";
export { attachSharedArena, createSharedArena, removeSharedArena, type SharedArena } from "./shared-arena.ts";
export { TensorRoom } from "./tensor-room.ts";
export { GroupOffers, type ReadyTurn } from "./turn-arbiter.ts";
export { grantedOf, RECLAIM } from "./turns.ts";
export { freeTensor, type WorldTerm, worldTensor } from "./world-storage.ts";
export { Writers } from "./writers.ts";
