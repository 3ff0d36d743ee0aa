/**
 * Pairwise and point-to-point programs, with their synchronisation written out: examples of the language's lower level.
 * The dissemination barrier is Hensgen, Finkel, Manber: "Two algorithms for barrier synchronization", IJPP 17 (1988).
 */
import {
  allToAll,
  type Builder,
  barrier,
  type MemoryChannel,
  type Program,
  program,
  sendRecv,
} from "../language/index.ts";
import { type AlgorithmArgs, modulo, settings } from "./algorithm-args.ts";

/** A channel from every rank to every other; those of a pair hear each other. */
function mesh<P>(p: Builder<P>): (from: number, to: number) => MemoryChannel<P> {
  const channels = p.ranks.map((from) => p.ranks.map((to) => (from === to ? undefined : p.memoryChannel(from, to))));
  return (from, to) => channels[from]![to]!;
}

/** The same where few of the pairs talk: theirs alone are made. */
function sparseMesh<P>(p: Builder<P>): (from: number, to: number) => MemoryChannel<P> {
  const channels = new Map<string, MemoryChannel<P>>();
  return (from, to) => {
    const known = channels.get(`${from} ${to}`);
    if (known !== undefined) return known;
    const [made, back] = [p.memoryChannel(p.rank(from), p.rank(to)), p.memoryChannel(p.rank(to), p.rank(from))];
    channels.set(`${from} ${to}`, made).set(`${to} ${from}`, back);
    return made;
  };
}

/** All-to-all in n - 1 steps; in step s rank r sends to r + s, and goes on when it has heard from r - s. */
export function pairwiseAllToAll(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program(
    { ...settings("pairwise-all-to-all", args), collective: allToAll(n, { ...args, inPlace: false }) },
    (p) => {
      const channel = mesh(p);
      for (const rank of p.ranks) rank.copy(rank.output.at(rank.id), rank.input.at(rank.id), 1);
      for (let step = 1; step < n; step++) {
        for (const rank of p.ranks) {
          const to = p.rank((rank.id + step) % n);
          channel(rank.id, to.id).put(to.output.at(rank.id), rank.input.at(to.id));
          channel(rank.id, to.id).signal();
        }
        for (const rank of p.ranks) channel(rank.id, modulo(rank.id - step, n)).wait();
      }
    },
  );
}

/** After ceil(log2 n) rounds of signals everybody has come. */
export function disseminationBarrier(args: Pick<AlgorithmArgs, "numRanks">): Program {
  const { numRanks: n } = args;
  return program({ name: "dissemination-barrier", collective: barrier(n) }, (p) => {
    const channel = sparseMesh(p);
    for (let distance = 1; distance < n; distance *= 2) {
      for (const rank of p.ranks) channel(rank.id, (rank.id + distance) % n).signal();
      for (const rank of p.ranks) channel(rank.id, modulo(rank.id - distance, n)).wait();
    }
  });
}

export interface SendRecvArgs extends Omit<AlgorithmArgs, "numRanks" | "inPlace" | "op"> {
  /** Whom each rank sends to, or null. */
  readonly sendTo: readonly (number | null)[];
}

/** One message from each rank to another. */
export function directSendRecv(args: SendRecvArgs): Program {
  const { sendTo } = args;
  return program(
    { ...settings("direct-send-recv", { ...args, numRanks: sendTo.length }), collective: sendRecv(sendTo) },
    (p) => {
      for (const rank of p.ranks) {
        const to = sendTo[rank.id];
        if (to !== null && to !== undefined) p.copy(p.rank(to).output.all, rank.input.all);
      }
    },
  );
}
