/** All-reduce, reduce and reduce-scatter host by host: ranks combine inside their hosts first, then what the hosts have. */

import { linesFor, type PieceCallParts, PieceTools, type Stretch, wholeLines } from "./piece-call.ts";
import type { PieceWork } from "./piece-run.ts";

/** Up to so many bytes of all inputs of a host each rank combines all of them, which spares a second meeting. */
const ALONE_BYTES = 16 * 1024;

/** Up to so many bytes hosts send each other all that they have: a second round would take longer. */
const ONE_ROUND_BYTES = 1024;

/** Ranks of a host that go on by themselves: as many as were measured (tcp-must-show-2026-11-29.md in bench/results/). */
const MOST_APART = 4;

/** Shares are summed, sent and given to the others cut by cut from here on: other threads get no smaller sums. */
const LEAST_CUT_BYTES = 96 * 1024;

/** A column's share of a piece, reduced at `at`. */
interface ColumnShare extends Stretch {
  readonly piece: number;
  readonly slot: number;
  /** Room for the whole of it: where this rank's result goes, or what lies at `at`. */
  readonly to: number;
  /** Combines what the hosts have of a part of it, for all that get it. `done` is called once it is there, unless one of them has failed. */
  readonly combine: (inputs: readonly number[], part: Stretch, done: () => void) => void;
  /** Whether `combine` leaves what lies at `at` as it is. */
  readonly keeps: () => boolean;
  /** Gives them a part that is whole at `to`. @returns whether it may go on: none of them has failed */
  readonly give: (part: Stretch) => boolean;
}

/**
 * What goes on between hosts, once all of this one have brought a piece.
 * @param reduce reduces a part of this rank's share, and goes on once it is reduced, unless a member of the host has failed
 * @param done is called once, perhaps before it returns
 */
type Exchange = (reduce: (part: Stretch, then: () => void) => void, done: () => void) => void;

/** How columns share out a piece. */
interface Columns {
  readonly numColumns: number;
  readonly shareOf: (bytes: number, index: number) => Stretch;
  /** Those of this host that get the result. */
  readonly takers: readonly number[];
  /** Called as a piece is brought, when the slot's room is free: what the others send may come from now on. */
  readonly exchangeOf: (share: ColumnShare) => Exchange;
}

/**
 * Each column reduces its share of a piece, and does with the same column of the other hosts what `exchangeOf` says; then all have
 * the shares. Inputs that all of a host can read are not copied, and where results can be written by all, a column writes its share
 * into them: it has just read the same lines of the inputs, and whoever took it would fetch it from that column's cache.
 */
