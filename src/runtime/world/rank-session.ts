/**
 * One rank's life through the generations of its world: attaches to each, leaves it at once when its program calls
 * `rebuild()`, asks the launcher for the next, and says what the launcher must know when the rank fails.
 */
import { AbortedError, ClosedError, NativeError, RankFailedError, TimeoutError } from "../../core/index.ts";
import { afterRunning, type Backend } from "../comm/index.ts";
import { StoreClient, storeOver, type WorldFailure } from "../rendezvous/internal.ts";
import { backendKind } from "./backend-table.ts";
import { PortBootstrap } from "./bootstrap.ts";
import { offerWorld } from "./join.ts";
import type { FromRank, Job, Place, ToRank } from "./messages.ts";
import { culpritOf, fromErrorRecord, MAX_CAUSES, toErrorRecord } from "./remote-error.ts";
import { createWorld, type World } from "./world.ts";

/** What is between a rank's own deadline and the launcher's, which is to come first, ms. */
const MARGIN_MS = 10_000;

interface Answer {
  readonly generation: number;
  resolve(place: Place): void;
  reject(error: Error): void;
}

export class RankSession {
  readonly #job: Job;
  readonly #post: (message: FromRank) => void;
  #bootstrap: PortBootstrap | undefined;
  #store: StoreClient | undefined;
  #backend: Backend | undefined;
  #world: World | undefined;
  #rebuilding: Promise<World> | undefined;
  #answer: Answer | undefined;
  #failed = false;
  #refusal: AbortedError | undefined;

  constructor(job: Job, post: (message: FromRank) => void) {
    this.#job = job;
    this.#post = post;
  }

  /** Whether this rank has said that it failed. */
  get failed(): boolean {
    return this.#failed;
  }

  /** Whether the rank would leave others waiting if it ended now. */
  get worldOpen(): boolean {
    return this.#answer !== undefined || (this.#world !== undefined && !this.#world.closed);
  }

  /** Attaches to the first generation of this rank's life. @throws what the backend says */
  open(): Promise<World> {
    return this.#attach(this.#job);
  }

