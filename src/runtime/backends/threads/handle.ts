/**
 * What travels from the launching thread to the ranks of a threads world: one shared WebAssembly memory, the compiled
 * kernels, and plain numbers. Structured-cloneable, so it goes through `workerData` or `postMessage`.
 */
import type { ChoiceDocument, WasmMemory, WasmModule } from "../../executor/internal.ts";

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

export interface ThreadsHandle {
  readonly kind: "threads";
  readonly version: 1;
  readonly ranks: number;
  readonly generation: number;
  readonly limitBytes: number;
  readonly memory: WasmMemory;
  readonly module: WasmModule;
  /** Tables that go before the shipped ones. */
  readonly choices?: ChoiceDocument;
}

export interface AttachOptions {
  /** Deadline of every wait of this rank unless a call says otherwise; 60 s by default. */
  readonly timeoutMs?: number;
  /** Calls that nobody awaited or waited for make `close` throw; otherwise they are a warning. */
  readonly strictWork?: boolean;
  /** Cores that the ranks share, by which waiting spins or sleeps; the machine's by default. */
  readonly cores?: number;
}
