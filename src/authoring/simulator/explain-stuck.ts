/** Why a run did not end, in words: which ranks are dead, where the waiting begins, and who waits for what. */
import type { Simulation } from "./simulate.ts";

/** Ranks that are told one by one. */
const TOLD_RANKS = 24;

/** Says in words who stopped, with what it began, and who waits for whom; undefined when everything ended. */
export function explainStuck(result: Simulation): string | undefined {
  if (result.completed) return undefined;
  const { stuck, deadRanks } = result;
  const dead = deadRanks.map((rank) => `rank ${rank} is dead`);
  if (stuck.length === 0) return [...dead, "nobody waited for it"].join("; ");
  // It begins where nobody waits for somebody who is stuck.
  const stuckRanks = new Set(stuck.map((strand) => strand.rank));
  const first = stuck.filter((strand) => strand.waitsFor.every((rank) => !stuckRanks.has(rank)));
  const begins = [...new Set(first.map((strand) => strand.rank))];
  const head = [
    ...dead,
    ...(begins.length > 0
      ? [
          `it begins with ${begins
            .slice(0, 8)
            .map((rank) => `rank ${rank}`)
            .join(", ")}`,
        ]
      : []),
    `${stuckRanks.size} rank${stuckRanks.size === 1 ? " stops" : "s stop"}`,
  ].join("; ");
  const byRank = new Map<number, string[]>();
  for (const { rank, strand, op, why } of [...first, ...stuck.filter((strand) => !first.includes(strand))]) {
    const list = byRank.get(rank) ?? [];
    list.push(`strand ${strand} at op ${op} waits for ${why}`);
    byRank.set(rank, list);
  }
  const lines = [...byRank].map(
    ([rank, list]) =>
      `rank ${rank}: ${list.slice(0, 3).join("; ")}${list.length > 3 ? `; and ${list.length - 3} more strands` : ""}`,
  );
  const more = lines.length > TOLD_RANKS ? [`and ${lines.length - TOLD_RANKS} more ranks`] : [];
  return [head, ...lines.slice(0, TOLD_RANKS), ...more].join("\n");
}
