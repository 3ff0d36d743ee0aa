/**
 * Reads that are over because of what was made of them. A packet says nothing of other writes, but the data in it were
 * computed from reads, which are therefore over when it arrives: packets that were read are followed back to them.
 */
import { stepsKnown } from "../../core/internal.ts";
import type { AccessLog, Accessor } from "./access-log.ts";

/** Packets followed back before giving up on an order; the answer is then "not ordered", which is never unsound. */
const MAX_FOLLOWED = 20_000;

/**
 * Says whether a read was surely over before `who` gets to this position: through the packets it went into.
 * @param level of what `who` does: packets of a higher one may not have been there (`short-chunks.ts`)
 */
export function performedBefore(log: AccessLog, read: number, who: Accessor, position: number, level: number): boolean {
  const { past } = who;
  const lane = log.lane(read);
  const segment = log.segment(read);
  if (stepsKnown(past.known, lane) > segment) return true;
  const begin = past.link(position);
  if (begin === 0) return false;
  const time = log.time(read);
  const stack: number[] = [begin];
  const seen = new Set<number>();
  while (stack.length > 0) {
    const link = stack.pop()!;
    if (link === 0 || seen.has(link)) continue;
    seen.add(link);
    if (seen.size > MAX_FOLLOWED) return false;
    const node = log.linkFrom(link);
    stack.push(log.linkBehind(link));
    const more = log.linkMore(link);
    if (more !== undefined) stack.push(...more);
    if (node === 0 || log.time(node) < time || log.level(node) > level) continue;
    if (log.lane(node) === lane) {
      const phase = log.phase(read);
      if (log.phase(node) > phase) return true;
      if (log.phase(node) === phase && log.position(node) === log.position(read) && log.seq(node) >= log.seq(read))
        return true;
    }
    if (stepsKnown(log.known(node), lane) > segment) return true;
    stack.push(log.extra(node));
  }
  return false;
}
