/**
 * Joins processes that another launcher started on one host into a world over NCCL: they meet at the rendezvous that
 * rank 0 hosts, compare what must be equal, and share a control segment that rank 0 makes.
 */
import { hostname } from "node:os";
import {
  FormatError,
  InvalidArgumentError,
  MismatchError,
  RankFailedError,
  UnsupportedError,
} from "../../core/index.ts";
import type { NcclHandle } from "../backends/nccl/nccl-host.ts";
import { type Bootstrap, DEFAULT_TIMEOUT_MS } from "../comm/index.ts";
import { machine } from "../memory/index.ts";
import {
  type Claims,
  checkOneHost,
  type ForeignPlace,
  RendezvousStore,
  rendezvousAddress,
  rendezvousSecret,
  TcpBootstrap,
  type WorldFailure,
} from "../rendezvous/index.ts";
import { recordFlight } from "./flight.ts";
import { version } from "./location.ts";
import { toErrorRecord } from "./remote-error.ts";
import { createWorld, type World } from "./world.ts";

export interface ForeignOptions {
  /** How long the ranks wait for each other, and default deadline of every later wait, ms; 60 s unless told. */
  readonly timeoutMs?: number;
}

/**
 * Joins the world of a foreign launcher over NCCL.
 * @throws UnsupportedError for several hosts; InvalidArgumentError for more ranks than a host can have; UnavailableError without CHORALE_SECRET, an address, the driver or NCCL;
 *   MismatchError naming both sides when ranks differ in versions, generation or host, or share a GPU; TimeoutError and
 *   RankFailedError when ranks do not come
 */
export async function joinForeign(place: ForeignPlace, options: ForeignOptions = {}): Promise<World> {
  checkOneHost(place);
  const { rank, size, generation, launcher } = place;
  const { timeoutMs = DEFAULT_TIMEOUT_MS } = options;
  // Loaded only here: worlds of threads need neither CUDA nor FFI.
  const { checkNcclRanks, createNcclHost, ncclFailure, releaseNcclHost } = await import(
    "../backends/nccl/nccl-host.ts"
  );
  checkNcclRanks(size, `number of ranks (of ${launcher})`);
  const secret = rendezvousSecret(process.env);
  const { host, port } = rendezvousAddress(process.env);
  const { attachNccl } = await import("../backends/nccl/backend.ts");
  const { requireNccl } = await import("../backends/nccl/library.ts");
  const { requireCudaDriver } = await import("../../foreign/cuda/index.ts");
  const { deviceInfo } = await import("../device/internal.ts");
  const driver = requireCudaDriver();
  const device = ordinalOf(place, driver.numDevices);
  const claims: Claims = {
    rank,
    worldSize: size,
    generation,
    version: version(),
    engine: `NCCL ${requireNccl().version}`,
    host: `${hostname()} (${machine()})`,
    pid: process.pid,
  };
  const leaving: (() => void)[] = [];
  const leave = () => {
    for (const step of leaving.splice(0).reverse()) step();
  };
  let tell: ((cause: WorldFailure) => void) | undefined;
  let record: (() => void) | undefined;
  let left: ((message: string) => void) | undefined;
  const onExit = (code: number) => {
    left?.(`called process.exit(${code}) with its world open`);
    leave();
  };
  process.once("exit", onExit);
  try {
    if (rank === 0) {
      const onFailed = () => record?.();
      const store = await RendezvousStore.open({ secret, claims, host, port, joinTimeoutMs: timeoutMs, onFailed });
      leaving.push(() => store.close());
      tell = (cause) => store.fail(cause);
    }
    const door = await TcpBootstrap.join({ secret, claims, host, port, timeoutMs });
    leaving.push(() => door.close());
    tell ??= (cause) => door.fail(cause);
    const met = (async () => {
      if (rank === 0) {
        const made = createNcclHost({ ranks: size, generation, interprocess: true });
        leaving.push(() => {
          // Of a rank that died this one may know before the store does: the others are told, and the dump is written.
          const failure = ncclFailure(made);
          if (failure?.code === "RANK_FAILED") tell?.({ rank: failure.rank, message: failure.cause });
          releaseNcclHost(made);
        });
        record = () => recordFlight({ backend: "nccl", host: made, options: {} }, generation);
        await door.set("control", Buffer.from(JSON.stringify(made)));
      }
      await compareDevices(door, deviceInfo(driver, device).uuid, timeoutMs);
      return parseHandle(await door.get("control", { timeoutMs }));
    })();
    const handle = await Promise.race([met, failureOf(door)]);
    const backend = attachNccl(handle, rank, { device, timeoutMs });
    door.onFailure((cause) => backend.fail(cause.rank, cause.message));
    const world = createWorld(backend, {
      args: process.argv.slice(2),
      data: undefined,
      onClosed: leave,
      onFailure: (listener) =>
        door.onFailure((cause) => listener(new RankFailedError(cause.rank, generation, new Error(cause.message)))),
      rebuild: {
        refusal: `${place.launcher} started the ranks, and only it can start them again`,
        request: async () => {
          throw new UnsupportedError("world.rebuild()", `${place.launcher} must start the ranks again`);
        },
      },
    });
    left = (message) => {
      if (world.closed) return;
      backend.fail(rank, message);
      // This rank may end because of another one, of which the rendezvous has not heard yet.
      const first = backend.failure;
      tell?.(first?.code === "RANK_FAILED" ? { rank: first.rank, message: first.cause } : { rank, message });
    };
    endWithProgram(world, left);
    return world;
  } catch (error) {
    // The others must not wait for a rank that gave up, and are to know why.
    if (!(error instanceof RankFailedError)) {
      tell?.({ rank, message: error instanceof Error ? error.message : String(error) });
    }
    process.off("exit", onExit);
    leave();
    throw error;
  }
}

