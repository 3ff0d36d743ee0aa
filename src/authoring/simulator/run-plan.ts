/**
 * Executes a plan in simulated time. Strands issue their operations in order; a data operation holds its strand until
 * its last byte has left (stores) or come (loads); what a store sends is visible at the other end one latency later, and
 * a signal after it. Packets are seen one by one: who forwards them need not wait for the last. Port operations go to
 * the rank's proxy. All costs are `parameters.ts`'s; what is shared is `network.ts`'s business.
 */
import type { PipelineOp, SimpleOp } from "../plan/index.ts";
import { RunCore } from "./run-core.ts";
import { Moves } from "./run-moves.ts";
import { Packets } from "./run-packets.ts";
import { Ports } from "./run-ports.ts";
import type { PlanRun, RunPlanInput, Strand } from "./run-state.ts";
import { Stores } from "./run-stores.ts";
import { Synchronisation } from "./run-sync.ts";

export function runPlan(input: RunPlanInput): PlanRun {
  return new PlanRunner(input).run();
}

class PlanRunner {
  readonly #core: RunCore;
  readonly #sync: Synchronisation;
  readonly #packets: Packets;
  readonly #ports: Ports;
  readonly #moves: Moves;
  readonly #untilUs: number | undefined;

  constructor(input: RunPlanInput) {
    this.#untilUs = input.untilUs;
    this.#core = new RunCore(input, (strand, op, pipeline) => this.#execute(strand, op, pipeline));
    this.#sync = new Synchronisation(this.#core);
    this.#packets = new Packets(this.#core);
    this.#ports = new Ports(this.#core, this.#sync, this.#packets);
    this.#moves = new Moves(this.#core, this.#packets, new Stores(this.#core, this.#packets));
  }

  run(): PlanRun {
    const { net, strands, plan, costs, records } = this.#core;
    for (const strand of strands) net.at(strand.time, () => this.#core.advance(strand));
    net.run(this.#untilUs);
    const ended = !net.hasEvents;
    const rankEndUs = plan.ranks.map(() => costs.launchUs);
    for (const { rank, time, visibleAt } of strands) rankEndUs[rank] = Math.max(rankEndUs[rank]!, time, visibleAt);
    const stuck = strands
      .filter((strand) => ended && !strand.done && !strand.dead)
      .map((strand) => ({
        rank: strand.rank,
        strand: strand.index,
        op: strand.op,
        why: strand.waitingFor?.ranks.length ? strand.waitingFor.why : this.#whyStuck(strand),
        waitsFor: strand.waitingFor?.ranks ?? [],
      }));
    const timeUs = rankEndUs.reduce((end, time) => Math.max(end, time), 0) + costs.endUs;
    return { timeUs, rankEndUs, records, linkBytes: net.carriedBytes, stuck, ended };
  }

  /** What holds a strand that waits for no other rank: mostly a link that is down. */
  #whyStuck(strand: Strand): string {
    const why = strand.waitingFor?.why ?? "a transfer that never ends";
    for (const { rank } of this.#core.plan.ranks) {
      const peers = this.#core.rankPlan(strand).channels;
      if (!peers.memory.includes(rank) && !peers.port.includes(rank)) continue;
      const link = this.#core.blockedLink(strand.rank, rank) ?? this.#core.blockedLink(rank, strand.rank);
      if (link !== undefined) return `${why} (${link}, between it and rank ${rank}, is down)`;
    }
    return why;
  }

  /** Executes an operation. @returns false when it goes on later, by itself */
  #execute(strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined): boolean {
    switch (op.kind) {
      case "nop":
        strand.time += this.#core.costs.syncUs;
        this.#core.record(strand, -1, [], 0);
        return true;
      case "barrier":
        return this.#sync.barrier(strand, op.barrier, op.numStrands);
      case "signal": {
        // A proxy keeps order by itself; others fence, which holds the strand.
        const fenceUs = op.relaxed || op.channelKind === "port" ? 0 : this.#core.fenceUs(strand);
        strand.time += this.#core.costs.signalUs + fenceUs;
        const record = this.#core.record(strand, -1, this.#sync.peers(strand, op), 0);
        if (op.channelKind === "port") this.#ports.signal(strand, op.channels, record);
        else this.#sync.signal(strand, op.channelKind, op.channels, op.relaxed, record);
        return true;
      }
      case "release": {
        strand.time += this.#core.costs.signalUs;
        const record = this.#core.record(strand, -1, [], 0);
        for (const id of op.semaphores) this.#sync.arrive(this.#sync.semaphore(strand.rank, id), strand.time, record);
        return true;
      }
      case "wait":
        return this.#sync.wait(
          strand,
          op.channels.map((id) => this.#sync.channel(strand.rank, op.channelKind, id, false)),
        );
      case "acquire":
        return this.#sync.wait(
          strand,
          op.semaphores.map((id) => this.#sync.semaphore(strand.rank, id)),
        );
      case "flush":
        strand.flushing = true;
        return this.#ports.flushed(strand);
      default:
        return this.#data(strand, op, pipeline);
    }
  }

  #data(strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined): boolean {
    const packets =
      (op.kind === "copy" && op.format === "unpack") ||
      (op.kind === "put" && op.format === "forward") ||
      (op.kind === "reduce" && op.packets) ||
      (op.kind === "switch-broadcast" && op.format === "forward");
    strand.time += this.#core.costs.opUs;
    if (packets) {
      const cause = this.#packets.begun(strand, op, pipeline);
      if (cause === undefined) return false;
    }
    if (op.kind === "put" && op.channelKind === "port") return this.#ports.portPut(strand, op, pipeline);
    // What comes from other ranks, or has just come, is waited for in another way.
    const fromAfar = packets || op.kind === "get" || (op.kind === "reduce" && op.remoteSrc.length > 0);
    if (!fromAfar && !op.kind.startsWith("switch")) strand.time += this.#core.costs.loadUs;
    // Flows begin at the strand's own time.
    if (strand.time > this.#core.net.now) this.#core.net.at(strand.time, () => this.#moves.move(strand, op, pipeline));
    else this.#moves.move(strand, op, pipeline);
    return false;
  }
}
