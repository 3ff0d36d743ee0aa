/** One generation of a world, from the launcher's side: its members, what they share, and what became of them. */
import { type RankActivity, RankFailedError } from "../../core/index.ts";
import type { RunningTimer } from "../comm/index.ts";
import type { Asker } from "../rendezvous/internal.ts";
import { BootstrapStore } from "./bootstrap.ts";
import { HostSide } from "./host-side.ts";
import type { Place, Reap } from "./messages.ts";
import type { RankHost } from "./rank-host.ts";
import { type Culprit, culpritOf, fromErrorRecord, isConsequence, type RankFailure } from "./remote-error.ts";
import type { WorldSpec } from "./world-spec.ts";
import { takeFlight } from "./write-flight-file.ts";

/** A rank of one generation. Its host may serve the next one too. */
export interface Member {
  readonly generation: Generation;
  readonly host: RankHost;
  readonly rank: number;
  /** As it asks the world's store. */
  readonly asker: Asker;
  /** What it frees before it attaches. */
  readonly reap: readonly Reap[];
  attached: boolean;
  /** Has left the generation, and waits for the next. */
  joined: boolean;
  /** Its module's work is over, and `value` is here. */
  done: boolean;
  /** Done, and its world is closed. */
  final: boolean;
  /** Its thread or process is gone, or serves others. */
  over: boolean;
  failed: boolean;
  exiting: { readonly exitCode: number; readonly worldOpen: boolean } | undefined;
  /** Why the launcher ended it. */
  ended: string | undefined;
  value: unknown;
}

export class Generation {
  readonly number: number;
  readonly shared: HostSide;
  readonly store: BootstrapStore;
  readonly members: Member[] = [];
  readonly failures: RankFailure[] = [];
  /** When what led to it began. */
  readonly sinceMs: number;
  /** Its groups were told that it is over. */
  condemned = false;
  /** What is to happen to its members later, and must not keep its memory once it is over. */
  readonly timers: RunningTimer[] = [];

  #isRecorded = false;

  constructor(number: number, shared: HostSide, sinceMs = performance.now()) {
    this.sinceMs = sinceMs;
    this.number = number;
    this.shared = shared;
    this.store = new BootstrapStore(number);
  }

  /** Makes what the ranks of a generation share. @throws what the backend's `createHost` throws */
  static of(spec: WorldSpec, number: number, ranks: number, sinceMs?: number): Generation {
    const { kind, backendOptions, isolation, worldSecret, mirrors } = spec;
    const secret = worldSecret === undefined ? {} : { worldSecret };
    const shared = new HostSide(kind, { ranks, generation: number, isolation, ...secret }, backendOptions);
    if (mirrors !== undefined) shared.connect(mirrors);
    return new Generation(number, shared, sinceMs);
  }

  /** Adds the next rank. */
  add(host: RankHost, reap: readonly Reap[] = []): Member {
    const rank = this.members.length;
    const worldSize = () => this.members.length;
    const asker: Asker = {
      rank,
      get worldSize() {
        return worldSize();
      },
      answer: (id, answer) => host.send({ kind: "store-answer", generation: this.number, id, answer }),
    };
    const member: Member = {
      generation: this,
      host,
      rank,
      asker,
      reap,
      attached: false,
      joined: false,
      done: false,
      final: false,
      over: false,
      failed: false,
      exiting: undefined,
      ended: undefined,
      value: undefined,
    };
    this.members.push(member);
    this.store.addRank((message) => host.send(message));
    return member;
  }

  /** Those whom the next generation has to wait for. */
  get missing(): readonly Member[] {
    return this.members.filter((member) => !member.over && !isSurvivor(member) && !hasFinished(member));
  }

  /** Tells every rank that this generation is over because of one. @param blamed whom the ranks are told of */
  condemn(rank: number, cause: string, blamed = rank): void {
    this.shared.failEverybody(rank, cause, blamed);
    if (this.condemned) return;
    this.condemned = true;
    this.store.fail({ rank: blamed, message: cause });
  }

