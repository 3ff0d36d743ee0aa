/**
 * What travels from the launching thread to the ranks of a threads world: one shared WebAssembly memory, the compiled
 * kernels, and plain numbers. Structured-cloneable, so it goes through `workerData` or `postMessage`.
 */
import type { ChoiceDocument, WasmModule } from "../../executor/internal.ts";
import type { SharedWorld } from "./shared-world.ts";

export interface ThreadsHostOptions {
  /** Number of ranks, 1 to 256. */
  readonly ranks: number;
  /** Most memory for communication buffers and bookkeeping, in bytes; at most 4 GiB, which is also the default. */
  readonly memoryLimitBytes?: number;
  /**
   * Which algorithm serves which size: tables; `shipped`; `plans` for algorithms alone, wherever there is one; by default
   * this machine's own before the shipped ones.
   */
  readonly choices?: ChoiceDocument | "shipped" | "plans";
  /** Number of the world's life, raised at each rebuild; 1 by default. */
  readonly generation?: number;
}

export interface ThreadsHandle extends Omit<SharedWorld, "waiting" | "growth" | "onClosed"> {
  readonly kind: "threads";
  readonly version: 1;
  readonly module: WasmModule;
}

export interface AttachOptions {
  /** Deadline of every wait of this rank unless a call says otherwise; 60 s by default. */
  readonly timeoutMs?: number;
  /** Calls that nobody awaited or waited for make `close` throw; otherwise they are a warning. */
  readonly strictWork?: boolean;
  /** Cores that the ranks share, by which waiting spins or sleeps; the machine's by default. */
  readonly cores?: number;
}
