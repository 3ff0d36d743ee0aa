/** Pending work over sockets, and the call that it stands for. */
import { overlaps, type Region } from "../../../collectives/index.ts";
import { type RankActivity, TimeoutError } from "../../../core/index.ts";
import { callSite, checkWait, describeWords, PendingWork, runningTime, type WireOp } from "../../comm/index.ts";
import type { Arrival } from "../../progress/index.ts";
import type { SpinBudget } from "./spin.ts";

/** What drives works: the sockets of their rank. */
export interface WorkPump {
  readonly spins: SpinBudget;
  /** Sees that the event loop drives what is pending. */
  kick(): void;
  /** Serves all sockets once. @param waitMs how long the thread may block until something arrives @returns whether anything got on */
  turn(waitMs: number): boolean;
}

/** How long a thread that waits blocks in the kernel at a time, ms. */
const BLOCK_MS = 10;
/** After this long a rank tells the others where it waits, ms: whoever names the missing one knows then who is not. */
const FIRST_ASK_MS = 50;

export class TcpWork<T> extends PendingWork<T> {
  readonly #pump: WorkPump;
  /** Who has come to its call; its group says so. */
  activity: () => readonly RankActivity[] = () => [];

  constructor(pump: WorkPump, seq: number, op: string, group: string) {
    super(seq, op, group);
    this.#pump = pump;
  }

  wait(options?: { timeoutMs?: number }): T {
    if (options !== undefined) checkWait(options);
    this.seen = true;
    if (this.settled) return this.result();
    const began = performance.now();
    const limitMs = options?.timeoutMs ?? Number.POSITIVE_INFINITY;
    const until = runningTime(began) + limitMs;
    const { spins } = this.#pump;
    let spinMs = spins.take();
    let idleSince = began;
    let isIdle = false;
    for (let now = began; ; ) {
      const moved = this.#pump.turn(spinMs > 0 ? 0 : BLOCK_MS);
      if (this.settled) {
        if (spinMs > 0) spins.tell(performance.now() - idleSince <= spinMs);
        return this.result();
      }
      now = performance.now();
      if (moved) {
        // A large call is many waits, for one piece or another.
        if (isIdle && spinMs > 0) spins.tell(true);
        if (isIdle) spinMs = spins.take();
        idleSince = now;
      } else if (spinMs > 0 && now - idleSince > spinMs) {
        spins.tell(false);
        spinMs = 0;
      }
      isIdle = !moved;
      if (runningTime(now) > until) {
        const what = `${this.op} #${this.seq} of ${this.group}`;
        throw new TimeoutError(what, limitMs, this.activity(), { callSite: callSite() });
      }
    }
  }

  protected onAwaited(): void {
    this.#pump.kick();
  }
}

/** What a call does to memory: it may not run beside one that touches the same, unless both only read. */
export interface MemoryUse {
  readonly region: Region;
  readonly writes: boolean;
}

export interface CallParts {
  readonly op: WireOp;
  readonly arrival: Arrival;
  readonly work: TcpWork<unknown>;
  readonly uses: readonly MemoryUse[];
  readonly sizeBytes: number;
  readonly timeoutMs: number;
  /** What reports say of it beside its name. */
  readonly detail?: string;
  /** Where its strands stand, of one that runs a plan. */
  readonly strands?: () => readonly string[];
  /** Begins it; `done` is called once, perhaps before it returns. @throws what fails the group */
  readonly start: (done: () => void) => void;
  /** Makes the result. @throws what fails the group */
  readonly value: () => unknown;
  /** Gives up what it holds, when it does not end well. */
  readonly drop?: () => void;
}

/** A call that has not ended. */
export class PendingCall {
  readonly parts: CallParts;
  readonly issuedAt = performance.now();
  readonly deadline: number;
  state: "queued" | "running" | "ended" = "queued";
  /** When it began: until then it waits for earlier calls, and not for other ranks. */
  startedAt = 0;
  /** When this rank tells the others next that it waits here, and asks where they do, ms after the call began. */
  nextAskMs = FIRST_ASK_MS;
  hasWarned = false;
  /** Its number in the flight log. */
  note = 0;

  constructor(parts: CallParts) {
    this.parts = parts;
    this.deadline = runningTime(this.issuedAt) + parts.timeoutMs;
  }

  get isCollective(): boolean {
    return this.parts.arrival.lane.kind === "collective";
  }

  /** The number of a collective; 0 of a send or receive. */
  get seq(): number {
    return this.isCollective ? this.parts.arrival.seq : 0;
  }

  /** Whether this call must wait for one that was issued earlier. */
  follows(earlier: PendingCall): boolean {
    if (this.isCollective && earlier.isCollective) return true;
    return this.parts.uses.some((mine) =>
      earlier.parts.uses.some((theirs) => (mine.writes || theirs.writes) && overlaps(mine.region, theirs.region)),
    );
  }
}

/**
 * The first call that may begin: none before it is one that it must wait for. Collectives wait for each other, so that of any
 * number of them only the first is compared with what is before it.
 */
export function firstToBegin(pending: readonly PendingCall[]): PendingCall | undefined {
  let hasCollective = false;
  for (let index = 0; index < pending.length; index++) {
    const call = pending[index] as PendingCall;
    const { isCollective } = call;
    if (call.state === "queued" && !(isCollective && hasCollective) && !followsOneOf(call, pending, index)) return call;
    hasCollective ||= isCollective;
  }
  return undefined;
}

function followsOneOf(call: PendingCall, pending: readonly PendingCall[], count: number): boolean {
  for (let index = 0; index < count; index++) if (call.follows(pending[index] as PendingCall)) return true;
  return false;
}

/** `all_reduce(f32[4], sum) #0` */
export function describeCall({ parts: { arrival, work } }: PendingCall): string {
  return `${describeWords(arrival.print.call, arrival.print.count >>> 0)} #${work.seq}`;
}

/** Which of some calls uses a buffer, if any: `all_reduce(f32[4], sum) #0 of group tp`. */
export function useOf(calls: readonly PendingCall[], buffer: ArrayBufferLike): string | undefined {
  const call = calls.find(({ parts }) => parts.uses.some(({ region }) => region.storage === buffer));
  return call && `${describeCall(call)} of group ${call.parts.work.group}`;
}
