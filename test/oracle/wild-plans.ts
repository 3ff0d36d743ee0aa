/**
 * Plans that mean nothing, with every construct: besides those of `random-plans.ts` loops with credits and of different units,
 * strand groups, packets and plain data in one place, forwarded packets, locks, chains of copies that race with equal values,
 * and scratch that several launches use.
 */
import type { ExecutionPlan, Op, PipelineOp, Range, SimpleOp } from "../../src/authoring/plan/execution-plan.ts";
import { CHUNKS, PlanDice } from "./random-plans.ts";

const scratch = (index: number, size = 1): Range => ({ buffer: "scratch", index, size });
const copy = (dst: Range, src: Range, format: "plain" | "pack" | "unpack" = "plain"): SimpleOp => ({
  kind: "copy",
  format,
  src,
  dst,
});
const nop: SimpleOp = { kind: "nop" };
const signalOn = (channels: readonly number[]): SimpleOp => ({
  kind: "signal",
  relaxed: false,
  channelKind: "memory",
  channels,
});
const waitOn = (channels: readonly number[]): SimpleOp => ({
  kind: "wait",
  relaxed: false,
  channelKind: "memory",
  channels,
});

class WildDice extends PlanDice {
  protected override readonly semaphores = [{ initialValue: 0 }, { initialValue: 1 }];
  protected override readonly options = { useDoubleScratchBuffer: this.random.chance(0.2) };

  protected override event(): void {
    const { random } = this;
    const dice = random.below(100);
    const rank = random.below(this.numRanks);
    const strand = random.below(this.numStrands);
    if (dice < 12) this.loops(rank, strand);
    else if (dice < 17) this.localLoop(rank, strand);
    else if (dice < 24) this.mix(rank, strand);
    else if (dice < 29) this.forward(rank, strand);
    else if (dice < 35) this.chain(rank);
    else if (dice < 40 && this.numStrands === 2) this.group(rank);
    else if (dice < 45) this.lock(rank);
    else if (dice < 48 && this.numStrands === 2) this.barrierLoops(rank);
    else super.event();
  }

  private loop(body: readonly SimpleOp[], unitBytes: number, numChunks: number): PipelineOp {
    return { kind: "pipeline", unitBytes, numChunks, body };
  }

  /** Two ends of a channel in loops, with as many credits as the receiver gives before; mostly of one rate. */
  private loops(rank: number, strand: number): void {
    const { random } = this;
    const peer = random.pick(this.peers(rank));
    const other = random.below(this.numStrands);
    const there = [this.peers(rank).indexOf(peer)];
    const back = [this.peers(peer).indexOf(rank)];
    const unit = random.pick([16, 16, 16, 24, 32]);
    const numChunks = 1 + random.below(2);
    const credits = random.chance(0.5) ? random.below(3) : -1;
    const put: SimpleOp = {
      kind: "put",
      format: "plain",
      notify: "none",
      channelKind: "memory",
      channels: there,
      src: [this.source(numChunks)],
      dst: [{ rank: peer, ...this.target(numChunks) }],
    };
    const maybe = (op: SimpleOp): SimpleOp[] => (random.chance(0.7) ? [op] : []);
    const read = copy(this.target(numChunks), this.source(numChunks));
    const acknowledged = credits >= 0;
    for (let i = 0; i < credits; i++) this.push(peer, other, signalOn(back));
    this.push(
      rank,
      strand,
      this.loop([...(acknowledged ? [waitOn(there)] : []), put, ...maybe(nop), signalOn(there)], unit, numChunks),
    );
    const same = random.chance(0.92);
    this.push(
      peer,
      other,
      this.loop(
        [waitOn(back), ...maybe(nop), read, ...(acknowledged ? [signalOn(back)] : [])],
        same ? unit : random.pick([16, 32]),
        same ? numChunks : 1 + random.below(2),
      ),
    );
    for (let i = 0; i < credits; i++) this.push(rank, strand, waitOn(there));
  }