function byColumns(tools: PieceTools, { numColumns, shareOf, takers, exchangeOf }: Columns): PieceWork {
  const { memory, messages, layout } = tools.parts;
  const { column } = layout;
  const hasExchange = column < numColumns && tools.numHosts > 1;
  const exchanges: Exchange[] = [];
  /** Writes a share, or a part of it, for all that get it. */
  const deliver = (slot: number, at: number, inSlot: number, write: (to: readonly number[]) => void): boolean => {
    const to = tools.targets(slot, takers, at, inSlot);
    return to.length === 0 || memory.write(() => write(to));
  };
  return {
    numPieces: tools.numPieces,
    shares: true,
    lends: tools.lends ? "untilShared" : undefined,
    // A column reads and writes its own share of all tensors.
    isApart: (slot) => tools.row.length <= MOST_APART && tools.learnLent(slot, takers),
    bring: (piece, slot) => {
      const { at, bytes } = tools.piece(piece);
      if (!tools.lend(slot)) tools.bring(at, memory.input(column, slot), bytes);
      if (!hasExchange) return;
      const share = shareOf(bytes, column);
      const from = at + share.at;
      const reducedAt = memory.output(column, slot);
      const to = tools.lentOutput > 0 ? tools.lentOutput + from : reducedAt;
      const own: ColumnShare = {
        piece,
        slot,
        at: reducedAt,
        to,
        bytes: share.bytes,
        combine: (inputs, part, done) => {
          const all = tools.targets(slot, takers, from + part.at, part.at);
          if (all.length === 0) done();
          else tools.writeHosts(inputs, all, part.bytes, done);
        },
        keeps: () => tools.writesLentOnly(slot, takers),
        // By this thread, which has just received it, and by C's copy, which need not fetch what it overwrites.
        give: (part) => deliver(slot, from + part.at, part.at, (all) => tools.copyTo(to + part.at, all, part.bytes)),
      };
      exchanges[slot] = messages.together(() => exchangeOf(own));
    },
    work: (piece, slot, done) => {
      if (column >= numColumns) {
        done();
        return;
      }
      const { at, bytes } = tools.piece(piece);
      const share = shareOf(bytes, column);
      const from = at + share.at;
      const reduce = (to: number | readonly number[]) => tools.reduceRow(slot, from, share.at, to, share.bytes);
      const exchange = exchanges[slot];
      if (exchange === undefined) {
        if (deliver(slot, from, 0, reduce)) done();
        return;
      }
      const reducedAt = memory.output(column, slot);
      exchange((part, then) => {
        const [fromAt, inSlot, to] = [from + part.at, share.at + part.at, reducedAt + part.at];
        if (tools.reduceRowBeside(slot, fromAt, inSlot, to, part.bytes, then)) return;
        if (tools.reduceRow(slot, fromAt, inSlot, to, part.bytes)) then();
      }, done);
    },
    take: (piece, slot) => {
      if (tools.lentOutput > 0 || !takers.includes(column)) return;
      const { at, bytes } = tools.piece(piece);
      for (let i = 0; i < numColumns; i++) {
        const index = (column + i) % numColumns;
        const share = shareOf(bytes, index);
        tools.take(memory.output(index, slot), at + share.at, share.bytes);
      }
    },
  };
}

/**
 * All-reduce. Large pieces: each column reduces its share of the piece, all-reduces it with the same column of the other
 * hosts, and all get the shares. Small ones: every rank reduces the whole piece, and does the same with its column.
 */
export function allReducePieces(parts: PieceCallParts): PieceWork {
  const tools = new PieceTools(parts);
  const { memory, layout } = parts;
  const { column } = layout;
  const { numHosts, row } = tools;
  const numColumns = numHosts === 1 ? row.length : layout.numColumns;
  const isAlone = parts.partBytes * row.length <= ALONE_BYTES && layout.isEven;
  const work = byColumns(tools, {
    numColumns,
    shareOf: (bytes, index) => (isAlone ? { at: 0, bytes } : tools.share(bytes, index, numColumns)),
    takers: isAlone ? [column] : row.map((_, member) => member),
    exchangeOf: (share) => allReduceColumn(tools, share),
  });
  if (!isAlone) return work;
  return {
    ...work,
    shares: false,
    lends: tools.lends ? "untilTaken" : undefined,
    take: (piece, slot) => {
      const { at, bytes } = tools.piece(piece);
      if (tools.lentOutput === 0) tools.take(memory.output(column, slot), at, bytes);
    },
  };
}

