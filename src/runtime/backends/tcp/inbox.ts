/**
 * What passes between this rank and one other member of a group: messages that came before they were asked for, receives
 * that wait, and large messages that wait to be asked for. Both ends say in every frame which call it belongs to.
 */
import { FormatError } from "../../../core/index.ts";
import { EAGER_BYTES, type Head, KIND, LANE, type MessageName, type Print } from "./frame.ts";
import type { Link, Outgoing } from "./link.ts";

/** A receive that waits. */
interface Post {
  readonly name: MessageName;
  readonly into: Uint8Array;
  readonly print: Print;
  readonly extra: number;
  readonly done: () => void;
  received: number;
}

/** A small message that came first. */
interface Early {
  readonly head: Head;
  readonly bytes: Uint8Array;
  isWhole: boolean;
  post: Post | undefined;
}

/** The group's side of it. */
export interface InboxOwner {
  /**
   * Compares what the other end said of a message with what this rank has of it.
   * @returns whether they agree; otherwise the group fails
   */
  compare(
    member: number,
    theirs: Head,
    mine: { readonly print: Print; readonly extra: number; readonly bytes: number },
  ): boolean;
}

/** Grants and offers that wait for this rank's own calls: an honest peer has as many buffers of more than EAGER_BYTES. */
const MAX_NOTES = 2 ** 17;

/** Messages of a collective, and of a pair, by their number and slot. */
const SLOTS = 2 ** 26;
const placeOf = ({ lane, seq, slot }: MessageName) => (seq * SLOTS + slot) * 2 + lane;

export class Inbox {
  readonly #member: number;
  readonly #link: Link;
  readonly #owner: InboxOwner;
  readonly #posts = new Map<number, Post>();
  readonly #early = new Map<number, Early>();
  /** Messages that the other end has asked for before this one had them. */
  readonly #granted = new Map<number, Head>();
  /** Large messages that wait to be asked for. */
  readonly #large = new Map<number, Outgoing>();
  readonly #offers = new Map<number, Head>();

  constructor(member: number, link: Link, owner: InboxOwner) {
    this.#member = member;
    this.#link = link;
    this.#owner = owner;
  }

  get link(): Link {
    return this.#link;
  }

  send(message: Outgoing): void {
    if (message.payload.length <= EAGER_BYTES) {
      this.#link.sendSmall(message);
      return;
    }
    const place = placeOf(message);
    const grant = this.#granted.get(place);
    if (grant !== undefined) {
      this.#granted.delete(place);
      if (this.#agrees(grant, message)) this.#link.sendLarge(message);
      return;
    }
    this.#large.set(place, message);
    if (message.lane !== LANE.pair) return;
    this.#link.signal(KIND.offer, message, message.print, message.payload.length, message.extra);
  }

  /** Whether a large message may leave at once. */
  isGranted(name: MessageName): boolean {
    return this.#granted.has(placeOf(name));
  }

  receive(name: MessageName, print: Print, extra: number, into: Uint8Array, done: () => void): void {
    const place = placeOf(name);
    const post: Post = { name, into, print, extra, done, received: 0 };
    const early = this.#early.get(place);
    if (early !== undefined) {
      if (!this.#matches(early.head, post)) return;
      if (!early.isWhole) {
        early.post = post;
        return;
      }
      this.#early.delete(place);
      into.set(early.bytes);
      this.#link.took(early.bytes.length);
      done();
      return;
    }
    this.#posts.set(place, post);
    const offer = this.#offers.get(place);
    if (offer !== undefined) {
      this.#offers.delete(place);
      if (!this.#matches(offer, post)) return;
    }
    if (into.length > EAGER_BYTES) this.#link.grant(name, print, into.length, extra);
  }

  /** Says where a payload goes; `undefined`: nowhere. @throws FormatError for a large one that nobody has asked for */
  begin(head: Head): Uint8Array | undefined {
    const place = placeOf(head);
    const post = this.#posts.get(place);
    if (post !== undefined) {
      if (!this.#matches(head, post)) return undefined;
      return post.into.subarray(head.offset, head.offset + head.bytes);
    }
    if (head.total > EAGER_BYTES || head.bytes !== head.total) {
      throw new FormatError(`rank ${this.#link.rank}`, `sent ${head.total} bytes that this rank has not asked for`);
    }
    const bytes = new Uint8Array(head.total);
    this.#early.set(place, { head, bytes, isWhole: false, post: undefined });
    return bytes;
  }

  /** A payload is there. */
  end(head: Head): void {
    const place = placeOf(head);
    const post = this.#posts.get(place);
    if (post !== undefined) {
      post.received += head.bytes;
      if (post.received < post.into.length) return;
      this.#posts.delete(place);
      if (head.total <= EAGER_BYTES) this.#link.took(head.total);
      post.done();
      return;
    }
    const early = this.#early.get(place);
    if (early === undefined) {
      // Forgotten since it began, or never wanted.
      if (head.total <= EAGER_BYTES) this.#link.took(head.total);
      return;
    }
    early.isWhole = true;
    if (early.post === undefined) return;
    this.#early.delete(place);
    early.post.into.set(early.bytes);
    this.#link.took(head.total);
    early.post.done();
  }

  /** The other end asks for a message. @throws FormatError for too many that this rank does not have */
  grant(head: Head): void {
    const place = placeOf(head);
    const message = this.#large.get(place);
    if (message === undefined) {
      this.#note(this.#granted, place, head);
      return;
    }
    this.#large.delete(place);
    if (this.#agrees(head, message)) this.#link.sendLarge(message);
  }

  /** The other end has a large message. @throws FormatError for too many that this rank has not asked for */
  offer(head: Head): void {
    const place = placeOf(head);
    const post = this.#posts.get(place);
    if (post === undefined) this.#note(this.#offers, place, head);
    else this.#matches(head, post);
  }

  #note(notes: Map<number, Head>, place: number, head: Head): void {
    notes.set(place, head);
    if (notes.size <= MAX_NOTES) return;
    const what = `named ${notes.size} messages that no call of this rank has; expected at most ${MAX_NOTES}`;
    throw new FormatError(`rank ${this.#link.rank}`, what);
  }

  /** Whether messages wait for the other end to ask for them. */
  get hasLarge(): boolean {
    return this.#large.size > 0;
  }

  /** Compares a call that begins with what came of it earlier, so that ranks which disagree do not wait for each other. */
  check(seq: number, print: Print): void {
    for (const { head } of this.#early.values()) this.#checkOne(head, seq, print);
    for (const head of this.#granted.values()) this.#checkOne(head, seq, print);
  }

  #checkOne(head: Head, seq: number, print: Print): void {
    if (head.lane !== LANE.collective || head.seq !== seq) return;
    this.#owner.compare(this.#member, head, { print, extra: head.extra, bytes: head.total });
  }

  /** Forgets everything, and takes no program's memory any more. */
  clear(): void {
    // Those that are not whole are taken as they end.
    for (const { bytes, isWhole } of this.#early.values()) if (isWhole) this.#link.took(bytes.length);
    for (const one of [this.#posts, this.#early, this.#granted, this.#large, this.#offers]) one.clear();
  }

  #matches(head: Head, { print, extra, into }: Post): boolean {
    return this.#owner.compare(this.#member, head, { print, extra, bytes: into.length });
  }

  #agrees(head: Head, { print, extra, payload }: Outgoing): boolean {
    return this.#owner.compare(this.#member, head, { print, extra, bytes: payload.length });
  }
}
