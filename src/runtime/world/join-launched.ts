/**
 * Joins processes that another launcher started, on one host or with the tcp backend on several, into a world: they meet at the rendezvous that rank 0 hosts,
 * compare what must be equal and what must differ, and share what rank 0 makes.
 */
import { hostname } from "node:os";
import { FormatError, invariant, MismatchError, RankFailedError, UnsupportedError } from "../../core/index.ts";
import {
  type BackendKind,
  type Bootstrap,
  checkRanks,
  DEFAULT_TIMEOUT_MS,
  type HostHandle,
  type JoiningRank,
} from "../comm/index.ts";
import { machine } from "../memory/index.ts";
import {
  type Claims,
  checkOneHost,
  type ForeignPlace,
  RendezvousStore,
  rendezvousAddress,
  rendezvousSecret,
  TcpBootstrap,
  tlsFromEnvironment,
  type WorldFailure,
} from "../rendezvous/index.ts";
import { HostSide } from "./host-side.ts";
import { sendsInTheClear } from "./node-options.ts";
import { version } from "./package-location.ts";
import { toErrorRecord } from "./remote-error.ts";
import { createWorld, type World } from "./world.ts";
import { recordFlight } from "./write-flight-file.ts";

interface JoinLaunchedOptions {
  /** How long the ranks wait for each other, and default deadline of every later wait, ms; 60 s by default. */
  readonly timeoutMs?: number;
}

/**
 * Joins the world of another launcher.
 * @throws UnsupportedError for several hosts where the backend has one; InvalidArgumentError for more ranks than a host can have;
 *   UnavailableError without CHORALE_SECRET, an address or the backend's engine; MismatchError naming both sides when
 *   ranks differ in versions, generation or host, or share a device; TimeoutError and RankFailedError when ranks do not come
 */
export async function joinLaunched(
  place: ForeignPlace,
  kind: BackendKind,
  options: JoinLaunchedOptions = {},
): Promise<World> {
  const across = kind.acrossHosts?.mirror === undefined ? kind.acrossHosts : undefined;
  if (across === undefined) checkOneHost(place, kind.acrossHosts !== undefined);
  const { rank, size, generation, launcher } = place;
  const { timeoutMs = DEFAULT_TIMEOUT_MS } = options;
  checkRanks(kind, size, `number of ranks (of ${launcher})`);
  const secret = rendezvousSecret(process.env);
  const tls = tlsFromEnvironment(process.env);
  if (tls !== undefined && place.spansHosts !== undefined && kind.encrypts !== true) throw sendsInTheClear(kind);
  const { host, port } = rendezvousAddress(process.env, place.spansHosts !== undefined, place);
  const joining = await kind.prepareJoin?.(place.localRank, launcher);
  invariant(joining !== undefined, `the ${kind.name} backend joins processes`);
  const claims: Claims = {
    rank,
    worldSize: size,
    generation,
    version: version(),
    engine: joining.engine,
    host: `${hostname()} (${machine()})`,
    pid: process.pid,
  };
  const leaving: (() => void)[] = [];
  const leave = () => {
    for (const step of leaving.splice(0).reverse()) step();
  };
  let tell: ((cause: WorldFailure) => void) | undefined;
  let record: (() => void) | undefined;
  let own: HostHandle | undefined;
  let left: ((message: string) => void) | undefined;
  const onExit = (code: number) => {
    left?.(`called process.exit(${code}) with its world open`);
    leave();
  };
  process.once("exit", onExit);
  try {
    if (rank === 0) {
      const onFailed = () => record?.();
      const spansHosts = across !== undefined;
      const limits = { joinTimeoutMs: timeoutMs, onFailed, spansHosts, tls };
      const store = await RendezvousStore.open({ secret, claims, host, port, ...limits });
      leaving.push(() => store.close());
      tell = (cause) => store.fail(cause);
    }
    const door = await TcpBootstrap.join({ secret, claims, host, port, timeoutMs, tls });
    leaving.push(() => door.close());
    tell ??= (cause) => door.fail(cause);
    const met = (async () => {
      if (rank === 0) {
        const shared = across === undefined ? {} : { worldSecret: secret };
        const made = new HostSide(kind, { ranks: size, generation, isolation: "process", ...shared });
        own = made.handle.host;
        leaving.push(() => {
          // Of a rank that died this one may know before the store does: the others are told, and the dump is written.
          const dead = made.readFlight().ranks.find(({ failed }) => failed !== undefined);
          if (dead !== undefined) tell?.({ rank: dead.rank, message: dead.failed ?? "" });
          made.release();
        });
        record = () => recordFlight(() => made.readFlight(), generation);
        // What holds the world's secret is not sent: the others make it of the secret that they have.
        const published = across?.publish(own) ?? own;
        await door.set("control", Buffer.from(JSON.stringify(published)));
      }
      await compareDevices(door, joining, timeoutMs);
      if (own !== undefined && across !== undefined) return own;
      const published = parseHost(await door.get("control", { timeoutMs }));
      if (across === undefined) return published;
      const adopted = across.adopt(published, secret);
      leaving.push(() => kind.releaseHost(adopted));
      return adopted;
    })();
    const made = await Promise.race([met, failureOf(door)]);
    const backend = await joining.attach(made, rank, timeoutMs, { bootstrap: door, address: door.localAddress });
    door.onFailure((cause) => backend.fail(cause.rank, cause.message));
    const world = createWorld(backend, {
      args: process.argv.slice(2),
      data: undefined,
      store: door.store,
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
      // This rank may end because of another one, of which nobody else has heard yet.
      const first = backend.failure;
      const culprit = first?.code === "RANK_FAILED" ? { rank: first.rank, message: first.cause } : { rank, message };
      backend.fail(rank, culprit.message, culprit.rank);
      tell?.(culprit);
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

/** Makes sure that no two ranks have one device: engines hang or fail in their own words otherwise. @throws MismatchError */
async function compareDevices(door: Bootstrap, joining: JoiningRank, timeoutMs: number): Promise<void> {
  const { device, howToChoose } = joining;
  await door.set(`device/${door.rank}`, Buffer.from(device));
  const devices = await Promise.all(
    Array.from({ length: door.worldSize }, async (_, rank) =>
      Buffer.from(await door.get(`device/${rank}`, { timeoutMs })).toString(),
    ),
  );
  const sharing = devices.flatMap((other, rank) => (other === device ? [{ rank, call: `device ${other}` }] : []));
  if (sharing.length > 1) throw new MismatchError(`ranks must have a GPU each (${howToChoose})`, sharing);
}

function parseHost(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString());
  } catch (cause) {
    throw new FormatError("what rank 0 published", "cannot be read", { cause });
  }
}

function failureOf(door: Bootstrap): Promise<never> {
  return new Promise((_, reject) => {
    door.onFailure(({ rank, message }) => reject(new RankFailedError(rank, door.generation, new Error(message))));
  });
}

/** As for ranks of our own launcher: the world is closed when the program has nothing left to do, and told of its end. */
export function endWithProgram(world: World, tell: (message: string) => void): void {
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
