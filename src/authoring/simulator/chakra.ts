/**
 * A simulated run as Chakra execution traces (MLCommons Chakra, `schema/protobuf/et_def.proto` 0.0.4), one for each rank:
 * sends, receives and the computation between them, as ASTRA-sim replays them. A file is a GlobalMetadata message and
 * then Node messages, each with its length before it.
 *
 * Every transfer between two ranks is one send and one receive with a tag of their own. Operations of a strand follow
 * each other; an operation that waited for another rank follows the receives of what that rank's strand had sent.
 */
import type { ExecutionPlan } from "../plan/index.ts";
import { ProtoWriter } from "./protobuf.ts";
import type { OpRecord } from "./run-state.ts";
import type { Simulation } from "./simulate.ts";

const NODE = { COMP: 4, SEND: 5, RECV: 6 } as const;
const CHAKRA_VERSION = "0.0.4";

interface Transfer {
  readonly record: number;
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/** Who sends to whom in an operation: puts and results go out, gets and remote operands come in. */
function transfersOf(plan: ExecutionPlan, record: OpRecord, index: number): Transfer[] {
  const outer = plan.ranks[record.rank]?.strands[record.strand]?.ops[record.op];
  const op = record.body >= 0 && outer?.kind === "pipeline" ? outer.body[record.body] : outer;
  if (op === undefined || record.bytes <= 0) return [];
  const out = (to: number, bytes: number): Transfer => ({ record: index, from: record.rank, to, bytes });
  const into = (from: number, bytes: number): Transfer => ({ record: index, from, to: record.rank, bytes });
  switch (op.kind) {
    case "put":
      return op.dst.map((range) => out(range.rank, record.bytes / op.dst.length));
    case "get":
      return op.src.map((range) => into(range.rank, record.bytes / op.src.length));
    case "reduce": {
      const share = op.remoteSrc.length > 0 ? record.bytes / op.remoteSrc.length : record.bytes;
      return [
        ...op.remoteSrc.map((range) => into(range.rank, share)),
        ...op.remoteDst.map((range) => out(range.rank, share)),
      ];
    }
    case "switch-broadcast":
      return record.peers.map((peer) => out(peer, record.bytes));
    case "switch-reduce":
      return record.peers.map((peer) => into(peer, record.bytes));
    case "switch-reduce-broadcast":
      return record.peers.flatMap((peer) => [into(peer, record.bytes), out(peer, record.bytes)]);
    default:
      return [];
  }
}

/** Writes the trace of every rank of a run; the array's index is the rank. */
export function toChakra(plan: ExecutionPlan, result: Simulation): Uint8Array[] {
  const { records } = result;
  const nodes: ProtoWriter[][] = plan.ranks.map(() => []);
  let nextId = 1;
  /** The nodes that stand for a record on its own rank, and the receives that it caused on others, by rank. */
  const own: number[][] = records.map(() => []);
  const receivesAt: { rank: number; id: number }[][] = records.map(() => []);
  const add = (
    rank: number,
    name: string,
    type: number,
    deps: readonly number[],
    durationUs: number,
    attributes: readonly [string, number, number][],
  ) => {
    const id = nextId++;
    const node = new ProtoWriter().varint(1, id).text(2, name).varint(3, type).packed(5, deps);
    if (durationUs > 0) node.varint(7, Math.max(1, Math.round(durationUs)));
    node.message(10, new ProtoWriter().text(1, "is_cpu_op").bool(27, false));
    for (const [attribute, field, value] of attributes)
      node.message(10, new ProtoWriter().text(1, attribute).varint(field, value));
    nodes[rank]!.push(node);
    return id;
  };
  const order = records.map((_, index) => index).sort((a, b) => records[a]!.startUs - records[b]!.startUs || a - b);
  let tag = 0;
  for (const index of order) {
    const record = records[index]!;
    const deps = new Set<number>(record.previous >= 0 ? own[record.previous] : []);
    // What it waited for: the receives of everything the signalling strand had sent here.
    for (let at = record.cause, guard = 0; at >= 0 && guard < 64; at = records[at]!.previous, guard++) {
      for (const receive of receivesAt[at]!) if (receive.rank === record.rank) deps.add(receive.id);
    }
    const transfers = transfersOf(plan, record, index);
    if (transfers.length === 0) {
      const id = add(record.rank, `op${record.op}`, NODE.COMP, [...deps], record.endUs - record.startUs, [
        ["num_ops", 9, 0],
        ["tensor_size", 13, Math.round(record.bytes)],
      ]);
      own[index]!.push(id);
      continue;
    }
    for (const { from, to, bytes } of transfers) {
      if (from === to) continue;
      tag++;
      const attributes: [string, number, number][] = [
        ["comm_size", 9, Math.round(bytes)],
        ["comm_src", 7, from],
        ["comm_dst", 7, to],
        ["comm_tag", 7, tag],
      ];
      const mine = from === record.rank;
      const send = add(from, `send ${from} to ${to}`, NODE.SEND, mine ? [...deps] : [], 0, attributes);
      const receive = add(to, `recv ${from} to ${to}`, NODE.RECV, mine ? [] : [...deps], 0, attributes);
      own[index]!.push(mine ? send : receive);
      if (mine) receivesAt[index]!.push({ rank: to, id: receive });
    }
    if (own[index]!.length === 0) own[index]!.push(...deps);
  }
  const header = new ProtoWriter().text(1, CHAKRA_VERSION).delimited();
  return nodes.map((list) => concat([header, ...list.map((node) => node.delimited())]));
}

function concat(parts: readonly Uint8Array[]): Uint8Array {
  const result = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    result.set(part, at);
    at += part.length;
  }
  return result;
}
