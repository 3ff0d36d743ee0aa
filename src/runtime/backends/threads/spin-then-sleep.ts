/**
 * Drives the unfinished work of one rank: by spinning briefly and then sleeping inside `wait()`, and from the event
 * loop otherwise. A rank sleeps on its own doorbell, whatever group it waits for, because any of its groups may need
 * its help for a peer to get on.
 */

import { runningTime } from "../../comm/index.ts";
import type { CoreSharing } from "./core-sharing.ts";
import { rankBlock } from "./host.ts";
import { RANK, WORLD } from "./layout.ts";
import type { WordWaiting } from "./shared-world.ts";

/** What the driver needs to know of a group. */
export interface Pumpable {
  /**
   * Advances what can be advanced; spins at most `spins` polls on the first missing peer. With `buffering`, messages
   * whose receivers do not come are copied away.
   * @returns whether anything advanced
   */
  pump(spins: number, buffering?: boolean): boolean;
  /** As `pump`, but stays with `work`, a message too, for up to `spins` polls. */
  spin(work: Drivable, spins: number): void;
  readonly hasPending: boolean;
  /** Fails what is overdue. @returns the earliest deadline of what is left */
  checkDeadlines(now: number): number;
}
export interface Drivable {
  readonly seq: number;
  readonly settled: boolean;
  readonly engine: Pumpable;
}

/**
 * Polls before a blocking wait goes to sleep, an `await` goes to the event loop, an issuing call returns: 200, 50, 10 us.
 * The first two grow with the ranks: whoever was woken first has to stay until the last one is, or all sleep at every call.
 * On busy virtual machines waking one thread may take the 100 us that a wait once stayed.
 */
const WAIT_SPINS = 120_000;
const AWAIT_SPINS = 30_000;
const ISSUE_SPINS = 6_000;
/** So many ranks are woken well within `WAIT_SPINS`: 16 took 70 to 180 us a call, with 100 us they never met again. */
const RANKS_PER_SPINS = 4;
/** Polls when ranks share cores, where spinning only keeps the awaited peer from running. */
const SHARED_CORE_SPINS = 20;
/**
 * Spinning pays when the peer runs and is about to come. When it did not come in time, the next waits spin half as
 * long, down to 1/64. But ranks that all sleep never meet while spinning, since waking takes longer than they spin. So
 * at every 64th operation, whose number is the same on all ranks, everybody starts afresh, and stays long for a few.
 */
const MAX_LEVEL = 6;
/**
 * Waits in vain, one after the other, that do not count yet: a peer that was held up once has all others sleep once. Who then
 * stayed half as long would not stay until the last one is awake, and all would sleep until they start afresh.
 */
const LONE_MISSES = 3;
const PROBE_EVERY = 64;
const PROBES = 3;
/** A rank that slept so often since the last of these operations sleeps at most of its calls. */
const MANY_SLEEPS = 24;
/**
 * So many calls that were waited for, one after the other, make a program that waits: what it calls is still on the stack when
 * a wait fails.
 */
const BLOCKING_CALLS = 64;
/**
 * `WORLD.alert` while ranks look for sleepers behind a fence. Otherwise they look right after their last store (`release` in the
 * assembler), which may be on its way still: who turns the word on waits until all that was stored before has arrived, for
 * SETTLE_MS: far longer than a full store buffer takes to drain.
 */
const ALERT = 1 << 30;
const SETTLE_MS = 0.02;
/** Longest sleep without looking at deadlines. */
const MAX_SLEEP_MS = 1000;

export class Driver {
  /** Polls before a blocking wait sleeps, and before an issuing call returns. */
  waitSpins: number;
  issueSpins: number;
  /** The ranks share cores. */
  readonly oversubscribed: boolean;
  readonly #fullWaitSpins: number;
  readonly #fullIssueSpins: number;
  readonly #awaitSpins: number;
  readonly #sharing: CoreSharing | undefined;
  /** Since `count` last looked. */
  #sleeps = 0;
  #level = 0;
  /** Waits in vain since one that was not. */
  #misses = 0;
  /** Calls that were waited for since one was awaited. */
  #numBlocking = 0;
  readonly #words: Int32Array;
  readonly #waiting: WordWaiting;
  readonly #door: number;
  readonly #sleeping: number;
  readonly #rung: number;
  readonly #active = new Set<Pumpable>();
  /** The pending asynchronous wait. A higher number makes the end of an older one be ignored. */
  #armed = false;
  #epoch = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #scheduled = false;

