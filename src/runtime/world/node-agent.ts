/**
 * The launcher of a host that is not the first: starts the ranks that the first host's launcher asks for, passes on what they
 * say, and ends them when that launcher is gone. It decides nothing: the supervisor is on the first host.
 */
import { hostname } from "node:os";
import {
  AbortedError,
  FormatError,
  InvalidArgumentError,
  invariant,
  RankFailedError,
  UnavailableError,
  wordTable,
} from "../../core/index.ts";
import { type BackendKind, type HostHandle, type HostMirror, runningTime } from "../comm/index.ts";
import { knock, type PeerSocket } from "../rendezvous/index.ts";
import { onFlightAsked } from "./asked-flight.ts";
import type { FromRank, Job, Place } from "./messages.ts";
import { NodeLink, type NodeMessage, type WorldEnd } from "./node-link.ts";
import { IS_TAKEN, introductionOf, type NodePlan, sayWhenLong } from "./node-options.ts";
import { type OutputLine, outputSink } from "./output.ts";
import type { RankHost } from "./rank-host.ts";
import { type ErrorRecord, fromErrorRecord, toErrorRecord } from "./remote-error.ts";
import { recordFlight } from "./write-flight-file.ts";

/** One attempt to reach the first host may take this long, ms: a firewall that drops packets answers nothing. */
const ATTEMPT_MS = 5_000;
const PAUSE_MS = 200;
/** How long ranks that were killed may take to be gone, ms. */
const END_MS = 5_000;

type MirrorMessage = Extract<NodeMessage, { kind: "mirror" }>;

interface AgentSpec {
  readonly plan: NodePlan;
  readonly kind: BackendKind;
  /** Number of ranks of this host. */
  readonly ranks: number;
  readonly backendOptions: object;
  readonly module: Job["module"];
  readonly graceMs: number;
  readonly signal: AbortSignal | undefined;
  readonly onOutput: ((line: OutputLine) => void) | undefined;
  startRank(): RankHost;
}

/** What the system's error codes mean to somebody who wants two hosts to meet. */
const REASONS: Readonly<Record<string, string>> = wordTable({
  ENOTFOUND: "its name cannot be looked up",
  EAI_AGAIN: "its name cannot be looked up now",
  ECONNREFUSED: "nothing listens there: the launcher of host 0 is not running, uses another port, or has begun already",
  EHOSTUNREACH: "there is no route to it",
  ENETUNREACH: "there is no route to it",
  ETIMEDOUT: "it does not answer: a firewall may drop what is sent there",
});

/**
 * Connects to the first host, again and again while it is not there.
 * @throws InvalidArgumentError for another secret, or when the host is refused; UnavailableError saying what failed
 */