  private localLoop(rank: number, strand: number): void {
    const { random } = this;
    const numChunks = 1 + random.below(2);
    const body = Array.from({ length: 1 + random.below(2) }, () =>
      copy(this.target(numChunks), this.source(numChunks)),
    );
    this.push(
      rank,
      strand,
      this.loop(random.chance(0.5) ? body.flatMap((op) => [op, nop]) : body, random.pick([16, 16, 24, 32]), numChunks),
    );
  }

  private barrierLoops(rank: number): void {
    const { random } = this;
    const [unit, numChunks] = [random.pick([16, 32]), 1 + random.below(2)];
    for (const strand of [0, 1]) {
      const meet: SimpleOp = { kind: "barrier", barrier: 2, numStrands: 2 };
      const move = copy(this.target(numChunks), this.source(numChunks));
      this.push(rank, strand, this.loop(random.chance(0.5) ? [meet, move] : [move, meet], unit, numChunks));
    }
  }

  /** Plain data where packets lie, packets made and read on one rank, and sometimes a plain read of them. */
  private mix(rank: number, strand: number): void {
    const { random } = this;
    const place = scratch(CHUNKS + random.below(2));
    const push = (op: Op) => this.push(rank, random.chance(0.8) ? strand : random.below(this.numStrands), op);
    const dice = random.below(5);
    if (dice === 0) push(copy(place, this.source(1)));
    else if (dice === 1) push(copy(this.target(1), place));
    else {
      push(copy(place, this.source(1), "pack"));
      if (random.chance(0.5)) push(nop);
      push(copy(this.target(1), place, "unpack"));
    }
  }

  /** Packets that go on to another place. */
  private forward(rank: number, strand: number): void {
    const { random } = this;
    const peer = random.pick(this.peers(rank));
    const from = scratch(CHUNKS + random.below(2));
    const to = scratch(CHUNKS + random.below(2));
    const byPort = random.chance(0.2);
    if (random.chance(0.6)) this.push(rank, random.below(this.numStrands), copy(from, this.source(1), "pack"));
    this.push(rank, strand, {
      kind: "put",
      format: random.chance(0.7) ? "forward" : byPort ? "pack" : "forward",
      notify: "none",
      channelKind: byPort ? "port" : "memory",
      channels: [this.peers(rank).indexOf(peer)],
      src: [from],
      dst: [{ rank: peer, ...to }],
    });
    if (random.chance(0.8)) this.push(peer, random.below(this.numStrands), copy(this.target(1), to, "unpack"));
  }

  /** Copies from place to place by whoever comes: of equal values they may race. */
  private chain(rank: number): void {
    const { random } = this;
    let from: Range = { buffer: "input", index: random.below(CHUNKS), size: 1 };
    for (let link = 0; link < 2 + random.below(4); link++) {
      const to = random.chance(0.5) ? scratch(random.below(CHUNKS)) : { ...this.target(1) };
      for (let strand = 0; strand < this.numStrands; strand++)
        if (random.chance(0.7)) this.push(rank, strand, copy(to, from));
      if (random.chance(0.4)) this.push(rank, random.below(this.numStrands), nop);
      from = to;
    }
  }

  /** Both strands share an operation, or two that do not fit. */
  private group(rank: number): void {
    const { random } = this;
    const size = 1 + random.below(2);
    const [dst, src] = [this.target(size), this.source(size)];
    for (const index of [0, 1])
      this.push(rank, index, { ...copy(dst, src), tbg: { index: random.chance(0.9) ? index : 0, size: 2 } } as Op);
  }

  /** A semaphore as a lock around a reduction. */
  private lock(rank: number): void {
    const { random } = this;
    const place = this.target(1);
    for (let strand = 0; strand < this.numStrands; strand++) {
      if (strand > 0 && random.chance(0.2)) continue;
      this.push(rank, strand, { kind: "acquire", semaphores: [1] });
      this.push(rank, strand, {
        kind: "reduce",
        op: "sum",
        packets: false,
        src: [place, this.source(1)],
        remoteSrc: [],
        dst: place,
        remoteDst: [],
        channels: [],
      });
      this.push(rank, strand, { kind: "release", semaphores: [1] });
    }
  }
}

/** A random plan with every construct, the same for the same seed. */
export function wildPlan(seed: number): ExecutionPlan {
  return new WildDice(seed).roll();
}
