/**
 * The link of a rank that another launcher started for ours (rank-gang.ts): a socket in a folder that is the user's alone.
 * Messages are those of rank-frames.ts; before them the rank says who it is, and at last with what code it leaves.
 */
import { connect, type Socket } from "node:net";
import { InvariantError } from "../../core/index.ts";
import { endWithParent } from "../../foreign/native/index.ts";
import { foreignPlace } from "../rendezvous/internal.ts";
import { FramedLink, writeFrame } from "./framed-link.ts";
import type { FromRank } from "./messages.ts";
import type { RankLink } from "./rank-link-contract.ts";

/** Tells a rank where its launcher listens. */
export const GANG_VARIABLE = "CHORALE_RANK_SOCKET";

/** What a rank says of itself, before and after all else. */
export type GangMessage =
  | { readonly kind: "gang-hello"; readonly rank: number; readonly pid: number }
  | { readonly kind: "gang-left"; readonly exitCode: number };

export class SocketLink extends FramedLink implements RankLink {
  readonly kind = "process";
  readonly relaysOutput = true;
  readonly #fd: number;

  private constructor(socket: Socket) {
    super(socket);
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

  #send(message: FromRank | GangMessage): void {
    writeFrame(this.#fd, message);
  }
}
