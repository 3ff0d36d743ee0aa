/** An all-gather of small parts in log2 rounds (Bruck et al. 1997): of many ranks, each sends a few messages in place of one to everybody. */
import type { Place } from "./algorithms.ts";
import type { Round, Schedule, Span } from "./schedule.ts";

const at = (buffer: Span["buffer"], from: number, bytes: number): Span => ({ buffer, at: from, bytes });

/** @param bytes of one rank's part */
export function gatherInRounds({ rank, size }: Place, bytes: number): Schedule {
  const first = { kind: "copy", from: at("input", 0, bytes), to: at("scratch", 0, bytes) } as const;
  const rounds: Round[] = [{ sends: [], recvs: [], then: [first] }];
  // Scratch has the parts of this rank and of those behind it, in their order.
  for (let have = 1; have < size; have *= 2) {
    const count = Math.min(have, size - have);
    rounds.push({
      sends: [{ to: (rank - have + size) % size, from: at("scratch", 0, count * bytes) }],
      recvs: [{ from: (rank + have) % size, into: at("scratch", have * bytes, count * bytes) }],
      then: [],
    });
  }
  const then = Array.from({ length: size }, (_, i) => ({
    kind: "copy" as const,
    from: at("scratch", i * bytes, bytes),
    to: at("output", ((rank + i) % size) * bytes, bytes),
  }));
  rounds.push({ sends: [], recvs: [], then });
  return { name: "bruck", numStrands: 1, strand: () => rounds, window: 1, scratchBytes: size * bytes };
}
