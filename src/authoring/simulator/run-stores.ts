/** Stores to other ranks in a run: plain, as packets, and of results whose operands come as packets. */
import type { BufferKind, PipelineOp, SimpleOp } from "../plan/index.ts";
import type { RunCore } from "./run-core.ts";
import type { Packets } from "./run-packets.ts";
import { type Strand, share } from "./run-state.ts";

export class Stores {
  readonly #core: RunCore;
  readonly #packets: Packets;

  constructor(core: RunCore, packets: Packets) {
    this.#core = core;
    this.#packets = packets;
  }

  store(strand: Strand, op: Extract<SimpleOp, { kind: "put" }>, pipeline: PipelineOp | undefined): void {
    const { rank } = strand;
    const packets = op.format !== "plain";
    const cap = (packets ? 2 * this.#core.costs.blockPacketGBps : this.#core.costs.blockRemoteGBps) / op.dst.length;
    let left = op.dst.length;
    let bytes = 0;
    const record = strand.open;
    const after = () => {
      if (--left > 0) return;
      const sentAt = this.#core.net.now;
      if (op.format === "forward") {
        this.#packets.whenArrived(strand, op, pipeline, (cause) =>
          this.#core.finish(
            strand,
            this.#core.net.now > sentAt ? cause : -1,
            op.dst.map((r) => r.rank),
            bytes,
          ),
        );
      } else
        this.#core.finish(
          strand,
          -1,
          op.dst.map((r) => r.rank),
          bytes,
        );
    };
    if (op.dst.length === 0) {
      this.#core.finish(strand, -1, [], 0);
      return;
    }
    op.dst.forEach((target, i) => {
      const source = op.src[op.src.length === 1 ? 0 : i]!;
      const part = share(strand, this.#core.chunkBytes, op, source.size, pipeline, packets);
      bytes += part.bytes;
      const route = this.#core.routeOf(rank, target.rank, op.channelKind, op.channels[i]);
      const [begin, end] = [target.index + part.begin, target.index + part.end];
      if (packets)
        this.#packets.post(target.rank, target.buffer, begin, end, this.#core.net.now + route.latencyUs, record, true);
      this.#core.net.start(
        route.links,
        route.key,
        this.#core.onWire(rank, route, part.bytes, packets ? "packets" : "stores"),
        cap,
        () => {
          const visible = this.#core.net.now + route.latencyUs;
          strand.visibleAt = Math.max(strand.visibleAt, visible);
          if (packets && op.format === "forward") {
            this.#packets.whenArrived(strand, op, pipeline, () =>
              this.#packets.post(
                target.rank,
                target.buffer,
                begin,
                end,
                this.#core.net.now + route.latencyUs,
                record,
                false,
              ),
            );
          } else if (packets) this.#packets.post(target.rank, target.buffer, begin, end, visible, record, false);
          after();
        },
      );
    });
  }

  /** Reads packets as they come and sends the results on; ends when the last has come and gone. */
  afterPackets(
    strand: Strand,
    op: SimpleOp,
    pipeline: PipelineOp | undefined,
    bytes: number,
    targets: readonly { rank: number; buffer: BufferKind; begin: number; end: number }[],
    readBytes: number,
  ): void {
    const { rank } = strand;
    const record = strand.open;
    const ownWork = this.#core.net.now + readBytes / (this.#core.costs.blockLocalGBps * 1000);
    const remote = targets.filter((target) => target.rank !== rank);
    let left = 1 + remote.length;
    let cause = -1;
    const one = () => {
      if (--left > 0) return;
      const at = Math.max(this.#core.net.now, ownWork);
      this.#core.net.at(at, () => {
        for (const target of targets) {
          const { latencyUs } = this.#core.machine.route(rank, target.rank);
          const visible = this.#core.net.now + (target.rank === rank ? 0 : latencyUs);
          this.#packets.post(target.rank, target.buffer, target.begin, target.end, visible, record, false);
          if (target.rank !== rank) strand.visibleAt = Math.max(strand.visibleAt, visible);
        }
        this.#core.finish(
          strand,
          cause,
          targets.map((target) => target.rank),
          bytes,
        );
      });
    };
    for (const target of targets) {
      const { latencyUs } = this.#core.machine.route(rank, target.rank);
      this.#packets.post(
        target.rank,
        target.buffer,
        target.begin,
        target.end,
        this.#core.net.now + (target.rank === rank ? 0 : latencyUs),
        record,
        true,
      );
    }
    for (const target of remote) {
      const route = this.#core.machine.route(rank, target.rank);
      const cap = (2 * this.#core.costs.blockPacketGBps) / remote.length;
      this.#core.net.start(route.links, route.key, this.#core.onWire(rank, route, bytes, "packets"), cap, one);
    }
    const begun = this.#core.net.now;
    this.#packets.whenArrived(strand, op, pipeline, (record) => {
      if (this.#core.net.now > begun) cause = record;
      one();
    });
  }
}
