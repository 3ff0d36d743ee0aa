/**
 * Plans that mean nothing: a few ranks with a few strands that do whatever the dice say, so that the verifier is asked
 * about combinations which no mutant of a right plan has. Every pair of operations that must come together (a signal and
 * its wait, a release and its acquire, both sides of a barrier, a packet and mostly its reader) does.
 */
import type { ExecutionPlan, Op, Range, RankPlan } from "../../src/authoring/plan/execution-plan.ts";
import { DEFAULT_PLAN_OPTIONS } from "../../src/authoring/plan/execution-plan.ts";
import { Random } from "./random.ts";

export const CHUNKS = 2;
/** Plain data lies in the first two chunks of scratch, packets in the others. */
const SCRATCH = 4;
const SIZES = [1, 1, 1, 1, 1, 1, 1, 2, 2, 2] as const;

/** Rolls one plan; `wild-plans.ts` adds to what it may hold. */
export class PlanDice {
  protected readonly random: Random;
  protected readonly numRanks: number;
  protected readonly numStrands: number;
  protected readonly strands: Op[][][];

  constructor(seed: number) {
    this.random = new Random(seed);
    this.numRanks = this.random.chance(0.7) ? 2 : 3;
    this.numStrands = 1 + this.random.below(2);
    this.strands = Array.from({ length: this.numRanks }, () => Array.from({ length: this.numStrands }, () => []));
  }

  /** Ranks that `rank` has channels to, in the order of its channels. */
  protected peers(rank: number): number[] {
    return Array.from({ length: this.numRanks }, (_, peer) => peer).filter((peer) => peer !== rank);
  }

  protected push(rank: number, strand: number, op: Op): void {
    this.strands[rank]![strand]!.push(op);
  }

  protected range(buffers: readonly Range["buffer"][], size: number): Range {
    return { buffer: this.random.pick(buffers), index: size === CHUNKS ? 0 : this.random.below(CHUNKS), size };
  }

  protected source(size: number): Range {
    return this.range(["input", "output", "scratch"], size);
  }

  protected target(size: number): Range {
    return this.range(["output", "scratch"], size);
  }

  /** Gives output and scratch contents, and lets everybody wait for everybody. */
  protected begin(rank: number): void {
    const channels = this.peers(rank).map((_, id) => id);
    for (const buffer of ["output", "scratch"] as const) {
      this.push(rank, 0, {
        kind: "copy",
        format: "plain",
        src: { buffer: "input", index: 0, size: CHUNKS },
        dst: { buffer, index: 0, size: CHUNKS },
      });
    }
    this.push(rank, 0, { kind: "signal", relaxed: false, channelKind: "memory", channels });
    this.push(rank, 0, { kind: "wait", relaxed: false, channelKind: "memory", channels });
    if (this.numStrands === 1) return;
    for (const strand of [0, 1]) this.push(rank, strand, { kind: "barrier", barrier: 1, numStrands: 2 });
  }

