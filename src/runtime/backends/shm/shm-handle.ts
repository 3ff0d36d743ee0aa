/** What the ranks of one generation get from their launcher, or from rank 0: plain data. */
import { FormatError } from "../../../core/index.ts";
import type { HostHandle } from "../../comm/index.ts";
import type { ChoiceDocument } from "../../executor/internal.ts";
import type { GrowingArena } from "../../memory/index.ts";
import type { ThreadsOptions } from "../threads/internal.ts";

/** Memory, deadline, cores and choices of the shm backend: what the threads backend takes. */
export type ShmOptions = ThreadsOptions;

export interface ShmHandle extends HostHandle {
  readonly kind: "shm";
  /** Most memory of all ranks together. */
  readonly limitBytes: number;
  readonly arena: GrowingArena;
  /** Cores that the ranks share: a rank that is bound to some of them does not see the others. */
  readonly cores: number;
  /** Tables that go before the shipped ones. */
  readonly choices?: ChoiceDocument;
}

/** Reads what rank 0 published. @throws FormatError */
export function checkPublished(published: unknown): ShmHandle {
  const { kind, ranks, generation, limitBytes, arena, cores } = (published ?? {}) as Partial<ShmHandle>;
  const { path, firstBytes, limitBytes: arenaBytes } = (arena ?? {}) as Partial<GrowingArena>;
  const numbers = [ranks, generation, limitBytes, cores, firstBytes, arenaBytes];
  const isSound = kind === "shm" && typeof path === "string";
  if (isSound && numbers.every((one) => Number.isSafeInteger(one) && (one as number) > 0))
    return published as ShmHandle;
  throw new FormatError("what rank 0 published", "is no world of the shm backend");
}
