/** What is recorded of a program beside its operations: each rank's strands, channels, semaphores and buffers. */
import type { ChannelKind, ChannelWay } from "../plan/index.ts";
import { Tape } from "./op-tape.ts";

/** The buffer that packets live in, as the tapes count them. */
export const SCRATCH = 2;
/** Channel kinds as the tapes count them. */
export const MEMORY = 0;
export const PORT = 1;
export const SWITCH = 2;

export class StrandRecord {
  readonly tape = new Tape();
  /** Channels in order of first use, by kind in order of first use. */
  readonly channels = new Map<number, Set<number>>();
  /** Remote buffers (ids of the rank's table) by kind. */
  readonly remotes = new Map<number, Set<number>>();
}

export interface RankRecord {
  readonly rank: number;
  readonly inputChunks: number;
  readonly outputChunks: number;
  scratchChunks: number;
  readonly strands: StrandRecord[];
  /** Peers of memory and port channels; switch channels' groups. */
  readonly memory: number[];
  readonly port: number[];
  readonly switches: { readonly buffer: number; readonly ranks: readonly number[] }[];
  readonly channelKinds: number[];
  /** Remote buffers by rank * 4 + buffer: id in insertion order and the kinds that reach it. */
  readonly remotes: Map<number, { readonly id: number; readonly kinds: Set<number> }>;
  readonly semaphores: number[];
  readonly barriers: Map<string, number>;
  /** Of channels that the program names one for. */
  readonly ways: ChannelWay[];
}

export interface ChannelRecord {
  readonly kind: number;
  readonly id: number;
  readonly src: number;
  readonly dst: number;
}
export interface SwitchRecord {
  readonly buffer: number;
  readonly ranks: readonly number[];
  /** The channel's id on each member. */
  readonly ids: readonly number[];
}
export interface SemaphoreRecord {
  readonly rank: number;
  readonly id: number;
}

/** Chunks that a buffer of a rank has. */
export function roomOf(record: RankRecord, buffer: number): number {
  return buffer === SCRATCH ? record.scratchChunks : buffer === 0 ? record.inputChunks : record.outputChunks;
}

interface Numbered {
  /** By peer, how many channels lead to it. */
  readonly counts: Map<number, number>;
  readonly ordinals: number[];
}

const numbered = new WeakMap<readonly number[], Numbered>();

/** What is known of a record's channels, which are only ever added to: a look at all of them each time takes the third power of the ranks. */
function numbersOf(peers: readonly number[]): Numbered {
  let known = numbered.get(peers);
  if (known === undefined) {
    known = { counts: new Map(), ordinals: [] };
    numbered.set(peers, known);
  }
  const { counts, ordinals } = known;
  while (ordinals.length < peers.length) {
    const peer = peers[ordinals.length] as number;
    const ordinal = counts.get(peer) ?? 0;
    ordinals.push(ordinal);
    counts.set(peer, ordinal + 1);
  }
  return known;
}

/** As `channelOrdinal` of plans: which of a record's channels to the same peer one is. */
export const recordedOrdinal = (peers: readonly number[], id: number): number => numbersOf(peers).ordinals[id] ?? 0;

/** Makes a new pair of channels between two ranks: the k-th one way pairs with the k-th the other way. */
export function pairChannels(
  ranks: readonly RankRecord[],
  kind: ChannelKind,
  a: number,
  b: number,
): ReadonlyMap<number, number> {
  const [from, to] = [ranks[a] as RankRecord, ranks[b] as RankRecord];
  const count = (record: RankRecord, peer: number) => numbersOf(record[kind]).counts.get(peer) ?? 0;
  const add = (record: RankRecord, peer: number) => {
    const code = kind === "memory" ? MEMORY : PORT;
    if (!record.channelKinds.includes(code)) record.channelKinds.push(code);
    return record[kind].push(peer) - 1;
  };
  while (count(from, b) < count(to, a)) add(from, b);
  while (count(to, a) < count(from, b)) add(to, a);
  return new Map([
    [a, add(from, b)],
    [b, add(to, a)],
  ]);
}
