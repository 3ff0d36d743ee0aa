/** One rank's door to a tcp world. */

import { kMaxLength } from "node:buffer";
import { closeSync, constants, ftruncateSync, openSync } from "node:fs";
import { freemem, totalmem } from "node:os";
import {
  type ArrayOf,
  ClosedError,
  type DType,
  InvalidArgumentError,
  newArray,
  numElements,
  OutOfMemoryError,
  parseDType,
  type Storage,
  sizeOf,
  Tensor,
} from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import { mapShared, socketCalls } from "../../../foreign/native/index.ts";
import {
  type Backend,
  type Bootstrap,
  type Capabilities,
  type Communicator,
  checkGroup,
  checkWorldRank,
  closeEach,
  DEFAULT_TIMEOUT_MS,
  type Failure,
  GroupOpenings,
} from "../../comm/index.ts";
import { hostMark } from "../../hosts/index.ts";
import { tlsFromEnvironment } from "../../rendezvous/index.ts";
import { TCP_CAPABILITIES } from "./capabilities.ts";
import { FLIGHT_BYTES, FlightLog } from "./flight-recorder.ts";
import { meet } from "./meet.ts";
import { HIERARCHY_MODES, SEND_THREAD_MODES, type TcpHandle, type TcpOptions } from "./tcp-handle.ts";
import { flightFile } from "./tcp-host.ts";
import { TcpRank } from "./tcp-rank.ts";

const LOOPBACK = "127.0.0.1";

/**
 * Attaches this thread as `rank`: connects it to all others.
 * @throws UnavailableError without FFI, or when the address cannot be listened on; TimeoutError naming the ranks that
 *   did not come; RankFailedError when one fails meanwhile
 */
export async function attachTcp(
  handle: TcpHandle,
  rank: number,
  options: TcpOptions,
  bootstrap: Bootstrap,
  { joined = false } = {},
): Promise<Backend> {
  const { ranks, generation, secret, flightFolder } = handle;
  const { timeoutMs = DEFAULT_TIMEOUT_MS, strictWork = false, connections = 1 } = options;
  const host = options.host ?? (process.env["CHORALE_TCP_HOST"] || LOOPBACK);
  const tls = tlsFromEnvironment(process.env);
  const sendThread = modeOf(SEND_THREAD_MODES, options.sendThread, "CHORALE_TCP_SEND_THREAD");
  const calls = socketCalls();
  const log = openLog(flightFolder, rank);
  const flight = new FlightLog(log.memory);
  try {
    const peers = await meet({ bootstrap, secret, host, connections, timeoutMs, tls });
    const door = new TcpRank({
      rank,
      worldSize: ranks,
      generation,
      timeoutMs,
      strictWork,
      capabilities: TCP_CAPABILITIES,
      flight,
      calls,
      peers,
      hierarchy: modeOf(HIERARCHY_MODES, options.hierarchy, "CHORALE_TCP_HIERARCHY"),
      sendThread: sendThread === "auto" && tls !== undefined ? "off" : sendThread,
      hostMark: hostMark({ folder: flightFolder, joined }),
      folder: flightFolder,
    });
    return new TcpBackend(door, ranks, bootstrap, log.close);
  } catch (error) {
    log.close();
    throw error;
  }
}

/** What an option says, or else a variable; "auto" by default. @throws InvalidArgumentError for a word that is none */
function modeOf<M extends string>(modes: readonly M[], option: M | undefined, variable: string): M {
  const given = option ?? (process.env[variable] || "auto");
  const found = modes.find((mode) => mode === given);
  if (found === undefined) throw new InvalidArgumentError(variable, given, modes.join(", "));
  return found;
}

