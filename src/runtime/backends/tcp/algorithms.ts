/**
 * The collectives over sockets. Small ones take few rounds (Bruck's all-gather, binomial trees, dissemination; Bruck et
 * al. 1997, Hensgen et al. 1988); large ones move as few bytes as can be, in chunks that overlap: every rank reduces its
 * own piece of each chunk, with what all others send it directly, and gives it to all (the two phases of Rabenseifner's
 * all-reduce, without its exchanges of halves: sockets reach everybody). Inputs are combined in the order of ranks and
 * rounded once, so all ranks have the same bits, whatever the size.
 *
 * A rank's part of a collective ends only when it has heard, perhaps through others, from every rank: one that makes
 * another call is an error on all of them, and never half a result.
 */
import { invariant } from "../../../core/index.ts";
import { EAGER_BYTES } from "./frame.ts";
import type { LocalStep, RecvStep, Round, Schedule, SendStep, Span, Strand } from "./schedule.ts";
import type { ScheduleName } from "./socket-ways.ts";

/** Up to this size a broadcast is a tree, and a reduce one message of each rank to the root. */
const WHOLE_BYTES = 32 * 1024;
/** Chunks that a rank works on at a time. */
const WINDOW = 4;
/** What the ranks hold of one chunk together, and the bounds of each one's piece. */
const CHUNK_BYTES = 4 * 1024 * 1024;
/**
 * The same of large all-reduces of so many ranks, of which fewer are under way: as many bytes, in half as many messages (with four
 * ranks fewer chunks under way took longer; tcp-must-show-2026-11-29.md in bench/results/).
 */
const MANY_RANKS = 5;
const LARGE_CHUNK_BYTES = 2 * CHUNK_BYTES;
const LARGE_WINDOW = WINDOW / 2;
const LEAST_PIECE_BYTES = 64 * 1024;
const MOST_PIECE_BYTES = 1024 * 1024;
const SCRATCH_ALIGN = 64;

const NONE: readonly never[] = Object.freeze([]);
const EMPTY: Span = Object.freeze({ buffer: "scratch", at: 0, bytes: 0 });

/** Where a rank stands, and how large an element is: pieces are whole elements. */
export interface Place {
  readonly rank: number;
  readonly size: number;
  readonly elementBytes: number;
  /** The schedule that the call is to have, where it is not chosen by size. */
  readonly schedule?: ScheduleName | undefined;
  /** Of a piece, where that is named. */
  readonly pieceBytes?: number | undefined;
}

const input = (at: number, bytes: number): Span => ({ buffer: "input", at, bytes });
const output = (at: number, bytes: number): Span => ({ buffer: "output", at, bytes });
const scratch = (at: number, bytes: number): Span => ({ buffer: "scratch", at, bytes });
const local = (...then: readonly LocalStep[]): Round => ({ sends: NONE, recvs: NONE, then });

/** The other ranks, the next one first: so not everybody sends to the same one. */
const others = ({ rank, size }: Place): number[] => Array.from({ length: size - 1 }, (_, i) => (rank + i + 1) % size);

/** Every rank hears of every other, in log2 rounds. */
export function dissemination({ rank, size }: Place): Strand {
  const rounds: Round[] = [];
  for (let step = 1; step < size; step *= 2) {
    rounds.push({
      sends: [{ to: (rank + step) % size, from: EMPTY }],
      recvs: [{ from: (rank - step + size) % size, into: EMPTY }],
      then: NONE,
    });
  }
  return rounds;
}

/** Every rank tells every other, behind all that it has sent there before. */
export function farewell(place: Place): Schedule {
  const sends = others(place).map((to) => ({ to, from: EMPTY }));
  const recvs = others(place).map((from) => ({ from, into: EMPTY }));
  return single("farewell", [{ sends, recvs, then: NONE }]);
}

function single(name: string, strand: Strand, scratchBytes = 0, opening?: Strand): Schedule {
  return {
    name,
    numStrands: 1,
    strand: () => strand,
    window: 1,
    scratchBytes,
    ...(opening === undefined ? {} : { opening }),
  };
}

export function barrier(place: Place): Schedule {
  return single("dissemination", dissemination(place));
}

