/**
 * The launcher's side of ranks that an engine's own launcher starts together, such as MPI's mpirun: one command for all of
 * them, and a socket from each. What mpirun itself says is kept for the error of a rank that dies without a word.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { invariant, NativeError } from "../../core/index.ts";
import { afterRunning, type BackendKind } from "../comm/index.ts";
import { makeOwnFolder, removeOwnFolder } from "../memory/index.ts";
import { endWithLauncher, forgetGroup, removeWithLauncher } from "./group-reaper.ts";
import { taggedPieces } from "./launcher-line.ts";
import type { ToRank } from "./messages.ts";
import { LineSplitter, type OutputStream } from "./output.ts";
import { rankCommand } from "./rank-command.ts";
import { encodeFrame, FrameReader } from "./rank-frames.ts";
import { exitReason } from "./rank-host.ts";
import { BaseHost } from "./rank-host-base.ts";
import { sendFrame } from "./send-frame.ts";
import { GANG_VARIABLE, type GangMessage } from "./socket-link.ts";

/** How long the command may take to end once all its ranks have, ms; then it is killed. */
const COMMAND_END_MS = 2_000;
/** How long a rank's last words may take to come after the command has ended, ms. */
const DRAIN_MS = 500;
/** How long ranks may take to come, from the start of the command on, ms. The others may wait for one that died in the engine. */
const COMING_MS = 60_000;
/** How long the command may take to tell why a rank died without a word, ms. */
const WORDS_MS = 300;
/** Most that is kept of what the command says. */
const SAID_CHARACTERS = 4_000;
/** Of that, what an error quotes. */
const WORD_LINES = 6;
const WORD_CHARACTERS = 400;
/** Of a rank that said nothing when it ended. */
const SILENT_EXIT = 137;

/** One rank of a gang. */
class GangMember extends BaseHost {
  readonly kind = "process";
  readonly #gang: RankGang;
  #socket: Socket | undefined;
  /** Takes what the socket has brought. */
  #read: (chunk: Buffer) => boolean = () => false;
  #pid: number | undefined;
  #left: number | undefined;
  #killed = false;
  #closed = false;
  /** What is sent before the rank has come. */
  readonly #early: Buffer[] = [];

  constructor(gang: RankGang) {
    super();
    this.#gang = gang;
  }

  get pid(): number | undefined {
    return this.#pid;
  }

  /** Whether its process has ended, not by the launcher's doing, and did not say that it would. */
  get isSilent(): boolean {
    return this.#closed && this.#left === undefined && !this.#killed;
  }