/** Memory of a rank's flight log: of a file that the launcher reads, where there is one. */
function openLog(
  folder: string | undefined,
  rank: number,
): { readonly memory: ArrayBuffer; readonly close: () => void } {
  if (folder !== undefined) {
    try {
      const { O_RDWR, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
      const fd = openSync(flightFile(folder, rank), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o600);
      try {
        ftruncateSync(fd, FLIGHT_BYTES);
        const { buffer, close } = mapShared(fd, FLIGHT_BYTES);
        return { memory: buffer, close };
      } finally {
        closeSync(fd);
      }
    } catch {
      // No room, or a launcher that is gone: the log is this process's own.
    }
  }
  return { memory: new ArrayBuffer(FLIGHT_BYTES), close: () => {} };
}

/** Memory of a tensor of the world. */
class WorldStorage implements Storage {
  readonly kind = "private";
  readonly buffer: ArrayBuffer;
  readonly sizeBytes: number;
  readonly generation: number;
  readonly owner: TcpBackend;
  isFree = false;

  constructor(owner: TcpBackend, buffer: ArrayBuffer) {
    this.owner = owner;
    this.buffer = buffer;
    this.sizeBytes = buffer.byteLength;
    this.generation = owner.generation;
  }

  get closed(): string | undefined {
    return this.isFree ? "was freed" : this.owner.closed;
  }
}

class TcpBackend implements Backend {
  readonly name = "tcp";
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  readonly world: Communicator;
  readonly #door: TcpRank;
  readonly #closeLog: () => void;
  readonly #openings = new GroupOpenings();
  #closed: string | undefined;

  constructor(door: TcpRank, worldSize: number, bootstrap: Bootstrap, closeLog: () => void) {
    this.#door = door;
    this.#closeLog = closeLog;
    this.rank = door.options.rank;
    this.worldSize = worldSize;
    this.generation = door.options.generation;
    this.world = door.world;
    bootstrap.onFailure(({ rank, message }) => {
      if (rank >= 0 && rank !== this.rank) door.markGone(rank, message, false);
    });
  }

  /** Why its tensors are refused, once they are. */
  get closed(): string | undefined {
    return this.#closed;
  }
  get failure(): Failure | undefined {
    return this.#door.failure;
  }
  get lost(): undefined {
    return undefined;
  }

  async group(name: string, ranks: readonly number[]): Promise<Communicator> {
    this.#checkOpen();
    checkGroup(name, ranks, this.worldSize, this.rank);
    const nth = this.#openings.next(name, ranks);
    return this.#door.open(name, ranks, `group ${name} [${ranks.join(",")}] ${nth}`);
  }

  tensor<D extends DType>(dtype: D, shape: readonly number[]): Tensor<D> {
    this.#checkOpen();
    parseDType(dtype);
    const bytes = numElements(shape) * sizeOf(dtype);
    // Node 20 has no array of more than 4 GiB.
    const limit = Math.min(totalmem(), kMaxLength);
    const mend = "Make smaller tensors, or more ranks on more hosts.";
    if (bytes > limit) throw new OutOfMemoryError("a tensor of this rank", bytes, limit, mend);
    try {
      const array = newArray(dtype, numElements(shape)) as ArrayOf<D>;
      return new Tensor(dtype, shape, new WorldStorage(this, array.buffer as ArrayBuffer));
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new OutOfMemoryError("memory of this rank", bytes, freemem(), mend, { cause: error });
    }
  }

  free({ storage }: Tensor): void {
    if (!(storage instanceof WorldStorage) || storage.owner !== this) {
      throw new InvalidArgumentError(
        "tensor",
        described("one of another world, or none of a world"),
        "a tensor of this world",
      );
    }
    if (storage.closed !== undefined) throw new ClosedError("tensor", storage.closed);
    storage.isFree = true;
  }

  fail(rank: number, cause: string, blamed = rank): void {
    checkWorldRank(rank, this.worldSize);
    this.#door.tellGone(rank, cause, blamed);
  }

  capabilities(): Capabilities {
    return this.#door.options.capabilities;
  }

  abandon(cause: Error): void {
    if (this.#closed !== undefined) return;
    this.#closed = `belongs to generation ${this.generation}, which ended: ${cause.message}`;
    this.#door.abandon(cause, this.#closed);
    this.#closeLog();
  }

  async close(): Promise<void> {
    if (this.#closed !== undefined) return;
    const failed = await closeEach(this.#door.groups);
    this.#closed = `belongs to generation ${this.generation}, which ended`;
    await this.#door.leave();
    this.#closeLog();
    if (failed !== undefined) throw failed.error;
  }
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #checkOpen(): void {
    if (this.#closed !== undefined) throw new ClosedError("world", this.#closed);
  }
}