/** How large a rank's piece of a chunk is at most: whole elements. */
function pieceBytesOf({ size, elementBytes, pieceBytes }: Place, chunkBytes = CHUNK_BYTES): number {
  const bytes = pieceBytes ?? Math.min(MOST_PIECE_BYTES, Math.max(LEAST_PIECE_BYTES, Math.floor(chunkBytes / size)));
  return Math.floor(bytes / elementBytes) * elementBytes;
}

/** Cuts `bytes` into `parts` of whole elements, as equal as can be. @returns where part `index` begins */
function cut(bytes: number, parts: number, index: number, elementBytes: number): number {
  return Math.floor(((bytes / elementBytes) * index) / parts) * elementBytes;
}

const aligned = (bytes: number) => Math.ceil(bytes / SCRATCH_ALIGN) * SCRATCH_ALIGN;

/** The parts of a buffer, one for each rank: where they begin, and how long they are. */
interface PartTable {
  readonly offsets: readonly number[];
  readonly sizes: readonly number[];
}

export function equalParts(size: number, partBytes: number): PartTable {
  return { offsets: Array.from({ length: size }, (_, i) => i * partBytes), sizes: Array(size).fill(partBytes) };
}

export function partsOf(counts: readonly number[], elementBytes: number): PartTable {
  const sizes = counts.map((count) => count * elementBytes);
  let at = 0;
  const offsets = sizes.map((bytes) => {
    at += bytes;
    return at - bytes;
  });
  return { offsets, sizes };
}

/** Chunks of parts: chunk `index` of part `rank`. The first one is there also where it is empty. */
class Chunks {
  readonly count: number;
  readonly #parts: PartTable;
  readonly #pieceBytes: number;

  constructor(parts: PartTable, pieceBytes: number) {
    this.#parts = parts;
    this.#pieceBytes = pieceBytes;
    this.count = Math.max(1, Math.ceil(Math.max(...parts.sizes) / pieceBytes));
  }

