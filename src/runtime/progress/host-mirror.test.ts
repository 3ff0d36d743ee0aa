/**
 * The parts of several hosts as a model: ranks and hosts in one thread, messages between hosts under way for any time, in
 * order of each sender. A granted call blocks its rank until all that take part in it have entered it, as NCCL's do.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { drawnCalls, type Member, ModelRank } from "../../../test/support/turn-model.ts";
import { COLLECTIVE, COLLECTIVE_RING, ControlSegment, controlBytes, type GroupControl } from "../memory/index.ts";
import { NoticeMirror } from "./host-mirror.ts";

const seed = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
console.log(`mirrors of hosts: seed ${seed} (CHORALE_SEED=${seed} repeats it)`);

const { load } = Atomics;

/** Hosts, and messages between them. */
class Network {
  readonly segments: readonly ControlSegment[];
  readonly mirrors: readonly NoticeMirror[];
  readonly #buffers: readonly SharedArrayBuffer[];
  readonly #hostOf: readonly number[];
  readonly #under: { readonly from: number; readonly to: number; readonly message: object }[][];

  constructor(hostOf: readonly number[]) {
    const ranks = hostOf.length;
    const numHosts = 1 + Math.max(...hostOf);
    this.#hostOf = hostOf;
    this.#buffers = Array.from({ length: numHosts }, () => new SharedArrayBuffer(controlBytes(ranks, true)));
    this.segments = this.#buffers.map((buffer) => new ControlSegment(buffer, ranks, 0, true));
    this.#under = Array.from({ length: numHosts * numHosts }, () => []);
    this.mirrors = this.segments.map((segment, from) => {
      const send = (message: object) => {
        for (let to = 0; to < numHosts; to++) {
          // As it arrives: a copy.
          if (to !== from) this.#under[from * numHosts + to]?.push({ from, to, message: structuredClone(message) });
        }
      };
      return new NoticeMirror({ segment, ranks, generation: 1, isFirst: from === 0, send });
    });
    for (const [rank, host] of hostOf.entries()) this.segments[host]?.presence.enter(rank, 1000 + rank, 0);
  }

