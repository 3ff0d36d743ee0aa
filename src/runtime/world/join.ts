/** `joinWorld()`: how a program learns which rank it is. */
import { ClosedError, InvalidArgumentError, UnavailableError } from "../../core/index.ts";
import { type Asker, foreignPlace, StoreClient, storeOver, ValueStore } from "../rendezvous/internal.ts";
import { type BackendName, backendKind, DEFAULT_BACKEND, LAUNCH_BACKENDS, parseBackend } from "./backend-table.ts";
import { soloBootstrap } from "./bootstrap.ts";
import { ignoreDebugSignal } from "./debug-signal.ts";
import { HostSide } from "./host-side.ts";
import { checkMs } from "./restart-policy.ts";
import { createWorld, isRebuilding, type World } from "./world.ts";

/** Where a rank's worker leaves its world for the user's module; one per thread, found from any copy of this file. */
const SLOT = Symbol.for("chorale.world");
const JOINING = Symbol.for("chorale.world.joining");
const DEADLINE_OF_LAUNCHER =
  "nothing in a rank of chorale launch or launch(): its deadline is --backend-option timeoutMs=MS, or backendOptions: { timeoutMs }";
/** Set once this thread's program has asked for its world. */
const ASKED = Symbol.for("chorale.world.asked");
/** Whom to tell of that. */
const ON_ASKED = Symbol.for("chorale.world.onAsked");
/** `launched`: not a world of one that nobody started; `ours`: by our launcher, which has said the deadline of its waits. */
interface Offered {
  readonly world: World;
  readonly launched: boolean;
  readonly ours?: boolean;
}
type Slot = {
  [ASKED]?: boolean;
  [ON_ASKED]?: (() => void) | undefined;
  [SLOT]?: Offered | undefined;
  [JOINING]?: Promise<World> | undefined;
};

/** For the launcher's workers: sets the world that `joinWorld()` gives in this thread. */
export function offerWorld(world: World | undefined): void {
  (globalThis as Slot)[SLOT] = world === undefined ? undefined : { world, launched: true, ours: true };
}

/** Whether the program of this thread has called `joinWorld()`. */
export function hasJoined(): boolean {
  return (globalThis as Slot)[ASKED] === true;
}

/** For the launcher's workers: calls `listener` when the program of this thread calls `joinWorld()`; undefined for nobody. */
export function onJoining(listener: (() => void) | undefined): void {
  (globalThis as Slot)[ON_ASKED] = listener;
}

export interface JoinOptions {
  /** For a program that our launcher has not started; by default `CHORALE_BACKEND`, or `threads`. */
  readonly backend?: BackendName;
  /**
   * How long ranks that another launcher started wait for each other, and default deadline of every wait, ms. Under ours the
   * backend's option says it.
   */
  readonly timeoutMs?: number;
}

/**
 * Joins the world that this program was started in: as one rank of `chorale launch` or `launch()`; as one of the
 * processes that torchrun, Open MPI, Flux, MPICH or Slurm started, on one host with the nccl backend, on any with tcp;
 * or, when nothing launched it, as the only rank of a world of 1. Every call gives the same world until it is closed.
 *
 * Processes of other launchers meet at `CHORALE_RDZV=HOST:PORT` (rank 0 listens there; loopback and torchrun's
 * MASTER_PORT + 1 unless set, under srun the step's first host and a port made of the job's number) and prove to each other that they know `CHORALE_SECRET`.
 * @throws ClosedError when this rank has closed the world it was launched in
 * @throws InvalidArgumentError for another backend than the launcher's, and for a deadline where our launcher has said it
 * @throws UnavailableError when another launcher started several processes and the backend is not one that joins
 *   processes, and a world of 1 each would be silently wrong; also when the secret or the address is not set
 * @throws MismatchError, TimeoutError, RankFailedError when the processes differ or do not come; UnsupportedError for
 *   several hosts
 * @example
 * import { joinWorld } from "chorale";
 *
 * await using world = await joinWorld();
 * const x = world.tensor("f32", [4]);
 * x.data.fill(world.rank + 1);
 * await world.comm.allReduce(x);
 * console.log(x.data); // the sum over all ranks
 */
