/**
 * What the other members of a group called: whether they came to a call, whether theirs differs, and the report when it
 * does. Everybody publishes its call's fingerprint in a slot; a member that is ahead has overwritten its slot, and the
 * flight recorder knows what it called.
 */
import { MismatchError, type MismatchSide, traceOfCall } from "../../../core/index.ts";
import { callSite, describeWords, unpackCall } from "../../comm/index.ts";
import type { FlightRing } from "./flight-ring.ts";
import { type groupLayout, RING, SLOT, stampOf, TEXT_BYTES } from "./layout.ts";
import type { ThreadsWork } from "./threads-work.ts";

/** Calls that a report looks back to: as many messages as a ring holds, twice. */
const MAX_LOOK_BACK = 2 * RING.numMessages;

/**
 * Milliseconds that a report waits for the words of a member in the same call, which writes them when it next looks at it, and
 * of one that has gone on, which may have written them before.
 */
const TEXT_WAIT_MS = { inCall: 500, past: 10 } as const;

/** The group's engine, as far as its reports use it. */
interface PeerEngine {
  readonly name: string;
  readonly ranks: readonly number[];
  readonly me: number;
  readonly size: number;
  readonly block: number;
  readonly words: Int32Array;
  readonly layout: ReturnType<typeof groupLayout>;
  readonly flight: FlightRing;
}

/** What a member called. */
interface PeerCall {
  readonly call: number;
  readonly count: number;
}

export class PeerCalls {
  readonly #engine: PeerEngine;

  constructor(engine: PeerEngine) {
    this.#engine = engine;
  }

  /** Word index of member `r`'s slot for a call: one of two, by the parity of its number. */
  slot(r: number, seq: number): number {
    const { block, layout, size } = this.#engine;
    return (block + layout.slots + (((seq + 1) & 1) * size + r) * SLOT.sizeBytes) / 4;
  }

  /** Whether a member has made the call, or one after it. */
  hasCome(r: number, seq: number): boolean {
    return this.#lead(r, seq) >= 0;
  }

  /** Whether a member has made a call after this one. */
  isPast(r: number, seq: number): boolean {
    return this.#lead(r, seq) > 0;
  }

