/**
 * Joins processes that MPI's launcher started into a world, without a rendezvous of chorale's: they know each other through
 * MPI. The first rank of each host makes what its ranks share, and tells them where it is.
 */
import { availableParallelism } from "node:os";
import { AbortedError, FormatError, TimeoutError } from "../../../core/index.ts";
import { checkRanks, DEFAULT_TIMEOUT_MS, type EngineJoin, type JoinedEngine } from "../../comm/index.ts";
import { hostMark } from "../../hosts/index.ts";
import { machine, napUntil } from "../../memory/index.ts";
import { attachMpi } from "./backend.ts";
import { devicesOfEnvironment } from "./device-list.ts";
import { choicesOfEnvironment, type HostChoices } from "./host-choices.ts";
import {
  checkMpiHandle,
  createMpiHost,
  dumpMpiFlight,
  MAX_MPI_RANKS,
  type MpiHandle,
  releaseMpiHost,
} from "./mpi-handle.ts";
import { type MpiProcess, startMpi } from "./mpi-process.ts";

/** Most that a rank may tell the others: where the shared memory is, with tables of choices. */
const MAX_NOTE_BYTES = 4 * 2 ** 20;
const NAP_MS = 0.2;

/** What a rank tells all others first. */
interface Arrival {
  readonly host: string;
  /** Of pretended hosts there are several on one. */
  readonly machine: string;
  /** What serves calls, as its environment says: all ranks do as the first one is told. */
  readonly choices: HostChoices | undefined;
}

/** Joins the world of all processes of this job. @throws UnavailableError, TimeoutError, InvalidArgumentError for CHORALE_MPI_CHOICES and CHORALE_MPI_DEVICES */
export async function joinMpi({ timeoutMs = DEFAULT_TIMEOUT_MS, generation }: EngineJoin): Promise<JoinedEngine> {
  const choices = choicesOfEnvironment();
  const mpi = startMpi();
  const { rank, size } = mpi;
  checkRanks({ name: "mpi", maxRanks: MAX_MPI_RANKS, usesDevices: false }, size, "number of ranks (of MPI's launcher)");
  const devices = devicesOfEnvironment(size);
  const host = hostMark({ folder: undefined, joined: true })?.toString("hex") ?? `rank ${rank}`;
  const notes = exchange(mpi, JSON.stringify({ host, machine: machine(), choices } satisfies Arrival), timeoutMs);
  const arrived = notes.map((note) => parse(note) as Arrival);
  const marks = arrived.map((one) => one.host);
  const hosts = marks.map((mark) => marks.indexOf(mark));
  const here = hosts.flatMap((mark, other) => (mark === hosts[rank] ? [other] : []));
  const [first = 0] = here;
  mpi.crowded = arrived.filter((one) => one.machine === machine()).length > availableParallelism();
  const world = { ranks: size, generation, numHere: here.length };
  const made = first === rank ? createMpiHost(world, arrived[0]?.choices) : undefined;
  try {
    const told = exchange(mpi, made === undefined ? "" : JSON.stringify(made), timeoutMs);
    const handle = { ...handleOf(told, first, 0), ...(here.length < size && { hosts }) };
    const backend = attachMpi(handle, rank, { timeoutMs, ...(devices !== undefined && { devices }) });
    return {
      backend,
      release: () => made && releaseMpiHost(made),
      readFlight: made === undefined ? undefined : () => backend.flight ?? dumpMpiFlight(made),
    };
  } catch (error) {
    if (made !== undefined) releaseMpiHost(made);
    throw error;
  }
}

/** What the first rank of a host has made; what serves calls is told by the first rank of all. */
function handleOf(told: readonly string[], ofHost: number, ofAll: number): MpiHandle {
  const own = checkMpiHandle(parse(told[ofHost] ?? ""));
  const { choices, measures } = checkMpiHandle(parse(told[ofAll] ?? ""));
  const { choices: _, ...rest } = own;
  return { ...rest, measures, ...(choices !== undefined && { choices }) };
}

/** Gives every rank a note of every other. @throws TimeoutError when one of them does not come, AbortedError when it is too long */
function exchange(mpi: MpiProcess, note: string, timeoutMs: number): readonly string[] {
  const bytes = Buffer.from(note);
  if (bytes.length > MAX_NOTE_BYTES)
    throw new AbortedError(`a rank's note has ${bytes.length} bytes, more than ${MAX_NOTE_BYTES}`);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes.length);
  const lengths = gather(mpi, length, 4, timeoutMs).map((one) => one.readUInt32LE());
  const all = gather(mpi, bytes, Math.max(1, ...lengths), timeoutMs);
  return all.map((one, rank) => one.toString("utf8", 0, lengths[rank]));
}

/** Gives every rank `width` bytes of every other. @throws TimeoutError */
function gather(mpi: MpiProcess, bytes: Buffer, width: number, timeoutMs: number): readonly Buffer[] {
  const all = mpi.addresses.fresh(width * mpi.size);
  all.bytes.set(bytes, width * mpi.rank);
  const { api, abi, handles } = mpi.library;
  const type = handles.byte;
  const request = mpi.requests.take();
  const status = api.MPI_Iallgather(abi.inPlace, 0, type, all.address, width, type, mpi.comm, request);
  mpi.library.check("MPI_Iallgather", status);
  if (!napUntil(() => mpi.requests.done(request), timeoutMs, { napMs: NAP_MS })) {
    mpi.abandoned.push(all);
    mpi.gaveUp = true;
    throw new TimeoutError("joining the world through MPI", timeoutMs, [{ rank: mpi.rank, arrived: true }]);
  }
  mpi.requests.give(request);
  return Array.from({ length: mpi.size }, (_, rank) =>
    Buffer.from(all.bytes.buffer, all.bytes.byteOffset + rank * width, width),
  );
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new FormatError("what rank 0 published", "cannot be read", { cause });
  }
}