/** All-reduces a stretch of this host's memory with the same column of the other hosts. */
function allReduceColumn(
  tools: PieceTools,
  { piece, slot, at, to, bytes, combine, keeps, give }: ColumnShare,
): Exchange {
  const { memory, messages, layout } = tools.parts;
  const { numHosts } = tools;
  const { host, column, hosts, otherHosts } = layout;
  const own = memory.own(slot);
  const peer = (other: number) => tools.at(other, column);
  // With two hosts each gives the other all that it has; with more, each combines its cut, and gives that to all.
  const cut = (index: number): Stretch => (numHosts === 2 ? { at: 0, bytes } : tools.share(bytes, index, numHosts));
  const mine = cut(host);
  const stride = linesFor(memory.pieceBytes / numHosts);
  const isDirect = numHosts === 2 || bytes <= ONE_ROUND_BYTES;
  const received = (other: number) => (numHosts === 2 ? own : own + other * stride);
  const inputs = hosts.map((_, other) => (other === host ? at + (isDirect ? 0 : mine.at) : received(other)));
  const whole = { at: 0, bytes };
  if (isDirect) {
    const receives = otherHosts.map((other) => tools.parcel(peer(other), received(other), bytes));
    const whenThere = messages.expect(piece, 0, receives);
    return (reduce, done) =>
      reduce(whole, () => {
        const sends = otherHosts.map((other) => tools.parcel(peer(other), at, bytes));
        if (keeps()) {
          let left = 2;
          const one = () => {
            if (--left === 0) done();
          };
          messages.send(piece, 0, sends, one);
          whenThere(() => combine(inputs, whole, one));
          return;
        }
        // What is sent must stay as it is until it has left.
        messages.send(piece, 0, sends, () => whenThere(() => combine(inputs, whole, done)));
      });
  }
  const cutOf = (from: number, other: number) => tools.parcel(peer(other), from + cut(other).at, cut(other).bytes);
  const cutFrom = (other: number) => tools.parcel(peer(other), received(other), mine.bytes);
  const resultFor = (other: number) => tools.parcel(peer(other), to + mine.at, mine.bytes);
  if (mine.bytes < LEAST_CUT_BYTES) {
    const whenCutsThere = messages.expect(piece, 0, otherHosts.map(cutFrom));
    // Another host's result comes after it has got this host's cut of it, whose place it may take.
    const results = otherHosts.map((other) => cutOf(to, other));
    const whenResultsThere = messages.expect(piece, 1, results);
    const goOn = (done: () => void) => {
      tools.reduceHosts(inputs, to + mine.at, mine.bytes);
      messages.send(piece, 1, otherHosts.map(resultFor), () =>
        whenResultsThere(() => {
          if (give(whole)) done();
        }),
      );
    };
    return (reduce, done) =>
      reduce(whole, () => {
        const cuts = otherHosts.map((other) => cutOf(at, other));
        messages.send(piece, 0, cuts, () => whenCutsThere(() => goOn(done)));
      });
  }
  // Cut by cut, so that each leaves, and is given to the others, while others are made and come.
  const whenThere = otherHosts.map((other) => ({
    cut: messages.expect(piece, 0, [cutFrom(other)]),
    result: messages.expect(piece, 1, [cutOf(to, other)]),
    give: () => give(cut(other)),
  }));
  return (reduce, done) => {
    // Of each other host: its cut has left, this host's result has, and its result is with all that get it. And this host's result is.
    let left = 3 * otherHosts.length + 1;
    const one = () => {
      if (--left === 0) done();
    };
    let missing = hosts.length;
    const combineWhenThere = () => {
      if (--missing > 0) return;
      combine(inputs, mine, () => {
        for (const other of otherHosts) messages.send(piece, 1, [resultFor(other)], one);
        one();
      });
    };
    for (const theirs of whenThere) {
      theirs.cut(combineWhenThere);
      theirs.result(() => {
        if (theirs.give()) one();
      });
    }
    for (const other of otherHosts) reduce(cut(other), () => messages.send(piece, 0, [cutOf(at, other)], one));
    reduce(mine, combineWhenThere);
  };
}