  /** Reads what its ranks did last, once. @returns writes it down, and gives the file's path if there is one */
  takeFlight(): () => string | undefined {
    if (this.#isRecorded) return () => undefined;
    this.#isRecorded = true;
    return takeFlight(() => this.shared.readFlight(), this.number, this.failures);
  }

  /**
   * Who is to blame for a failure: the rank itself, or the one that it heard of, maybe before the launcher saw that one end.
   * Whoever is told of a failure is told this.
   */
  culprit(failure: RankFailure): Culprit {
    const passed = new Set([failure.rank]);
    let found = culpritOf(failure, this.members.length);
    while (!passed.has(found.rank)) {
      passed.add(found.rank);
      const { rank } = found;
      const own = this.failures.find((known) => known.rank === rank);
      if (own !== undefined) found = culpritOf(own, this.members.length);
    }
    return found;
  }

  /**
   * The failure that the others follow from: one that only reports another rank's, also as the cause of an error of its own,
   * or a refusal, is a consequence. Reports of several ranks come in any order.
   */
  get firstFailure(): RankFailure | undefined {
    return (
      this.failures.find(({ error }) => !isConsequence(error) && error.isRefusal === undefined) ??
      this.failures.find(({ error }) => error.failedRank === undefined && error.isRefusal === undefined) ??
      this.failures.find(({ error }) => error.isRefusal === undefined) ??
      this.failures[0]
    );
  }

  /** What each rank did last, and which ranks are done or wait in a call: the others are missing from it. */
  activity(): { readonly what: string; readonly ranks: readonly RankActivity[] } {
    const flight = this.shared.readFlight();
    const waiting = new Map<string, number[]>();
    const ranks = this.members.map(({ rank, over, done }): RankActivity => {
      const last = flight.ranks.find((entry) => entry.rank === rank)?.entries.at(-1);
      const waits = !over && !done && last !== undefined && last.state !== "done" && last.state !== "failed";
      if (waits) {
        const call = `${last.call} #${last.seq} of group ${last.group}`;
        waiting.set(call, [...(waiting.get(call) ?? []), rank]);
      }
      const arrived = over || done || waits;
      return { rank, arrived, ...(last === undefined ? {} : { lastOp: last.op, lastSeq: last.seq }) };
    });
    const calls = [...waiting].map(([call, who]) => `ranks [${who.join(", ")}] wait in ${call}`);
    return { what: calls.length === 0 ? "the world" : `the world, whose ${calls.join(", and ")},`, ranks };
  }
}

/** The variables that tell a rank's program its place. */
export const PLACE_VARIABLES: ReadonlySet<string> = new Set([
  "CHORALE_RANK",
  "CHORALE_WORLD_SIZE",
  "CHORALE_GENERATION",
  "CHORALE_NODE_RANK",
  "CHORALE_LOCAL_RANK",
  "CHORALE_LOCAL_WORLD_SIZE",
]);

/** What a rank is told of its place, with `env` beside the variables that say the same. */
export function placeOf(
  { generation, rank, reap, host }: Member,
  env: Readonly<Record<string, string>> | undefined,
): Place {
  const { number, shared, members } = generation;
  const { node = 0 } = host;
  const onHost = members.filter((member) => (member.host.node ?? 0) === node);
  return {
    rank,
    worldSize: members.length,
    generation: number,
    engine: shared.handle,
    env: {
      ...env,
      CHORALE_RANK: String(rank),
      CHORALE_WORLD_SIZE: String(members.length),
      CHORALE_GENERATION: String(number),
      CHORALE_NODE_RANK: String(node),
      CHORALE_LOCAL_RANK: String(onHost.findIndex((member) => member.rank === rank)),
      CHORALE_LOCAL_WORLD_SIZE: String(onHost.length),
    },
    reap,
  };
}

/** Whether the rank has ended well: nobody may count on it, and it is not run again. */
export function hasFinished(member: Member): boolean {
  if (member.failed || member.joined) return false;
  return member.final || (member.over && (member.done || member.exiting?.worldOpen === false));
}

/** Whether the rank waits for the next generation, and can be in it. */
export function isSurvivor({ joined, failed, over }: Member): boolean {
  return joined && !failed && !over;
}

/** The error that a world ends with: the rank that failed, and the original cause. */
export function failureError(failure: RankFailure, generation: Generation): RankFailedError {
  const { rank, error } = generation.culprit(failure);
  return new RankFailedError(rank, generation.number, fromErrorRecord(error));
}