  /** Takes the rank's socket, whose first frame has been read. */
  connect(socket: Socket, pid: number, read: (chunk: Buffer) => boolean): void {
    this.#socket = socket;
    this.#read = read;
    this.#pid = pid;
    // The engine's launcher makes each rank the leader of a group, which does not end with its own.
    endWithLauncher(pid);
    for (const frame of this.#early.splice(0)) sendFrame(socket, frame, read);
    socket.on("close", () => this.#onClose());
    if (this.#killed) this.terminate();
  }

  receive(message: unknown): void {
    const { kind, exitCode } = message as Partial<Extract<GangMessage, { kind: "gang-left" }>>;
    if (kind === "gang-left") this.#left = Number(exitCode);
    else this.take(message);
  }

  /** Gives out what the rank wrote to a descriptor itself, line by line. */
  relay(stream: OutputStream, text: string): void {
    this.lines[stream].push(text);
  }

  send(message: ToRank): void {
    const frame = encodeFrame(message);
    if (this.#socket === undefined) this.#early.push(frame);
    else sendFrame(this.#socket, frame, this.#read);
  }

  setIdle(): void {}

  terminate(): void {
    this.#killed = true;
    if (this.exited) return;
    if (this.#pid === undefined) {
      this.#gang.kill();
      return;
    }
    try {
      process.kill(this.#pid, "SIGKILL");
    } catch {
      // It is gone already.
    }
  }

  refuse(error: unknown): void {
    this.crash(error);
    this.terminate();
  }

  /** Reports the end of a rank that the command could not start, or whose socket is closed. */
  over(said: string): void {
    if (this.exited) return;
    if (this.#pid === undefined) {
      this.crash(
        new NativeError(this.#gang.command, "start", 1, said === "" ? "it ended before its ranks began" : said),
      );
      this.end(1, "its process was not started");
    } else if (this.#left !== undefined) {
      this.end(this.#left, exitReason("process", this.#left));
    } else {
      const others = this.#gang.silentBeside(this);
      // The engine's launcher kills all others where one dies, and may be quicker than the end of that one's socket.
      const beside = others.length === 0 ? "" : `, as were those of ranks ${others.join(", ")}`;
      this.end(SILENT_EXIT, `its process was killed, or crashed${beside}${said === "" ? "" : `: ${said}`}`);
    }
    this.#socket?.destroy();
    if (this.#pid !== undefined) forgetGroup(this.#pid);
    this.#gang.memberEnded();
  }

  #onClose(): void {
    this.#closed = true;
    if (this.#left !== undefined) this.over("");
    else setTimeout(() => this.over(this.#gang.lastWords), WORDS_MS);
  }
}

/** The ranks of one world, started together. */
export class RankGang {
  readonly command: string;
  readonly #members: readonly GangMember[];
  readonly #folders: readonly string[];
  readonly #server: Server;
  readonly #child: ChildProcess;
  readonly #coming: NodeJS.Timeout;
  #said = "";
  #isCommandOver = false;
  #ending: NodeJS.Timeout | undefined;

  private constructor(
    ranks: number,
    start: Awaited<ReturnType<NonNullable<BackendKind["startTogether"]>>>,
    at: Place,
    env: Env,
  ) {
    const { command, args } = start;
    this.command = command;
    this.#folders = [at.folder, ...(start.folders ?? [])];
    this.#server = at.server;
    this.#members = Array.from({ length: ranks }, () => new GangMember(this));
    this.#server.on("connection", (socket) => this.#greet(socket));
    this.#server.unref();
    this.#child = spawn(command, args, {
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
      env: { ...process.env, ...start.env, ...env, [GANG_VARIABLE]: at.path },
    });
    if (this.#child.pid !== undefined) {
      endWithLauncher(this.#child.pid);
      for (const folder of this.#folders) removeWithLauncher(folder);
    }
    for (const stream of ["stdout", "stderr"] as const) {
      const lines = new LineSplitter((line) => this.#heard(stream, line));
      this.#child[stream]?.setEncoding("utf8").on("data", (text: string) => lines.push(text));
      this.#child[stream]?.on("end", () => lines.flush());
    }
    this.#child.on("error", (error) => {
      this.#said += error.message;
      this.#commandEnded();
    });
    this.#child.on("exit", () => afterRunning(DRAIN_MS, () => this.#commandEnded()));
    this.#coming = setTimeout(() => this.#refuseLate(), COMING_MS);
    this.#coming.unref();
  }

  /**
   * Starts `ranks` ranks by the engine's launcher.
   * @throws UnavailableError when it is not here
   */
  static async start(kind: BackendKind, ranks: number, env: Env = {}): Promise<RankGang> {
    const folder = makeOwnFolder(socketParent(), "chorale-ranks", "the socket of the ranks");
    try {
      const start = await kind.startTogether?.(ranks, rankCommand(), folder, env);
      invariant(start !== undefined, `the ${kind.name} backend starts ranks together`);
      const path = join(folder, "socket");
      const server = createServer();
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen(path, resolve);
      });
      return new RankGang(ranks, start, { folder, path, server }, env);
    } catch (error) {
      removeOwnFolder(folder);
      throw error;
    }
  }

  /** What the command has said last, in one line. */
  get lastWords(): string {
    const lines = this.#said.split(/\r?\n/).filter((line) => /\w/.test(line));
    return lines.slice(-WORD_LINES).join("; ").replaceAll(/\s+/g, " ").slice(0, WORD_CHARACTERS);
  }

  /** The host of a rank. */
  member(rank: number): GangMember {
    const member = this.#members[rank];
    if (member === undefined) throw new RangeError(`the gang has no rank ${rank}`);
    return member;
  }

  /** Other ranks whose processes have ended without a word. */
  silentBeside(member: GangMember): number[] {
    return this.#members.flatMap((other, rank) => (other !== member && other.isSilent ? [rank] : []));
  }

  /** Ends the command and with it every rank that has not come yet. */
  kill(): void {
    const { pid } = this.#child;
    if (pid === undefined || this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    try {
      process.kill(-pid, "SIGKILL");
    } catch {
      this.#child.kill("SIGKILL");
    }
  }

  /** Sees to it that the command does not outlive its ranks. */
  memberEnded(): void {
    if (this.#members.some(({ exited }) => !exited)) return;
    this.#server.close();
    if (this.#isCommandOver) this.#removeFolders();
    else this.#ending = setTimeout(() => this.kill(), COMMAND_END_MS);
  }

  /**
   * Takes a line of the command: what a rank wrote to its descriptors, tagged with its number, or what the command says itself,
   * of which only results, on stdout, are passed on.
   */
  #heard(stream: OutputStream, line: string): void {
    const pieces = taggedPieces(line);
    if (pieces.length > 0 && pieces.every(({ rank }) => rank < this.#members.length)) {
      for (const { rank, stream: from = stream, text, isEnd } of pieces) {
        this.#members[rank]?.relay(from, isEnd ? `${text}\n` : text);
      }
    } else if (stream === "stdout") this.#members[0]?.relay(stream, `${line}\n`);
    else this.#said = `${this.#said}${line}\n`.slice(-SAID_CHARACTERS);
  }

  #greet(socket: Socket): void {
    let member: GangMember | undefined;
    const reader = new FrameReader((message) => {
      if (member !== undefined) {
        member.receive(message);
        return;
      }
      const { kind, rank, pid } = message as Partial<Extract<GangMessage, { kind: "gang-hello" }>>;
      const found = kind === "gang-hello" && typeof pid === "number" ? this.#members[rank ?? -1] : undefined;
      if (found === undefined || found.pid !== undefined) {
        socket.destroy();
        return;
      }
      member = found;
      found.connect(socket, pid as number, read);
    });
    const read = (chunk: Buffer): boolean => {
      try {
        reader.push(chunk);
        return true;
      } catch (error) {
        if (member === undefined) socket.destroy();
        else member.refuse(error);
        return false;
      }
    };
    socket.on("error", () => {});
    socket.on("data", (chunk: Buffer) => void read(chunk));
  }

  /** Ends a world of which some ranks never came. */
  #refuseLate(): void {
    const late = this.#members.flatMap(({ pid, exited }, rank) => (pid === undefined && !exited ? [rank] : []));
    if (late.length === 0) return;
    const text = `rank ${late.join(", ")} did not start within ${COMING_MS / 1000} s`;
    for (const rank of late) this.#members[rank]?.refuse(new NativeError(this.command, "start", 1, text));
    for (const member of this.#members) member.terminate();
    this.kill();
  }

  #commandEnded(): void {
    clearTimeout(this.#coming);
    clearTimeout(this.#ending);
    this.#isCommandOver = true;
    if (this.#child.pid !== undefined) forgetGroup(this.#child.pid);
    for (const member of this.#members) member.over(this.lastWords);
    this.#removeFolders();
  }

  #removeFolders(): void {
    for (const folder of this.#folders) removeOwnFolder(folder);
  }
}

interface Place {
  readonly folder: string;
  readonly path: string;
  readonly server: Server;
}
type Env = Readonly<Record<string, string>>;

/** The longest path of a Unix socket, bytes, without its end: macOS's limit; Linux allows four more. */
const MAX_SOCKET_PATH = 103;
/** What the own folder's name and the socket's add to it: a key, a process, a time and what makes it unique. */
const OWN_PATH = 56;

/** The folder for temporary files, or /tmp where its name would leave no room for a socket's, as on many clusters. */
function socketParent(): string {
  const folder = tmpdir();
  return Buffer.byteLength(folder) + OWN_PATH <= MAX_SOCKET_PATH ? folder : "/tmp";
}
