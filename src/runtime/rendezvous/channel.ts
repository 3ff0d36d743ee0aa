/**
 * Frames of the rendezvous over one TCP connection: a length of four bytes, big endian, and a JSON text. After the
 * handshake (handshake.ts) each frame ends with an HMAC of its direction's key, its number and its text, so that nothing
 * can be put in, repeated or left out. It does not encrypt: where that is wanted the socket does (socket-transports.ts).
 */
import type { Socket } from "node:net";
import { FormatError, wordTable } from "../../core/index.ts";
import { signed, verifiedText } from "./frame-mac.ts";
import { readLastWords } from "./last-words.ts";

/** Before the peer has proved itself. */
const MAX_HANDSHAKE_BYTES = 4 * 1024;
/** A value of 64 KiB in base64, and what is around it. */
const MAX_FRAME_BYTES = 128 * 1024;
/** A peer that does not read is dropped when this much waits for it. */
const MAX_UNREAD_BYTES = 16 * 1024 * 1024;
const LENGTH_BYTES = 4;
/** How a TLS handshake begins: its type, and the major version. */
const TLS_RECORD = 0x1603;

/** Why an address cannot be listened on, by the system's code. */
export const LISTEN_ERRORS: Readonly<Record<string, string>> = wordTable({
  EADDRNOTAVAIL: "this host does not have it",
  EADDRINUSE: "another program listens there",
  ENOTFOUND: "the name cannot be looked up",
  EAI_AGAIN: "the name cannot be looked up now",
});

export interface ChannelKeys {
  readonly send: Buffer;
  readonly receive: Buffer;
}

export interface ChannelListener {
  message(message: Readonly<Record<string, unknown>>): void;
  /** Is called once. `error` says what was wrong with the bytes or the connection, when something was. */
  end(error: Error | undefined): void;
}

/** One end of a connection. */
export class Channel {
  readonly socket: Socket;
  readonly #listener: ChannelListener;
  readonly #peer: string;
  readonly #maxUnreadBytes: number;
  #keys: ChannelKeys | undefined;
  #sent = 0;
  #received = 0;
  #rest: Buffer = Buffer.alloc(0);
  #ended = false;

  /**
   * @param peer who is at the other end, for errors
   * @param maxUnreadBytes a peer that leaves more than this unread is dropped
   */
  constructor(socket: Socket, peer: string, listener: ChannelListener, maxUnreadBytes = MAX_UNREAD_BYTES) {
    this.socket = socket;
    this.#peer = peer;
    this.#maxUnreadBytes = maxUnreadBytes;
    this.#listener = listener;
    socket.setNoDelay(true);
    socket.on("data", this.#data);
    socket.on("error", this.#failed);
    socket.on("close", this.#closed);
  }

  /** Checks and signs every later frame. */
  secure(keys: ChannelKeys): void {
    this.#keys = keys;
    this.#sent = 0;
    this.#received = 0;
  }

  send(message: object): void {
    if (this.#ended || !this.socket.writable) return;
    const text = Buffer.from(JSON.stringify(message));
    const frame = this.#keys === undefined ? text : signed(this.#keys.send, this.#sent++, text);
    const length = Buffer.alloc(LENGTH_BYTES);
    length.writeUInt32BE(frame.length);
    this.socket.write(Buffer.concat([length, frame]), this.#written);
    if (this.socket.writableLength > this.#maxUnreadBytes) this.#end(new FormatError(this.#peer, "does not read"));
  }

  /** Sends what is queued and closes. */
  close(): void {
    this.#ended = true;
    this.socket.end();
    this.socket.destroySoon();
  }

  /** Reads from a connection whose handshake another channel has made, and which that one let go: `rest` comes first. */
  resume(rest: Uint8Array): void {
    this.#take(Buffer.from(rest));
    this.socket.resume();
  }

  /**
   * Lets the socket go to another protocol: paused, without this channel's listeners but one for errors.
   * @returns what was read beyond the last frame
   */
  release(): Uint8Array {
    this.#ended = true;
    this.socket.pause();
    this.socket.off("data", this.#data).off("close", this.#closed).off("error", this.#failed);
    this.socket.on("error", () => {});
    const rest = this.#rest;
    this.#rest = Buffer.alloc(0);
    return rest;
  }

  /** Closes at once. */
  destroy(): void {
    this.#ended = true;
    this.socket.destroy();
  }

  readonly #data = (chunk: Buffer | string): void => this.#take(typeof chunk === "string" ? Buffer.from(chunk) : chunk);
  readonly #failed = (error: Error): void => this.#end(error);
  readonly #closed = (): void => this.#end(undefined);

  /** Called when a write is done. A peer that has left may have said why: its words count before the error. */
  readonly #written = (error?: Error | null): void => {
    if (error === undefined || error === null || this.#ended) return;
    readLastWords(this.socket, (chunk) => {
      this.#take(chunk);
      return !this.#ended;
    });
    this.#end(error);
  };

  #take(chunk: Buffer): void {
    if (this.#ended) return;
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    while (!this.#ended && this.#rest.length >= LENGTH_BYTES) {
      const limit = this.#keys === undefined ? MAX_HANDSHAKE_BYTES : MAX_FRAME_BYTES;
      const length = this.#rest.readUInt32BE(0);
      if (length === 0 || length > limit) {
        const isTls = this.#keys === undefined && length >>> 16 === TLS_RECORD;
        if (isTls) this.#end(new FormatError(this.#peer, "uses TLS, and this side does not"));
        this.#end(new FormatError(this.#peer, `sent a frame of ${length} bytes; expected 1 to ${limit}`));
        return;
      }
      if (this.#rest.length < LENGTH_BYTES + length) return;
      const frame = this.#rest.subarray(LENGTH_BYTES, LENGTH_BYTES + length);
      this.#rest = this.#rest.subarray(LENGTH_BYTES + length);
      try {
        this.#listener.message(this.#open(frame));
      } catch (error) {
        this.#end(error as Error);
      }
    }
  }

  #open(frame: Buffer): Readonly<Record<string, unknown>> {
    const text = this.#keys === undefined ? frame : verifiedText(this.#keys.receive, this.#received++, frame);
    if (text === undefined) throw new FormatError(this.#peer, "sent a frame whose signature is wrong");
    let message: unknown;
    try {
      message = JSON.parse(text.toString("utf8"));
    } catch (cause) {
      throw new FormatError(this.#peer, "sent a frame that is not JSON", { cause });
    }
    if (typeof message !== "object" || message === null || Array.isArray(message)) {
      throw new FormatError(this.#peer, "sent a frame that is not an object");
    }
    return message as Record<string, unknown>;
  }

  #end(error: Error | undefined): void {
    if (this.#ended) return;
    this.#ended = true;
    this.socket.destroy();
    this.#listener.end(error);
  }
}
