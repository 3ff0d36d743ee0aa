/**
 * The connection between the launchers of two hosts of a world: the messages of ranks (messages.ts), and a heartbeat by
 * which each side learns that the other is gone, stopped or cut off. Every frame is authenticated; whether it is encrypted, the socket decides (rendezvous/socket-transports.ts).
 */
import { FormatError } from "../../core/index.ts";
import type { FlightDump } from "../comm/index.ts";
import { Channel, type PeerSocket } from "../rendezvous/index.ts";
import { answers } from "./host-probe.ts";
import type { FromRank, ToRank } from "./messages.ts";
import { encodeFrame, FrameReader } from "./rank-frames.ts";
import type { ErrorRecord } from "./remote-error.ts";

/** What launchers say to each other. `slot` names a rank of the sending or receiving host, whatever its number. */
export type NodeMessage =
  /** The first words of a host that joins. */
  | { readonly kind: "hello"; readonly ranks: number; readonly host: string; readonly pid: number }
  | { readonly kind: "start"; readonly slot: number }
  | { readonly kind: "to-rank"; readonly slot: number; readonly message: ToRank }
  | { readonly kind: "from-rank"; readonly slot: number; readonly message: FromRank }
  | { readonly kind: "crash"; readonly slot: number; readonly error: ErrorRecord }
  | { readonly kind: "exit"; readonly slot: number; readonly exitCode: number; readonly reason: string }
  | { readonly kind: "terminate"; readonly slot: number }
  /** The world is over, well or not. */
  | { readonly kind: "ended"; readonly failure?: WorldEnd }
  /** A host that joined was told to end. */
  | { readonly kind: "leaving"; readonly reason: string }
  /** The first host writes flight files: the others are to send theirs when a generation fails, and do. */
  | { readonly kind: "wants-flight" }
  /** They are to send theirs now: a person has asked for it. */
  | { readonly kind: "asks-flight" }
  | { readonly kind: "flight"; readonly dump: FlightDump; readonly isAsked?: true }
  /** For the part of the backend that the hosts of a generation have each (`HostMirror`). */
  | { readonly kind: "mirror"; readonly generation: number; readonly message: object }
  | { readonly kind: "beat" };

/** How a world failed. */
export interface WorldEnd {
  readonly error: ErrorRecord;
  /** The rank that failed first, if one did. */
  readonly rank?: number;
  readonly generation: number;
}

/** How long the other host may be silent before it is taken for lost, ms. */
export const DEFAULT_HOST_TIMEOUT_MS = 10_000;
const BEAT_MS = 500;
/** A longer pause between two looks counts as this, ms: this launcher itself was stopped, or lacked a core. */
const LONGEST_PAUSE_MS = 1.5 * BEAT_MS;
/** How much later a silent host is given up while it is not known whether it answers, ms. */
const REASON_MS = 1_000;
/** A frame of the channel has 128 KiB, base64 and signature included. */
const PIECE_BYTES = 64 * 1024;
/** Jobs and results of many ranks may wait for a slow network. */
const MAX_UNREAD_BYTES = 1024 * 1024 * 1024;

interface NodeListener {
  message(message: NodeMessage): void;
  /** The other launcher is gone; called once. @param reason the end of a sentence about it */
  lost(reason: string): void;
}

export class NodeLink {
  /** The address of this host by which the other one is reached. */
  readonly localAddress: string;
  readonly #channel: Channel;
  readonly #beating: NodeJS.Timeout;
  readonly #listener: NodeListener;
  #lookedAt = performance.now();
  /** How long the other one has said nothing, ms, as far as this launcher looked. */
  #silentMs = 0;
  #isProbing = false;
  /** Whether the silent launcher's host answered last. */
  #isReachable: boolean | undefined;
  #hasWarned = false;
  #over = false;