/** The device of a rank: of its number on this host, or the only one where the launcher masks the others. */
function ordinalOf({ localRank, launcher }: ForeignPlace, numDevices: number): number {
  if (localRank < numDevices) return localRank;
  if (numDevices === 1) return 0;
  throw new InvalidArgumentError(
    `local rank (of ${launcher})`,
    localRank,
    numDevices === 0
      ? "a visible CUDA device (CUDA_VISIBLE_DEVICES may mask all of them)"
      : `0 to ${numDevices - 1}, the visible CUDA devices: NCCL wants a device per rank`,
  );
}

/** Makes sure that no two ranks have one GPU: NCCL hangs or fails in its own words otherwise. @throws MismatchError */
async function compareDevices(door: Bootstrap, uuid: string, timeoutMs: number): Promise<void> {
  await door.set(`device/${door.rank}`, Buffer.from(uuid));
  const uuids = await Promise.all(
    Array.from({ length: door.worldSize }, async (_, rank) =>
      Buffer.from(await door.get(`device/${rank}`, { timeoutMs })).toString(),
    ),
  );
  const sharing = uuids.flatMap((other, rank) => (other === uuid ? [{ rank, call: `device ${other}` }] : []));
  if (sharing.length > 1) {
    throw new MismatchError(
      "ranks must have a GPU each (CUDA_VISIBLE_DEVICES of each rank, or its local rank, chooses it)",
      sharing,
    );
  }
}

function parseHandle(bytes: Uint8Array): NcclHandle {
  const handle = JSON.parse(Buffer.from(bytes).toString()) as NcclHandle;
  const { control } = handle;
  if (handle.kind !== "nccl" || control instanceof SharedArrayBuffer || typeof control?.path !== "string") {
    throw new FormatError("the control segment's name", "cannot be read");
  }
  return handle;
}

function failureOf(door: Bootstrap): Promise<never> {
  return new Promise((_, reject) => {
    door.onFailure(({ rank, message }) => reject(new RankFailedError(rank, door.generation, new Error(message))));
  });
}

/** As for ranks of our own launcher: the world is closed when the program has nothing left to do, and told of its end. */
function endWithProgram(world: World, tell: (message: string) => void): void {
  process.once("beforeExit", () => {
    world.close().catch((error: unknown) => {
      // As an error that nobody caught: that is what it is.
      setImmediate(() => {
        throw error;
      });
    });
  });
  // Anything can be thrown, null included.
  process.on("uncaughtExceptionMonitor", (thrown: unknown) => {
    const { name, message } = toErrorRecord(thrown);
    if (process.listenerCount("uncaughtException") === 0) tell(`${name}: ${message}`);
  });
}