  /** `sharing`: absent where the ranks share cores anyhow, or are to stay where they are. */
  constructor(
    words: Int32Array,
    waiting: WordWaiting,
    rank: number,
    numRanks: number,
    oversubscribed: boolean,
    sharing: CoreSharing | undefined,
  ) {
    this.#words = words;
    this.#waiting = waiting;
    this.oversubscribed = oversubscribed;
    const at = rankBlock(rank);
    this.#door = (at + RANK.doorbell) / 4;
    this.#sleeping = (at + RANK.sleeping) / 4;
    this.#rung = (at + RANK.rung) / 4;
    const patience = Math.max(1, numRanks / RANKS_PER_SPINS);
    this.#fullWaitSpins = oversubscribed ? SHARED_CORE_SPINS : WAIT_SPINS * patience;
    this.#fullIssueSpins = oversubscribed ? SHARED_CORE_SPINS : ISSUE_SPINS;
    this.#awaitSpins = oversubscribed ? SHARED_CORE_SPINS : AWAIT_SPINS * patience;
    this.waitSpins = this.#fullWaitSpins;
    this.issueSpins = this.#fullIssueSpins;
    this.#sharing = sharing;
  }

  get sleepersAddress(): number {
    return WORLD.sleepers * 4;
  }

  /**
   * Whether the program blocks in `wait()` until its calls are done, as far as it shows. A call's stack need not be taken then as
   * it is issued, which costs 20 us: as much as a small collective among ranks that sleep.
   */
  get isBlocking(): boolean {
    return this.#numBlocking >= BLOCKING_CALLS;
  }

