/**
 * Supervises a world: starts its ranks, hears how they fare, and, as the policy says, makes the next generation when one
 * failed or all of them ask for it. Supervision is one for one (a dead rank alone is started again; survivors keep their
 * memory), with limits on how often, how fast and how long; see restart-policy.ts.
 *
 *   running --a rank fails, or calls rebuild()--> gathering --all are here, dead or evicted--> running, generation + 1
 *      |                                              |
 *      |--policy "end"--> winding down <--refused-----'   (survivors have a grace period, then they are ended)
 *
 * Every state but `running` ends in bounded time; `running` ends with the ranks, the time limit or the signal.
 */
import { AbortedError, RankFailedError, TimeoutError } from "../../core/index.ts";
import {
  type BackendName,
  type BackendOptions,
  createEngine,
  failEngine,
  failGeneration,
  reapEngine,
  releaseEngine,
} from "./engine.ts";
import { eventSink, type NewWorldEvent, type WorldEvent } from "./events.ts";
import { recordFlight } from "./flight.ts";
import { Generation, hasFinished, isSurvivor, type Member } from "./generation.ts";
import type { FromRank, Job, Place, Reap } from "./messages.ts";
import { type OutputLine, printLine } from "./output.ts";
import type { Isolation, RankHost } from "./rank-host.ts";
import { type ErrorRecord, fromErrorRecord, plainRecord, toErrorRecord } from "./remote-error.ts";
import { MAX_RESTART_DELAY_MS, RestartBudget, type RestartPolicy } from "./restart-policy.ts";

/** How long the survivors of a failure may clean up before they are ended, ms. */
export const DEFAULT_GRACE_MS = 2_000;
/** After a rank left without a failure, how long its peers have to complete what it took part in, ms. */
const LEAVE_MS = 500;
/** How long a rank that is being ended may take to be gone, ms: one in native code cannot be stopped. */
const EVICTION_MS = 5_000;
/** How long the report of a failure may take to come here, after its consequences did, ms. */
const HEARSAY_MS = 100;
/** Generation 0 is private memory's. */
const FIRST_GENERATION = 1;

export interface WorldSpec {
  readonly ranks: number;
  readonly backend: BackendName;
  readonly backendOptions: BackendOptions | undefined;
  readonly isolation: Isolation;
  readonly policy: RestartPolicy;
  readonly timeoutMs: number | undefined;
  readonly graceMs: number | undefined;
  readonly signal: AbortSignal | undefined;
  readonly env: Readonly<Record<string, string>> | undefined;
  readonly onOutput: ((line: OutputLine) => void) | undefined;
  readonly onEvent: ((event: WorldEvent) => void) | undefined;
  /** What every rank is told, whatever its place. */
  readonly job: Omit<Job, keyof Place | "rebuild">;
  takeHost(): RankHost;
}

interface Gathering {
  readonly because: string;
  readonly sinceMs: number;
  /** The next generation does not start before. */
  readonly notBeforeMs: number;
  deadlineMs: number;
  timer: NodeJS.Timeout;
}

export class Supervisor {
  readonly #spec: WorldSpec;
  readonly #budget: RestartBudget;
  readonly #emit: (event: NewWorldEvent) => void;
  readonly #graceMs: number;
  readonly #timers = new Set<NodeJS.Timeout>();
  /** Everybody who ever lived here and is not over yet. */
  readonly #alive = new Set<Member>();
  readonly #hosts = new Set<RankHost>();
  readonly #finished: Promise<void>;
  #finish: () => void = () => {};
  #current!: Generation;
  #gathering: Gathering | undefined;
  #delaying = false;
  #numRebuilds = 0;
  /** Why there will be no further generation. */
  #refused: string | undefined;
  #windingDown = false;
  #ended: Error | undefined;
  /** What killed threads held, and nobody has freed yet. */
  #unreaped: Reap[] = [];
  /** The failure that makes this process unfit, if there was one. */
  #fatal: { readonly rank: number; readonly error: ErrorRecord } | undefined;

