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
import { AbortedError, TimeoutError } from "../../core/index.ts";
import { HOST_HAS_COME } from "../../core/internal.ts";
import { ValueStore } from "../rendezvous/internal.ts";
import { HostCount } from "./elastic-hosts.ts";
import { eventSink, generationStarted, type NewWorldEvent, rankFailed, worldEnded } from "./events.ts";
import { failureError, Generation, hasFinished, isSurvivor, type Member, placeOf } from "./generation.ts";
import { KilledRankResources } from "./killed-rank-resources.ts";
import type { FromRank } from "./messages.ts";
import { type Entry, formNext } from "./next-places.ts";
import { linesOf, outputSink } from "./output.ts";
import type { RankHost } from "./rank-host.ts";
import { type ErrorRecord, plainRecord, type RankFailure, toErrorRecord } from "./remote-error.ts";
import { RestartBudget, rebuildTerms } from "./restart-policy.ts";
import { SurvivorDeadline } from "./survivor-deadline.ts";
import { Timers } from "./timers.ts";
import type { WorldSpec } from "./world-spec.ts";
import { recordFlight } from "./write-flight-file.ts";

/** How long the survivors of a failure may clean up before they are ended, ms. */
export const DEFAULT_GRACE_MS = 2_000;
/** After a rank left without a failure, how long its peers have to complete what it took part in, ms. */
const LEAVE_MS = 500;
/** How long a rank that is being ended may take to be gone, ms: one in native code cannot be stopped. */
const EVICTION_MS = 5_000;
/** How long the report of a failure may take to come here, after its consequences did, ms. */
const HEARSAY_MS = 1_000;
const FIRST_GENERATION = 1;

export class Supervisor {
  readonly #spec: WorldSpec;
  readonly #budget: RestartBudget;
  readonly #emit: (event: NewWorldEvent) => void;
  readonly #graceMs: number;
  readonly #timers = new Timers();
  readonly #hostCount: HostCount;
  /** Hosts whose programs returned with timers or the like still there. */
  readonly #unfinished = new Set<RankHost>();
  readonly #unjoined = new Set<number>();
  readonly #leftovers = new KilledRankResources();
  /** Everybody who ever lived here and is not over yet. */
  readonly #alive = new Set<Member>();
  readonly #hosts = new Set<RankHost>();
  /** Of the ranks' programs: it outlives generations. */
  readonly #store = new ValueStore();
  readonly #finished: Promise<void>;
  #finish: () => void = () => {};
  #current!: Generation;
  #gathering: SurvivorDeadline | undefined;
  #delaying = false;
  #numRebuilds = 0;
  /** Why there will be no further generation. */
  #refused: string | undefined;
  #windingDown = false;
  #ended: Error | undefined;
  /** The failure that makes this process unfit, if there was one. */
  #fatal: RankFailure | undefined;

