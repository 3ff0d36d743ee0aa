/** Port channels of a run: a rank's proxy takes requests in order, each for a while, and `flush` waits for all of them. */
import type { PipelineOp, SimpleOp } from "../plan/index.ts";
import type { RunCore } from "./run-core.ts";
import type { Packets } from "./run-packets.ts";
import { type Strand, share } from "./run-state.ts";
import type { Synchronisation } from "./run-sync.ts";

export class Ports {
  readonly #core: RunCore;
  readonly #sync: Synchronisation;
  readonly #packets: Packets;
  readonly #proxyFree: number[];

  constructor(core: RunCore, sync: Synchronisation, packets: Packets) {
    this.#core = core;
    this.#sync = sync;
    this.#packets = packets;
    this.#proxyFree = core.plan.ranks.map(() => 0);
  }

  /** Hands a request to the rank's proxy; `delivered` is told when it is visible at the peer. */
  proxied(strand: Strand, channel: number, bytes: number, delivered: (at: number) => void): void {
    strand.time += this.#core.costs.portPushUs;
    strand.outstanding++;
    const begin = Math.max(this.#proxyFree[strand.rank]!, strand.time) + this.#core.costs.proxyUs;
    this.#proxyFree[strand.rank] = begin;
    const peer = this.#core.rankPlan(strand).channels.port[channel]!;
    const route = this.#core.routeOf(strand.rank, peer, "port", channel);
    this.#core.net.at(begin, () => {
      this.#core.net.start(
        route.links,
        route.key,
        bytes / (route.efficiency ?? this.#core.costs.networkEfficiency),
        Number.POSITIVE_INFINITY,
        () => {
          const at = this.#core.net.now + route.latencyUs;
          delivered(at);
          this.#core.net.at(at, () => {
            strand.outstanding--;
            strand.visibleAt = Math.max(strand.visibleAt, at);
            if (strand.flushing) this.flushed(strand);
          });
        },
      );
    });
  }

  /** Signals go the way of the data: through the proxy, in order. */
  signal(strand: Strand, channels: readonly number[], record: number): void {
    for (const id of channels) {
      const counter = this.#sync.channel(strand.rank, "port", id, true);
      this.proxied(strand, id, 0, (at) => this.#sync.arrive(counter, at, record));
    }
  }

  flushed(strand: Strand): boolean {
    if (strand.outstanding > 0) {
      strand.waitingFor = { why: "its proxy to finish", ranks: [] };
      return false;
    }
    strand.flushing = false;
    if (strand.time < this.#core.net.now) {
      this.#core.finish(strand, -1, [], 0);
      return false;
    }
    this.#core.record(strand, -1, [], 0);
    return true;
  }

  portPut(strand: Strand, op: Extract<SimpleOp, { kind: "put" }>, pipeline: PipelineOp | undefined): boolean {
    const packets = op.format !== "plain";
    const go = (cause: number): void => {
      let total = 0;
      const record = this.#core.record(
        strand,
        cause,
        op.dst.map((range) => range.rank),
        0,
      );
      op.dst.forEach((target, i) => {
        const source = op.src[op.src.length === 1 ? 0 : i]!;
        const part = share(strand, this.#core.chunkBytes, op, source.size, pipeline, packets);
        total += part.bytes;
        const channel = op.channels[i] ?? op.channels[0]!;
        this.proxied(strand, channel, packets ? 2 * part.bytes : part.bytes, (at) => {
          if (!packets) return;
          const [begin, end] = [target.index + part.begin, target.index + part.end];
          this.#packets.postAll(target.rank, target.buffer, begin, end, at, record);
        });
        if (op.notify === "none") return;
        const counter = this.#sync.channel(strand.rank, "port", channel, true);
        this.proxied(strand, channel, 0, (at) => this.#sync.arrive(counter, at, record));
      });
      this.#core.records[record]!.bytes = total;
      this.#core.records[record]!.endUs = strand.time;
    };
    if (op.format === "forward") {
      // The proxy takes whole packets only when the last is there.
      let later = false;
      this.#packets.whenArrived(strand, op, pipeline, (cause) => {
        if (strand.time < this.#core.net.now) strand.time = this.#core.net.now;
        go(cause);
        if (!later) return;
        this.#core.step(strand, this.#core.pipelineOf(strand));
        this.#core.advance(strand);
      });
      later = true;
      return strand.lastRecord >= 0 && this.#core.records[strand.lastRecord]!.op === strand.op;
    }
    go(-1);
    if (op.notify !== "signal-flush") return true;
    strand.flushing = true;
    return this.flushed(strand);
  }
}