  /** One operation at a random place, with those that belong to it. */
  protected event(): void {
    const random = this.random;
    const rank = random.below(this.numRanks);
    const strand = random.below(this.numStrands);
    const peer = random.pick(this.peers(rank));
    const other = random.below(this.numStrands);
    const there = [this.peers(rank).indexOf(peer)];
    const back = [this.peers(peer).indexOf(rank)];
    const size = random.pick(SIZES);
    const push = (op: Op) => this.push(rank, strand, op);
    const answer = (op: Op) => this.push(peer, other, op);
    const put = (channelKind: "memory" | "port", notify: "none" | "signal" | "signal-flush"): void =>
      push({
        kind: "put",
        format: "plain",
        notify,
        channelKind,
        channels: there,
        src: [this.source(size)],
        dst: [{ rank: peer, ...this.target(size) }],
      });
    const dice = random.below(100);
    if (dice < 12) push({ kind: "copy", format: "plain", src: this.source(size), dst: this.target(size) });
    else if (dice < 30) put("memory", "none");
    else if (dice < 36) {
      const src = [{ rank: peer, ...this.source(size) }];
      push({ kind: "get", channelKind: "memory", channels: there, src, dst: [this.target(size)] });
    } else if (dice < 46) {
      const isRemote = random.chance(0.3);
      push({
        kind: "reduce",
        op: "sum",
        packets: false,
        src: [this.source(size), this.source(size)],
        remoteSrc: isRemote ? [{ rank: peer, ...this.source(size) }] : [],
        dst: this.target(size),
        remoteDst: [],
        channels: isRemote ? there : [],
        ...(isRemote ? { channelKind: "memory" } : {}),
      });
    } else if (dice < 74) {
      const channelKind = random.chance(0.2) ? "port" : "memory";
      const relaxed = () => channelKind === "memory" && random.chance(0.12);
      push({ kind: "signal", relaxed: relaxed(), channelKind, channels: there });
      answer({ kind: "wait", relaxed: relaxed(), channelKind, channels: back });
    } else if (dice < 80) push({ kind: "nop" });
    else if (dice < 86) {
      const notify = random.pick(["none", "signal", "signal-flush"] as const);
      put("port", notify);
      if (notify !== "none") answer({ kind: "wait", relaxed: false, channelKind: "port", channels: back });
      else if (random.chance(0.7)) push({ kind: "flush", channelKind: "port", channels: there });
    } else if (dice < 90 && this.numStrands === 2) {
      this.push(rank, 0, { kind: "release", semaphores: [0] });
      this.push(rank, 1, { kind: "acquire", semaphores: [0] });
    } else if (dice < 93 && this.numStrands === 2) {
      for (const member of [0, 1]) this.push(rank, member, { kind: "barrier", barrier: 0, numStrands: 2 });
    } else this.packet(rank, strand, peer, other, size);
  }

  protected packet(rank: number, strand: number, peer: number, other: number, size: number): void {
    const random = this.random;
    const place: Range = { buffer: "scratch", index: size === 2 ? CHUNKS : CHUNKS + random.below(2), size };
    this.push(rank, strand, {
      kind: "put",
      format: "pack",
      notify: "none",
      channelKind: "memory",
      channels: [this.peers(rank).indexOf(peer)],
      src: [this.source(size)],
      dst: [{ rank: peer, ...place }],
    });
    if (random.chance(0.1)) return;
    const dst = this.target(size);
    if (random.chance(0.5)) this.push(peer, other, { kind: "copy", format: "unpack", src: place, dst });
    else {
      const src = [this.source(size), place];
      this.push(peer, other, {
        kind: "reduce",
        op: "sum",
        packets: true,
        src,
        remoteSrc: [],
        dst,
        remoteDst: [],
        channels: [],
      });
    }
  }

  protected readonly semaphores: RankPlan["semaphores"] = [{ initialValue: 0 }];
  protected readonly options: Partial<ExecutionPlan["options"]> = {};

  roll(): ExecutionPlan {
    const { length } = this.strands;
    for (let rank = 0; rank < length; rank++) this.begin(rank);
    const events = 3 + this.random.below(9);
    for (let i = 0; i < events; i++) this.event();
    const ranks = this.strands.map(
      (strands, rank): RankPlan => ({
        rank,
        input: { chunks: CHUNKS, segments: 1 },
        output: { chunks: CHUNKS, segments: 1 },
        scratch: { chunks: SCRATCH, segments: 1 },
        channels: { memory: this.peers(rank), port: this.peers(rank), switch: [] },
        semaphores: this.semaphores,
        strands: strands.map((ops, id) => ({ id, ops })),
      }),
    );
    return {
      schemaVersion: 1,
      name: "random",
      mode: "imported",
      collective: { operation: "test", numRanks: length, chunksPerPart: 1, inPlace: false },
      options: { ...DEFAULT_PLAN_OPTIONS, protocol: "LL", ...this.options },
      ranks,
      sources: [],
    };
  }
}

/** A random plan of 2 or 3 ranks and 1 or 2 strands each, the same for the same seed. */
export function randomPlan(seed: number): ExecutionPlan {
  return new PlanDice(seed).roll();
}
