/**
 * Turns as a model: ranks in one thread that ask for the turns of their groups' calls in their order. A granted call blocks
 * its rank until all that take part in it have entered it, as NCCL's do.
 */
import { type Attendance, type GroupControl, RECLAIM } from "../../src/runtime/memory/index.ts";

/** One call of a group: of all members, or sends and receives around a ring of some. */
export interface Call {
  readonly id: number;
  /** Members around which sends and receives go; of a collective none. */
  readonly ring: readonly number[] | undefined;
  entered: number;
}

export interface Member {
  readonly control: GroupControl;
  readonly ranks: readonly number[];
  readonly calls: readonly Call[];
  next: number;
  /** Calls of sends and receives before `next`, by peer and direction. */
  readonly lanes: Map<string, number>;
}

/**
 * The calls of a group in order.
 * @param drawn of each call a number that says who is in its ring, or null for a collective
 */
export function drawnCalls(numMembers: number, drawn: readonly (number | null)[]): Call[] {
  const all = Array.from({ length: numMembers }, (_, member) => member);
  return drawn.map((ring, i) => ({
    id: i + 1,
    ring: ring === null ? undefined : all.slice(ring % (numMembers - 1)),
    entered: 0,
  }));
}

export class ModelRank {
  readonly members: Member[] = [];
  readonly #attendance: Attendance | undefined;
  /** The call that blocks this rank. */
  inside: { readonly member: Member; readonly call: Call } | undefined;

  /** @param attendance of a rank whose groups are freed */
  constructor(attendance?: Attendance) {
    this.#attendance = attendance;
  }

  get done(): boolean {
    return this.inside === undefined && this.members.every(({ calls, next }) => next === calls.length);
  }

  /** Becomes a member of a group, and takes part in those of its calls that are for it. */
  join(control: GroupControl, ranks: readonly number[], calls: readonly Call[]): void {
    const mine = calls.filter(({ ring }) => ring === undefined || ring.includes(control.member));
    this.members.push({ control, ranks, calls: mine, next: 0, lanes: new Map() });
  }

  /** Asks for the turn of the next call of a group. */
  ask(member: Member): void {
    const call = member.calls[member.next];
    if (this.inside !== undefined || call === undefined) return;
    // Whether it can or not: it may have been taken for a turn meanwhile.
    if (call.id === RECLAIM) this.#attendance?.enter();
    else this.#attendance?.leave();
    if (!this.#granted(member, call)) return;
    // Another step of this rank may have come between the question and the answer.
    if (this.inside !== undefined) throw new Error("a rank was granted two turns at a time");
    this.inside = { member, call };
    call.entered++;
  }

  /** Takes an offer back; makes the call when it was granted meanwhile. */
  withdraw(member: Member): void {
    if (this.inside === undefined && !member.control.withdraw()) this.ask(member);
  }

  /** Leaves the call that blocks this rank, once all have entered it. */
  leave(): void {
    if (this.inside === undefined) return;
    const { member, call } = this.inside;
    if (call.entered < (call.ring?.length ?? member.ranks.length)) return;
    for (const { lane, seq } of lanesOf(member, call)) member.lanes.set(`${lane.kind} ${lane.peer}`, seq + 1);
    member.next++;
    this.inside = undefined;
    member.control.endTurn(member.ranks);
  }

  #granted(member: Member, call: Call): boolean {
    if (call.ring === undefined) return member.control.turn(call.id, member.ranks);
    return member.control.turnOfPairs(lanesOf(member, call), member.ranks);
  }
}

function lanesOf({ control, lanes }: Member, { ring }: Call) {
  if (ring === undefined) return [];
  const [at, n] = [ring.indexOf(control.member), ring.length];
  const ends = [
    { kind: "send", peer: ring[(at + 1) % n] ?? 0 },
    { kind: "recv", peer: ring[(at + n - 1) % n] ?? 0 },
  ] as const;
  return ends.map((lane) => ({ lane, seq: lanes.get(`${lane.kind} ${lane.peer}`) ?? 0 }));
}