  /** Opens a group as one of its members. */
  open(name: string, ranks: readonly number[], member: number): GroupControl {
    const rank = ranks[member] ?? 0;
    const host = this.#hostOf[rank] ?? 0;
    const segment = new ControlSegment(this.#buffers[host] as SharedArrayBuffer, this.#hostOf.length, 0, true);
    segment.tellHosts(rank, new Set(this.#hostOf.flatMap((other, r) => (other === host ? [] : [r]))));
    return segment.group(name, ranks, 0, member);
  }

  /** Delivers a message, or has a host look at its outboxes. @param draw a number below its argument */
  step(draw: (n: number) => number): void {
    const way = this.#under[draw(this.#under.length)];
    const sent = way?.shift();
    if (sent === undefined) this.mirrors[draw(this.mirrors.length)]?.look();
    else this.mirrors[sent.to]?.receive(sent.message);
  }

  /** Delivers everything. */
  settle(): void {
    for (let i = 0; i < 40; i++) {
      for (const mirror of this.mirrors) mirror.look();
      for (const way of this.#under) {
        for (const { to, message } of way.splice(0)) this.mirrors[to]?.receive(message);
      }
    }
  }

  close(): void {
    for (const mirror of this.mirrors) mirror.close();
  }
}

const print = (count: number) => ({ call: 1, count, hash: 7 });

describe("the parts of several hosts", () => {
  it("grant a turn to all members of a call or none, one to a rank at a time, and some turn in the end", () => {
    const place = fc.array(fc.nat({ max: 2 }), { minLength: 3, maxLength: 5 });
    const group = fc.record({
      picks: fc.array(fc.nat(), { minLength: 2, maxLength: 5 }),
      calls: fc.array(fc.option(fc.nat()), { minLength: 1, maxLength: 4 }),
    });
    const world = fc.record({ place, groups: fc.array(group, { minLength: 1, maxLength: 4 }), order: fc.integer() });
    fc.assert(
      fc.property(world, ({ place, groups, order }) => {
        let state = order | 1;
        const draw = (n: number) => {
          state = Math.imul(state, 1664525) + 1013904223;
          return (state >>> 8) % n;
        };
        const hostOf = place.map((host) => host % place.length);
        const network = new Network(hostOf);
        const ranks = hostOf.map(() => new ModelRank());
        for (const [g, { picks, calls: drawn }] of groups.entries()) {
          const members = [...new Set(picks.map((pick) => pick % ranks.length))];
          if (members.length < 2) continue;
          const calls = drawnCalls(members.length, drawn);
          for (const [member, rank] of members.entries()) {
            ranks[rank]?.join(network.open(`g${g}`, members, member), members, calls);
          }
        }
        // A rank that takes back an offer which is held waits until its launcher lets go: the network works meanwhile.
        const withdraw = (rank: ModelRank, member: Member) => {
          let isWorking = false;
          Atomics.load = ((words: Int32Array, at: number) => {
            if (!isWorking) {
              isWorking = true;
              network.step(draw);
              isWorking = false;
            }
            return load(words, at);
          }) as typeof Atomics.load;
          try {
            rank.withdraw(member);
          } finally {
            Atomics.load = load;
          }
        };
        for (let i = 0; i < 100_000 && !ranks.every(({ done }) => done); i++) {
          const rank = ranks[draw(ranks.length)];
          const member = rank?.members[draw(rank.members.length)];
          if (draw(2) === 0) network.step(draw);
          else if (draw(3) === 0) rank?.leave();
          else if (rank !== undefined && member !== undefined && draw(12) === 0) withdraw(rank, member);
          else if (member !== undefined) rank?.ask(member);
        }
        network.close();
        expect(ranks.map(({ done }) => done)).toEqual(ranks.map(() => true));
      }),
      { seed, numRuns: 60, verbose: 1 },
    );
  });

  it("tell both hosts of a mismatch, whoever came first", () => {
    const network = new Network([0, 0, 1]);
    const all = [0, 1, 2];
    const [a, b, c] = all.map((member) => network.open("world", all, member)) as [
      GroupControl,
      GroupControl,
      GroupControl,
    ];
    for (const control of [a, b, c]) control.publish(COLLECTIVE, 0, print(0));
    // Neither of the two hosts has heard of the other's call when it makes its own.
    a.publish(COLLECTIVE, 1, print(3));
    b.publish(COLLECTIVE, 1, print(3));
    c.publish(COLLECTIVE, 1, print(4));
    expect([a, b, c].map(({ failed }) => failed)).toEqual([false, false, false]);
    network.settle();
    for (const { failure } of [a, b, c]) {
      expect(failure).toMatchObject({ code: "MISMATCH", sides: [{ rank: expect.any(Number) }, { rank: 2 }] });
    }
    expect(network.segments.map(({ failed }) => failed)).toEqual([false, false]);
    network.close();
  });

  it("pass on calls in order, failures of the world, closed members, blobs and the end of a group", () => {
    const network = new Network([0, 1]);
    const [a, b] = [0, 1].map((member) => network.open("pair", [0, 1], member)) as [GroupControl, GroupControl];
    a.setBlob(Uint8Array.of(1, 2, 3, 4, 5));
    for (let seq = 0; seq < COLLECTIVE_RING - 1; seq++) a.publish(COLLECTIVE, seq, print(seq));
    // The other has published nothing yet: one more would overwrite what it has to compare.
    expect(a.collectiveLimit()).toBe(COLLECTIVE_RING - 1);
    network.settle();
    expect(b.blob).toEqual(Uint8Array.of(1, 2, 3, 4, 5));
    expect(b.issued(0, COLLECTIVE)).toBe(COLLECTIVE_RING - 1);
    expect(b.read(0, COLLECTIVE, 77)).toEqual(print(77));
    a.publish({ kind: "send", peer: 1 }, 2 ** 33 + 5, print(-1));
    a.announceClose();
    a.countReclaim();
    network.settle();
    expect(b.read(0, { kind: "send", peer: 1 }, 2 ** 33 + 5)).toEqual(print(-1));
    expect([b.hasClosed(0), b.allClosing, b.allReclaimed]).toEqual([true, false, false]);
    b.announceClose();
    b.countReclaim();
    expect([b.allClosing, b.allReclaimed]).toEqual([true, true]);
    b.leave();
    a.leave();
    network.settle();
    expect(network.segments.map(({ numGroups }) => numGroups)).toEqual([0, 0]);
    const failure = { code: "RANK_FAILED", rank: 1, generation: 1, cause: "its process was killed" } as const;
    network.segments[1]?.fail(failure);
    network.settle();
    expect(network.segments[0]?.failure).toEqual(failure);
    network.close();
  });

  it("keep a group's first failure, and know nothing of groups of one host", () => {
    const network = new Network([0, 0, 1]);
    const [alone] = [0, 1].map((member) => network.open("alone", [0, 1], member));
    const [shared, other] = [0, 1].map((member) => network.open("shared", [0, 2], member));
    alone?.publish(COLLECTIVE, 0, print(0));
    other?.fail({ code: "ABORTED", reason: "first" });
    network.settle();
    shared?.fail({ code: "ABORTED", reason: "second" });
    network.settle();
    expect([shared?.failure, other?.failure]).toEqual(Array(2).fill({ code: "ABORTED", reason: "first" }));
    expect(network.segments.map(({ numGroups }) => numGroups)).toEqual([2, 1]);
    network.close();
  });
});
