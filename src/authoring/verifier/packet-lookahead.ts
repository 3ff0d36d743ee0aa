/**
 * What a strand may do ahead of its packets. Threads wait for packets position by position: until the next block-wide
 * synchronisation, operations behind that do not touch these positions may be executed before the packets are there.
 */
import type { ExecutionPlan, Op, SimpleOp } from "../plan/index.ts";

/** Says whether an operation of a block waits for packets element by element. */
export function awaitsPackets(op: SimpleOp): boolean {
  switch (op.kind) {
    case "copy":
      return op.format === "unpack";
    case "put":
      return op.format === "forward" && op.channelKind !== "port";
    case "reduce":
      return op.packets && op.src.length > 1;
    case "switch-broadcast":
      return op.format === "forward";
    default:
      return false;
  }
}

function separates(op: SimpleOp): boolean {
  switch (op.kind) {
    case "nop":
    case "barrier":
    case "flush":
    case "acquire":
    case "release":
      return true;
    case "signal":
    case "wait":
      return !op.relaxed;
    case "put":
      return op.format === "forward" && op.channelKind === "port";
    default:
      return false;
  }
}

/**
 * Operations of a strand that wait for packets while an operation behind them, one of those that `may` names, can be
 * executed already.
 * @param first number of each operation, as in `Geometry.opBase`
 * @returns their numbers
 */
export function overtaken(ops: readonly Op[], first: readonly number[], may: (op: SimpleOp) => boolean): number[] {
  const found: number[] = [];
  // From the end: does such an operation come before the next block-wide synchronisation?
  let ahead = false;
  const look = (op: SimpleOp, id: number) => {
    if (separates(op)) ahead = false;
    else if (may(op)) ahead = true;
    else if (ahead && awaitsPackets(op)) found.push(id);
  };
  for (let i = ops.length - 1; i >= 0; i--) {
    const op = ops[i]!;
    if (op.kind !== "pipeline") {
      look(op, first[i]!);
      continue;
    }
    // What follows the body is the body again, or the next operation; it may also run no time at all.
    const behind: boolean = ahead;
    for (let round = 0; round < 2; round++) {
      for (let k = op.body.length - 1; k >= 0; k--) look(op.body[k]!, first[i]! + k);
      ahead ||= behind;
    }
  }
  return found;
}

/** Says whether a relaxed signal or wait may overtake packets: it takes part in no order, but it counts. */
export function countsAhead(plan: ExecutionPlan, opBase: readonly (readonly number[])[]): boolean {
  const strands = plan.ranks.flatMap((rank) => rank.strands);
  const counts = (op: SimpleOp) => (op.kind === "signal" || op.kind === "wait") && op.relaxed;
  return strands.some(({ ops }, g) => overtaken(ops, opBase[g]!, counts).length > 0);
}
