/** Broadcast, all-gather and barrier host by host: what one host gives another crosses once, for all of its ranks. */

import type { ColumnMessages } from "./column-messages.ts";
import type { HostLayout } from "./host-layout.ts";
import { type PieceCallParts, PieceTools, wholeLines } from "./piece-call.ts";
import type { PieceWork } from "./piece-run.ts";

/**
 * Broadcast: the root brings a piece; the columns of its host send a share each to those of the other hosts. With more than
 * two hosts they cut it once more: each of the others gets a cut, and passes it on.
 */
export function broadcastPieces(parts: PieceCallParts): PieceWork {
  const tools = new PieceTools(parts);
  const { layout, memory, messages, root, rank } = parts;
  const { host, column, numColumns, hosts } = layout;
  const { numHosts } = tools;
  const rootHost = hosts.findIndex((row) => row.includes(root));
  const rootColumn = hosts[rootHost]?.indexOf(root) ?? 0;
  const relays = hosts.map((_, other) => other).filter((other) => other !== rootHost);
  const cross = (piece: number, slot: number, done: () => void) => {
    const share = tools.share(tools.piece(piece).bytes, column, numColumns);
    // Small pieces are not worth a second round.
    const isCut = relays.length > 1 && share.bytes > 4096;
    const cut = (index: number) => tools.share(share.bytes, index, relays.length);
    const peer = (other: number) => tools.at(other, column);
    if (host === rootHost) {
      const from = tools.keptInputOf(rootColumn, slot, tools.piece(piece).at + share.at, share.at, share.bytes);
      if (from === undefined) return;
      const sends = relays.map((other, i) => {
        const { at, bytes } = isCut ? cut(i) : { at: 0, bytes: share.bytes };
        return tools.parcel(peer(other), from + at, bytes);
      });
      messages.swap(piece, 0, sends, [], done);
      return;
    }
    const into = memory.output(column, slot);
    const mine = relays.indexOf(host);
    const own = isCut ? cut(mine) : { at: 0, bytes: share.bytes };
    const first = [tools.parcel(peer(rootHost), into + own.at, own.bytes)];
    messages.swap(piece, 0, [], first, () => {
      if (!isCut) {
        done();
        return;
      }
      const others = relays.flatMap((other, i) => (other === host ? [] : [{ other, i }]));
      const sends = others.map(({ other }) => tools.parcel(peer(other), into + own.at, own.bytes));
      const receives = others.map(({ other, i }) => tools.parcel(peer(other), into + cut(i).at, cut(i).bytes));
      messages.swap(piece, 1, sends, receives, done);
    });
  };
  return {
    numPieces: tools.numPieces,
    shares: numHosts > 1,
    lends: rank === root && tools.lends ? "untilTaken" : undefined,
    bring: (piece, slot) => {
      if (rank !== root || tools.lend(slot)) return;
      const { at, bytes } = tools.piece(piece);
      tools.bring(at, memory.input(column, slot), bytes);
    },
    work: (piece, slot, done) => {
      if (numHosts === 1 || column >= numColumns) done();
      // The root ends when it has heard of everybody.
      else if (piece === 0) messages.meet(() => cross(piece, slot, done));
      else cross(piece, slot, done);
    },
    take: (piece, slot) => {
      const { at, bytes } = tools.piece(piece);
      if (host === rootHost) {
        const isThere = rank === root && parts.input.address === parts.output.address;
        if (!isThere) tools.take(tools.inputOf(rootColumn, slot, at, 0), at, bytes);
        return;
      }
      for (let i = 0; i < numColumns; i++) {
        const share = tools.share(bytes, i, numColumns);
        tools.take(memory.output(i, slot), at + share.at, share.bytes);
      }
    },
  };
}

/** All-gather: a rank sends its piece to one rank of every other host, which keeps it for all of that host. */
export function allGatherPieces(parts: PieceCallParts): PieceWork {
  const { layout, memory, messages, partBytes } = parts;
  const { hosts, host, column } = layout;
  const rowOf = (index: number) => hosts[index]?.length ?? 1;
  const keptBy = (index: number) =>
    hosts.reduce((sum, row, other) => sum + (other === index ? 0 : Math.ceil(row.length / rowOf(index))), 0);
  // The same on all ranks: what the one that keeps most has room for.
  const mostKept = Math.max(1, ...hosts.map((_, index) => keptBy(index)));
  const tools = new PieceTools(parts, memory.pieceBytes / mostKept);
  const { numHosts } = tools;
  const stride = wholeLines(tools.pieceBytes);
  // Of each member of another host: who of this one keeps its pieces, and where among those.
  const counts: number[] = [];
  const kept = hosts.flatMap((row, other) =>
    other === host
      ? []
      : row.map((member, place) => {
          const keeper = place % rowOf(host);
          const nth = counts[keeper] ?? 0;
          counts[keeper] = nth + 1;
          return { member, keeper, nth };
        }),
  );
  const mine = kept.filter(({ keeper }) => keeper === column);
  return {
    numPieces: tools.numPieces,
    shares: numHosts > 1,
    lends: tools.lends ? "untilTaken" : undefined,
    bring: (piece, slot) => {
      const { at, bytes } = tools.piece(piece);
      if (!tools.lend(slot)) tools.bring(at, memory.input(column, slot), bytes);
    },
    work: (piece, slot, done) => {
      const { at, bytes } = tools.piece(piece);
      const from = tools.inputOf(column, slot, at, 0);
      const sends = layout.otherHosts.map((other) => tools.parcel(tools.at(other, column % rowOf(other)), from, bytes));
      const receives = mine.map(({ member, nth }) =>
        tools.parcel(member, memory.output(column, slot) + nth * stride, bytes),
      );
      messages.swap(piece, 0, sends, receives, done);
    },
    take: (piece, slot) => {
      const { at, bytes } = tools.piece(piece);
      for (const [place, member] of tools.row.entries()) {
        tools.take(tools.inputOf(place, slot, at, 0), member * partBytes + at, bytes);
      }
      for (const { member, keeper, nth } of kept) {
        tools.take(memory.output(keeper, slot) + nth * stride, member * partBytes + at, bytes);
      }
    },
  };
}

/** Barrier: a host's ranks meet, then each column meets those of the other hosts. */
export function barrierPieces(layout: HostLayout, messages: ColumnMessages): PieceWork {
  return {
    numPieces: 1,
    shares: !layout.isEven,
    bring: () => {},
    work: (_piece, _slot, done) => messages.meet(done),
    take: () => {},
  };
}