async function reachFirst(plan: NodePlan, signal: AbortSignal | undefined): Promise<PeerSocket> {
  const { address, secret, rank, joinTimeoutMs, tls } = plan;
  const peer = `the launcher of host 0 at ${address.host}:${address.port}`;
  const names = { peer, self: `host ${rank}`, secret: "CHORALE_SECRET" };
  const until = runningTime() + joinTimeoutMs;
  let why = "";
  let cause: unknown;
  const patience = sayWhenLong(() => `trying to reach ${peer}: ${why}`);
  try {
    for (;;) {
      const timeoutMs = Math.max(1, Math.min(ATTEMPT_MS, until - runningTime()));
      try {
        return await knock(address, introductionOf(plan), { secret, timeoutMs, names, tls });
      } catch (error) {
        const isTaken = plan.minCount !== undefined && String(error).includes(IS_TAKEN);
        if (error instanceof InvalidArgumentError && !isTaken) throw error;
        const isLast = runningTime() + PAUSE_MS > until;
        // A last attempt had less time than the others: the one before says more. (When it ended cannot tell: a timer
        // counts whole milliseconds, and may fire before `until`.)
        if (why === "" || timeoutMs === ATTEMPT_MS || !isLast) {
          const { code } = error as { readonly code?: string };
          const text = error instanceof Error ? error.message : String(error);
          why =
            isTaken || error instanceof FormatError ? text : `${REASONS[code ?? ""] ?? text} (${code ?? "no code"})`;
          cause = error;
        }
        if (isLast) {
          throw new UnavailableError(
            peer,
            `${why}; tried for ${joinTimeoutMs / 1000} s`,
            "See that --rdzv names the host with node rank 0 and its port, and that this host may reach it.",
            { cause },
          );
        }
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      if (signal?.aborted) throw new AbortedError(String(signal.reason));
    }
  } finally {
    clearTimeout(patience);
  }
}

/** What host 0 says of the end of a world that no rank is to blame for. Its stack is of another process. */
function endedByFirst(record: ErrorRecord): Error {
  const { name, code, message } = record;
  if (code !== undefined && code !== "ABORTED") return fromErrorRecord({ ...record, stack: `${name}: ${message}` });
  return new AbortedError(`by host 0: ${message.replace(/^aborted: /, "")}`);
}

/** The ranks of this host while the world lasts. */
class Agent {
  readonly #spec: AgentSpec;
  readonly #link: NodeLink;
  readonly #hosts = new Map<number, RankHost>();
  /** Number of the rank in each slot. */
  readonly #rankOf = new Map<number, number>();
  readonly #print: (line: OutputLine) => void;
  readonly #over: (error?: Error) => void;
  /** This host's side of the current generation. */
  #handle: HostHandle | undefined;
  #mirror: HostMirror | undefined;
  /** What came for this host's part of a generation before its ranks did. */
  #early: MirrorMessage[] = [];
  #isEnding = false;
  /** The first host writes flight files. */
  #sendsFlight = false;
  /** The last generation whose failure was passed on. */
  #failedGeneration = 0;

  constructor(spec: AgentSpec, socket: PeerSocket, over: (error?: Error) => void) {
    this.#spec = spec;
    this.#over = over;
    this.#print = outputSink(spec.onOutput, (error) => this.#leave(error));
    this.#link = new NodeLink(socket, "the launcher of host 0", spec.plan.hostTimeoutMs, {
      message: (message) => this.#receive(message),
      lost: (reason) => this.#lost(`the launcher of host 0 ${reason}`),
    });
    this.#link.send({ kind: "hello", ranks: spec.ranks, host: hostname(), pid: process.pid });
  }

  /** Leaves the world before it is over. */
  abort(reason: string): void {
    this.#leave(new AbortedError(reason));
  }

  /** Writes what this host's ranks did last. */
  recordFlight(): void {
    const handle = this.#handle;
    if (handle !== undefined) recordFlight(() => this.#spec.kind.readFlight(handle), handle.generation);
  }

  #receive(message: NodeMessage): void {
    if (this.#isEnding) return;
    switch (message.kind) {
      case "start":
        this.#start(message.slot);
        return;
      case "to-rank":
        this.#toRank(message);
        return;
      case "terminate":
        this.#hosts.get(message.slot)?.terminate();
        return;
      case "mirror":
        this.#toMirror(message);
        return;
      case "wants-flight":
        this.#sendsFlight = true;
        return;
      case "asks-flight":
        if (this.#handle !== undefined)
          this.#link.send({ kind: "flight", dump: this.#spec.kind.readFlight(this.#handle), isAsked: true });
        return;
      case "ended":
        this.#ended(message.failure);
    }
  }

  #start(slot: number): void {
    const host = this.#spec.startRank();
    this.#hosts.set(slot, host);
    host.listen({
      line: (stream, text) => this.#print({ rank: this.#rankOf.get(slot) ?? -1, stream, text }),
      message: (message) => this.#pass(slot, message),
      crash: (error) => this.#link.send({ kind: "crash", slot, error: toErrorRecord(error) }),
      exit: (exitCode, reason) => {
        host.flush();
        this.#hosts.delete(slot);
        this.#link.send({ kind: "exit", slot, exitCode, reason });
      },
    });
  }

  #pass(slot: number, message: FromRank): void {
    this.#link.send({ kind: "from-rank", slot, message });
  }

  #toRank({ slot, message }: Extract<NodeMessage, { kind: "to-rank" }>): void {
    // Also to ranks that are dead.
    if (message.kind === "bootstrap-failed") this.#sendFlight(message.generation);
    const host = this.#hosts.get(slot);
    if (host === undefined) return;
    try {
      if (message.kind === "run") {
        const { job } = message;
        this.#rankOf.set(slot, job.rank);
        host.run({ ...job, ...this.#adopt(job), module: this.#spec.module });
      } else if (message.kind === "rebuilt") {
        this.#rankOf.set(slot, message.place.rank);
        host.send({ ...message, place: this.#adopt(message.place) });
      } else host.send(message);
    } catch (error) {
      this.#link.send({ kind: "crash", slot, error: toErrorRecord(error) });
      host.terminate();
    }
  }

  #toMirror(message: MirrorMessage): void {
    const { generation } = message;
    if (generation === this.#handle?.generation) this.#mirror?.receive(message.message);
    else if (generation > (this.#handle?.generation ?? 0)) this.#early.push(message);
  }

  /** The place with this host's side of the generation. @throws FormatError */
  #adopt<P extends Place>(place: P): P {
    const { plan, kind, backendOptions } = this.#spec;
    const { engine, generation } = place;
    invariant(engine.backend === kind.name, "hosts with another backend are refused as they come");
    if (this.#handle?.generation !== generation) {
      this.#release();
      this.#handle = plan.across.adopt(engine.host, plan.secret);
      const send = (message: object) => this.#link.send({ kind: "mirror", generation, message });
      this.#mirror = plan.across.mirror?.(this.#handle, false, send);
      for (const one of this.#early.splice(0)) this.#toMirror(one);
    }
    const options = plan.across.optionsAt(backendOptions, this.#link.localAddress);
    return { ...place, engine: { ...engine, host: this.#handle, options } };
  }

  /** What this host's ranks did last in a generation that has failed. Goes before what they say of its end. */
  #sendFlight(generation: number): void {
    const handle = this.#handle;
    if (!this.#sendsFlight || handle?.generation !== generation || this.#failedGeneration >= generation) return;
    this.#failedGeneration = generation;
    this.#link.send({ kind: "flight", dump: this.#spec.kind.readFlight(handle) });
  }

  #release(): void {
    this.#mirror?.close();
    this.#mirror = undefined;
    if (this.#handle !== undefined) this.#spec.kind.releaseHost(this.#handle);
    this.#handle = undefined;
  }

  #ended(failure: WorldEnd | undefined): void {
    if (failure === undefined) {
      this.#end();
      return;
    }
    const { error, rank, generation } = failure;
    if (rank === undefined) this.#end(endedByFirst(error));
    else this.#end(new RankFailedError(rank, generation, fromErrorRecord(error)));
  }

  #leave(error: Error): void {
    if (this.#isEnding) return;
    const { name, message } = error;
    this.#link.send({ kind: "leaving", reason: name === "AbortedError" ? `was ended: ${message}` : message });
    this.#end(error);
  }

  /** Gives the ranks time to end their work in good order, and ends them. */
  #lost(reason: string): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    const generation = this.#handle?.generation ?? 1;
    // Also to those that wait without looking at their messages.
    if (this.#handle !== undefined) this.#spec.kind.fail(this.#handle, 0, reason, true);
    for (const host of this.#hosts.values()) {
      host.send({ kind: "bootstrap-failed", generation, rank: 0, message: reason });
    }
    setTimeout(() => this.#end(new RankFailedError(0, generation, new Error(reason))), this.#spec.graceMs);
  }

  #end(error?: Error): void {
    this.#isEnding = true;
    this.#link.close();
    if (error !== undefined) this.recordFlight();
    const finish = () => {
      clearTimeout(timer);
      this.#release();
      this.#over(error);
    };
    const timer = setTimeout(finish, END_MS);
    const hosts = [...this.#hosts.values()];
    const look = () => {
      if (hosts.every(({ exited }) => exited)) finish();
    };
    for (const host of hosts) {
      host.listen({
        line: (stream, text) => this.#print({ rank: this.#rankOf.get(this.#slotOf(host)) ?? -1, stream, text }),
        message: () => {},
        crash: () => {},
        exit: look,
      });
      host.terminate();
    }
    look();
  }

  #slotOf(host: RankHost): number {
    return [...this.#hosts].find(([, other]) => other === host)?.[0] ?? -1;
  }
}

/**
 * Serves the first host until the world is over.
 * @throws what `reachFirst` throws; RankFailedError, or the world's own error, when it failed; AbortedError by `signal`
 */
export async function serveNode(spec: AgentSpec): Promise<void> {
  const { plan, signal } = spec;
  const socket = await reachFirst(plan, signal);
  let onAbort = () => {};
  let stopAsking = () => {};
  try {
    await new Promise<void>((resolve, reject) => {
      const agent = new Agent(spec, socket, (error) => (error === undefined ? resolve() : reject(error)));
      stopAsking = onFlightAsked(() => agent.recordFlight());
      onAbort = () => agent.abort(String(signal?.reason));
      signal?.addEventListener("abort", onAbort);
      if (signal?.aborted) onAbort();
    });
  } finally {
    signal?.removeEventListener("abort", onAbort);
    stopAsking();
  }
}
