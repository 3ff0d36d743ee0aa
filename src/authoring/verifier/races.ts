/**
 * Pairs of conflicting accesses that nothing orders, one entry for each pair of operations and what each of them moves: one
 * operation may write plain data to one place and packets to another, and only packets can be waited for in vain.
 */
import type { AccessLog, Accessor, Site } from "./access-log.ts";

export interface Race {
  readonly id: number;
  readonly first: Site;
  readonly second: Site;
  readonly firstWrites: boolean;
  readonly secondWrites: boolean;
  readonly firstTag: number;
  readonly secondTag: number;
  readonly cell: number;
  readonly sameStrand: boolean;
  /** A reader of packets may never see its packet: wrong whatever becomes of the data. */
  mayHang: boolean;
  count: number;
}

export class Races {
  readonly list: Race[] = [];
  readonly #log: AccessLog;
  readonly #known = new Map<string, Race>();
  constructor(log: AccessLog) {
    this.#log = log;
  }

  /** Notes that access `a` of a cell and one of `who` meet. @returns the number of their race */
  note(
    cell: number,
    a: number,
    aWrites: boolean,
    who: Accessor,
    bWrites: boolean,
    bTag: number,
    mayHang: boolean,
  ): number {
    const log = this.#log;
    const key = `${log.opId(a)} ${log.tag(a)} ${who.site.id} ${bTag} ${aWrites} ${bWrites} ${mayHang}`;
    let race = this.#known.get(key);
    if (race === undefined) {
      race = {
        id: this.list.length,
        first: log.site(a),
        second: who.site,
        firstWrites: aWrites,
        secondWrites: bWrites,
        firstTag: log.tag(a),
        secondTag: bTag,
        cell,
        sameStrand: log.lane(a) === who.lane,
        mayHang,
        count: 0,
      };
      this.list.push(race);
      this.#known.set(key, race);
    }
    race.count++;
    return race.id;
  }

  /** Notes that a reader waits for a packet that the other write of a race between two writes may have destroyed. */
  mayDestroy(id: number, tag: number): void {
    const race = this.list[id]!;
    if (race.firstWrites && race.secondWrites && (race.firstTag === tag) !== (race.secondTag === tag))
      race.mayHang = true;
  }
}