  constructor(spec: WorldSpec) {
    this.#spec = spec;
    this.#budget = new RestartBudget(spec.policy);
    this.#emit = eventSink(spec.onEvent);
    this.#graceMs = spec.graceMs ?? DEFAULT_GRACE_MS;
    this.#hostCount = new HostCount(spec.hosts, this.#timers);
    this.#finished = new Promise((resolve) => {
      this.#finish = resolve;
    });
  }

  /**
   * Starts the first generation on these hosts.
   * @throws what the backend says, or structuredClone of the job's data: the hosts are then the caller's to end
   */
  start(hosts: readonly RankHost[]): void {
    const generation = Generation.of(this.#spec, FIRST_GENERATION, hosts.length);
    const members = hosts.map((host) => generation.add(host));
    this.#enter(
      generation,
      members.map((member) => ({ member })),
    );
    this.#hostCount.listen(() => this.#grow());
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
    // Who hears of the world's events may have aborted it in the midst of its start.
    if (signal?.aborted) onAbort();
    if (timeoutMs !== undefined) {
      this.#timers.after(timeoutMs, () => {
        const { what, ranks } = this.#current.activity();
        this.#end(new TimeoutError(what, timeoutMs, ranks));
      });
    }
    try {
      await this.#finished;
    } finally {
      this.#timers.clear();
      signal?.removeEventListener("abort", onAbort);
    }
    // Nothing can be freed in a lost context.
    if (this.#fatal === undefined) {
      this.#leftovers.add(this.#current, ({ ended, failed, over }) => over && (failed || ended !== undefined));
      await this.#leftovers.freeAll();
    }
    const failure = this.#fatal ?? this.#current.firstFailure;
    const error = this.#ended ?? (failure === undefined ? undefined : failureError(failure, this.#current));
    const generation = this.#current.number;
    this.#emit(worldEnded(generation, error, this.#unjoined));
    if (error !== undefined) throw error;
    return this.#current.members.map(({ value }) => value);
  }

  /** Hosts that can serve another world: this one had no failure and one generation. The others are ended. */
  reusable(): RankHost[] {
    const { failures, number } = this.#current;
    const clean = this.#ended === undefined && failures.length === 0 && number === FIRST_GENERATION;
    if (!clean) for (const host of this.#hosts) host.terminate();
    for (const host of this.#unfinished) host.terminate();
    return clean ? [...this.#hosts].filter((host) => !host.exited && !this.#unfinished.has(host)) : [];
  }

  /** Takes down what the ranks shared. */
  close(): void {
    // The first generation may never have formed.
    const current = this.#current as Generation | undefined;
    current?.shared.release();
  }

  #newHost(instead: RankHost): RankHost {
    const host = this.#spec.takeHost(instead);
    this.#hosts.add(host);
    return host;
  }

  /** Makes a generation the current one, and tells each rank its place. */
  #enter(generation: Generation, entries: readonly Entry[]): void {
    const { env, job, kind, policy } = this.#spec;
    const rebuild = rebuildTerms(policy, EVICTION_MS + this.#hostCount.waitMs, kind.rebuildRefusal);
    this.#current = generation;
    this.#store.restart();
    const emit = outputSink(this.#spec.onOutput, (error) => this.#end(error));
    for (const { member } of entries) {
      this.#alive.add(member);
      this.#hosts.add(member.host);
      member.host.listen({
        line: linesOf(member.rank, emit),
        message: (message) => this.#onMessage(member, message),
        crash: (error) => this.#fail(member, toErrorRecord(error)),
        exit: (exitCode, reason) => this.#onExit(member, exitCode, reason),
      });
    }
    for (const { member, was } of entries) {
      const place = placeOf(member, env);
      if (was !== undefined) member.host.send({ kind: "rebuilt", place });
      else member.host.run({ ...job, ...place, rebuild });
    }
    this.#emit(generationStarted(generation.number, entries));
  }

  #onMessage(member: Member, message: FromRank): void {
    const { generation } = member;
    const isCurrent = generation === this.#current;
    switch (message.kind) {
      case "done":
        member.done = true;
        member.value = message.value;
        if (message.final) member.final = true;
        // It must not act in another world.
        if (message.unfinished === true) this.#unfinished.add(member.host);
        if (this.#spec.job.reused) this.#over(member);
        else this.#look();
        return;
      case "failed":
        this.#fail(member, message.error, message.lost);
        return;
      case "exiting":
        member.exiting = message;
        if (member.failed || !isCurrent) return;
        if (member.joined) {
          // It is still there, but will not be in the next generation.
          this.#fail(member, plainRecord(`called process.exit(${message.exitCode})`));
        } else if (message.exitCode !== 0) {
          generation.shared.fail(member.rank, `called process.exit(${message.exitCode})`);
        } else if (message.worldOpen) this.#leave(member, "called process.exit(0) with its world open");
        return;
      case "attached":
        member.attached = true;
        this.#leftovers.freed(member.reap);
        if (isCurrent && generation.members.every(({ attached }) => attached)) {
          const durationMs = performance.now() - generation.sinceMs;
          const worldSize = generation.members.length;
          this.#emit({ kind: "generation-ready", generation: generation.number, worldSize, durationMs });
          if (this.#hostCount.hasWaiting) this.#grow();
        }
        return;
      case "rebuild":
        if (isCurrent && message.generation === generation.number) {
          this.#onRebuild(member, message.timeoutMs, message.lost);
        }
        return;
      case "unjoined":
        this.#unjoined.add(member.rank);
        return;
      case "store":
        if (isCurrent && !member.over) this.#store.ask(member.asker, message.id, message.ask);
        return;
      // Their hosts have taken these.
      case "output":
      case "child":
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
      this.#fail(member, plainRecord(`its device is lost: ${lost}`), lost);
      // Only a new process gets a new context.
      if (host.kind === "process") this.#terminate(member, `its device is lost: ${lost}`);
    } else {
      if (!generation.condemned) {
        const condemn = () => generation.condemn(rank, "called world.rebuild()");
        generation.timers.push(this.#timers.after(LEAVE_MS, condemn));
      }
      this.#gather(`rank ${rank} called world.rebuild()`, timeoutMs);
    }
  }

  #onExit(member: Member, exitCode: number, reason: string): void {
    this.#hosts.delete(member.host);
    if (member.over) return;
    const isCurrent = member.generation === this.#current;
    if (isCurrent && !member.failed && this.#ended === undefined && (exitCode !== 0 || !member.done)) {
      const left = member.ended ?? (member.exiting === undefined ? reason : `called process.exit(${exitCode})`);
      if (exitCode !== 0 || member.joined) this.#fail(member, plainRecord(left));
      else this.#leave(member, left);
    }
    member.generation.shared.bury(member.rank);
    this.#over(member);
  }

  #fail(member: Member, error: ErrorRecord, lost?: string, how: "failed" | "evicted" = "failed"): void {
    const { generation, rank, host } = member;
    if (member.failed || this.#ended !== undefined || generation !== this.#current) return;
    member.failed = true;
    generation.failures.push({ rank, error });
    this.#emit(rankFailed(generation.number, { rank, error }, how));
    const record = this.#record(generation);
    const culprit = generation.culprit({ rank, error });
    const mayRebuild = this.#spec.policy.onFailure !== "end" && this.#refused === undefined;
    if (mayRebuild) generation.condemn(rank, culprit.text, culprit.rank);
    else generation.shared.fail(rank, culprit.text, culprit.rank);
    generation.store.fail({ rank: culprit.rank, message: culprit.error.message });
    record();
    if (lost !== undefined && host.kind === "thread") {
      const why = `the device of rank ${rank} is lost to this process (${lost}), and all ranks are threads of this process: end the process and start another, or launch with isolation "process"`;
      this.#fatal ??= { rank, error: { ...error, message: `${error.message}; ${why}` } };
      if (mayRebuild) this.#refuse(why);
      else this.#windDown("the world ended");
    } else if (mayRebuild) {
      generation.timers.push(this.#timers.after(this.#graceMs, () => this.#terminate(member, "failed")));
      this.#gather(`rank ${rank} failed: ${error.message}`);
    } else this.#windDown("the world ended");
  }

  /**
   * A rank left early with code 0. That is no failure of its own: whoever still waits for it after a while fails. At
   * once would be too soon, for the rank's last data may be on its way out of shared memory.
   */
  #leave({ generation, rank }: Member, how: string): void {
    generation.timers.push(this.#timers.after(LEAVE_MS, () => generation.shared.fail(rank, how)));
  }

  /** A host has come: the rebuild that is under way takes it in, or one that begins for it; a world that ends does not. */
  #grow(): void {
    if (this.#gathering !== undefined) this.#look();
    this.#hostCount.growSoon(() => {
      const { members } = this.#current;
      const isOver = this.#ended !== undefined || this.#refused !== undefined || this.#windingDown;
      if (isOver || this.#gathering !== undefined || !this.#hostCount.hasWaiting) return;
      // Before all have attached they cannot rebuild; one that has returned is not run again.
      if (members.some((member) => !member.attached || hasFinished(member))) return;
      this.#current.condemn(0, HOST_HAS_COME);
      this.#gather(HOST_HAS_COME, undefined, true);
    });
  }

  /** Waits for the survivors, from the first reason to do so on. @param isFree it is no failure, and not counted */
  #gather(because: string, timeoutMs?: number, isFree = false): void {
    if (this.#refused !== undefined) return;
    const limitMs = Math.min(timeoutMs ?? Number.POSITIVE_INFINITY, this.#spec.policy.rebuildTimeoutMs);
    if (this.#gathering === undefined) {
      const taken = isFree ? { delayMs: 0 } : this.#budget.take(performance.now());
      if (taken === undefined) {
        // A survivor may ask before its peer's failure is heard of here, which is to be told with the refusal.
        const waitMs = this.#current.failures.length === 0 ? HEARSAY_MS : 0;
        if (waitMs === 0) this.#refuse(this.#budget.describe());
        else this.#current.timers.push(this.#timers.after(waitMs, () => this.#refuse(this.#budget.describe())));
        return;
      }
      this.#numRebuilds++;
      const { delayMs } = taken;
      this.#gathering = new SurvivorDeadline(this.#timers, limitMs, delayMs, () => this.#evict());
      this.#emit({
        kind: "rebuild-started",
        generation: this.#current.number,
        because,
        restart: this.#numRebuilds,
        timeoutMs: Math.round(limitMs),
        delayMs,
      });
    } else this.#gathering.hasten(limitMs);
    this.#look();
  }

  /** Awaits nobody any more. */
  #disperse(): void {
    this.#gathering?.end();
    this.#hostCount.end();
    this.#gathering = undefined;
  }

  /** Ends those who did not come. */
  #evict(): void {
    const gathering = this.#gathering;
    if (gathering === undefined) return;
    const waitedMs = Math.round(performance.now() - gathering.sinceMs);
    for (const member of this.#current.missing) {
      const why = `did not call world.rebuild() within ${waitedMs} ms, and was ended`;
      this.#fail(member, plainRecord(why), undefined, "evicted");
      this.#terminate(member, why);
    }
    this.#timers.after(EVICTION_MS, () => {
      if (this.#gathering !== gathering || this.#delaying) return;
      const stuck = this.#current.missing.map(({ rank }) => rank);
      // All are here, and hosts are awaited.
      if (stuck.length === 0) return;
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
    if (this.#current.missing.length > 0 || this.#delaying) return;
    if (!this.#hostCount.isEnough((why) => this.#refuse(why))) return;
    const { delayMs } = gathering;
    this.#delaying = delayMs > 0;
    if (!this.#delaying) this.#rebuild(gathering);
    else
      this.#timers.after(delayMs, () => {
        this.#delaying = false;
        this.#look();
      });
  }

  /** Makes the next generation of those who are here. */
  #rebuild(gathering: SurvivorDeadline): void {
    const old = this.#current;
    const { policy } = this.#spec;
    const survivors = old.members.filter(isSurvivor);
    if (policy.onFailure === "shrink" && survivors.length < policy.minRanks) {
      const left = survivors.length === 0 ? "no rank is" : `only ${survivors.length} ranks are`;
      this.#refuse(`${left} left, and minRanks is ${policy.minRanks}`);
      return;
    }
    for (const timer of old.timers.splice(0)) this.#timers.cancel(timer);
    this.#disperse();
    this.#leftovers.add(old, ({ failed, over }) => failed || over);
    try {
      const { next, entries } = formNext(this.#spec, old, {
        joined: this.#hostCount.admit(),
        sinceMs: gathering.sinceMs,
        leftovers: this.#leftovers,
        replace: (host) => this.#newHost(host),
      });
      for (const member of survivors) this.#alive.delete(member);
      old.shared.release();
      this.#enter(next, entries);
    } catch (error) {
      this.#refuse(`the next generation could not be started: ${(error as Error).message}`);
    }
  }

  /** There will be no further generation: says so to whoever waits for it, and winds down. */
  #refuse(because: string): void {
    if (this.#refused !== undefined) return;
    this.#refused = because;
    this.#disperse();
    this.#emit({ kind: "rebuild-refused", generation: this.#current.number, because });
    for (const member of this.#current.members) if (isSurvivor(member)) this.#tellRefused(member);
    this.#windDown(`the rebuild was refused: ${because}`);
    this.#look();
  }

  #tellRefused({ generation, host }: Member): void {
    const cause = generation.firstFailure?.error;
    const because = { reason: this.#refused ?? "", ...(cause === undefined ? {} : { cause }) };
    host.send({ kind: "rebuild-refused", generation: generation.number, ...because });
  }

  /** The survivors may clean up for a while, then they are ended. */
  #windDown(because: string): void {
    if (this.#windingDown) return;
    this.#windingDown = true;
    this.#timers.after(this.#graceMs, () => {
      for (const member of this.#alive) this.#terminate(member, `was ended ${this.#graceMs} ms after ${because}`);
      this.#timers.after(EVICTION_MS, () => {
        // A rank of which nothing is known has not done its work.
        for (const member of this.#alive) {
          this.#fail(member, plainRecord(`could not be ended within ${EVICTION_MS} ms: it is in native code`));
        }
        this.#finish();
      });
    });
  }

  /** Ends the world from outside: no grace. */
  #end(error: Error): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#disperse();
    const record = this.#record(this.#current);
    this.#current.store.fail({ rank: -1, message: error.message });
    for (const member of this.#alive) this.#terminate(member, error.message);
    record();
    this.#timers.after(EVICTION_MS, () => this.#finish());
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
    this.#store.forget(member.asker);
    this.#alive.delete(member);
    member.host.flush();
    this.#look();
  }

  /** Writes what the ranks of the present generation did last, as often as it is asked. */
  recordFlight(): void {
    const { shared, number: generation, failures } = this.#current;
    const path = recordFlight(() => shared.readFlight(), generation, failures);
    if (path !== undefined) this.#emit({ kind: "flight-recorded", generation, path });
  }

  /** Reads what the ranks did last. @returns writes it down: the survivors are told first, for a disk may be slow */
  #record(generation: Generation): () => void {
    const write = generation.takeFlight();
    return () => {
      const path = write();
      if (path !== undefined) this.#emit({ kind: "flight-recorded", generation: generation.number, path });
    };
  }
}
