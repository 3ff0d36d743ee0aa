/** What carries messages between the members of a group on different hosts; members are named by group rank. */
export interface Carrier {
  /** Sends; `done` when the memory may change again. */
  send(to: number, slot: number, payload: Uint8Array, extra: number, done: () => void): void;
  /** Receives exactly `into.length` bytes; `done` when they are there, perhaps before it returns. */
  receive(from: number, slot: number, into: Uint8Array, extra: number, done: () => void): void;
  /** Receives from here on may be told to their senders together, when `release` is called. */
  hold?(): void;
  release?(): void;
}
