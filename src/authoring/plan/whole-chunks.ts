/**
 * Plans that need chunks of equal length, whatever their collective. Where a message does not divide, the last chunk of a part is
 * short, and those behind it are empty; scratch has no short chunks. An operation does of a chunk what all its ranges have of it:
 * one that sends packets from a short chunk sends fewer of them, and one that waits for them in scratch only, to forward them or to keep
 * them there, would wait for the rest for ever. Such plans are for sizes that divide (docs/semantics.md, section 1).
 */
import { bodyOf, type ExecutionPlan, type Range, type RemoteRange, type SimpleOp } from "./execution-plan.ts";

/** Ranges that an operation, or a part of it, does together: what it does ends where the shortest of them does. */
interface Move {
  readonly sides: readonly RemoteRange[];
  readonly awaited: readonly RemoteRange[];
  readonly sent: readonly RemoteRange[];
  /** Sends what lies there, packets or not, without waiting. */
  readonly isRaw: boolean;
}

function movesOf(plan: ExecutionPlan, rank: number, op: SimpleOp): readonly Move[] {
  const own = (range: Range): RemoteRange => ({ ...range, rank });
  const move = (sides: readonly RemoteRange[], awaited: readonly RemoteRange[], sent: readonly RemoteRange[]) => [
    { sides, awaited, sent, isRaw: false },
  ];
  switch (op.kind) {
    case "copy": {
      if (op.format === "plain") return [];
      const [src, dst] = [own(op.src), own(op.dst)];
      return op.format === "pack" ? move([src, dst], [], [dst]) : move([src, dst], [src], []);
    }
    case "put":
      if (op.format === "plain") return [];
      return op.dst.map((dst, i) => {
        const src = own(op.src[op.src.length === 1 ? 0 : i]!);
        const isRaw = op.format === "pack" && op.channelKind === "port";
        return { sides: [src, dst], awaited: op.format === "forward" || isRaw ? [src] : [], sent: [dst], isRaw };
      });
    case "reduce": {
      const src = op.src.map(own);
      const packetDst = op.packetDst === undefined ? [] : [own(op.packetDst)];
      return move(
        [...src, ...op.remoteSrc, own(op.dst), ...(op.packets ? [] : op.remoteDst)],
        op.packets ? src.slice(1) : [],
        [...packetDst, ...(op.packets ? op.remoteDst : [])],
      );
    }
    case "switch-broadcast": {
      if (op.format === "plain") return [];
      const { index, size, channel } = op.dst;
      const to = plan.ranks[rank]?.channels.switch[channel];
      const members = (to?.ranks ?? []).map((member) => ({ rank: member, buffer: to!.buffer, index, size }));
      return move([own(op.src), ...members], [own(op.src)], members);
    }
    default:
      return [];
  }
}

const known = new WeakMap<ExecutionPlan, boolean>();

/** Says whether somebody waits for packets of a whole chunk that may be sent from a short one. */
export function needsWholeChunks(plan: ExecutionPlan): boolean {
  const before = known.get(plan);
  if (before !== undefined) return before;
  const needs = findsShort(plan);
  known.set(plan, needs);
  return needs;
}

function findsShort(plan: ExecutionPlan): boolean {
  const perPart = plan.ranks.map(({ input, output }) => ({
    input: input.chunks / Math.max(1, input.segments),
    output: output.chunks / Math.max(1, output.segments),
  }));
  if (perPart.every(({ input, output }) => input <= 1 && output <= 1)) return false;
  const moves = plan.ranks.flatMap(({ rank, strands }) =>
    strands.flatMap(({ ops }) => ops.flatMap(bodyOf).flatMap((op) => movesOf(plan, rank, op))),
  );
  /** Number in its part of the shortest chunk that is done together with chunk `j` of the ranges; 0 where all are whole. */
  const levelOf = ({ sides }: Move, j: number) => {
    let level = 0;
    for (const { rank, buffer, index } of sides)
      if (buffer !== "scratch") level = Math.max(level, (index + j) % (perPart[rank]?.[buffer] ?? 1));
    return level;
  };
  const sent = plan.ranks.map(({ scratch }) => new Int32Array(scratch.chunks));
  const sentTo = ({ rank, index }: RemoteRange, j: number) => sent[rank]?.[index + j] ?? 0;
  const send = (move: Move): boolean => {
    let isNew = false;
    for (let j = 0; j < (move.sides[0]?.size ?? 0); j++) {
      let level = levelOf(move, j);
      if (move.isRaw) for (const place of move.awaited) level = Math.max(level, sentTo(place, j));
      for (const place of move.sent) {
        const row = sent[place.rank];
        if (row === undefined || place.index + j >= row.length || row[place.index + j]! >= level) continue;
        row[place.index + j] = level;
        isNew = true;
      }
    }
    return isNew;
  };
  const raw = moves.filter(({ isRaw }) => isRaw);
  for (const move of moves) send(move);
  while (raw.map(send).some(Boolean));
  return moves.some(
    (move) =>
      !move.isRaw &&
      move.awaited.some((place) => {
        for (let j = 0; j < place.size; j++) if (levelOf(move, j) < sentTo(place, j)) return true;
        return false;
      }),
  );
}
