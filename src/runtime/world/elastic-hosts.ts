/**
 * A world whose number of hosts may change, as its supervisor knows it (torchrun calls that elastic): it goes on without hosts
 * that are lost while enough are left, and is formed anew when a host comes.
 */
import type { RunningTimer } from "../comm/index.ts";
import type { RankHost } from "./rank-host.ts";
import type { Timers } from "./timers.ts";

/** How long a host that has come is kept waiting, ms: others may come with it. */
const GROW_MS = 500;

/** The hosts of a world, this one among them. */
export interface ElasticHosts {
  readonly minHosts: number;
  /** How long a world that has too few waits for others, ms. */
  readonly waitMs: number;
  /** Hosts that are there, with or without ranks. */
  readonly numHosts: number;
  /** Whether hosts are there that have no ranks yet. */
  readonly hasWaiting: boolean;
  /** Sets who hears of hosts that come. */
  listen(onHost: (node: number) => void): void;
  /** Starts the ranks of hosts that have none. @throws UnavailableError when one is gone again */
  admit(): RankHost[];
}

/** Counts hosts for the supervisor, and waits for them. */
export class HostCount {
  readonly #hosts: ElasticHosts | undefined;
  readonly #timers: Timers;
  #awaiting: RunningTimer | undefined;
  #growing: RunningTimer | undefined;

  /** @param hosts absent where their number is fixed */
  constructor(hosts: ElasticHosts | undefined, timers: Timers) {
    this.#hosts = hosts;
    this.#timers = timers;
  }

  /** The most that a rebuild may have to wait for hosts, ms. */
  get waitMs(): number {
    return this.#hosts?.waitMs ?? 0;
  }

  get hasWaiting(): boolean {
    return this.#hosts?.hasWaiting === true;
  }

  /** @param came is told of every host that comes */
  listen(came: (node: number) => void): void {
    this.#hosts?.listen(came);
  }

  /** Whether there are enough. Where not, `tooFew` is told once they have not come in time. */
  isEnough(tooFew: (why: string) => void): boolean {
    const hosts = this.#hosts;
    if (hosts === undefined || hosts.numHosts >= hosts.minHosts) {
      this.end();
      return true;
    }
    this.#awaiting ??= this.#timers.after(hosts.waitMs, () => {
      const { numHosts, minHosts, waitMs } = hosts;
      const left = numHosts === 1 ? "only the first host is" : `only ${numHosts} hosts are`;
      tooFew(`${left} left of the ${minHosts} that the world needs, and no other came within ${waitMs / 1000} s`);
    });
    return false;
  }

  /** Calls `grow` a moment later, once for hosts that come together. */
  growSoon(grow: () => void): void {
    this.#growing ??= this.#timers.after(GROW_MS, () => {
      this.#growing = undefined;
      grow();
    });
  }

  /** Starts the ranks of hosts that have come. */
  admit(): RankHost[] {
    return this.#hosts?.admit() ?? [];
  }

  /** Awaits no host any more. */
  end(): void {
    if (this.#awaiting !== undefined) this.#timers.cancel(this.#awaiting);
    this.#awaiting = undefined;
  }
}
