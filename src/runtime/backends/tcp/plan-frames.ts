/**
 * What a group's plans send: data for places of another rank, questions for data, counters that are raised, and questions
 * whether what was put is there. All frames of a plan take one connection of a pair, so they arrive in their order. They
 * come only after all ranks have begun the call, so that there is always a place for them.
 */
import { FormatError } from "../../../core/index.ts";
import { type FarForm, type FarPlace, type FarPort, type FarRun, REACHES } from "../../executor/internal.ts";
import {
  type FrameKind,
  type GroupKey,
  type Head,
  KIND,
  LANE,
  MAX_FRAME_BYTES,
  nameOfKind,
  type Print,
} from "./frame.ts";
import type { Inbox } from "./inbox.ts";
import type { PlanMemory } from "./plan-memory.ts";

const FORMS = ["plain", "packets", "raw"] as const satisfies readonly FarForm[];
/** Of a slot: which buffer, and in which form. */
const slotOf = (place: FarPlace, form: FarForm) => REACHES.indexOf(place.buffer) * FORMS.length + FORMS.indexOf(form);

/** A call that runs a plan, or has run the last one. */
interface PlanTurn {
  readonly seq: number;
  readonly print: Print;
  readonly run: FarRun;
}

/** Data that was asked for. */
interface Question {
  readonly to: number;
  readonly bytes: number;
  left: number;
  readonly done: () => void;
}

export class PlanFrames implements FarPort {
  readonly #group: GroupKey;
  readonly #inboxes: readonly (Inbox | undefined)[];
  readonly #memory: PlanMemory;
  readonly #questions = new Map<number, Question>();
  readonly #fences = new Map<number, { readonly rank: number; readonly done: () => void }>();
  /** Members that have closed the group: they have ended all calls that they made, and answer nothing more. */
  readonly #left = new Set<number>();
  #numAsked = 0;
  #turn: PlanTurn | undefined;

  constructor(group: GroupKey, inboxes: readonly (Inbox | undefined)[], memory: PlanMemory) {
    this.#group = group;
    this.#inboxes = inboxes;
    this.#memory = memory;
  }

  /** A call begins. Others may still ask for what the last one left. */
  begin(turn: PlanTurn): void {
    this.#turn = turn;
  }

