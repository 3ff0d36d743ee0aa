/**
 * The link of a rank that another launcher started for ours (rank-gang.ts): a socket in a folder that is the user's alone.
 * Messages are those of rank-frames.ts; before them the rank says who it is, and at last with what code it leaves.
 */
import { writeSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { InvariantError } from "../../core/index.ts";
import { endWithParent } from "../../foreign/native/index.ts";
import { nap } from "../memory/index.ts";
import { foreignPlace } from "../rendezvous/internal.ts";
import type { FromRank, ToRank } from "./messages.ts";
import { encodeFrame, FrameReader } from "./rank-frames.ts";
import type { RankLink } from "./rank-link-contract.ts";

/** Tells a rank where its launcher listens. */
export const GANG_VARIABLE = "CHORALE_RANK_SOCKET";
/** Between two attempts to write to a launcher that is busy. */
const NAP_MS = 0.2;

/** What a rank says of itself, before and after all else. */
export type GangMessage =
  | { readonly kind: "gang-hello"; readonly rank: number; readonly pid: number }
  | { readonly kind: "gang-left"; readonly exitCode: number };

export class SocketLink implements RankLink {
  readonly kind = "process";
  readonly relaysOutput = true;
  readonly #socket: Socket;
  readonly #fd: number;

  private constructor(socket: Socket) {
    this.#socket = socket;
    // Messages must be out when `post` returns: a rank may end, or block, in the next moment.
    const fd = (socket as unknown as { readonly _handle?: { readonly fd?: number } })._handle?.fd;
    if (fd === undefined || fd < 0) throw new InvariantError("the launcher's socket has no descriptor");
    this.#fd = fd;
    const end = () => process.kill(process.pid, "SIGKILL");
    socket.on("close", end);
    socket.on("error", end);
  }

  static async open(path: string): Promise<SocketLink> {
    delete process.env[GANG_VARIABLE];
    // A launcher that is killed takes its own with it; this one too, whose parent is MPI's.
    endWithParent(process.ppid);
    const socket = await new Promise<Socket>((resolve, reject) => {
      const opening = connect(path, () => resolve(opening));
      opening.once("error", reject);
    });
    const link = new SocketLink(socket);
    const rank = foreignPlace(process.env)?.rank ?? 0;
    link.#send({ kind: "gang-hello", rank, pid: process.pid });
    process.once("exit", (exitCode) => link.#send({ kind: "gang-left", exitCode }));
    return link;
  }

  post(message: FromRank): void {
    this.#send(message);
  }

  onMessage(listener: (message: ToRank) => void): void {
    const reader = new FrameReader((message) => listener(message as ToRank));
    this.#socket.on("data", (chunk: Buffer) => reader.push(chunk));
  }

  ref(): void {
    this.#socket.ref();
  }

  unref(): void {
    this.#socket.unref();
  }

  #send(message: FromRank | GangMessage): void {
    const frame = encodeFrame(message);
    for (let at = 0; at < frame.length; ) {
      try {
        at += writeSync(this.#fd, frame, at);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EAGAIN") return;
        nap(NAP_MS);
      }
    }
  }
}
