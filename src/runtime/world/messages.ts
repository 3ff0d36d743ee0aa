/** What the launcher and a rank say to each other. Plain data that structuredClone and IPC can carry. */
import { FormatError, show } from "../../core/index.ts";
import { isStoreAsk, type StoreAnswer, type StoreAsk } from "../rendezvous/internal.ts";
import type { EngineHandle } from "./host-side.ts";
import type { OutputStream } from "./output.ts";
import { type ErrorRecord, isErrorRecord } from "./remote-error.ts";

/** What a killed thread of an earlier generation left behind, for a rank of the next one to free. */
export interface Reap {
  readonly engine: EngineHandle;
  readonly rank: number;
  /** All threads of that generation whose things are still to be freed. */
  readonly killed: readonly number[];
}

/** A rank's place in one generation of the world. */
export interface Place {
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  /** How to attach; shared memory within. */
  readonly engine: EngineHandle;
  readonly env: Readonly<Record<string, string>>;
  /** To be freed before attaching. */
  readonly reap: readonly Reap[];
}

/** Everything a worker needs to be one rank of one world. */
export interface Job extends Place {
  /** The user's module: what to import, and the file that the user named. */
  readonly module: { readonly url: string; readonly path: string; readonly isCommonJs: boolean };
  /** The module was made of a function's text. */
  readonly isFunction: boolean;
  readonly args: readonly string[];
  readonly data: unknown;
  /** The worker serves other worlds afterwards: the rank ends with its function, not with the thread. */
  readonly reused: boolean;
  /** How `world.rebuild()` answers before anybody is asked. */
  readonly rebuild: {
    /** Why it is refused; absent when it may be tried. */
    readonly refusal?: string;
    /** The longest that the launcher takes for a rebuild, ms. */
    readonly limitMs: number;
  };
}

export type ToRank =
  | { readonly kind: "run"; readonly job: Job }
  | { readonly kind: "rebuilt"; readonly place: Place }
  | {
      readonly kind: "rebuild-refused";
      readonly generation: number;
      readonly reason: string;
      readonly cause?: ErrorRecord;
    }
  | {
      readonly kind: "bootstrap-value";
      readonly generation: number;
      readonly key: string;
      readonly value: Uint8Array;
    }
  | {
      readonly kind: "store-answer";
      readonly generation: number;
      readonly id: number;
      readonly answer: StoreAnswer;
    }
  /** The generation is over: a rank failed, or left it to rebuild. */
  | { readonly kind: "bootstrap-failed"; readonly generation: number; readonly rank: number; readonly message: string };

export type FromRank =
  | { readonly kind: "output"; readonly stream: OutputStream; readonly text: string }
  /** The rank has attached to its generation, and freed what it was asked to. */
  | { readonly kind: "attached"; readonly generation: number }
  /**
   * The module's work is over and its result is here. `final`: its world is closed. `unfinished`: timers, sockets or
   * children of its program are still there.
   */
  | { readonly kind: "done"; readonly value: unknown; readonly final: boolean; readonly unfinished?: boolean }
  /** `lost`: why nothing of this process can use the rank's device any more. */
  | { readonly kind: "failed"; readonly error: ErrorRecord; readonly lost?: string }
  /** A rank that is a thread has started a process, or that process has ended. */
  | { readonly kind: "child"; readonly pid: number; readonly isAlive: boolean }
  /** The rank called process.exit(). */
  | { readonly kind: "exiting"; readonly exitCode: number; readonly worldOpen: boolean }
  /** The rank's script ends, and never asked for the world. */
  | { readonly kind: "unjoined" }
  /** The rank has left its generation and waits for the next. */
  | { readonly kind: "rebuild"; readonly generation: number; readonly timeoutMs?: number; readonly lost?: string }
  | {
      readonly kind: "bootstrap-set";
      readonly generation: number;
      readonly key: string;
      readonly value: Uint8Array;
    }
  | { readonly kind: "bootstrap-get"; readonly generation: number; readonly key: string }
  /** The rank's program asks the world's store. */
  | { readonly kind: "store"; readonly generation: number; readonly id: number; readonly ask: StoreAsk }
  | { readonly kind: "bootstrap-fail"; readonly generation: number; readonly rank: number; readonly message: string };

const isNumber = (value: unknown) => typeof value === "number";
const isText = (value: unknown) => typeof value === "string";
const isTextOrNone = (value: unknown) => value === undefined || isText(value);

type Fields = Readonly<Record<string, unknown>>;
const CHECKS: { readonly [K in FromRank["kind"]]: (message: Fields) => boolean } = {
  output: ({ stream, text }) => (stream === "stdout" || stream === "stderr") && isText(text),
  attached: ({ generation }) => isNumber(generation),
  done: ({ final, unfinished }) =>
    typeof final === "boolean" && (unfinished === undefined || typeof unfinished === "boolean"),
  failed: ({ error, lost }) => isErrorRecord(error) && isTextOrNone(lost),
  // Zero and negative numbers mean process groups.
  child: ({ pid, isAlive }) => Number.isInteger(pid) && (pid as number) > 1 && typeof isAlive === "boolean",
  exiting: ({ exitCode, worldOpen }) => isNumber(exitCode) && typeof worldOpen === "boolean",
  unjoined: () => true,
  rebuild: ({ generation, timeoutMs, lost }) =>
    isNumber(generation) && (timeoutMs === undefined || Number.isFinite(timeoutMs)) && isTextOrNone(lost),
  "bootstrap-set": ({ generation, key, value }) => isNumber(generation) && isText(key) && value instanceof Uint8Array,
  "bootstrap-get": ({ generation, key }) => isNumber(generation) && isText(key),
  store: ({ generation, id, ask }) => isNumber(generation) && isNumber(id) && isStoreAsk(ask),
  "bootstrap-fail": ({ generation, rank, message }) => isNumber(generation) && isNumber(rank) && isText(message),
};

/**
 * Reads what came from a rank, whose program may have written to the port or the socket too.
 * @throws FormatError when it is no message of chorale's
 */
export function checkFromRank(message: unknown): FromRank {
  if (typeof message === "object" && message !== null) {
    const { kind } = message as { readonly kind?: unknown };
    if (isText(kind) && Object.hasOwn(CHECKS, kind as string) && CHECKS[kind as FromRank["kind"]](message as Fields)) {
      return message as FromRank;
    }
  }
  throw new FormatError("a rank's message", `is none of chorale's: ${show(message)}`);
}