  /** A member has closed the group. */
  leave(member: number): void {
    this.#left.add(member);
    for (const [extra, { rank, done }] of [...this.#fences]) {
      if (rank !== member) continue;
      this.#fences.delete(extra);
      done();
    }
  }

  /** The group has failed: nothing is waited for any more. */
  clear(): void {
    this.#questions.clear();
    this.#fences.clear();
    this.#turn?.run.close();
  }

  // What this rank's plan does to others.

  put(to: FarPlace, form: FarForm, from: number, bytes: number, done: () => void): void {
    // Of packets there is twice as much; all pieces but the last are whole words.
    const scale = form === "raw" ? 2 : 1;
    const most = MAX_FRAME_BYTES / scale;
    let left = Math.ceil(bytes / most);
    const sent = () => {
      if (--left === 0) done();
    };
    for (let at = 0; at < bytes; at += most) {
      const data = Math.min(most, bytes - at);
      const wire = form === "raw" ? 8 * Math.ceil(data / 4) : data;
      const payload = this.#memory.bytes(from + scale * at, wire);
      this.#send(KIND.put, to.rank, slotOf(to, form), { offset: to.offset + at, total: data }, payload, sent);
    }
  }

  get(from: FarPlace, to: number, bytes: number, done: () => void): void {
    const extra = this.#numAsked++;
    this.#questions.set(extra, { to, bytes, left: bytes, done });
    this.#send(KIND.get, from.rank, slotOf(from, "plain"), { offset: from.offset, total: bytes, extra });
  }

  signal(rank: number, counter: number, times: number): void {
    this.#send(KIND.raise, rank, counter, { offset: 0, total: times });
  }

  fence(rank: number, done: () => void): void {
    // Whoever has ended a call has all that it needed, and nobody reads there what comes later.
    if (this.#left.has(rank)) {
      done();
      return;
    }
    const extra = this.#numAsked++;
    this.#fences.set(extra, { rank, done });
    this.#send(KIND.fence, rank, 0, { offset: 0, total: 0, extra });
  }

  #send(
    kind: Head["kind"],
    rank: number,
    slot: number,
    more: { readonly offset: number; readonly total: number; readonly extra?: number },
    payload?: Uint8Array,
    done?: () => void,
  ): void {
    if (this.#turn === undefined) return;
    const { seq, print } = this.#turn;
    const name = { group: this.#group, lane: LANE.collective, seq, slot };
    this.#inboxes[rank]?.link.plan(kind, name, { print, extra: 0, ...more }, payload, done);
  }

  // What others' plans do to this rank.

  /** Where the payload of `put` and `got` goes; undefined: nowhere. @throws FormatError */
  place(member: number, head: Head): Uint8Array | undefined {
    if (head.kind === KIND.got) {
      const question = this.#questions.get(head.extra);
      if (question === undefined || head.offset + head.bytes > question.bytes) throw this.#unasked(member, head);
      return this.#memory.bytes(question.to + head.offset, head.bytes);
    }
    const run = this.#runOf(member, head);
    if (run === undefined) return undefined;
    const { buffer, form } = readSlot(head.slot);
    const wire = form === "raw" ? 8 * Math.ceil(head.total / 4) : head.total;
    const at = wire === head.bytes ? run.place(buffer, head.offset, head.total) : undefined;
    if (at === undefined) throw this.#unasked(member, head);
    return this.#isCopied(member, form) ? new Uint8Array(head.bytes) : this.#memory.bytes(at, head.bytes);
  }

  /**
   * Whether a payload goes to its place when it is whole: one that becomes packets, and one of packets that is to be verified
   * first, for a strand takes a packet as soon as its flag is there.
   */
  #isCopied(member: number, form: FarForm): boolean {
    return form === "packets" || (form === "raw" && this.#inboxes[member]?.link.hasSums === true);
  }

  /** A payload is there. */
  arrived(member: number, head: Head, payload: Uint8Array): void {
    if (head.kind === KIND.got) {
      const question = this.#questions.get(head.extra);
      if (question === undefined) return;
      question.left -= head.bytes;
      if (question.left > 0) return;
      this.#questions.delete(head.extra);
      question.done();
      return;
    }
    const run = this.#runOf(member, head);
    const { buffer, form } = readSlot(head.slot);
    if (run === undefined || form === "plain") return;
    const at = this.#isCopied(member, form) ? run.place(buffer, head.offset, head.total) : undefined;
    if (at !== undefined && form === "packets") run.pack(at, payload);
    else if (at !== undefined) this.#memory.bytes(at, payload.length).set(payload);
    run.changed();
  }

  /** A frame without a payload. @throws FormatError */
  told(member: number, head: Head): void {
    switch (head.kind) {
      case KIND.fence:
        // Perhaps of a call that this rank has ended.
        this.#reply(KIND.fenced, member, head, 0, 0);
        return;
      case KIND.fenced: {
        const asked = this.#fences.get(head.extra);
        if (asked?.rank !== member) return;
        this.#fences.delete(head.extra);
        asked.done();
        return;
      }
      case KIND.raise: {
        const run = this.#runOf(member, head);
        if (run === undefined) return;
        if (!run.raised(head.slot, head.total)) throw this.#unasked(member, head);
        run.changed();
        return;
      }
      case KIND.get:
        this.#answer(member, head);
        return;
      default:
    }
  }

  #answer(member: number, head: Head): void {
    const { slot, offset, total } = head;
    const at = this.#runOf(member, head)?.place(readSlot(slot).buffer, offset, total);
    if (at === undefined) throw this.#unasked(member, head);
    for (let from = 0; from < total; from += MAX_FRAME_BYTES) {
      const bytes = Math.min(MAX_FRAME_BYTES, total - from);
      // Whoever asks says that it has read before this rank may change it.
      const payload = this.#memory.bytes(at + from, bytes);
      this.#reply(KIND.got, member, head, from, total, payload);
    }
  }

  /** Answers a question. @throws FormatError where answers wait because the member does not read */
  #reply(
    kind: FrameKind,
    member: number,
    { seq, print, extra }: Head,
    offset: number,
    total: number,
    payload?: Uint8Array,
  ): void {
    const name = { group: this.#group, lane: LANE.collective, seq, slot: 0 };
    this.#inboxes[member]?.link.answer(kind, name, { print, offset, total, extra }, payload);
  }

  /** The run that a frame belongs to; undefined for one that is over. @throws FormatError for one that has not begun */
  #runOf(member: number, head: Head): FarRun | undefined {
    const turn = this.#turn;
    if (turn !== undefined && head.seq < turn.seq) return undefined;
    if (turn === undefined || head.seq > turn.seq) throw this.#unasked(member, head);
    return turn.run;
  }

  #unasked(member: number, { kind, seq, offset, total }: Head): FormatError {
    const rank = this.#inboxes[member]?.link.rank ?? member;
    return new FormatError(
      `rank ${rank}`,
      `sent a ${nameOfKind(kind)} of a plan that has no place here: call ${seq}, ${total} bytes at ${offset}`,
    );
  }
}

function readSlot(slot: number) {
  const buffer = REACHES[Math.floor(slot / FORMS.length)] ?? "input";
  return { buffer, form: FORMS[slot % FORMS.length] ?? "plain" };
}