  /** Notes that `group` has unfinished work: the event loop will advance it unless somebody waits first. */
  activate(group: Pumpable): void {
    this.#active.add(group);
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      // Also when a wait is pending: it knows neither this work's deadline nor whether its peers came before.
      this.#disarm();
      this.#turn();
    });
  }

  /** Called with the number of each operation: now and then spinning starts afresh. */
  count(seq: number): void {
    if ((seq & (PROBE_EVERY - 1)) !== 0) return;
    if (this.#level > 0) this.#setLevel(0);
    if (this.#sleeps >= MANY_SLEEPS) this.#sharing?.note(Date.now());
    else this.#sharing?.clear();
    if (this.#sleeps === 0) this.#calm();
    this.#sleeps = 0;
  }

  /** Spins a moment for awaited work, then leaves it to the event loop. */
  onAwaited(work: Drivable): void {
    this.#numBlocking = 0;
    this.#stay(work, this.#awaitSpins >> this.#level);
    if (!work.settled) this.activate(work.engine);
  }

  /** Spins for `work` as long as spinning has paid lately. */
  #stay(work: Drivable, usual: number): void {
    work.engine.spin(work, (work.seq & (PROBE_EVERY - 1)) < PROBES ? this.#fullWaitSpins : usual);
    if (!work.settled) {
      if (++this.#misses > LONE_MISSES || this.oversubscribed) this.#setLevel(Math.min(MAX_LEVEL, this.#level + 1));
      return;
    }
    this.#misses = 0;
    if (this.#level > 0) this.#setLevel(this.#level - 1);
  }

  /** Blocks until `work` is settled. @returns false when `timeoutMs` passed first */
  drive(work: Drivable, timeoutMs: number | undefined): boolean {
    if (!this.isBlocking) this.#numBlocking++;
    this.#stay(work, this.waitSpins);
    if (work.settled) return true;
    this.#disarm();
    const start = runningTime();
    for (;;) {
      this.#pumpAll();
      if (work.settled) break;
      const now = runningTime();
      const limit = timeoutMs === undefined ? Number.POSITIVE_INFINITY : start + timeoutMs;
      if (now >= limit) {
        this.#reactivate();
        return false;
      }
      const next = Math.min(this.#deadlines(now), work.engine.checkDeadlines(now), limit, now + MAX_SLEEP_MS);
      if (work.settled) break;
      this.#sleep(work, Math.max(0.05, next - now));
      if (work.settled) break;
      work.engine.spin(work, this.waitSpins >> 2);
    }
    this.#reactivate();
    return true;
  }

  #setLevel(level: number): void {
    this.#level = level;
    this.waitSpins = this.#fullWaitSpins >> level;
    this.issueSpins = this.#fullIssueSpins >> level;
  }

  /** Stops everything asynchronous: the rank closes. */
  close(): void {
    this.#active.clear();
    this.#disarm();
  }

  #sleep(work: Drivable, ms: number): void {
    const words = this.#words;
    const rung = Atomics.load(words, this.#door);
    this.#announceSleep(1);
    const progressed = this.#pumpAll() || work.engine.pump(0, true);
    if (!progressed && !work.settled) this.#waiting.wait(words, this.#door, rung, ms);
    this.#announceSleep(-1);
  }

  /** Called before a sleep, after the doorbell's count was read; what is waited for is then looked at once more. */
  #announceSleep(change: 1 | -1): void {
    Atomics.add(this.#words, WORLD.sleepers, change);
    Atomics.add(this.#words, this.#sleeping, change);
    if (change === -1) return;
    this.#sleeps++;
    Atomics.store(this.#words, this.#rung, 0);
    this.#alert();
  }

  /** Turns the alert off. A look first: all ranks come here at once, and an exchange takes the line away from all of them. */
  #calm(): void {
    const words = this.#words;
    if (words[WORLD.alert] === ALERT) Atomics.compareExchange(words, WORLD.alert, ALERT, 0);
  }

  /** Turns the alert on, or sees that it is. */
  #alert(): void {
    const words = this.#words;
    const own = this.#door;
    let before = 0;
    for (;;) {
      const now = Atomics.load(words, WORLD.alert);
      if (now === ALERT) return;
      // Another rank is about to, unless it was killed or held up.
      if (now === before) Atomics.compareExchange(words, WORLD.alert, now, own);
      for (const until = performance.now() + SETTLE_MS; performance.now() < until; );
      Atomics.compareExchange(words, WORLD.alert, own, ALERT);
      before = now;
    }
  }

  #pumpAll(): boolean {
    let progressed = false;
    for (const group of this.#active) {
      if (group.pump(0, true)) progressed = true;
      if (!group.hasPending) this.#active.delete(group);
    }
    return progressed;
  }

  #deadlines(now: number): number {
    let next = Number.POSITIVE_INFINITY;
    for (const group of this.#active) next = Math.min(next, group.checkDeadlines(now));
    return next;
  }

  /** After a blocking wait: what is left goes back to the event loop. */
  #reactivate(): void {
    for (const group of this.#active) {
      if (group.hasPending) {
        this.activate(group);
        return;
      }
    }
  }

  /** One turn of the event loop: advance everything, and wait for the doorbell if something is left. */
  #turn(): void {
    this.#pumpAll();
    if (this.#active.size === 0) return;
    const words = this.#words;
    const rung = Atomics.load(words, this.#door);
    this.#armed = true;
    this.#announceSleep(1);
    const epoch = ++this.#epoch;
    const wake = (rings: boolean) => {
      if (epoch !== this.#epoch || !this.#armed) return;
      this.#disarm(rings);
      this.#turn();
    };
    if (this.#pumpAll()) {
      // Something moved between the look and the announcement: look again, on the next turn.
      setImmediate(wake, false);
    } else {
      const slept = this.#waiting.waitAsync(words, this.#door, rung);
      if (slept !== undefined) void slept.then(() => wake(false));
      else setImmediate(wake, false);
    }
    const now = runningTime();
    const next = Math.min(this.#deadlines(now), now + MAX_SLEEP_MS);
    // A timer with a reference: a pending asynchronous wait alone does not keep the event loop alive.
    this.#timer = setTimeout(wake, Math.max(1, next - now), true);
  }

  /** Ends the asynchronous wait. `ring`: unless it ended already, so that none is left behind. */
  #disarm(ring = true): void {
    if (!this.#armed) return;
    this.#armed = false;
    this.#epoch++;
    clearTimeout(this.#timer);
    this.#announceSleep(-1);
    if (ring) this.#waiting.endAsync(this.#words, this.#door);
  }
}
