/**
 * The supervisor as a model: hosts that do anything in any order, on a clock of the test's own. Whatever they do, the
 * world ends in bounded time, with results only when every rank of the last generation ended well; nobody is counted on
 * who has said that it goes, and nobody is left running.
 */
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Random } from "../../../test/oracle/random.ts";
import { THREADS_KIND } from "../backends/threads/threads-kind.ts";
import type { FromRank, Job, ToRank } from "./messages.ts";
import type { RankHost, RankListener } from "./rank-host.ts";
import { type RestartOptions, restartPolicy } from "./restart-policy.ts";
import { Supervisor } from "./supervisor.ts";

/** A rank's program. What it does next is drawn; what it said is done in order. */
class ModelHost implements RankHost {
  readonly kind = "thread";
  exited = false;
  terminated = false;
  /** Only its exit is to come. */
  leaving = false;
  /** The launcher has heard that it goes. */
  toldSo = false;
  generation = 0;
  rank = -1;
  waits = false;
  failed = false;
  readonly problems: string[] = [];
  #listener: RankListener | undefined;
  #ending: number | undefined;
  #isOver = false;
  /** Cannot be ended. */
  readonly #isStuck: boolean;

  constructor(random: Random) {
    this.#isStuck = random.below(40) === 0;
  }
  listen(listener: RankListener | undefined): void {
    this.#listener = listener;
  }
  run(job: Job): void {
    this.#must(this.generation === 0, "a host runs one job");
    this.#enter(job.rank, job.generation);
  }
  send(message: ToRank): void {
    if (message.kind === "rebuilt") {
      this.#must(this.waits, "only who waits is told of the next generation");
      this.#enter(message.place.rank, message.place.generation);
    } else if (message.kind === "rebuild-refused") {
      this.#must(this.waits || this.leaving, "only who waits is refused");
      this.waits = false;
    }
  }
  #enter(rank: number, generation: number): void {
    this.#must(!this.toldSo && !this.exited, "who goes has no place in the next generation");
    Object.assign(this, { rank, generation, waits: false });
    if (!this.leaving) this.#say({ kind: "attached", generation });
  }
  /** What the launcher does wrong; an error would be its to catch. */
  #must(holds: boolean, what: string): void {
    if (!holds) this.problems.push(`rank ${this.rank} of generation ${this.generation}: ${what}`);
  }
  flush(): void {}
  setIdle(): void {}
  terminate(): void {
    this.terminated = true;
    if (!this.#isStuck) this.#ending ??= 1;
  }

  /** Does something of what it may do now. @param isLast only what ends it */
  act(random: Random, isLast = false): void {
    if (this.#isOver || this.generation === 0) return;
    if (this.#ending !== undefined) {
      if (!isLast && random.below(3) > 0) return;
      const exitCode = this.#ending;
      this.#isOver = true;
      this.#later(() => {
        this.exited = true;
        this.#listener?.exit(exitCode, `its thread exited with code ${exitCode}`);
      });
      return;
    }
    if (this.leaving) return;
    const what = random.below(isLast ? 4 : 24);
    if (what === 0 && !this.waits) {
      this.#say({ kind: "done", value: `${this.rank} of ${this.generation}`, final: true });
      this.#leave(0);
    } else if (what === 1) {
      this.failed = true;
      this.#say({ kind: "failed", error: { name: "Error", message: "by the model", stack: "" } });
      this.#leave(1);
    } else if (what === 2) {
      const exitCode = random.below(2);
      const worldOpen = this.waits || random.below(3) > 0;
      this.#say({ kind: "exiting", exitCode, worldOpen });
      this.#leave(exitCode);
    } else if (what === 3) {
      // Dies without a word.
      this.#leave(139);
    } else if (what < 10 && !this.waits && !isLast) {
      this.waits = true;
      const timeoutMs = random.below(3) === 0 ? { timeoutMs: 100 + random.below(2000) } : {};
      this.#say({ kind: "rebuild", generation: this.generation, ...timeoutMs });
    }
  }

  #leave(exitCode: number): void {
    this.leaving = true;
    this.#ending ??= exitCode;
  }
  #say(message: FromRank): void {
    this.#later(() => {
      if (message.kind === "failed" || message.kind === "exiting") this.toldSo = true;
      this.#listener?.message(message);
    });
  }
  /** What a host says comes later, and in order. */
  #later(what: () => void): void {
    setTimeout(what, 0);
  }
}

