/**
 * Ranks that share hosts: which ranks are on one host, how a group lies on its hosts, and collectives made host by host, inside
 * a host over memory that its ranks map, between hosts by messages. It opens no socket and calls no engine: a backend carries
 * the messages (carrier.ts), and says which calls are made so.
 * Start reading at host-layout.ts, then piece-run.ts.
 */
export type { Carrier } from "./carrier.ts";
export { ColumnMessages, MAX_PIECES } from "./column-messages.ts";
export { HOST_MARK_BYTES, hostMark } from "./host-identity.ts";
export { type HostLayout, layoutOf, layoutText, ownRow } from "./host-layout.ts";
export {
  createHostMemory,
  HostMemory,
  hostMemoryAt,
  PIECE_BYTES,
  pieceBytesFor,
  type ReduceHelper,
  roomOf,
} from "./host-memory.ts";
export { type HostActivity, HostPlace } from "./host-place.ts";
export { createHostTensors, HostTensors } from "./host-tensors.ts";
export type { PieceCallParts } from "./piece-call.ts";
export { allGatherPieces, barrierPieces, broadcastPieces } from "./piece-moves.ts";
export { allReducePieces, reducePieces, reduceScatterPieces } from "./piece-reductions.ts";
export { PieceRun, type PieceWork } from "./piece-run.ts";
