/**
 * Joins processes that MPI's launcher started into a world, without a rendezvous of chorale's: they know each other through
 * MPI. Rank 0 makes what they share, and tells them where it is.
 */
import { hostname } from "node:os";
import { AbortedError, FormatError, TimeoutError, UnsupportedError } from "../../../core/index.ts";
import { checkRanks, DEFAULT_TIMEOUT_MS, type EngineJoin, type JoinedEngine } from "../../comm/index.ts";
import { machine, nap } from "../../memory/index.ts";
import { attachMpi } from "./backend.ts";
import { devicesOfEnvironment } from "./device-list.ts";
import { choicesOfEnvironment } from "./host-choices.ts";
import { checkMpiHandle, createMpiHost, dumpMpiFlight, MAX_MPI_RANKS, releaseMpiHost } from "./mpi-handle.ts";
import { type MpiProcess, startMpi } from "./mpi-process.ts";

/** Most that a rank may tell the others: where the shared memory is, with tables of choices. */
const MAX_NOTE_BYTES = 4 * 2 ** 20;
const NAP_MS = 0.2;

/** Joins the world of all processes of this job. @throws UnsupportedError for several hosts, UnavailableError, TimeoutError, InvalidArgumentError for CHORALE_MPI_CHOICES and CHORALE_MPI_DEVICES */
export async function joinMpi({ timeoutMs = DEFAULT_TIMEOUT_MS, generation }: EngineJoin): Promise<JoinedEngine> {
  const choices = choicesOfEnvironment();
  const mpi = startMpi();
  checkRanks(
    { name: "mpi", maxRanks: MAX_MPI_RANKS, usesDevices: false },
    mpi.size,
    "number of ranks (of MPI's launcher)",
  );
  const devices = devicesOfEnvironment(mpi.size);
  const hosts = exchange(mpi, `${hostname()} (${machine()})`, timeoutMs);
  if (new Set(hosts).size > 1) {
    const where = [...new Set(hosts)].map((host) => `${hosts.filter((one) => one === host).length} on ${host}`);
    throw new UnsupportedError("a world of several hosts on the mpi backend", `the ranks are ${where.join(", ")}`);
  }
  const made = mpi.rank === 0 ? createMpiHost({ ranks: mpi.size, generation }, choices) : undefined;
  try {
    const [told = ""] = exchange(mpi, made === undefined ? "" : JSON.stringify(made), timeoutMs);
    const handle = checkMpiHandle(parse(told));
    const backend = attachMpi(handle, mpi.rank, { timeoutMs, ...(devices !== undefined && { devices }) });
    return {
      backend,
      release: () => made && releaseMpiHost(made),
      readFlight: made === undefined ? undefined : () => dumpMpiFlight(made),
    };
  } catch (error) {
    if (made !== undefined) releaseMpiHost(made);
    throw error;
  }
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
  const until = performance.now() + timeoutMs;
  while (!mpi.requests.done(request)) {
    if (performance.now() > until) {
      mpi.abandoned.push(all);
      mpi.broken = true;
      throw new TimeoutError("joining the world through MPI", timeoutMs, [{ rank: mpi.rank, arrived: true }]);
    }
    nap(NAP_MS);
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