describe("the supervisor of hosts that do anything", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it("ends every world, and tells those that ended well from the others", async () => {
    const worlds = fc.record({
      seed: fc.integer(),
      ranks: fc.integer({ min: 1, max: 5 }),
      onFailure: fc.constantFrom("end", "respawn", "shrink" as const),
      delay: fc.boolean(),
    });
    const outcomes = { well: 0, failed: 0 };
    let longest = 0;
    await fc.assert(
      fc.asyncProperty(worlds, async ({ seed, ranks, onFailure, delay }) => {
        const random = new Random(seed);
        const hosts: ModelHost[] = [];
        const takeHost = () => {
          const host = new ModelHost(random);
          hosts.push(host);
          return host;
        };
        const options: RestartOptions = {
          onFailure: onFailure as "end" | "respawn" | "shrink",
          rebuildTimeoutMs: 1500,
          ...(onFailure === "end" ? {} : { restarts: 4, restartDelayMs: delay ? 300 : 0 }),
        };
        const supervisor = new Supervisor({
          ranks,
          kind: THREADS_KIND,
          backendOptions: undefined,
          isolation: "thread",
          policy: restartPolicy(options, ranks),
          timeoutMs: undefined,
          graceMs: 200,
          signal: undefined,
          env: undefined,
          onOutput: () => {},
          onEvent: undefined,
          job: {
            module: { url: "", path: "", isCommonJs: false },
            isFunction: false,
            args: [],
            data: undefined,
            reused: false,
          },
          takeHost,
        });
        supervisor.start(Array.from({ length: ranks }, takeHost));
        let outcome: { readonly values?: unknown[]; readonly error?: unknown } | undefined;
        supervisor.finish().then(
          (values) => {
            outcome = { values };
          },
          (error: unknown) => {
            outcome = { error };
          },
        );
        for (let step = 0; step < 300 && outcome === undefined; step++) {
          hosts[random.below(hosts.length)]?.act(random);
          await vi.advanceTimersByTimeAsync(random.below(4) === 0 ? random.below(120) : 0);
        }
        // From here on everybody ends, in one way or another.
        for (let step = 0; step < 400 && outcome === undefined; step++) {
          for (const host of hosts) host.act(random, true);
          await vi.advanceTimersByTimeAsync(100);
        }
        expect(outcome, "the world has ended").toBeDefined();
        expect(hosts.flatMap(({ problems }) => problems)).toEqual([]);
        const last = Math.max(...hosts.map(({ generation }) => generation));
        longest = Math.max(longest, last);
        const members = hosts.filter(({ generation }) => generation === last);
        if (outcome?.values !== undefined) {
          outcomes.well++;
          for (const { failed, exited } of members) expect([failed, exited]).toEqual([false, true]);
          // Who has called process.exit(0) has no result.
          for (const { rank } of members) expect([undefined, `${rank} of ${last}`]).toContain(outcome.values[rank]);
        } else outcomes.failed++;
        supervisor.reusable();
        supervisor.close();
        for (const host of hosts) expect(host.exited || host.terminated, "nobody is left running").toBe(true);
      }),
      { numRuns: Number(process.env["CHORALE_WORLDS"] ?? 150), verbose: 1 },
    );
    expect(Math.min(outcomes.well, outcomes.failed)).toBeGreaterThan(0);
    expect(longest).toBeGreaterThan(2);
  });
});
