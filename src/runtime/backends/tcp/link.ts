/**
 * The way to one other rank: one connection, or several that share the frames of large messages. Small messages are
 * sent before anybody asks for them, as far as the receiver has room: it says what it has taken, and at most WINDOW_BYTES
 * of them are on their way or wait there, which both ends count. Large ones are sent when the receiver has said where they go.
 */
import { FormatError } from "../../../core/index.ts";
import { signed, verifiedText } from "../../rendezvous/index.ts";
import type { Connection } from "./connection.ts";
import {
  COPIED_BYTES,
  type FrameKind,
  HEAD_BYTES,
  type Head,
  KIND,
  MAX_FRAME_BYTES,
  type MessageName,
  type Print,
  writeHead,
} from "./frame.ts";
import { SUMMED_HEAD_BYTES, sealHead } from "./frame-checksum.ts";

/** Most bytes of small messages that a rank keeps for one peer before its program has asked for them. */
export const WINDOW_BYTES = 4 * 1024 * 1024;
/** So much is taken before it is said. */
const CREDIT_STEP_BYTES = WINDOW_BYTES / 4;
/** Most grants that leave together. */
const MAX_HELD = 16;
/**
 * Answers that wait because the other end does not read: an honest one waits for each, in every strand of a plan and every group,
 * and what a plan asks for lies in memory of at most 1 GiB.
 */
const MAX_ANSWERS = 2 ** 17;
const MAX_ANSWER_BYTES = 2 ** 31;

/** Keys of one direction each, from the handshake of the first connection. */
export interface LinkKeys {
  readonly send: Buffer;
  readonly receive: Buffer;
}

/** A message that leaves. */
export interface Outgoing extends MessageName {
  readonly print: Print;
  readonly extra: number;
  readonly payload: Uint8Array;
  /** The memory may change again. */
  readonly done: () => void;
}

/** What a frame of a plan says beside its name. */
type PlanFields = Pick<Head, "print" | "offset" | "total" | "extra">;

const NO_PRINT: Print = Object.freeze({ call: 0, count: 0, hash: 0 });
const NO_NAME: MessageName = Object.freeze({ group: Object.freeze({ low: 0, high: 0 }), lane: 0, seq: 0, slot: 0 });

/** Of all links of a rank: whether grants leave at once, or together when those who made them are done. */
export class GrantHolds {
  readonly #links: Link[] = [];
  #depth = 0;

  get isHolding(): boolean {
    return this.#depth > 0;
  }

  /** A link has a grant that was not written. */
  add(link: Link): void {
    this.#links.push(link);
  }

  hold(): void {
    this.#depth++;
  }

