/** Data operations of a run: what each reads, moves and writes, and when its strand may go on. */
import type { PipelineOp, SimpleOp } from "../plan/index.ts";
import type { RunCore } from "./run-core.ts";
import type { Packets } from "./run-packets.ts";
import { type Strand, share } from "./run-state.ts";
import type { Stores } from "./run-stores.ts";

export class Moves {
  readonly #core: RunCore;
  readonly #packets: Packets;
  readonly #stores: Stores;

  constructor(core: RunCore, packets: Packets, stores: Stores) {
    this.#core = core;
    this.#packets = packets;
    this.#stores = stores;
  }

  /** Moves the data of an operation, beginning now. */
  move(strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined): void {
    const { rank } = strand;
    const p = this.#core.costs;
    strand.open = this.#core.record(strand, -1, [], 0);
    const memory = [this.#core.machine.memoryLink(rank)];
    const local = (bytes: number, then: () => void) =>
      this.#core.net.start(memory, `m${rank}`, bytes, 2 * p.blockLocalGBps, then);
    switch (op.kind) {
      case "copy": {
        const packed = op.format !== "plain";
        const part = share(strand, this.#core.chunkBytes, op, op.src.size, pipeline, packed);
        if (op.format === "unpack") {
          this.#stores.afterPackets(strand, op, pipeline, part.bytes, [], part.bytes);
          return;
        }
        local((packed ? 3 : 2) * part.bytes, () => {
          strand.time = this.#core.net.now;
          const record = strand.open;
          if (packed) {
            const [begin, end] = [op.dst.index + part.begin, op.dst.index + part.end];
            this.#packets.postAll(rank, op.dst.buffer, begin, end, strand.time, record);
          }
          this.#core.finish(strand, -1, [], part.bytes);
        });
        return;
      }
      case "get": {
        const loads = op.src.map((source) => {
          const { bytes } = share(strand, this.#core.chunkBytes, op, source.size, pipeline, false);
          return { from: source.rank, bytes };
        });
        this.#loads(strand, loads, []);
        return;
      }
      case "put":
        this.#stores.store(strand, op, pipeline);
        return;
      case "reduce":
        if (op.packets) {
          const part = share(strand, this.#core.chunkBytes, op, op.dst.size, pipeline, true);
          const targets = op.remoteDst.map((range) => ({
            rank: range.rank,
            buffer: range.buffer,
            begin: range.index + part.begin,
            end: range.index + part.end,
          }));
          if (op.packetDst !== undefined) {
            const begin = op.packetDst.index + part.begin;
            targets.push({ rank, buffer: op.packetDst.buffer, begin, end: op.packetDst.index + part.end });
          }
          this.#stores.afterPackets(
            strand,
            op,
            pipeline,
            part.bytes,
            targets,
            part.bytes * Math.max(1, op.src.length - 1),
          );
          return;
        }
        this.#reduce(strand, op, pipeline);
        return;
      case "switch-reduce":
      case "switch-broadcast":
      case "switch-reduce-broadcast":
        this.#switchOp(strand, op, pipeline);
        return;
      default:
        this.#core.finish(strand, -1, [], 0);
    }
  }

  /** Loads from other ranks, and stores what was loaded: the strand goes on when the last load has come. */
  #loads(
    strand: Strand,
    loads: readonly { from: number; bytes: number }[],
    stores: readonly { to: number; bytes: number; channel?: number | undefined }[],
    before?: () => void,
  ): void {
    const { rank } = strand;
    const cap = this.#core.costs.blockRemoteGBps / Math.max(1, loads.length + stores.length);
    const wayOf = ({ to, channel }: (typeof stores)[number]) => this.#core.routeOf(rank, to, "memory", channel);
    let left = 1 + loads.length + stores.length;
    let readyAt = 0;
    let visibleAt = 0;
    const bytes = Math.max(
      loads.reduce((sum, load) => sum + load.bytes, 0),
      stores[0]?.bytes ?? 0,
    );
    const peers = [...loads.map((load) => load.from), ...stores.map((store) => store.to)];
    const one = () => {
      if (--left > 0) return;
      const at = Math.max(readyAt, this.#core.net.now);
      this.#core.net.at(at, () => {
        strand.time = this.#core.net.now;
        if (stores.length > 0) {
          const latency = Math.max(...stores.map((store) => wayOf(store).latencyUs));
          visibleAt = Math.max(visibleAt, strand.time) + latency;
          strand.visibleAt = Math.max(strand.visibleAt, visibleAt);
        }
        before?.();
        this.#core.finish(strand, -1, peers, bytes);
      });
    };
    for (const load of loads) {
      const route = this.#core.machine.route(load.from, rank);
      this.#core.net.at(this.#core.net.now + route.latencyUs, () =>
        this.#core.net.start(route.links, route.key, this.#core.onWire(rank, route, load.bytes, "loads"), cap, () => {
          readyAt = Math.max(readyAt, this.#core.net.now + route.latencyUs);
          one();
        }),
      );
    }
    for (const store of stores) {
      const route = wayOf(store);
      const wait = loads.length > 0 ? 2 * route.latencyUs : 0;
      this.#core.net.at(this.#core.net.now + wait, () =>
        this.#core.net.start(
          route.links,
          route.key,
          this.#core.onWire(rank, route, store.bytes, loads.length === 0 ? "stores" : "loads"),
          cap,
          one,
        ),
      );
    }
    one();
  }

  #reduce(strand: Strand, op: Extract<SimpleOp, { kind: "reduce" }>, pipeline: PipelineOp | undefined): void {
    const { rank } = strand;
    const part = share(strand, this.#core.chunkBytes, op, op.dst.size, pipeline, false);
    const memory = [this.#core.machine.memoryLink(rank)];
    const localBytes = (op.src.length + 1) * part.bytes;
    if (op.remoteSrc.length + op.remoteDst.length === 0) {
      this.#core.net.start(memory, `m${rank}`, localBytes, 2 * this.#core.costs.blockLocalGBps, () => {
        strand.time = this.#core.net.now;
        this.#core.finish(strand, -1, [], part.bytes);
      });
      return;
    }
    const loads = op.remoteSrc.map((source) => ({ from: source.rank, bytes: part.bytes }));
    const stores = op.remoteDst.map((target, i) => ({
      to: target.rank,
      bytes: part.bytes,
      channel: op.channelKind === "memory" ? op.channels[op.remoteSrc.length + i] : undefined,
    }));
    this.#loads(strand, loads, stores);
  }

  #switchOp(
    strand: Strand,
    op: Extract<SimpleOp, { kind: "switch-reduce" | "switch-broadcast" | "switch-reduce-broadcast" }>,
    pipeline: PipelineOp | undefined,
  ): void {
    const { rank } = strand;
    const size = op.kind === "switch-broadcast" ? op.src.size : op.dst.size;
    const packets = op.kind === "switch-broadcast" && op.format === "forward";
    const part = share(strand, this.#core.chunkBytes, op, size, pipeline, packets);
    const members =
      this.#core.rankPlan(strand).channels.switch[(op.kind === "switch-broadcast" ? op.dst : op.src).channel]!.ranks;
    const others = members.filter((member) => member !== rank);
    const posts = () => {
      if (!packets || op.kind !== "switch-broadcast") return;
      const channel = this.#core.rankPlan(strand).channels.switch[op.dst.channel]!;
      for (const member of members) {
        const at = this.#core.net.now + this.#core.machine.route(rank, member).latencyUs;
        const [begin, end] = [op.dst.index + part.begin, op.dst.index + part.end];
        this.#packets.postAll(member, channel.buffer, begin, end, at, strand.open);
      }
    };
    if (!this.#core.input.switchOps || others.length === 0) {
      const loads = op.kind === "switch-broadcast" ? [] : others.map((from) => ({ from, bytes: part.bytes }));
      const stores = op.kind === "switch-reduce" ? [] : others.map((to) => ({ to, bytes: part.bytes }));
      this.#loads(strand, loads, stores, posts);
      return;
    }
    // In the switch: every member's link carries the data once; a reduction comes back over the own link.
    const up = (from: number) => this.#core.machine.route(from, from === rank ? others[0]! : rank).links[0]!;
    const down = (to: number) => this.#core.machine.route(to === rank ? others[0]! : rank, to).links.at(-1)!;
    const phases: number[][] = [];
    if (op.kind !== "switch-broadcast") phases.push([...members.map(up), down(rank)]);
    if (op.kind !== "switch-reduce") phases.push([up(rank), ...members.map(down)]);
    const latency = this.#core.machine.route(rank, others[0]!).latencyUs;
    const wire =
      (packets ? 2 * part.bytes : part.bytes) /
      (packets ? this.#core.costs.packetEfficiency : this.#core.efficiency[rank]!);
    let left = phases.length;
    phases.forEach((links, i) => {
      this.#core.net.at(this.#core.net.now + latency * (op.kind === "switch-broadcast" ? 0 : 1 + i), () =>
        this.#core.net.start(
          links,
          `sw${rank}.${op.kind}.${i}.${members.join()}`,
          wire,
          this.#core.costs.blockRemoteGBps,
          () => {
            if (--left > 0) return;
            this.#core.net.at(this.#core.net.now + (op.kind === "switch-broadcast" ? 0 : latency), () => {
              strand.time = this.#core.net.now;
              strand.visibleAt = Math.max(strand.visibleAt, strand.time + latency);
              posts();
              this.#core.finish(strand, -1, others, part.bytes);
            });
          },
        ),
      );
    });
  }
}