/** Reduce: as a large all-reduce, but the columns send their shares to those of the root's host, and the root gets them. */
export function reducePieces(parts: PieceCallParts): PieceWork {
  const { layout, memory, messages, root } = parts;
  const numHosts = layout.hosts.length;
  const numColumns = numHosts === 1 ? (layout.hosts[0]?.length ?? 1) : layout.numColumns;
  // What the other hosts send of a share must fit what a rank has for itself.
  const tools = new PieceTools(
    parts,
    numHosts === 1 ? memory.pieceBytes : wholeLines(memory.pieceBytes / numHosts) * numColumns,
  );
  return byColumns(tools, {
    numColumns,
    shareOf: (bytes, index) => tools.share(bytes, index, numColumns),
    takers: tools.row.flatMap((rank, member) => (rank === root ? [member] : [])),
    exchangeOf: (share) => (reduce, done) => {
      const send = () => reduceColumn(tools, share, done);
      reduce({ at: 0, bytes: share.bytes }, () => {
        // Ranks that only give end when they have heard of everybody all the same.
        if (share.piece === 0) messages.meet(send);
        else send();
      });
    },
  });
}

/** Reduces a stretch of this host's memory with the same column of the other hosts, for the root, on its host. */
function reduceColumn(tools: PieceTools, { piece, slot, at, bytes, combine }: ColumnShare, done: () => void): void {
  const { memory, messages, layout, root } = tools.parts;
  const { host, hosts, column } = layout;
  const rootHost = hosts.findIndex((row) => row.includes(root));
  if (host !== rootHost) {
    messages.swap(piece, 0, [tools.parcel(tools.at(rootHost, column), at, bytes)], [], done);
    return;
  }
  const own = memory.own(slot);
  const stride = linesFor(memory.pieceBytes / tools.numHosts);
  const receives = layout.otherHosts.map((other) => tools.parcel(tools.at(other, column), own + other * stride, bytes));
  messages.swap(piece, 0, [], receives, () => {
    const inputs = hosts.map((_, other) => (other === host ? at : own + other * stride));
    combine(inputs, { at: 0, bytes }, done);
  });
}

/** Reduce-scatter: a rank combines its host's inputs for itself and for its columns elsewhere, and sends those to them. */
export function reduceScatterPieces(parts: PieceCallParts): PieceWork {
  const { layout, memory, messages, size, rank, partBytes } = parts;
  const tools = new PieceTools(parts, memory.pieceBytes / size);
  const { numHosts, row } = tools;
  const { host, column, hosts } = layout;
  const stride = tools.pieceBytes;
  // Members of other hosts that this rank combines for.
  const targets = layout.otherHosts.flatMap((other) =>
    (hosts[other] ?? []).filter((_, place) => place % row.length === column),
  );
  return {
    numPieces: tools.numPieces,
    shares: false,
    lends: tools.lends ? "untilTaken" : undefined,
    bring: (piece, slot) => {
      const { at, bytes } = tools.piece(piece);
      const to = memory.input(column, slot);
      if (tools.lend(slot)) return;
      for (let member = 0; member < size; member++) tools.bring(member * partBytes + at, to + member * stride, bytes);
    },
    work: (piece, slot, done) => {
      const { at: from, bytes } = tools.piece(piece);
      const out = memory.output(column, slot);
      const own = memory.own(slot);
      const reduces = (member: number, to: number) =>
        tools.reduceRow(slot, member * partBytes + from, member * stride, to, bytes);
      const areRight = [rank, ...targets].map((member, i) => reduces(member, out + i * stride));
      if (areRight.includes(false)) return;
      const sends = targets.map((member, i) => tools.parcel(member, out + (i + 1) * stride, bytes));
      const receives = layout.otherHosts.map((other) => {
        const from = tools.at(other, column % (hosts[other]?.length ?? 1));
        return tools.parcel(from, own + other * stride, bytes);
      });
      messages.swap(piece, 0, sends, receives, () => {
        const inputs = hosts.map((_, other) => (other === host ? out : own + other * stride));
        if (numHosts > 1) tools.reduceHosts(inputs, out, bytes);
        done();
      });
    },
    take: (piece, slot) => {
      const { at, bytes } = tools.piece(piece);
      tools.take(memory.output(column, slot), at, bytes);
    },
  };
}
