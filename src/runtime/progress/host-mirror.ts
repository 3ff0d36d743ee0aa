/**
 * One host's part in the agreement of ranks on several hosts; it runs in the launcher, or, where there is none on every host, in
 * each rank, which is then a host of its own here. Every host has a control segment of its own. What a rank does in a group that spans hosts it tells in its outbox (memory/outbox.ts); this reads the outboxes of
 * its host, sends the notices to the other hosts, and does in its own segment what ranks of other hosts have told, in their
 * place: it publishes their calls, compares them with those of this host's ranks, closes and leaves groups.
 *
 * So of any two members on different hosts each host sees one call after the other, and compares them then. What is not
 * one rank's alone has a rule of its own: the first host grants turns (memory/turn-arbiter.ts); a failure is sent to all
 * hosts, and each keeps the first that it hears of.
 */
import type { Failure, HostMirror } from "../comm/index.ts";
import { decodeFailure, failureOf } from "../comm/index.ts";
import {
  bytesOf,
  type ControlSegment,
  type GroupControl,
  type GroupKey,
  GroupOffers,
  grantedOf,
  type HeldOffers,
  laneOf,
  NOTICE,
  noticeOf,
  numberOf,
  type ReadyTurn,
} from "../memory/index.ts";
import { Agreement } from "./agreement.ts";
import { JOIN_SEQ } from "./call-sequence.ts";

/** Between two looks at the outboxes, ms: what a call costs nobody, and a first call, or a failure, twice at most. */
const LOOK_MS = 1;
/** After a while without notices, ms. */
const IDLE_LOOK_MS = 4;
const IDLE_AFTER_MS = 500;
/** How long looks follow each other at once while ranks are about to meet, ms. */
const HURRY_MS = 5;
/** A turn that could not be granted, because a rank was in another one, is tried again so much later, ms. */
const RETRY_MS = 1;

/** What the parts of a generation's hosts send each other. */
export type MirrorMessage =
  | { readonly kind: "notices"; readonly notices: readonly (readonly [rank: number, words: Int32Array])[] }
  /** The group, or without one the world, has failed. */
  | { readonly kind: "failed"; readonly key?: GroupKey; readonly failure: Failure }
  /** From the first host: who has members of it is to hold their offers, and say so. */
  | ({ readonly kind: "hold"; readonly id: number; readonly key: GroupKey } & ReadyTurn)
  | { readonly kind: "held"; readonly id: number; readonly members: readonly number[]; readonly isHeld: boolean }
  | { readonly kind: "granted" | "released"; readonly id: number };

/** A group that spans hosts. */
interface SharedGroup {
  readonly key: GroupKey;
  /** Its name in messages. */
  title: string;
  /** World ranks of the members. */
  readonly ranks: readonly number[];
  readonly controlOf: (member: number) => GroupControl;
  readonly offers: GroupOffers;
  /** In the place of members on other hosts. */
  readonly controls: Map<number, GroupControl>;
  numLeft: number;
  /** A turn of it is not tried before. */
  retryAt: number;
}

/** A turn that is being granted, as a host that holds offers for it knows it. */
interface Hold {
  readonly group: SharedGroup;
  readonly turn: ReadyTurn;
  readonly held: HeldOffers | undefined;
}

interface MirrorOptions {
  readonly segment: ControlSegment;
  readonly ranks: number;
  readonly generation: number;
  /** Whether this is the first host, which grants turns. */
  readonly isFirst: boolean;
  /** Sends a message to all other hosts, in order. */
  readonly send: (message: object) => void;
  /** Ranks of this host, whose outboxes are read; all that there are by default, of which others have nothing in theirs. */
  readonly here?: readonly number[];
  /** Fetches what other hosts have sent, before each look. */
  readonly fetch?: () => void;
}

export class NoticeMirror implements HostMirror {
  readonly #options: MirrorOptions;
  readonly #here: readonly number[];
  readonly #groups = new Map<string, SharedGroup>();
  readonly #holds = new Map<number, Hold>();
  /** On the first host: the turn that is being granted, and the members whose hosts have not answered. */
  #granting: { readonly id: number; readonly missing: Set<number> } | undefined;
  #numHolds = 0;
  #hasTold = false;
  #activeAt = performance.now();
  #hurryUntil = 0;
  #next: { readonly cancel: () => void } | undefined;
  #isClosed = false;

  constructor(options: MirrorOptions) {
    this.#options = options;
    this.#here = options.here ?? Array.from({ length: options.ranks }, (_, rank) => rank);
    this.#schedule();
  }

