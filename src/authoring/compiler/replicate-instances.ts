/**
 * Replication to instances, interleaved, as the MSCCL++ 0.9 DSL does it: chunk `index` of a range of `size` becomes
 * index * I + i * size in instance i, so that each instance does its share of every range. The packet copy's
 * destination is not shifted (all instances write the same scratch: upstream's defect, kept in this mode).
 */
import { invariant } from "../../core/index.ts";
import type { Range, RemoteRange, SwitchRange } from "../plan/index.ts";
import type { DraftOp, DraftSimple } from "./draft-ops.ts";

/** Copies the operations of a strand for instance `i` of `instances`. */
export function replicateOps(
  ops: readonly DraftOp[],
  instances: number,
  i: number,
  shiftPacketCopies: boolean,
): DraftOp[] {
  const at = (index: number, size: number) => index * instances + i * size;
  const local = (r: Range): Range => ({ buffer: r.buffer, index: at(r.index, r.size), size: r.size });
  const remote = (r: RemoteRange): RemoteRange => ({
    rank: r.rank,
    buffer: r.buffer,
    index: at(r.index, r.size),
    size: r.size,
  });
  const id = (n: number) => n * instances + i;
  const multi = (r: SwitchRange): SwitchRange => ({ channel: id(r.channel), index: at(r.index, r.size), size: r.size });
  const copy = (op: DraftOp): DraftOp => {
    switch (op.kind) {
      case "nop":
        return { ...op };
      case "barrier":
        return { ...op, barrier: id(op.barrier) };
      case "copy":
        return { ...op, src: local(op.src), dst: local(op.dst) };
      case "get":
        return { ...op, channels: op.channels.map(id), src: op.src.map(remote), dst: op.dst.map(local) };
      case "put":
        return { ...op, channels: op.channels.map(id), src: op.src.map(local), dst: op.dst.map(remote) };
      case "reduce":
        return {
          ...op,
          src: op.src.map(local),
          remoteSrc: op.remoteSrc.map(remote),
          dst: local(op.dst),
          packetDst: op.packetDst === undefined || !shiftPacketCopies ? op.packetDst : local(op.packetDst),
          remoteDst: op.remoteDst.map(remote),
          channels: op.channels.map(id),
        };
      case "signal":
      case "wait":
      case "flush":
        return { ...op, channels: op.channels.map(id) };
      case "acquire":
      case "release":
        return { ...op, semaphores: op.semaphores.map(id) };
      case "switch-reduce":
        return { ...op, src: multi(op.src), dst: local(op.dst) };
      case "switch-broadcast":
        return { ...op, src: local(op.src), dst: multi(op.dst) };
      case "switch-reduce-broadcast":
        return { ...op, src: multi(op.src), dst: multi(op.dst) };
      case "pipeline":
        return { ...op, body: op.body.map((inner) => copy(inner) as DraftSimple) };
    }
  };
  invariant(instances > 0, "at least one instance");
  return ops.map(copy);
}