export async function joinWorld(options: JoinOptions = {}): Promise<World> {
  checkMs("timeoutMs", options.timeoutMs, 1);
  const slot = globalThis as Slot;
  slot[ASKED] = true;
  slot[ON_ASKED]?.();
  const offered = slot[SLOT];
  if (offered?.ours === true && options.timeoutMs !== undefined)
    throw new InvalidArgumentError("timeoutMs", options.timeoutMs, DEADLINE_OF_LAUNCHER);
  if (offered !== undefined && !offered.world.closed) return sameBackend(offered.world, options);
  if (offered !== undefined && isRebuilding(offered.world)) return offered.world.rebuild();
  if (offered?.launched) throw new ClosedError("world", `was closed by this rank (${offered.world.rank})`);
  slot[JOINING] ??= join(options).finally(() => {
    slot[JOINING] = undefined;
  });
  return sameBackend(await slot[JOINING], options);
}

function sameBackend(world: World, { backend }: JoinOptions): World {
  if (backend === undefined || backend === world.backend) return world;
  throw new InvalidArgumentError("backend", backend, `${world.backend}, by which this rank was started`);
}

async function join(options: JoinOptions): Promise<World> {
  const backend = parseBackend(
    options.backend ?? (process.env["CHORALE_BACKEND"] || DEFAULT_BACKEND),
    options.backend === undefined ? "CHORALE_BACKEND" : "backend",
  );
  const place = foreignPlace(process.env);
  if (place !== undefined) ignoreDebugSignal();
  const kind = await backendKind(backend);
  if (kind.join !== undefined) {
    const { joinThroughEngine } = await import("./join-through-engine.ts");
    const world = await joinThroughEngine(kind, kind.join, place, options);
    (globalThis as Slot)[SLOT] = { world, launched: true };
    return world;
  }
  if (place === undefined) return soloWorld(1, backend, options);
  if (kind.prepareJoin === undefined) {
    const others = await backendsThatJoin();
    throw new UnavailableError(
      "a world of several processes",
      `${place.launcher} started this one as rank ${place.rank} of ${place.size} (${place.variables}), but the ${backend} backend cannot join processes that another launcher started`,
      `Start it with: chorale launch -n ${place.size} SCRIPT; or set CHORALE_BACKEND=${others.join(" or ")} and CHORALE_SECRET; or unset the variables for a world of 1.`,
    );
  }
  const { joinLaunched } = await import("./join-launched.ts");
  const world = await joinLaunched(place, kind, options);
  (globalThis as Slot)[SLOT] = { world, launched: true };
  return world;
}

/** The backends that `joinWorld()` can use in processes of other launchers. */
async function backendsThatJoin(): Promise<readonly BackendName[]> {
  const kinds = await Promise.all(LAUNCH_BACKENDS.map(backendKind));
  return LAUNCH_BACKENDS.filter((_, index) => kinds[index]?.prepareJoin !== undefined);
}

/** The world of a rank that nobody launched: it rebuilds without asking anybody. */
async function soloWorld(
  generation: number,
  backend: BackendName,
  options: JoinOptions,
  values = new ValueStore(),
): Promise<World> {
  const { timeoutMs } = options;
  const kind = await backendKind(backend);
  const attachOptions = timeoutMs === undefined ? {} : { timeoutMs };
  const shared = new HostSide(kind, { ranks: 1, generation, isolation: "thread" }, attachOptions);
  const release = () => shared.release();
  const attached = await kind
    .attach(shared.handle.host, 0, attachOptions, soloBootstrap(generation))
    .catch((error: unknown) => {
      release();
      throw error;
    });
  const asker: Asker = { rank: 0, worldSize: 1, answer: (id, answer) => store.take(id, answer) };
  const store: StoreClient = new StoreClient(1, (id, ask) => values.ask(asker, id, ask));
  const request = () => {
    release();
    values.forget(asker);
    store.end(storeOver(generation));
    return soloWorld(generation + 1, backend, options, values);
  };
  const world = createWorld(attached, {
    args: process.argv.slice(2),
    data: undefined,
    store,
    onClosed: release,
    rebuild: { refusal: undefined, request },
  });
  (globalThis as Slot)[SLOT] = { world, launched: false };
  return world;
}