  /** Takes what another host has sent. */
  receive(value: unknown): void {
    if (this.#isClosed) return;
    const message = value as MirrorMessage;
    switch (message.kind) {
      case "notices":
        for (const [rank, words] of message.notices) this.#apply(rank, words);
        this.#grantNext();
        return;
      case "failed":
        this.#failed(message.key, message.failure);
        return;
      case "hold":
        this.#hold(message);
        return;
      case "held":
        this.#heldBy(message);
        return;
      case "granted":
        this.#endHold(message.id, true);
        return;
      case "released":
        this.#endHold(message.id, false);
    }
  }

  /** Sends what this host's ranks have told, and does what is due. */
  look(): void {
    if (this.#isClosed) return;
    this.#options.fetch?.();
    this.#readOutboxes();
    this.#tellFailure();
    this.#grantNext();
  }

  /** The world's ranks that are members of a group, while it is open. */
  ranksOf(key: GroupKey): readonly number[] | undefined {
    return this.#groups.get(String(key))?.ranks;
  }

  #readOutboxes(): void {
    const { segment, send } = this.#options;
    const notices: (readonly [number, Int32Array])[] = [];
    for (const rank of this.#here) {
      segment.readOutbox(rank, (words) => {
        this.#note(rank, words);
        notices.push([rank, words]);
      });
    }
    if (notices.length === 0) return;
    this.#activeAt = performance.now();
    send({ kind: "notices", notices } satisfies MirrorMessage);
  }

  close(): void {
    if (this.#isClosed) return;
    // The last words of ranks that ended just now.
    this.look();
    this.#isClosed = true;
    this.#next?.cancel();
  }

  #schedule(): void {
    if (this.#isClosed) return;
    const now = performance.now();
    const step = () => {
      this.look();
      this.#schedule();
    };
    if (now < this.#hurryUntil) {
      const immediate = setImmediate(step);
      this.#next = { cancel: () => clearImmediate(immediate) };
      return;
    }
    const timer = setTimeout(step, now - this.#activeAt < IDLE_AFTER_MS ? LOOK_MS : IDLE_LOOK_MS);
    timer.unref();
    this.#next = { cancel: () => clearTimeout(timer) };
  }

  /** Ranks are about to meet. */
  #hurry(): void {
    this.#hurryUntil = performance.now() + HURRY_MS;
  }

  #tellFailure(): void {
    const { segment, send } = this.#options;
    if (this.#hasTold || !segment.failed) return;
    this.#hasTold = true;
    const { failure } = segment;
    if (failure !== undefined) send({ kind: "failed", failure } satisfies MirrorMessage);
  }

  #failed(key: GroupKey | undefined, failure: Failure): void {
    const { segment } = this.#options;
    if (key === undefined) {
      this.#hasTold = true;
      segment.fail(failure);
      return;
    }
    this.#groups.get(String(key))?.controlOf(0).failFirst(failure);
  }

  /** Keeps in mind what a rank of any host has told: which groups there are, and who offers what. */
  #note(rank: number, told: Int32Array): { readonly group: SharedGroup; readonly member: number } | undefined {
    const { kind, key, words } = noticeOf(told);
    if (kind === NOTICE.open) this.#open(key, bytesOf(words));
    const group = this.#groups.get(String(key));
    const member = group?.ranks.indexOf(rank) ?? -1;
    if (group === undefined || member < 0) return undefined;
    if (kind === NOTICE.offer) {
      group.offers.offered(member, words);
      this.#hurry();
    } else if (kind === NOTICE.withdraw) group.offers.withdrawn(member);
    else if (kind === NOTICE.title) group.title = new TextDecoder().decode(bytesOf(words));
    else if (kind === NOTICE.leave && ++group.numLeft === group.ranks.length) this.#groups.delete(String(key));
    return { group, member };
  }

  #open(key: GroupKey, label: Uint8Array): void {
    if (this.#groups.has(String(key))) return;
    const { name, ranks, controlOf } = this.#options.segment.openRemote(key, label);
    const offers = new GroupOffers(ranks.length);
    const group = { key, title: name, ranks, controlOf, offers, controls: new Map(), numLeft: 0, retryAt: 0 };
    this.#groups.set(String(key), group);
  }

