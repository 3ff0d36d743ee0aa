/**
 * A ring all-reduce in chorale's language. Try, from this folder:
 *   chorale compile ring.ts --arg numRanks=4            the plan, by rank and strand
 *   chorale check ring.ts --arg numRanks=4              proved right under every interleaving
 *   chorale sim ring.ts --arg numRanks=8 --topology hgx-h100-8
 */
import { allReduce, program } from "chorale/language";
import { z } from "zod";

export const args = z.object({ numRanks: z.number().int().min(2) });

export default function ring({ numRanks: n }: z.infer<typeof args>) {
  return program({ name: "ring", collective: allReduce(n), autoSync: "full" }, (p) => {
    const inbox = p.ranks.map((rank) => rank.scratch(n - 1));
    const right = (rank: { id: number }) => p.rank((rank.id + 1) % n);
    for (let step = 0; step < n - 1; step++) {
      for (const rank of p.ranks) {
        const c = (rank.id - step + n) % n;
        p.copy(inbox[right(rank).id]!.at(step), step === 0 ? rank.input.at(c) : rank.output.at(c));
      }
      for (const rank of p.ranks) {
        const c = (rank.id - 1 - step + n) % n;
        p.reduce(rank.output.at(c), rank.input.at(c), [inbox[rank.id]!.at(step)]);
      }
    }
    for (let step = 0; step < n - 1; step++) {
      for (const rank of p.ranks) {
        const c = (rank.id + 1 - step + n) % n;
        p.copy(right(rank).output.at(c), rank.output.at(c));
      }
    }
  });
}