  constructor(spec: WorldSpec) {
    this.#spec = spec;
    this.#budget = new RestartBudget(spec.policy);
    this.#emit = eventSink(spec.onEvent);
    this.#graceMs = spec.graceMs ?? DEFAULT_GRACE_MS;
    this.#finished = new Promise((resolve) => {
      this.#finish = resolve;
    });
  }

  /**
   * Starts the first generation on these hosts.
   * @throws what the backend says, or structuredClone of the job's data: the hosts are then the caller's to end
   */
  start(hosts: readonly RankHost[]): void {
    const generation = this.#newGeneration(FIRST_GENERATION, hosts.length);
    const members = hosts.map((host) => generation.add(host));
    this.#enter(
      generation,
      members.map((member) => ({ member })),
    );
  }

  /**
   * Waits for every rank of the last generation.
   * @returns what they returned, by rank
   * @throws RankFailedError, TimeoutError, AbortedError
   */
  async finish(): Promise<unknown[]> {
    const { timeoutMs, signal } = this.#spec;
    const onAbort = () => this.#end(new AbortedError(String(signal?.reason ?? "the caller gave up")));
    signal?.addEventListener("abort", onAbort);
    if (timeoutMs !== undefined) {
      this.#after(timeoutMs, () => this.#end(new TimeoutError("the world", timeoutMs, this.#current.activity())));
    }
    try {
      await this.#finished;
    } finally {
      for (const timer of this.#timers) clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    }
    await this.#reapAll();
    const failure = this.#fatal ?? this.#current.firstFailure;
    const error = this.#ended ?? (failure === undefined ? undefined : this.#errorOf(failure));
    const generation = this.#current.number;
    this.#emit({
      kind: "world-ended",
      generation,
      ok: error === undefined,
      ...(error === undefined ? {} : { message: error.message }),
    });
    if (error !== undefined) throw error;
    return this.#current.members.map(({ value }) => value);
  }

  /** Hosts that can serve another world: this one had no failure and one generation. The others are ended. */
  reusable(): RankHost[] {
    const { failures, number } = this.#current;
    const clean = this.#ended === undefined && failures.length === 0 && number === FIRST_GENERATION;
    if (!clean) for (const host of this.#hosts) host.terminate();
    return clean ? [...this.#hosts].filter(({ exited }) => !exited) : [];
  }

  /** Takes down what the ranks shared. */
  close(): void {
    releaseEngine(this.#current.engine);
  }

  #newGeneration(number: number, ranks: number, sinceMs?: number): Generation {
    const { backend, backendOptions, isolation } = this.#spec;
    return new Generation(number, createEngine(backend, ranks, number, backendOptions, isolation), sinceMs);
  }

  /** Makes a generation the current one, and tells each rank its place. */
  #enter(generation: Generation, entries: readonly { readonly member: Member; readonly was?: number }[]): void {
    const { env, job, policy } = this.#spec;
    const worldSize = entries.length;
    this.#current = generation;
    const emit = this.#spec.onOutput ?? printLine;
    for (const { member } of entries) {
      this.#alive.add(member);
      this.#hosts.add(member.host);
      member.host.listen({
        line: (stream, text) => emit({ rank: member.rank, stream, text }),
        message: (message) => this.#onMessage(member, message),
        crash: (error) => this.#fail(member, toErrorRecord(error)),
        exit: (exitCode, reason) => this.#onExit(member, exitCode, reason),
      });
    }
    for (const { member, was } of entries) {
      const { host, rank, reap } = member;
      const place: Place = {
        rank,
        worldSize,
        generation: generation.number,
        engine: generation.engine,
        env: {
          ...env,
          CHORALE_RANK: String(rank),
          CHORALE_WORLD_SIZE: String(worldSize),
          CHORALE_GENERATION: String(generation.number),
        },
        reap,
      };
      if (was !== undefined) host.send({ kind: "rebuilt", place });
      else {
        const delayMs = policy.restartDelayMs > 0 ? MAX_RESTART_DELAY_MS : 0;
        const limitMs = policy.rebuildTimeoutMs + EVICTION_MS + delayMs;
        const refusal =
          policy.onFailure === "end"
            ? 'it was launched to end at the first failure; launch it with onFailure "respawn" or "shrink" (chorale launch --restarts N)'
            : undefined;
        host.run({ ...job, ...place, rebuild: { limitMs, ...(refusal === undefined ? {} : { refusal }) } });
      }
    }
    this.#emit({
      kind: "generation-started",
      generation: generation.number,
      worldSize,
      ranks: entries.map(({ member, was }) => ({ rank: member.rank, ...(was === undefined ? {} : { was }) })),
    });
  }

  #onMessage(member: Member, message: FromRank): void {
    const { generation } = member;
    const isCurrent = generation === this.#current;
    switch (message.kind) {
      case "done":
        member.done = true;
        member.value = message.value;
        if (message.final) member.final = true;
        if (this.#spec.job.reused) this.#over(member);
        else this.#look();
        return;
      case "failed":
        this.#fail(member, message.error, message.lost);
        if (this.#spec.job.reused) member.host.terminate();
        return;
      case "exiting":
        member.exiting = message;
        if (member.failed || !isCurrent) return;
        if (message.exitCode !== 0) {
          failEngine(generation.engine, member.rank, `called process.exit(${message.exitCode})`);
        } else if (message.worldOpen) this.#leave(member, "called process.exit(0) with its world open");
        return;
      case "attached":
        member.attached = true;
        this.#unreaped = this.#unreaped.filter((left) => !member.reap.includes(left));
        if (isCurrent && generation.members.every(({ attached }) => attached)) {
          const durationMs = performance.now() - generation.sinceMs;
          const worldSize = generation.members.length;
          this.#emit({ kind: "generation-ready", generation: generation.number, worldSize, durationMs });
        }
        return;
      case "rebuild":
        if (isCurrent && message.generation === generation.number) {
          this.#onRebuild(member, message.timeoutMs, message.lost);
        }
        return;
      case "output":
        return;
      default:
        generation.store.handle(message, (reply) => member.host.send(reply));
    }
  }

  #onRebuild(member: Member, timeoutMs: number | undefined, lost: string | undefined): void {
    if (member.failed || this.#ended !== undefined) return;
    member.joined = true;
    const { generation, rank, host } = member;
    if (this.#refused !== undefined) {
      this.#tellRefused(member);
    } else if (lost !== undefined) {
      this.#fail(member, plainRecord(`its CUDA context is lost: ${lost}`), lost);
      // Only a new process gets a new context.
      if (host.kind === "process") this.#terminate(member, `its CUDA context is lost: ${lost}`);
    } else {
      if (!generation.condemned) {
        const condemn = () => this.#condemn(generation, rank, "called world.rebuild()");
        generation.timers.push(this.#after(LEAVE_MS, condemn));
      }
      this.#gather(`rank ${rank} called world.rebuild()`, timeoutMs);
    }
  }

  #onExit(member: Member, exitCode: number, reason: string): void {
    if (member.over) return;
    const isCurrent = member.generation === this.#current;
    if (isCurrent && !member.failed && this.#ended === undefined && (exitCode !== 0 || !member.done)) {
      const left = member.ended ?? (member.exiting === undefined ? reason : `called process.exit(${exitCode})`);
      if (exitCode !== 0 || member.joined) this.#fail(member, plainRecord(left));
      else this.#leave(member, left);
    }
    // Killed within a critical section, a rank leaves a lock behind: the second call breaks it.
    if (member.failed) failEngine(member.generation.engine, member.rank, reason);
    this.#over(member);
  }

  #fail(member: Member, error: ErrorRecord, lost?: string, how: "failed" | "evicted" = "failed"): void {
    const { generation, rank, host } = member;
    if (member.failed || this.#ended !== undefined || generation !== this.#current) return;
    member.failed = true;
    generation.failures.push({ rank, error });
    this.#emit({
      kind: "rank-failed",
      generation: generation.number,
      rank,
      how,
      message: error.message,
      ...(error.code === undefined ? {} : { code: error.code }),
      ...(error.failedRank === undefined ? {} : { becauseOfRank: error.failedRank }),
    });
    this.#record(generation);
    const text = `${error.name}: ${error.message}`;
    const mayRebuild = this.#spec.policy.onFailure !== "end" && this.#refused === undefined;
    if (mayRebuild) this.#condemn(generation, rank, text);
    else failEngine(generation.engine, rank, text);
    generation.store.fail({ rank, message: error.message });
    if (lost !== undefined && host.kind === "thread") {
      const why = `the CUDA context of rank ${rank}'s device is lost (${lost}), and all ranks are threads of this process: end the process and start another, or launch with isolation "process"`;
      this.#fatal ??= { rank, error: { ...error, message: `${error.message}; ${why}` } };
      if (mayRebuild) this.#refuse(why);
      else this.#windDown("the world ended");
    } else if (mayRebuild) {
      generation.timers.push(this.#after(this.#graceMs, () => this.#terminate(member, "failed")));
      this.#gather(`rank ${rank} failed: ${error.message}`);
    } else this.#windDown("the world ended");
  }

  /**
   * A rank left early with code 0. That is no failure of its own: whoever still waits for it after a while fails. At
   * once would be too soon, for the rank's last data may be on its way out of shared memory.
   */
  #leave({ generation, rank }: Member, how: string): void {
    generation.timers.push(this.#after(LEAVE_MS, () => failEngine(generation.engine, rank, how)));
  }

  /** Tells every rank of a generation that it is over because of one. */
  #condemn(generation: Generation, rank: number, cause: string): void {
    failGeneration(generation.engine, rank, cause);
    if (generation.condemned) return;
    generation.condemned = true;
    generation.store.fail({ rank, message: cause });
  }

  /** Waits for the survivors, from the first reason to do so on. */
  #gather(because: string, timeoutMs?: number): void {
    if (this.#refused !== undefined) return;
    const now = performance.now();
    const { rebuildTimeoutMs } = this.#spec.policy;
    const deadlineMs = now + Math.min(timeoutMs ?? rebuildTimeoutMs, rebuildTimeoutMs);
    if (this.#gathering === undefined) {
      const taken = this.#budget.take(now);
      if (taken === undefined) {
        // A survivor may ask before its peer's failure is heard of here, which is to be told with the refusal.
        const waitMs = this.#current.failures.length === 0 ? HEARSAY_MS : 0;
        if (waitMs === 0) this.#refuse(this.#budget.describe());
        else this.#current.timers.push(this.#after(waitMs, () => this.#refuse(this.#budget.describe())));
        return;
      }
      this.#numRebuilds++;
      const { delayMs } = taken;
      const timer = this.#after(deadlineMs - now, () => this.#evict());
      this.#gathering = { because, sinceMs: now, notBeforeMs: now + delayMs, deadlineMs, timer };
      this.#emit({
        kind: "rebuild-started",
        generation: this.#current.number,
        because,
        restart: this.#numRebuilds,
        timeoutMs: Math.round(deadlineMs - now),
        delayMs,
      });
    } else if (deadlineMs < this.#gathering.deadlineMs) {
      this.#cancel(this.#gathering.timer);
      this.#gathering.deadlineMs = deadlineMs;
      this.#gathering.timer = this.#after(deadlineMs - now, () => this.#evict());
    }
    this.#look();
  }

  /** Those whom a gathering waits for. */
  #missing(): Member[] {
    return this.#current.members.filter((member) => !member.over && !isSurvivor(member) && !hasFinished(member));
  }

  /** Ends those who did not come. */
  #evict(): void {
    const gathering = this.#gathering;
    if (gathering === undefined) return;
    const waitedMs = Math.round(performance.now() - gathering.sinceMs);
    for (const member of this.#missing()) {
      const why = `did not call world.rebuild() within ${waitedMs} ms, and was ended`;
      this.#fail(member, plainRecord(why), undefined, "evicted");
      this.#terminate(member, why);
    }
    this.#after(EVICTION_MS, () => {
      if (this.#gathering !== gathering || this.#delaying) return;
      const stuck = this.#missing().map(({ rank }) => rank);
      this.#refuse(`rank ${stuck.join(", ")} could not be ended within ${EVICTION_MS} ms: it is in native code`);
    });
  }

  /** Looks whether the world, or the wait for its survivors, is over. */
  #look(): void {
    const gathering = this.#gathering;
    if (gathering === undefined) {
      if (this.#alive.size === 0 && this.#current.members.every(({ over }) => over)) this.#finish();
      return;
    }
    const { members } = this.#current;
    const early = members.find(hasFinished);
    if (early !== undefined && this.#spec.policy.onFailure === "respawn") {
      this.#refuse(`rank ${early.rank} has returned already, and a rank that returned is not run again`);
      return;
    }
    if (this.#missing().length > 0 || this.#delaying) return;
    const delayMs = gathering.notBeforeMs - performance.now();
    if (delayMs <= 0) {
      this.#rebuild(gathering);
      return;
    }
    this.#delaying = true;
    this.#after(delayMs, () => {
      this.#delaying = false;
      this.#look();
    });
  }

  /** Makes the next generation of those who are here. */
  #rebuild(gathering: Gathering): void {
    const old = this.#current;
    const { policy, backend } = this.#spec;
    const survivors = old.members.filter(isSurvivor);
    const shrinks = policy.onFailure === "shrink";
    if (shrinks && survivors.length < policy.minRanks) {
      const left = survivors.length === 0 ? "no rank is" : `only ${survivors.length} ranks are`;
      this.#refuse(`${left} left, and minRanks is ${policy.minRanks}`);
      return;
    }
    for (const timer of [gathering.timer, ...old.timers.splice(0)]) this.#cancel(timer);
    this.#gathering = undefined;
    for (const { host, rank, failed, over } of old.members) {
      const wasKilled = host.kind === "thread" && backend !== "threads" && (failed || over);
      if (wasKilled) this.#unreaped.push({ engine: old.engine, rank });
    }
    const places = shrinks ? survivors : old.members;
    try {
      const next = this.#newGeneration(old.number + 1, places.length, gathering.sinceMs);
      const entries = places.map((member, rank) => {
        // Each replacement frees what its predecessor left; what is older, and all when shrinking, the first rank.
        const reap = this.#unreaped.filter(({ engine, rank: dead }) =>
          !shrinks && engine === old.engine ? dead === rank : rank === 0,
        );
        if (isSurvivor(member)) {
          this.#alive.delete(member);
          return { member: next.add(member.host, reap), was: member.rank };
        }
        return { member: next.add(this.#spec.takeHost(), reap) };
      });
      releaseEngine(old.engine);
      this.#enter(next, entries);
    } catch (error) {
      this.#refuse(`the next generation could not be started: ${(error as Error).message}`);
    }
  }

  /** There will be no further generation: says so to whoever waits for it, and winds down. */
  #refuse(because: string): void {
    if (this.#refused !== undefined) return;
    this.#refused = because;
    if (this.#gathering !== undefined) this.#cancel(this.#gathering.timer);
    this.#gathering = undefined;
    this.#emit({ kind: "rebuild-refused", generation: this.#current.number, because });
    for (const member of this.#current.members) if (isSurvivor(member)) this.#tellRefused(member);
    this.#windDown(`the rebuild was refused: ${because}`);
    this.#look();
  }

  #tellRefused({ generation, host }: Member): void {
    const cause = generation.firstFailure?.error;
    const reason = this.#refused ?? "";
    host.send({
      kind: "rebuild-refused",
      generation: generation.number,
      reason,
      ...(cause === undefined ? {} : { cause }),
    });
  }

  /** The survivors may clean up for a while, then they are ended. */
  #windDown(because: string): void {
    if (this.#windingDown) return;
    this.#windingDown = true;
    this.#after(this.#graceMs, () => {
      for (const member of this.#alive) this.#terminate(member, `was ended ${this.#graceMs} ms after ${because}`);
      this.#after(EVICTION_MS, () => this.#finish());
    });
  }

  /** Ends the world from outside: no grace. */
  #end(error: Error): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#gathering = undefined;
    this.#record(this.#current);
    this.#current.store.fail({ rank: -1, message: error.message });
    for (const member of this.#alive) this.#terminate(member, error.message);
    this.#after(EVICTION_MS, () => this.#finish());
    this.#look();
  }

  #terminate(member: Member, why: string): void {
    if (member.over) return;
    member.ended ??= why;
    member.host.terminate();
  }

  #over(member: Member): void {
    if (member.over) return;
    member.over = true;
    this.#alive.delete(member);
    member.host.flush();
    this.#look();
  }

  #record(generation: Generation): void {
    if (generation.recorded) return;
    generation.recorded = true;
    const path = recordFlight(generation.engine, generation.number);
    if (path !== undefined) this.#emit({ kind: "flight-recorded", generation: generation.number, path });
  }

  /** Frees what the killed threads of a world that ends held: the process lives on. */
  async #reapAll(): Promise<void> {
    if (this.#fatal !== undefined) return;
    const { engine, members } = this.#current;
    const killed =
      this.#spec.isolation === "thread"
        ? members.filter(({ ended, failed, over }) => over && (ended !== undefined || failed))
        : [];
    for (const { engine: of, rank } of [...this.#unreaped, ...killed.map(({ rank }) => ({ engine, rank }))]) {
      await reapEngine(of, rank).catch((error: unknown) => {
        process.emitWarning(`what rank ${rank} held could not be freed: ${String(error)}`, "ChoraleWarning");
      });
    }
  }

  #errorOf({ rank, error }: { readonly rank: number; readonly error: ErrorRecord }): RankFailedError {
    const origin = error.failedRank === undefined ? error : (error.cause ?? error);
    return new RankFailedError(error.failedRank ?? rank, this.#current.number, fromErrorRecord(origin));
  }

  #after(ms: number, then: () => void): NodeJS.Timeout {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      then();
    }, ms);
    this.#timers.add(timer);
    return timer;
  }

  #cancel(timer: NodeJS.Timeout): void {
    clearTimeout(timer);
    this.#timers.delete(timer);
  }
}