  /** Does in this host's segment what a rank of another host has told. */
  #apply(rank: number, told: Int32Array): void {
    const found = this.#note(rank, told);
    if (found === undefined) return;
    const { kind, words } = noticeOf(told);
    const { group, member } = found;
    const control = group.controls.get(member) ?? group.controlOf(member);
    group.controls.set(member, control);
    if (kind === NOTICE.publish) this.#publish(group, control, words);
    else if (kind === NOTICE.close) control.announceClose();
    else if (kind === NOTICE.leave) control.leave();
    else if (kind === NOTICE.reclaimed) control.countReclaim();
    else if (kind === NOTICE.blob) control.setBlob(bytesOf(words));
    else if (kind === NOTICE.fail) control.failFirst(decodeFailure(bytesOf(words)));
  }

  /** Publishes a call, and compares it with those that ranks of this host have published before. */
  #publish(
    { key, title, ranks }: SharedGroup,
    control: GroupControl,
    [code = 0, peer = 0, low = 0, high = 0, call = 0, count = 0, hash = 0]: Int32Array,
  ): void {
    const arrival = { lane: laneOf(code, peer), seq: numberOf(low, high), print: { call, count, hash } };
    control.publish(arrival.lane, arrival.seq, arrival.print);
    // The first call is the members' joining, which they compare themselves.
    if (arrival.lane.kind === "collective" && arrival.seq === JOIN_SEQ) return;
    const { generation } = this.#options;
    const mismatch = new Agreement({ control, ranks, group: title, generation }).disagreement([arrival]);
    if (mismatch === undefined) return;
    const failure = failureOf(mismatch);
    if (control.failFirst(failure)) {
      this.#options.send({ kind: "failed", key, failure } satisfies MirrorMessage);
    }
  }

  /** On the first host: has the hosts hold the offers of a turn that is ready. */
  #grantNext(): void {
    const { isFirst, segment, send } = this.#options;
    if (!isFirst || this.#granting !== undefined || segment.failed) return;
    const now = performance.now();
    for (const group of this.#groups.values()) {
      if (now < group.retryAt) continue;
      const turn = group.offers.ready();
      if (turn === undefined) continue;
      // Behind the others from now on: of several that are ready each has its turn.
      this.#groups.delete(String(group.key));
      this.#groups.set(String(group.key), group);
      const id = ++this.#numHolds;
      this.#granting = { id, missing: new Set(turn.members.map(({ member }) => member)) };
      const hold = { kind: "hold", id, key: group.key, ...turn } as const;
      send(hold satisfies MirrorMessage);
      this.#hold(hold);
      return;
    }
  }

  /** Holds the offers of this host's members, and says whether it could. */
  #hold({ id, key, offer, members }: Extract<MirrorMessage, { kind: "hold" }>): void {
    const { segment, isFirst, send } = this.#options;
    this.#hurry();
    const group = this.#groups.get(String(key));
    const here = members.filter(({ member }) => segment.presence.hasCome(group?.ranks[member] ?? -1));
    if (group === undefined) return;
    const numbers = here.map(({ member }) => member);
    let held = here.length === 0 ? undefined : group.controlOf(0).holdTurn(offer, numbers, group.ranks);
    if (held !== undefined) {
      // A rank may have taken back the offer that the first host knows, and made another of the same words.
      this.#readOutboxes();
      if (!here.every(({ member, serial }) => group.offers.stands(member, offer, serial))) {
        held.release();
        held = undefined;
      }
    }
    this.#holds.set(id, { group, turn: { offer, members }, held });
    if (here.length === 0) return;
    const answer = { kind: "held", id, members: numbers, isHeld: held !== undefined } as const;
    if (isFirst) this.#heldBy(answer);
    else send(answer satisfies MirrorMessage);
  }

  /** On the first host. */
  #heldBy({ id, members, isHeld }: Extract<MirrorMessage, { kind: "held" }>): void {
    const granting = this.#granting;
    if (granting?.id !== id) return;
    const { send } = this.#options;
    for (const member of members) granting.missing.delete(member);
    if (isHeld && granting.missing.size > 0) return;
    this.#granting = undefined;
    send({ kind: isHeld ? "granted" : "released", id } satisfies MirrorMessage);
    this.#endHold(id, isHeld);
  }

  #endHold(id: number, isGranted: boolean): void {
    const hold = this.#holds.get(id);
    if (hold === undefined) return;
    this.#holds.delete(id);
    const { group, turn, held } = hold;
    if (isGranted) {
      group.offers.granted(turn);
      held?.grant(grantedOf);
    } else {
      held?.release();
      group.retryAt = performance.now() + RETRY_MS;
    }
    this.#hurry();
  }
}