  /** How many calls a member is ahead of this one; negative when it has not come to it. */
  #lead(r: number, seq: number): number {
    const { words } = this.#engine;
    const lead = (parity: number) => (Atomics.load(words, this.slot(r, seq + parity)) - stampOf(seq)) | 0;
    return Math.max(lead(0), lead(1));
  }

  /**
   * Whether a member's call of this number differs from ours, or, unless that is allowed, it went on to later ones.
   * Of a difference it makes sure: a member that runs ahead may be writing the slot just now.
   */
  disagree(work: ThreadsWork<unknown>, mayBePast: boolean): boolean {
    const { me, size, words } = this.#engine;
    for (let r = 0; r < size; r++) {
      if (r === me) continue;
      if (!mayBePast && this.#hasOverwritten(r, work.seq)) return true;
      if (!this.#differs(r, work)) continue;
      const slot = this.slot(r, work.seq);
      Atomics.wait(words, slot, stampOf(work.seq), 1);
      if (this.#differs(r, work)) return true;
    }
    return false;
  }

  /** Whether a member is so far ahead that its slot of the call holds a later one. */
  #hasOverwritten(r: number, seq: number): boolean {
    return ((Atomics.load(this.#engine.words, this.slot(r, seq)) - stampOf(seq)) | 0) > 0;
  }

  #differs(r: number, { seq, call, count, extra }: ThreadsWork<unknown>): boolean {
    const { words } = this.#engine;
    const at = this.slot(r, seq);
    if (Atomics.load(words, at) !== stampOf(seq)) return false;
    const own = this.slot(this.#engine.me, seq);
    const isPublished = Atomics.load(words, own) === stampOf(seq);
    return (
      (isPublished && words[at + SLOT.history / 4] !== words[own + SLOT.history / 4]) ||
      words[at + SLOT.call / 4] !== call ||
      words[at + SLOT.count / 4] !== (count | 0) ||
      words[at + SLOT.extra / 4] !== extra
    );
  }

  /** What member `r` called, if it came. */
  #callOf(r: number, seq: number): PeerCall | undefined {
    const { words, ranks, block, flight } = this.#engine;
    const at = this.slot(r, seq);
    if (Atomics.load(words, at) === stampOf(seq)) {
      return { call: words[at + SLOT.call / 4]!, count: words[at + SLOT.count / 4]! };
    }
    return r === this.#engine.me || this.isPast(r, seq) ? flight.callOf(ranks[r] as number, block, seq) : undefined;
  }

  /** The error with what every rank that came asked for. `problem`: what is wrong, where the fingerprints do not say it. */
  report(work: ThreadsWork<unknown>, problem?: string): MismatchError {
    const { name, ranks } = this.#engine;
    const seq = this.#firstDifference(work.seq);
    if (seq === work.seq) this.#writeText(work);
    const there = ranks.flatMap((rank, r) => {
      const made = this.#callOf(r, seq);
      return made === undefined ? [] : [{ rank, r, made }];
    });
    this.#awaitTexts(
      seq,
      there.map(({ r }) => r),
    );
    const sides = there.map(({ rank, r, made }): MismatchSide => {
      const text = this.#readText(r, seq);
      const call = text?.call ?? describeWords(made.call, made.count >>> 0);
      return { rank, call, ...(text?.site === undefined ? {} : { callSite: text.site }) };
    });
    const ops = new Set(there.map(({ made }) => unpackCall(made.call).op));
    const what = problem ?? (ops.size > 1 ? "the operations differ" : "the arguments differ");
    return new MismatchError(`mismatch at operation #${seq} of group ${name}: ${what}`, sides);
  }

  /** The call that differs: this one, or, when roots ran ahead, one of those just before it. */
  #firstDifference(seq: number): number {
    const { ranks } = this.#engine;
    for (let before = Math.max(0, seq - MAX_LOOK_BACK); before < seq; before++) {
      const calls = ranks.flatMap((_, r) => this.#callOf(r, before) ?? []);
      if (calls.some(({ call, count }) => call !== calls[0]?.call || count !== calls[0]?.count)) return before;
    }
    return seq;
  }

  #textAt(r: number): number {
    return this.#engine.block + this.#engine.layout.texts + r * TEXT_BYTES;
  }

  /** Tells the peers our side in full; they can read the fingerprint, but not our source. */
  #writeText(work: ThreadsWork<unknown>): void {
    const { words, me } = this.#engine;
    const at = this.#textAt(me);
    const site = callSite(work.trace ?? traceOfCall());
    const call = describeWords(work.call, work.count) + work.detail;
    let bytes = new TextEncoder().encode(JSON.stringify({ call, ...(site === undefined ? {} : { site }) }));
    if (bytes.length > TEXT_BYTES - 8) bytes = new TextEncoder().encode(JSON.stringify({ call: call.slice(0, 200) }));
    new Uint8Array(words.buffer, at + 8, bytes.length).set(bytes);
    words[at / 4 + 1] = bytes.length;
    Atomics.store(words, at / 4, stampOf(work.seq));
  }

  /** Leaves for the flight recorder where a member's strands stand in the plan of a call. What does not fit is counted. */
  noteStrands(r: number, seq: number, strands: readonly string[]): void {
    const { words } = this.#engine;
    const at = this.#textAt(r);
    if (strands.length === 0) return;
    Atomics.store(words, at / 4, 0);
    const bytes = strandsText(strands, TEXT_BYTES - 8);
    new Uint8Array(words.buffer, at + 8, bytes.length).set(bytes);
    words[at / 4 + 1] = bytes.length;
    Atomics.store(words, at / 4, stampOf(seq));
  }

  #awaitTexts(seq: number, there: readonly number[]): void {
    const { words } = this.#engine;
    for (const r of there) {
      const word = this.#textAt(r) / 4;
      const until = performance.now() + TEXT_WAIT_MS[this.isPast(r, seq) ? "past" : "inCall"];
      while (performance.now() < until) {
        const seen = Atomics.load(words, word);
        if (seen === stampOf(seq)) break;
        Atomics.wait(words, word, seen, 1);
      }
    }
  }

  #readText(r: number, seq: number): { call: string; site?: string } | undefined {
    const { words } = this.#engine;
    const at = this.#textAt(r);
    if (Atomics.load(words, at / 4) !== stampOf(seq)) return undefined;
    const length = words[at / 4 + 1]!;
    try {
      return JSON.parse(new TextDecoder().decode(new Uint8Array(words.buffer, at + 8, length).slice()));
    } catch {
      return undefined;
    }
  }
}

/** As many of the strands as fit, as JSON; the first one is cut where even it is too long. */
function strandsText(strands: readonly string[], mostBytes: number): Uint8Array {
  const encode = (list: readonly string[]) => new TextEncoder().encode(JSON.stringify({ strands: list }));
  for (let kept = strands.length; kept > 0; kept--) {
    const more = kept === strands.length ? [] : [`and ${strands.length - kept} more`];
    const bytes = encode([...strands.slice(0, kept), ...more]);
    if (bytes.length <= mostBytes) return bytes;
  }
  return encode([strands[0]?.slice(0, 100) ?? "", `and ${strands.length - 1} more`]);
}