  release(): void {
    if (--this.#depth > 0) return;
    for (const link of this.#links) link.writeHeld();
    this.#links.length = 0;
  }
}

export class Link {
  /** World rank of the other end. */
  readonly rank: number;
  /** Where it is, for messages. */
  readonly address: string;
  readonly connections: readonly Connection[];
  /** Those over which this end sends large messages. */
  readonly #large: readonly Connection[];
  readonly #keys: LinkKeys;
  /** Grants that are held, and the frame that leaves behind them. */
  readonly #frame = new Uint8Array((MAX_HELD + 1) * SUMMED_HEAD_BYTES + COPIED_BYTES);
  readonly #words = new Int32Array(this.#frame.buffer);
  readonly #holds: GrantHolds;
  #heldBytes = 0;
  /** Small messages that the other end has no room for. */
  readonly #held: Outgoing[] = [];
  #onTheWay = 0;
  /** Answers that were not written yet, and their payloads. */
  #numAnswers = 0;
  #answerBytes = 0;
  /** Small messages that came, as long as the other end was not told that they were taken. */
  #arrivedBytes = 0;
  #takenBytes = 0;
  #next = 0;
  #controlsSent = 0;
  #controlsReceived = 0;
  /** It said that it leaves: the end of its connections is no failure. */
  saidBye = false;

  constructor(
    rank: number,
    address: string,
    connections: readonly Connection[],
    keys: LinkKeys,
    holds: GrantHolds = new GrantHolds(),
    large = connections,
  ) {
    this.rank = rank;
    this.address = address;
    this.connections = connections;
    this.#keys = keys;
    this.#holds = holds;
    this.#large = large;
  }

  get isOver(): boolean {
    return this.connections.some(({ isOver }) => isOver);
  }

  /** Sends a message of at most EAGER_BYTES (frame.ts) as soon as there is room for it. Its memory is free when `done` was called. */
  sendSmall(message: Outgoing): void {
    if (this.isOver) return;
    if (this.#held.length > 0 || this.#onTheWay + HEAD_BYTES + message.payload.length > WINDOW_BYTES) {
      this.#held.push(message);
      return;
    }
    this.#onTheWay += HEAD_BYTES + message.payload.length;
    const { payload, print, extra } = message;
    const end = this.#put(KIND.data, message, print, extra, 0, payload, payload.length);
    if (payload.length > COPIED_BYTES) this.#first.write(this.#taken(end), payload);
    else this.#writeCopied(end, payload);
    message.done();
  }

  /** Sends a message that the other end has asked for, over the connections for large ones. Its memory is free when `done` was called. */
  sendLarge(message: Outgoing): void {
    const { payload, print, extra } = message;
    let left = Math.ceil(payload.length / MAX_FRAME_BYTES);
    const done = () => {
      if (--left === 0) message.done();
    };
    const large = this.#large;
    for (let offset = 0; offset < payload.length; offset += MAX_FRAME_BYTES) {
      const part = payload.subarray(offset, offset + MAX_FRAME_BYTES);
      const connection = large[this.#next++ % large.length] ?? this.#first;
      if (connection !== this.#first) this.writeHeld();
      const end = this.#put(KIND.data, message, print, extra, offset, part, payload.length);
      connection.write(this.#taken(end), part, done);
    }
  }

  /** Asks for a message: at once, or with what is written next while grants are held. */
  grant(name: MessageName, print: Print, total: number, extra: number): void {
    if (this.#heldBytes === MAX_HELD * this.#headBytes) this.writeHeld();
    const isFirst = this.#heldBytes === 0;
    this.#heldBytes = this.#put(KIND.grant, name, print, extra, 0, undefined, total);
    if (!this.#holds.isHolding) this.writeHeld();
    else if (isFirst) this.#holds.add(this);
  }

  /** Writes the grants that are held. */
  writeHeld(): void {
    if (this.#heldBytes > 0) this.#first.write(this.#taken(this.#heldBytes), undefined);
  }

  /** Sends a frame without a payload. */
  signal(kind: FrameKind, name: MessageName, print: Print = NO_PRINT, total = 0, extra = 0): void {
    this.#first.write(this.#taken(this.#put(kind, name, print, extra, 0, undefined, total)), undefined);
  }

  /**
   * Sends a frame of a plan, on the connection that keeps the order of all of them. The payload must stay as it is until
   * `done` was called, perhaps before this returns.
   */
  plan(
    kind: FrameKind,
    name: MessageName,
    { print, offset, total, extra }: PlanFields,
    payload?: Uint8Array,
    done?: () => void,
  ): void {
    if (this.isOver) return;
    const bytes = payload?.length ?? 0;
    const end = this.#put(kind, name, print, extra, offset, payload, total);
    if (payload === undefined || bytes > COPIED_BYTES || this.#first.isBlocked) {
      this.#first.write(this.#taken(end), payload, done);
      return;
    }
    this.#writeCopied(end, payload);
    done?.();
  }

  /**
   * Sends what the other end has asked for, as `plan` does.
   * @throws FormatError where it asks again and again, and does not read
   */
  answer(kind: FrameKind, name: MessageName, fields: PlanFields, payload?: Uint8Array): void {
    const bytes = payload?.length ?? 0;
    this.#numAnswers++;
    this.#answerBytes += bytes;
    this.plan(kind, name, fields, payload, () => {
      this.#numAnswers--;
      this.#answerBytes -= bytes;
    });
    if (this.#numAnswers <= MAX_ANSWERS && this.#answerBytes <= MAX_ANSWER_BYTES) return;
    const most = `expected at most ${MAX_ANSWERS} answers and ${MAX_ANSWER_BYTES} bytes that wait for it`;
    const what = `asked and does not read: ${this.#numAnswers} answers of ${this.#answerBytes} bytes wait; ${most}`;
    throw new FormatError(`rank ${this.rank} (${this.address})`, what);
  }

  /** Sends a signed object. */
  control(value: object): void {
    const text = Buffer.from(JSON.stringify(value));
    const payload = signed(this.#keys.send, this.#controlsSent++, text);
    const end = this.#put(KIND.control, NO_NAME, NO_PRINT, 0, 0, payload, payload.length);
    this.#first.write(this.#taken(end), payload);
  }

  /** Reads what `control` made at the other end. @throws FormatError when it is not that */
  readControl(payload: Uint8Array): Readonly<Record<string, unknown>> {
    const peer = `rank ${this.rank} (${this.address})`;
    const text = verifiedText(this.#keys.receive, this.#controlsReceived++, Buffer.from(payload));
    if (text === undefined) throw new FormatError(peer, "sent a control frame whose signature is wrong");
    try {
      const value: unknown = JSON.parse(text.toString("utf8"));
      if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
    } catch {
      // Said below.
    }
    throw new FormatError(peer, "sent a control frame that is no JSON object");
  }

  /**
   * A small message begins to arrive. The other end counts what it sends before this rank counts it, and hears of room after
   * this rank has counted that: one that keeps to the window never exceeds it here.
   * @throws FormatError when it exceeds the window
   */
  arrives(payloadBytes: number): void {
    this.#arrivedBytes += HEAD_BYTES + payloadBytes;
    if (this.#arrivedBytes <= WINDOW_BYTES) return;
    const what = `sent ${this.#arrivedBytes} bytes of messages before this rank took any; expected at most ${WINDOW_BYTES}`;
    throw new FormatError(`rank ${this.rank} (${this.address})`, what);
  }

  /** Says, now and then, how much room there is again. @param payloadBytes of a small message that was taken */
  took(payloadBytes: number): void {
    this.#takenBytes += HEAD_BYTES + payloadBytes;
    if (this.#takenBytes < CREDIT_STEP_BYTES) return;
    this.signal(KIND.credit, NO_NAME, NO_PRINT, this.#takenBytes);
    this.#arrivedBytes -= this.#takenBytes;
    this.#takenBytes = 0;
  }

  /** The other end has taken so much: what was held back may go. */
  refill(bytes: number): void {
    this.#onTheWay = Math.max(0, this.#onTheWay - bytes);
    for (const message of this.#held.splice(0)) this.sendSmall(message);
  }

  /** Writes what waits on each connection. */
  flush(): void {
    for (const connection of this.connections) connection.flush();
  }

  /** Reads what is there on the connection over which control messages come. */
  receiveFirst(): void {
    this.#first.receive();
  }

  /** Ends it. */
  finish(error?: Error): void {
    this.#held.length = 0;
    for (const connection of this.connections) connection.finish(error);
  }

  /** Whether frames have checksums: on all connections of a pair, or on none. */
  get hasSums(): boolean {
    return this.#first.hasSums;
  }

  get #first(): Connection {
    return this.connections[0] as Connection;
  }
  get #headBytes(): number {
    return this.hasSums ? SUMMED_HEAD_BYTES : HEAD_BYTES;
  }

  /** Writes a head, and the sums of its frame, behind the grants that are held. @returns where it ends, and its payload begins */
  #put(
    kind: FrameKind,
    name: MessageName,
    print: Print,
    extra: number,
    offset: number,
    payload: Uint8Array | undefined,
    total: number,
  ): number {
    const at = this.#heldBytes;
    writeHead(this.#words, at / 4, kind, name, print, extra, offset, payload?.length ?? 0, total);
    if (this.hasSums) sealHead(this.#frame, this.#words, at, payload);
    return at + this.#headBytes;
  }

  /** Writes a frame whose head ends at `end`, with its payload, in one call. */
  #writeCopied(end: number, payload: Uint8Array): void {
    this.#frame.set(payload, end);
    this.#first.write(this.#taken(end + payload.length), undefined);
  }

  /** What leaves: grants that were held, and the frame behind them. */
  #taken(end: number): Uint8Array {
    this.#heldBytes = 0;
    return this.#frame.subarray(0, end);
  }
}