  /** Closes the newest world, after a rebuild that is under way. */
  async close(): Promise<void> {
    while (this.#rebuilding !== undefined) {
      const current = this.#rebuilding;
      // Who was refused, and returned a result all the same, has dealt with it.
      await current.catch(() => {});
      if (this.#rebuilding === current) this.#rebuilding = undefined;
    }
    await this.#world?.close();
  }

  /** Takes a message of the launcher. */
  receive(message: ToRank): void {
    if (message.kind === "rebuilt") this.#answer?.resolve(message.place);
    else if (message.kind === "rebuild-refused") {
      if (message.generation !== this.#answer?.generation) return;
      const { reason, cause } = message;
      const options = cause === undefined ? {} : { cause: fromErrorRecord(cause) };
      const first = cause === undefined ? "" : `; the first failure: ${cause.name}: ${cause.message}`;
      this.#refusal = new AbortedError(`world.rebuild() was refused: ${reason}${first}`, options);
      this.#answer.reject(this.#refusal);
    } else if (message.kind === "store-answer") {
      if (message.generation === this.#bootstrap?.generation) this.#store?.take(message.id, message.answer);
    } else this.#bootstrap?.receive(message);
  }

  /** Says that this rank failed: to its peers through the backend, to the launcher, and gives back what it holds. */
  fail(error: unknown): void {
    if (this.#failed) return;
    this.#failed = true;
    const plain = toErrorRecord(error);
    const causes = causesOf(error);
    const isRefusal = this.#refusal !== undefined && causes.slice(0, 2).includes(this.#refusal);
    const record = isRefusal ? { ...plain, isRefusal } : plain;
    const lost = this.#backend?.lost ?? lostContext(causes);
    // The launcher first: what the survivors do once they know must not overtake this.
    this.#post({ kind: "failed", error: record, ...(lost === undefined ? {} : { lost }) });
    // Also when another rank's death caused this: ranks that wait for this one in a group of their own must know.
    const { rank, worldSize } = this.#backend ?? { rank: 0, worldSize: 0 };
    const culprit = culpritOf({ rank, error: record }, worldSize);
    this.#backend?.fail(rank, culprit.text, culprit.rank);
    this.abandon(`this rank ended: ${record.name}: ${record.message}`);
  }

  /** Gives back what this rank holds, without waiting for anybody: it ends. */
  abandon(why: string): void {
    this.#backend?.abandon(new AbortedError(why));
  }

  async #attach(place: Place): Promise<World> {
    const { rank, worldSize, generation, engine } = place;
    Object.assign(process.env, place.env);
    const bootstrap = new PortBootstrap(rank, worldSize, generation, this.#post);
    this.#bootstrap = bootstrap;
    this.#backend = undefined;
    const store = new StoreClient(worldSize, (id, ask) => this.#post({ kind: "store", generation, id, ask }));
    this.#store = store;
    const kind = await backendKind(engine.backend);
    for (const left of place.reap) await kind.reap?.(left.engine.host, left.rank, left.killed);
    const backend = await kind.attach(engine.host, rank, engine.options, bootstrap);
    this.#backend = backend;
    const failed = ({ rank: dead, message }: WorldFailure) =>
      dead < 0 ? new AbortedError(message) : new RankFailedError(dead, generation, new Error(message));
    bootstrap.onFailure((cause) => {
      store.fail(failed(cause));
      // The generation is over though nobody died, so that others can come in: no peer says so to a rank that is alone.
      if (cause.rank === rank && !this.#failed) backend.fail(rank, cause.message);
    });
    const world = createWorld(backend, {
      args: this.#job.args,
      data: this.#job.data,
      store,
      onFailure: (listener) => bootstrap.onFailure((cause) => listener(failed(cause))),
      rebuild: {
        refusal: this.#job.rebuild.refusal,
        request: (cause, timeoutMs) => {
          bootstrap.close(cause);
          store.end(storeOver(generation));
          this.#rebuilding = this.#rebuild(backend, timeoutMs);
          return this.#rebuilding;
        },
      },
    });
    this.#world = world;
    offerWorld(world);
    this.#post({ kind: "attached", generation });
    return world;
  }

  async #rebuild(left: Backend, timeoutMs: number | undefined): Promise<World> {
    const { generation } = left;
    const { lost } = left;
    const limitMs = this.#job.rebuild.limitMs + MARGIN_MS;
    try {
      const place = await new Promise<Place>((resolve, reject) => {
        const timer = afterRunning(limitMs, () =>
          reject(new TimeoutError(`world.rebuild() of generation ${generation}`, limitMs)),
        );
        const settle =
          <V>(how: (value: V) => void) =>
          (value: V) => {
            timer.cancel();
            this.#answer = undefined;
            how(value);
          };
        this.#answer = { generation, resolve: settle(resolve), reject: settle(reject) };
        this.#post({
          kind: "rebuild",
          generation,
          ...(timeoutMs === undefined ? {} : { timeoutMs }),
          ...(lost === undefined ? {} : { lost }),
        });
      });
      return await this.#attach(place);
    } catch (error) {
      // The others must not wait for a rank that did not arrive. Of a refusal the launcher knows.
      if (this.#refusal === undefined) this.fail(error);
      throw error;
    } finally {
      this.#answer = undefined;
    }
  }
}

/** Why this process cannot use the rank's device, of an error that came before there was a backend to ask. */
function lostContext(causes: readonly Error[]): string | undefined {
  return causes.find((one) => one instanceof ClosedError && one.cause instanceof NativeError)?.message;
}

/** An error and what caused it, as far as that can be looked at. */
function causesOf(error: unknown): readonly Error[] {
  const found: Error[] = [];
  try {
    for (let one = error; one instanceof Error && found.length < MAX_CAUSES; one = one.cause) found.push(one);
  } catch {
    // A getter, or the trap of a proxy, threw in turn.
  }
  return found;
}
