/**
 * What happens to a world, as data: for `launch({ onEvent })`, and for anybody who subscribes to the diagnostics channel
 * `chorale:world` (node:diagnostics_channel) of the launching process.
 */
import { channel } from "node:diagnostics_channel";
import type { ErrorRecord } from "./remote-error.ts";

/** Name of the diagnostics channel on which every world's events are published. */
export const WORLD_CHANNEL = "chorale:world";

/** A rank of a new generation, and the rank that it was in the one before; absent when it was started afresh. */
export interface RankOrigin {
  readonly rank: number;
  readonly was?: number;
}

interface Common {
  readonly generation: number;
  /** Milliseconds since 1970. */
  readonly timeMs: number;
}

export type WorldEvent = Common &
  (
    | {
        /** Ranks are being started, or told of their new generation. */
        readonly kind: "generation-started";
        readonly worldSize: number;
        readonly ranks: readonly RankOrigin[];
      }
    | {
        /** Every rank has attached. */
        readonly kind: "generation-ready";
        readonly worldSize: number;
        /** Since the failure, or the call of `rebuild()`, that began it; since the start for the first generation. */
        readonly durationMs: number;
      }
    | {
        /** `failed`: threw, exited or died. `evicted`: did not come to the rebuild in time, and was ended. */
        readonly kind: "rank-failed";
        readonly rank: number;
        readonly how: "failed" | "evicted";
        readonly message: string;
        /** The code of a chorale error, or of a system error. */
        readonly code?: string;
        /** The failure reports that of another rank. */
        readonly becauseOfRank?: number;
      }
    | {
        /** The survivors are awaited. */
        readonly kind: "rebuild-started";
        readonly because: string;
        /** How many rebuilds there were with this one. */
        readonly restart: number;
        readonly timeoutMs: number;
        /** Wait before the next generation starts. */
        readonly delayMs: number;
      }
    | { readonly kind: "rebuild-refused"; readonly because: string }
    | { readonly kind: "flight-recorded"; readonly path: string }
    | {
        readonly kind: "world-ended";
        readonly ok: boolean;
        readonly message?: string;
        /** Ranks whose script ended without `joinWorld()`, of a world that ended well; absent when there are none. */
        readonly unjoined?: readonly number[];
      }
  );

type Distribute<E> = E extends WorldEvent ? Omit<E, "timeMs"> : never;
/** An event before it has its time. */
export type NewWorldEvent = Distribute<WorldEvent>;

/** Who is in a generation. */
export function generationStarted(
  generation: number,
  entries: readonly { readonly member: { readonly rank: number }; readonly was?: number }[],
): Extract<NewWorldEvent, { kind: "generation-started" }> {
  const ranks = entries.map(({ member: { rank }, was }) => ({ rank, ...(was === undefined ? {} : { was }) }));
  return { kind: "generation-started", generation, worldSize: entries.length, ranks };
}

/** How a rank failed. */
export function rankFailed(
  generation: number,
  { rank, error }: { readonly rank: number; readonly error: ErrorRecord },
  how: "failed" | "evicted",
): Extract<NewWorldEvent, { kind: "rank-failed" }> {
  const { message, code, failedRank } = error;
  return {
    kind: "rank-failed",
    generation,
    rank,
    how,
    message,
    ...(code === undefined ? {} : { code }),
    ...(failedRank === undefined ? {} : { becauseOfRank: failedRank }),
  };
}

/** How a world ended. @param unjoined ranks that ended without having joined it */
export function worldEnded(
  generation: number,
  error: Error | undefined,
  unjoined: ReadonlySet<number>,
): Extract<NewWorldEvent, { kind: "world-ended" }> {
  const common = { kind: "world-ended", generation } as const;
  if (error !== undefined) return { ...common, ok: false, message: error.message };
  return { ...common, ok: true, ...(unjoined.size > 0 && { unjoined: [...unjoined].sort((a, b) => a - b) }) };
}

/** Gives events to a listener and to the diagnostics channel. What a listener throws becomes a process warning. */
export function eventSink(listener: ((event: WorldEvent) => void) | undefined): (event: NewWorldEvent) => void {
  const published = channel(WORLD_CHANNEL);
  return (partial) => {
    if (listener === undefined && !published.hasSubscribers) return;
    const event = { ...partial, timeMs: Date.now() } as WorldEvent;
    try {
      listener?.(event);
    } catch (error) {
      process.emitWarning(`onEvent threw at ${event.kind}: ${String(error)}`, "ChoraleWarning");
    }
    published.publish(event);
  };
}
