/**
 * What every part of a run shares: the plan, the machine and its network, the strands, and the book of what was executed.
 * A strand advances until an operation has to wait; whoever ends that operation calls `finish`.
 */
import type { ChannelKind, ExecutionPlan, PipelineOp, RankPlan, SimpleOp } from "../plan/index.ts";
import { Network } from "./flow-sharing.ts";
import type { SystemParameters } from "./parameters.ts";
import { iterationsOf, type OpRecord, type RunPlanInput, type Strand } from "./run-state.ts";
import type { Route, SimulatedMachine } from "./simulated-machine.ts";

/** Executes an operation. False when it goes on later, by itself. */
export type Execute = (strand: Strand, op: SimpleOp, pipeline: PipelineOp | undefined) => boolean;

/** Operations that only store, those that load (and may store what comes of it), and packets. */
export type Traffic = "stores" | "loads" | "packets";

export class RunCore {
  readonly input: RunPlanInput;
  readonly plan: ExecutionPlan;
  readonly costs: SystemParameters;
  readonly machine: SimulatedMachine;
  readonly net: Network;
  readonly strands: Strand[] = [];
  readonly records: OpRecord[] = [];
  readonly #execute: Execute;
  /** By rank, the ways of its channels that the plan states. */
  readonly #ways: readonly (Readonly<Record<ChannelKind, ReadonlyMap<number, Route>>> | undefined)[];
  /** Share of the links' rates that a rank's loads reach. */
  readonly efficiency: readonly number[];

  constructor(input: RunPlanInput, execute: Execute) {
    this.input = input;
    this.plan = input.plan;
    this.costs = input.parameters;
    this.machine = input.machine;
    this.net = new Network(input.capacities);
    this.#execute = execute;
    this.efficiency = this.plan.ranks.map((rank) => {
      const shared = this.plan.collective.inPlace ? Math.min(rank.input.chunks, rank.output.chunks) : 0;
      const chunks = rank.input.chunks + rank.output.chunks + rank.scratch.chunks - shared;
      const fits = chunks * input.chunkBytes <= this.costs.cacheBytes;
      return fits ? this.costs.efficiencyCached : this.costs.efficiency;
    });
    this.#ways = this.plan.ranks.map(({ rank, ways, channels }) => {
      if (ways === undefined) return undefined;
      const found = { memory: new Map<number, Route>(), port: new Map<number, Route>() };
      for (const { kind, channel, nodes } of ways) {
        const peer = channels[kind][channel];
        const route = peer === undefined ? undefined : this.machine.along(rank, peer, nodes);
        if (route !== undefined) found[kind].set(channel, route);
      }
      return found;
    });
    for (const rank of this.plan.ranks) {
      for (const strand of rank.strands) {
        this.strands.push({
          rank: rank.rank,
          index: strand.id,
          op: 0,
          body: 0,
          iteration: 0,
          time: this.costs.launchUs,
          visibleAt: 0,
          lastRecord: -1,
          open: -1,
          outstanding: 0,
          flushing: false,
          done: false,
          dead: false,
          startedAt: 0,
          waitingFor: undefined,
        });
      }
    }
  }

  /** The way that data takes over a channel: as the plan says, where this machine has it, or as the machine would choose. */
  routeOf(rank: number, peer: number, kind: ChannelKind | undefined, channel: number | undefined): Route {
    const stated = kind === undefined || channel === undefined ? undefined : this.#ways[rank]?.[kind].get(channel);
    return stated ?? this.machine.route(rank, peer);
  }

  get chunkBytes(): number {
    return this.input.chunkBytes;
  }
  rankPlan(strand: Strand): RankPlan {
    return this.plan.ranks[strand.rank]!;
  }
  /** The pipeline that a strand is in. */
  pipelineOf(strand: Strand): PipelineOp | undefined {
    const outer = this.rankPlan(strand).strands[strand.index]!.ops[strand.op];
    return outer?.kind === "pipeline" ? outer : undefined;
  }

  /** Runs a strand until it has to wait for something. The network's time is the strand's when it begins. */
  advance(strand: Strand): void {
    if (strand.done || strand.dead) return;
    if (strand.time < this.net.now) strand.time = this.net.now;
    const ops = this.rankPlan(strand).strands[strand.index]!.ops;
    const deadAt = this.input.deadAt.get(strand.rank) ?? Number.POSITIVE_INFINITY;
    for (;;) {
      const outer = ops[strand.op];
      if (outer === undefined) {
        strand.done = true;
        return;
      }
      if (strand.op >= deadAt) {
        strand.dead = true;
        return;
      }
      let pipeline: PipelineOp | undefined;
      let op: SimpleOp;
      if (outer.kind === "pipeline") {
        if (outer.body.length === 0 || iterationsOf(this.chunkBytes, outer) === 0) {
          strand.op++;
          continue;
        }
        pipeline = outer;
        op = outer.body[strand.body]!;
      } else op = outer;
      // An operation that had to wait began when it was first tried.
      if (strand.waitingFor === undefined) strand.startedAt = strand.time;
      if (!this.#execute(strand, op, pipeline)) return;
      this.step(strand, pipeline);
    }
  }

  /** To the strand's next operation. */
  step(strand: Strand, pipeline: PipelineOp | undefined): void {
    strand.waitingFor = undefined;
    if (pipeline !== undefined) {
      if (++strand.body < pipeline.body.length) return;
      strand.body = 0;
      if (++strand.iteration < iterationsOf(this.chunkBytes, pipeline)) return;
      strand.iteration = 0;
    }
    strand.op++;
  }

  /** Books the current operation of a strand as ended, or completes the record that it opened. @returns its number */
  record(strand: Strand, cause: number, peers: readonly number[], bytes: number): number {
    if (strand.open >= 0) {
      const open = strand.open;
      const record = this.records[open]!;
      strand.open = -1;
      record.endUs = strand.time;
      record.cause = cause;
      record.peers = peers;
      record.bytes = bytes;
      return open;
    }
    const id = this.records.length;
    this.records.push({
      rank: strand.rank,
      strand: strand.index,
      op: strand.op,
      body: this.pipelineOf(strand) === undefined ? -1 : strand.body,
      iteration: strand.iteration,
      startUs: strand.startedAt,
      endUs: strand.time,
      previous: strand.lastRecord,
      cause,
      peers,
      bytes,
    });
    strand.lastRecord = id;
    return id;
  }

  /** Ends the current operation of a strand that had waited, and goes on. */
  finish(strand: Strand, cause: number, peers: readonly number[], bytes: number): void {
    if (strand.time < this.net.now) strand.time = this.net.now;
    this.record(strand, cause, peers, bytes);
    this.step(strand, this.pipelineOf(strand));
    this.advance(strand);
  }

  /** Bytes that the links see for `bytes` of payload between two ranks. */
  onWire(rank: number, route: Route, bytes: number, traffic: Traffic): number {
    const { costs } = this;
    if (traffic === "packets") return (2 * bytes) / (route.efficiency ?? costs.packetEfficiency);
    return bytes / (route.efficiency ?? (traffic === "stores" ? costs.storeEfficiency : this.efficiency[rank]!));
  }

  /** A link on the way between two ranks that is down. */
  blockedLink(from: number, to: number): string | undefined {
    const down = this.machine.route(from, to).links.find((link) => this.input.capacities[link]! <= 0);
    return down === undefined ? undefined : this.machine.links[down]!.name;
  }

  /** What a fence holds a strand. */
  fenceUs(strand: Strand): number {
    return this.costs.fenceUs + this.costs.fencePerStrandUs * (this.rankPlan(strand).strands.length - 1);
  }
}