  /** @param name who is at the other end, for errors */
  constructor({ socket, keys, rest }: PeerSocket, name: string, timeoutMs: number, listener: NodeListener) {
    this.localAddress = (socket.localAddress ?? "").replace(/^::ffff:/, "");
    this.#listener = listener;
    // handOver left a listener that ignores errors.
    socket.removeAllListeners("error");
    const reader = new FrameReader((message) => {
      if (!this.#over) this.#take(message, name);
    });
    this.#channel = new Channel(
      socket,
      name,
      {
        message: ({ data }) => {
          this.#silentMs = 0;
          if (typeof data !== "string") throw new FormatError(name, "sent a frame without data");
          reader.push(Buffer.from(data, "base64"));
        },
        end: (error) =>
          this.#lose(
            error === undefined ? "closed its connection without a word" : error.message.replace(`${name}: `, ""),
          ),
      },
      MAX_UNREAD_BYTES,
    );
    this.#channel.secure(keys);
    // Whoever makes this object hears nothing before it is made.
    setImmediate(() => this.#channel.resume(rest));
    this.#beating = setInterval(() => {
      this.send({ kind: "beat" });
      const now = performance.now();
      this.#silentMs += Math.min(now - this.#lookedAt, LONGEST_PAUSE_MS);
      this.#lookedAt = now;
      this.#watch(name, timeoutMs);
    }, BEAT_MS);
    this.#beating.unref();
  }

  /** Looks whether a launcher that says nothing is slow, stopped, or out of reach. */
  #watch(name: string, timeoutMs: number): void {
    const silentMs = this.#silentMs;
    // Why it is silent is known a moment later, if the answer took its time.
    if (silentMs >= timeoutMs + (this.#isReachable === undefined ? REASON_MS : 0)) {
      this.#lose(`was silent for ${timeoutMs / 1000} s${this.#whySilent()}`);
      return;
    }
    if (silentMs < Math.max(2 * BEAT_MS, timeoutMs / 2)) {
      if (this.#hasWarned) process.stderr.write(`chorale: ${name} speaks again\n`);
      this.#hasWarned = false;
      this.#isReachable = undefined;
      return;
    }
    if (this.#isProbing) return;
    this.#isProbing = true;
    const { remoteAddress = "", remotePort = 0 } = this.#channel.socket;
    void answers(remoteAddress, remotePort).then((isThere) => {
      this.#isProbing = false;
      if (this.#over || this.#silentMs < BEAT_MS) return;
      this.#isReachable = isThere;
      if (this.#silentMs >= timeoutMs) this.#watch(name, timeoutMs);
      if (this.#hasWarned || this.#over) return;
      this.#hasWarned = true;
      const limit = `it counts as lost after ${timeoutMs / 1000} s`;
      process.stderr.write(
        `chorale: ${name} is silent for ${(silentMs / 1000).toFixed(1)} s${this.#whySilent()}; ${limit}\n`,
      );
    });
  }

  #whySilent(): string {
    if (this.#isReachable === undefined) return "";
    return this.#isReachable
      ? ", though its host answers: it is stopped, or too busy to speak"
      : ", and its host does not answer: it is down, or the network between the hosts is cut";
  }

  /** @throws DOMException `DataCloneError` */
  send(message: NodeMessage): void {
    if (this.#over) return;
    const frame = encodeFrame(message);
    for (let at = 0; at < frame.length; at += PIECE_BYTES) {
      this.#channel.send({ data: frame.subarray(at, at + PIECE_BYTES).toString("base64") });
    }
  }

  /** Sends what is queued and ends the connection: the other side has been told why. */
  close(): void {
    if (this.#over) return;
    this.#stop();
    this.#channel.close();
  }

  #take(message: unknown, name: string): void {
    const { kind, slot } = (message ?? {}) as { readonly kind?: unknown; readonly slot?: unknown };
    if (typeof kind !== "string" || (slot !== undefined && !Number.isSafeInteger(slot))) {
      throw new FormatError(name, "sent a message that cannot be read");
    }
    if (kind !== "beat") this.#listener.message(message as NodeMessage);
  }

  #stop(): void {
    this.#over = true;
    clearInterval(this.#beating);
  }

  #lose(reason: string): void {
    if (this.#over) return;
    this.#stop();
    this.#channel.destroy();
    this.#listener.lost(reason);
  }
}
