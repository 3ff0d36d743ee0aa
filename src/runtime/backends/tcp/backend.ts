/** One rank's door to a tcp world. */

import { kMaxLength } from "node:buffer";
import { closeSync, constants, ftruncateSync, openSync } from "node:fs";
import { totalmem } from "node:os";
import {
  ClosedError,
  type DType,
  InvalidArgumentError,
  numElements,
  OutOfMemoryError,
  parseDType,
  sizeOf,
  type Tensor,
} from "../../../core/index.ts";
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
import { choiceNews } from "../../executor/internal.ts";
import { HostTensors, hostMark } from "../../hosts/index.ts";
import { freeTensor, type GrowingArena, type WorldTerm, worldTensor } from "../../memory/index.ts";
import { tlsFromEnvironment } from "../../rendezvous/index.ts";
import { TCP_CAPABILITIES } from "./capabilities.ts";
import { FLIGHT_BYTES, FlightLog } from "./flight-log.ts";
import { meet } from "./meet.ts";
import { describeAddress, HOST_SETTINGS, ownAddress } from "./own-address.ts";
import { connectionsOf } from "./sender.ts";
import { worldChoices } from "./tcp-choices.ts";
import { CHECKSUM_MODES, HIERARCHY_MODES, SEND_THREAD_MODES, type TcpHandle, type TcpOptions } from "./tcp-handle.ts";
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
  const tls = tlsFromEnvironment(process.env);
  const mayHaveThread = tls === undefined;
  const { timeoutMs = DEFAULT_TIMEOUT_MS, strictWork = false } = options;
  const connections = options.connections ?? (mayHaveThread ? connectionsOf(ranks) : 1);
  const host = ownAddress(options.host ?? (process.env["CHORALE_TCP_HOST"] || LOOPBACK));
  // Each rank has an address of its own.
  choiceNews(0)?.selected?.(
    `chorale select: rank ${rank} on tcp listens on ${describeAddress(host)}; ${HOST_SETTINGS} names another`,
  );
  const sendThread = modeOf(SEND_THREAD_MODES, options.sendThread, "CHORALE_TCP_SEND_THREAD", "auto");
  const checksum = modeOf(CHECKSUM_MODES, options.checksum, "CHORALE_TCP_CHECKSUM", "off");
  // Of what this host was told to take itself the first host knows nothing: the ranks find out where they meet.
  const choices = options.choices === undefined ? handle.choices : worldChoices(options.choices);
  const calls = socketCalls();
  const log = openLog(flightFolder, rank);
  const flight = new FlightLog(log.memory);
  const mode = modeOf(HIERARCHY_MODES, options.hierarchy, "CHORALE_TCP_HIERARCHY", "auto");
  // Before the ranks meet: afterwards all have opened it.
  const tensors = mode === "off" ? undefined : openTensors(handle.tensors);
  try {
    const peers = await meet({ bootstrap, secret, host, connections, checksum, choices, timeoutMs, tls });
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
      hierarchy: mode,
      sendThread: sendThread === "auto" && !mayHaveThread ? "off" : sendThread,
      checksum,
      choices,
      hostMark: hostMark({ folder: flightFolder, joined }),
      folder: flightFolder,
      tensors: tensors?.share() === true ? tensors : undefined,
    });
    return new TcpBackend(door, ranks, bootstrap, log.close);
  } catch (error) {
    log.close();
    tensors?.close();
    throw error;
  }
}

/** What an option says, or else a variable, or else the default. @throws InvalidArgumentError for a word that is none */
function modeOf<M extends string>(modes: readonly M[], option: M | undefined, variable: string, byDefault: M): M {
  const given = option ?? (process.env[variable] || byDefault);
  const found = modes.find((mode) => mode === given);
  if (found === undefined) throw new InvalidArgumentError(variable, given, modes.join(", "));
  return found;
}

/** Where the ranks of this host read each other's tensors; without it each has its own for itself. */
function openTensors(arena: GrowingArena | undefined): HostTensors | undefined {
  try {
    return arena && new HostTensors(arena);
  } catch {
    return undefined;
  }
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

class TcpBackend implements Backend {
  readonly name = "tcp";
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  readonly world: Communicator;
  readonly #door: TcpRank;
  readonly #closeLog: () => void;
  readonly #openings = new GroupOpenings();
  readonly #term: WorldTerm;

  constructor(door: TcpRank, worldSize: number, bootstrap: Bootstrap, closeLog: () => void) {
    this.#door = door;
    this.#closeLog = closeLog;
    this.rank = door.options.rank;
    this.worldSize = worldSize;
    this.generation = door.options.generation;
    this.world = door.world;
    this.#term = { generation: this.generation, closed: undefined, room: door.options.tensors?.room };
    bootstrap.onFailure(({ rank, message }) => {
      if (rank >= 0 && rank !== this.rank) door.markGone(rank, message, false);
    });
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
    return worldTensor(this.#term, dtype, shape);
  }

  free(tensor: Tensor): void {
    freeTensor(this.#term, tensor, (buffer) => this.#door.useOf(buffer));
  }

  fail(rank: number, cause: string, blamed = rank): void {
    checkWorldRank(rank, this.worldSize);
    this.#door.tellGone(rank, cause, blamed);
  }

  capabilities(): Capabilities {
    return this.#door.options.capabilities;
  }

  abandon(cause: Error): void {
    if (this.#term.closed !== undefined) return;
    const why = `belongs to generation ${this.generation}, which ended: ${cause.message}`;
    this.#end(why);
    this.#door.abandon(cause, why);
    this.#closeLog();
  }

  async close(): Promise<void> {
    if (this.#term.closed !== undefined) return;
    const failed = await closeEach(this.#door.groups);
    this.#end(`belongs to generation ${this.generation}, which ended`);
    await this.#door.leave();
    this.#closeLog();
    if (failed !== undefined) throw failed.error;
  }
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #end(why: string): void {
    this.#term.closed = why;
    this.#door.options.tensors?.close();
  }

  #checkOpen(): void {
    if (this.#term.closed !== undefined) throw new ClosedError("world", this.#term.closed);
  }
}
