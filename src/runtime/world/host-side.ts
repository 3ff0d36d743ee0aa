/** What the ranks of one generation share, from the launcher's side: made here, told of deaths, read and removed. */
import type { BackendKind, FlightDump, HostHandle, HostMirror, HostSpec } from "../comm/index.ts";
import type { BackendName } from "./backend-table.ts";

/** What a rank needs to attach; travels to its thread or process. */
export interface EngineHandle {
  readonly backend: BackendName;
  readonly host: HostHandle;
  readonly options: object;
}

/** The way to the other hosts' parts of a generation. */
export interface MirrorWay {
  /** Says who takes what those send, and gives what sends to all of them. */
  connect(generation: number, receive: (message: object) => void): (message: object) => void;
}

export class HostSide {
  readonly kind: BackendKind;
  readonly handle: EngineHandle;
  #mirror: HostMirror | undefined;

  /** @throws what the backend's `createHost` throws */
  constructor(kind: BackendKind, spec: HostSpec, options: object = {}) {
    this.kind = kind;
    this.handle = { backend: kind.name as BackendName, host: kind.createHost(spec, options), options };
  }

  /** Joins this side, which is the first host's, with those of the other hosts, where the backend has them speak. */
  connect(way: MirrorWay): void {
    const { host } = this.handle;
    const send = way.connect(host.generation, (message) => this.#mirror?.receive(message));
    this.#mirror = this.kind.acrossHosts?.mirror?.(host, true, send);
  }

  /** Says that a rank is dead, and which one is to blame. Idempotent: the first cause stays. */
  fail(rank: number, cause: string, blamed = rank): void {
    this.kind.fail(this.handle.host, rank, cause, false, blamed);
  }

  /** As `fail`, but for every group: the generation is over, also for ranks that talk only among themselves. */
  failEverybody(rank: number, cause: string, blamed = rank): void {
    this.kind.fail(this.handle.host, rank, cause, true, blamed);
  }

  bury(rank: number): void {
    this.kind.bury(this.handle.host, rank);
  }

  readFlight(): FlightDump {
    return this.kind.readFlight(this.handle.host);
  }

  /** Removes it, once no rank of it is left. Idempotent. */
  release(): void {
    this.#mirror?.close();
    this.kind.releaseHost(this.handle.host);
  }
}