  of(rank: number, index: number): { readonly at: number; readonly bytes: number } | undefined {
    const size = this.#parts.sizes[rank] ?? 0;
    const from = index * this.#pieceBytes;
    if (index > 0 && from >= size) return undefined;
    return { at: (this.#parts.offsets[rank] ?? 0) + from, bytes: Math.min(this.#pieceBytes, size - from) };
  }
}

export function allReduce(place: Place, bytes: number): Schedule {
  const { rank, size, elementBytes } = place;
  if (size === 1) {
    return single("local", [local({ kind: "reduce", inputs: [input(0, bytes)], output: output(0, bytes) })]);
  }
  const isSmall =
    place.schedule === undefined ? bytes * Math.ceil(size / 2) <= EAGER_BYTES : place.schedule === "bruck";
  if (isSmall) return smallAllReduce(place, bytes);
  // Two chunks at least, so that one is combined while the other one moves.
  const isLarge = place.pieceBytes === undefined && size >= MANY_RANKS && bytes > LARGE_WINDOW * CHUNK_BYTES;
  const pieceBytes = pieceBytesOf(place, isLarge ? LARGE_CHUNK_BYTES : CHUNK_BYTES);
  const numStrands = Math.max(isLarge ? LARGE_WINDOW : 1, Math.ceil(bytes / (pieceBytes * size)));
  const pieceOf = (strand: number, owner: number) => {
    const parts = numStrands * size;
    const at = cut(bytes, parts, strand * size + owner, elementBytes);
    return { at, bytes: cut(bytes, parts, strand * size + owner + 1, elementBytes) - at };
  };
  const stride = aligned(pieceBytes + elementBytes);
  return {
    name: "reduce-scatter-all-gather",
    numStrands,
    window: isLarge ? LARGE_WINDOW : WINDOW,
    scratchBytes: stride * size,
    strand: (strand) => {
      const mine = pieceOf(strand, rank);
      const peers = others(place);
      return [
        {
          sends: peers.map((to) => {
            const { at, bytes } = pieceOf(strand, to);
            return { to, from: input(at, bytes) };
          }),
          recvs: peers.map((from) => ({ from, into: scratch(from * stride, mine.bytes) })),
          then: [reducing(place, input(mine.at, mine.bytes), stride, output(mine.at, mine.bytes))],
        },
        {
          sends: peers.map((to) => ({ to, from: output(mine.at, mine.bytes) })),
          recvs: peers.map((from) => {
            const { at, bytes } = pieceOf(strand, from);
            return { from, into: output(at, bytes) };
          }),
          then: NONE,
          // What others give has this rank's part in it, which has therefore left: the memory may be the input's too.
          isEarly: true,
        },
      ];
    },
  };
}

/** Combines this rank's own piece with what the others have sent to scratch, in the order of ranks. */
function reducing({ rank, size }: Place, own: Span, stride: number, to: Span): LocalStep {
  const inputs = Array.from({ length: size }, (_, from) => (from === rank ? own : scratch(from * stride, own.bytes)));
  return { kind: "reduce", inputs, output: to };
}

/** Everybody gets everything, in log2 rounds, and reduces it. */
function smallAllReduce({ rank, size }: Place, bytes: number): Schedule {
  const rounds: Round[] = [local({ kind: "copy", from: input(0, bytes), to: scratch(0, bytes) })];
  for (let have = 1; have < size; have *= 2) {
    const count = Math.min(have, size - have);
    rounds.push({
      sends: [{ to: (rank - have + size) % size, from: scratch(0, count * bytes) }],
      recvs: [{ from: (rank + have) % size, into: scratch(have * bytes, count * bytes) }],
      then: NONE,
    });
  }
  const inputs = Array.from({ length: size }, (_, from) => scratch(((from - rank + size) % size) * bytes, bytes));
  rounds.push(local({ kind: "reduce", inputs, output: output(0, bytes) }));
  return single("bruck", rounds, size * bytes);
}

export function reduceScatter(place: Place, parts: PartTable): Schedule {
  const { rank, size } = place;
  const chunks = new Chunks(parts, pieceBytesOf(place));
  const base = parts.offsets[rank] ?? 0;
  const stride = aligned(Math.min(pieceBytesOf(place), Math.max(...parts.sizes)));
  return {
    name: "direct",
    numStrands: chunks.count,
    window: WINDOW,
    scratchBytes: stride * size,
    strand: (strand) => {
      const mine = chunks.of(rank, strand);
      const sends = others(place).flatMap((to): SendStep[] => {
        const piece = chunks.of(to, strand);
        return piece === undefined ? [] : [{ to, from: input(piece.at, piece.bytes) }];
      });
      if (mine === undefined) return [{ sends, recvs: NONE, then: NONE }];
      const recvs = others(place).map((from) => ({ from, into: scratch(from * stride, mine.bytes) }));
      const own = input(mine.at, mine.bytes);
      return [{ sends, recvs, then: [reducing(place, own, stride, output(mine.at - base, mine.bytes))] }];
    },
  };
}

export function allGather(place: Place, parts: PartTable): Schedule {
  const { rank } = place;
  const chunks = new Chunks(parts, pieceBytesOf(place));
  const base = parts.offsets[rank] ?? 0;
  return {
    name: "direct",
    numStrands: chunks.count,
    window: WINDOW,
    scratchBytes: 0,
    strand: (strand) => {
      const mine = chunks.of(rank, strand);
      const from = mine === undefined ? EMPTY : input(mine.at - base, mine.bytes);
      const copy: LocalStep[] = mine === undefined ? [] : [{ kind: "copy", from, to: output(mine.at, mine.bytes) }];
      const recvs = others(place).flatMap((peer): RecvStep[] => {
        const piece = chunks.of(peer, strand);
        return piece === undefined ? [] : [{ from: peer, into: output(piece.at, piece.bytes) }];
      });
      return [
        local(...copy),
        { sends: mine === undefined ? NONE : others(place).map((to) => ({ to, from })), recvs, then: NONE },
      ];
    },
  };
}

/** @param given what this rank sends to each, @param taken what it receives of each */
export function allToAll(place: Place, given: PartTable, taken: PartTable, varies: boolean): Schedule {
  const { rank, elementBytes } = place;
  const [out, into] = [new Chunks(given, pieceBytesOf(place)), new Chunks(taken, pieceBytesOf(place))];
  const agreed = (parts: PartTable, peer: number) => (varies ? { extra: (parts.sizes[peer] ?? 0) / elementBytes } : {});
  return {
    name: "pairwise",
    numStrands: Math.max(out.count, into.count),
    window: WINDOW,
    scratchBytes: 0,
    strand: (strand) => {
      const [kept, place_] = [out.of(rank, strand), into.of(rank, strand)];
      const then: LocalStep[] =
        kept === undefined || place_ === undefined
          ? []
          : [{ kind: "copy", from: input(kept.at, kept.bytes), to: output(place_.at, place_.bytes) }];
      return [
        {
          sends: others(place).flatMap((to): SendStep[] => {
            const piece = out.of(to, strand);
            return piece === undefined ? [] : [{ to, from: input(piece.at, piece.bytes), ...agreed(given, to) }];
          }),
          recvs: others(place).flatMap((from): RecvStep[] => {
            const piece = into.of(from, strand);
            return piece === undefined ? [] : [{ from, into: output(piece.at, piece.bytes), ...agreed(taken, from) }];
          }),
          then,
        },
      ];
    },
    // Two ranks may agree while two others do not: nobody is done before all of them were compared.
    ...(varies ? { closing: dissemination(place) } : {}),
  };
}

export function broadcast(place: Place, bytes: number, root: number): Schedule {
  const { rank, size, elementBytes } = place;
  const isRoot = rank === root;
  const copy: readonly Round[] = isRoot
    ? [local({ kind: "copy", from: input(0, bytes), to: output(0, bytes) })]
    : [local()];
  const opening = dissemination(place);
  const isSmall = place.schedule === undefined ? bytes <= WHOLE_BYTES : place.schedule === "binomial" || bytes === 0;
  if (isSmall || size <= 2) return { ...tree(place, bytes, root, copy), opening };
  // The others take turns: one gets a piece from the root and passes it on, so everybody sends.
  const relays = Array.from({ length: size - 1 }, (_, i) => (root + 1 + i) % size);
  const numStrands = Math.ceil(bytes / pieceBytesOf(place));
  return {
    name: "scatter-all-gather",
    numStrands,
    window: 2 * WINDOW,
    scratchBytes: 0,
    opening,
    strand: (strand) => {
      const at = cut(bytes, numStrands, strand, elementBytes);
      const piece = cut(bytes, numStrands, strand + 1, elementBytes) - at;
      const relay = relays[strand % relays.length] as number;
      if (isRoot) {
        const from = input(at, piece);
        return [
          local({ kind: "copy", from, to: output(at, piece) }),
          { sends: [{ to: relay, from }], recvs: NONE, then: NONE },
        ];
      }
      const into = output(at, piece);
      const first = { sends: NONE, recvs: [{ from: rank === relay ? root : relay, into }], then: NONE };
      // Rounds number messages: a piece comes in round 1 from the root, and in round 2 from its relay.
      if (rank !== relay) return [local(), local(), first];
      const sends = relays.filter((to) => to !== rank).map((to) => ({ to, from: into }));
      return [local(), first, { sends, recvs: NONE, then: NONE }];
    },
  };
}

/** A binomial tree. */
function tree({ rank, size, elementBytes }: Place, bytes: number, root: number, before: readonly Round[]): Schedule {
  const place = { rank, size, elementBytes };
  const numStrands = Math.max(1, Math.ceil(bytes / pieceBytesOf(place)));
  const me = (rank - root + size) % size;
  const real = (r: number) => (r + root) % size;
  return {
    name: "binomial",
    numStrands,
    window: 2 * WINDOW,
    scratchBytes: 0,
    strand: (strand) => {
      const at = cut(bytes, numStrands, strand, elementBytes);
      const piece = cut(bytes, numStrands, strand + 1, elementBytes) - at;
      const rounds: Round[] = strand === 0 ? [...before] : [local()];
      for (let step = 1; step < size; step *= 2) {
        const sends = me < step && me + step < size ? [{ to: real(me + step), from: output(at, piece) }] : NONE;
        const isMine = me >= step && me < 2 * step;
        const recvs = isMine ? [{ from: real(me - step), into: output(at, piece) }] : NONE;
        rounds.push({ sends, recvs, then: NONE });
      }
      return rounds;
    },
  };
}

export function reduce(place: Place, bytes: number, root: number): Schedule {
  const { rank, size, elementBytes } = place;
  if (size === 1) return allReduce(place, bytes);
  const opening = dissemination(place);
  const isRoot = rank === root;
  if (place.schedule === undefined ? bytes <= WHOLE_BYTES : place.schedule === "linear" || bytes === 0) {
    const stride = aligned(bytes);
    const recvs = others(place).map((from) => ({ from, into: scratch(from * stride, bytes) }));
    const whole = input(0, bytes);
    const strand: Strand = isRoot
      ? [{ sends: NONE, recvs, then: [reducing(place, whole, stride, output(0, bytes))] }]
      : [{ sends: [{ to: root, from: whole }], recvs: NONE, then: NONE }];
    return single("linear", strand, stride * size, opening);
  }
  const pieceBytes = pieceBytesOf(place);
  const numStrands = Math.ceil(bytes / (pieceBytes * size));
  const stride = aligned(pieceBytes + elementBytes);
  const pieceOf = (strand: number, owner: number) => {
    const parts = numStrands * size;
    const at = cut(bytes, parts, strand * size + owner, elementBytes);
    return { at, bytes: cut(bytes, parts, strand * size + owner + 1, elementBytes) - at };
  };
  return {
    name: "reduce-scatter-gather",
    numStrands,
    window: WINDOW,
    scratchBytes: stride * size,
    opening,
    strand: (strand) => {
      const mine = pieceOf(strand, rank);
      const result = isRoot ? output(mine.at, mine.bytes) : scratch(rank * stride, mine.bytes);
      return [
        {
          sends: others(place).map((to) => {
            const { at, bytes } = pieceOf(strand, to);
            return { to, from: input(at, bytes) };
          }),
          recvs: others(place).map((from) => ({ from, into: scratch(from * stride, mine.bytes) })),
          then: [reducing(place, input(mine.at, mine.bytes), stride, result)],
        },
        isRoot
          ? {
              sends: NONE,
              recvs: others(place).map((from) => {
                const { at, bytes } = pieceOf(strand, from);
                return { from, into: output(at, bytes) };
              }),
              then: NONE,
              isEarly: true,
            }
          : { sends: [{ to: root, from: result }], recvs: NONE, then: NONE },
      ];
    },
  };
}

/** Between the root and each of the others, either way. */
function rooted(place: Place, partBytes: number, root: number, toRoot: boolean): Schedule {
  const { rank, size } = place;
  const whole = equalParts(size, partBytes);
  const chunks = new Chunks(whole, pieceBytesOf(place));
  return {
    name: "linear",
    numStrands: chunks.count,
    window: WINDOW,
    scratchBytes: 0,
    opening: dissemination(place),
    strand: (strand) => {
      const piece = chunks.of(0, strand);
      invariant(piece !== undefined, "every rank's part has as many chunks");
      const ofPart = (owner: number) => owner * partBytes + piece.at;
      const [large, small] = toRoot ? [output, input] : [input, output];
      const part = small(piece.at, piece.bytes);
      const piecesOf = (peer: number) => large(ofPart(peer), piece.bytes);
      if (rank !== root) {
        return [
          toRoot
            ? { sends: [{ to: root, from: part }], recvs: NONE, then: NONE }
            : { sends: NONE, recvs: [{ from: root, into: part }], then: NONE },
        ];
      }
      const own = piecesOf(rank);
      const keep: LocalStep = toRoot ? { kind: "copy", from: part, to: own } : { kind: "copy", from: own, to: part };
      return [
        {
          sends: toRoot ? NONE : others(place).map((to) => ({ to, from: piecesOf(to) })),
          recvs: toRoot ? others(place).map((from) => ({ from, into: piecesOf(from) })) : NONE,
          then: [keep],
        },
      ];
    },
  };
}

export const gather = (place: Place, partBytes: number, root: number): Schedule => rooted(place, partBytes, root, true);
export const scatter = (place: Place, partBytes: number, root: number): Schedule =>
  rooted(place, partBytes, root, false);
