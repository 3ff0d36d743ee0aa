/** What the launcher and a rank's worker say to each other over the worker's message port. */
import type { EngineHandle } from "./engine.ts";
import type { OutputStream } from "./output.ts";
import type { ErrorRecord } from "./remote-error.ts";

/** Everything a worker needs to be one rank of one world. */
export interface Job {
  readonly rank: number;
  readonly worldSize: number;
  readonly generation: number;
  /** How to attach; shared memory within. */
  readonly engine: EngineHandle;
  /** The user's module: what to import, and the file that the user named. */
  readonly module: { readonly url: string; readonly path: string };
  /** The module was made of a function's text. */
  readonly isFunction: boolean;
  readonly args: readonly string[];
  readonly data: unknown;
  readonly env: Readonly<Record<string, string>>;
  /** The worker serves other worlds afterwards: the rank ends with its function, not with the thread. */
  readonly reused: boolean;
}

export type ToRank =
  | { readonly kind: "run"; readonly job: Job }
  | { readonly kind: "bootstrap-value"; readonly key: string; readonly value: Uint8Array }
  | { readonly kind: "bootstrap-failed"; readonly rank: number; readonly message: string };

export type FromRank =
  | { readonly kind: "output"; readonly stream: OutputStream; readonly text: string }
  /** The module's work is over and its result is here. */
  | { readonly kind: "done"; readonly value: unknown }
  | { readonly kind: "failed"; readonly error: ErrorRecord }
  /** The rank called process.exit(). */
  | { readonly kind: "exiting"; readonly exitCode: number; readonly worldOpen: boolean }
  | { readonly kind: "bootstrap-set"; readonly key: string; readonly value: Uint8Array }
  | { readonly kind: "bootstrap-get"; readonly key: string }
  | { readonly kind: "bootstrap-fail"; readonly rank: number; readonly message: string };
