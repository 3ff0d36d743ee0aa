/** Memory that calls of extensions will use yet, between collectives of theirs: a world frees none of it meanwhile. */
import type { Storage, Tensor } from "../../core/index.ts";
import { tensorInUse } from "../../core/internal.ts";

const holds = new WeakMap<Storage, Set<string>>();

/**
 * Keeps tensors from being freed.
 * @param use what uses them, as text: one such text is held once
 * @returns what lets them go
 */
export function holdTensors(tensors: readonly Tensor[], use: string): () => void {
  for (const { storage } of tensors) {
    const known = holds.get(storage);
    if (known === undefined) holds.set(storage, new Set([use]));
    else known.add(use);
  }
  return () => {
    for (const { storage } of tensors) holds.get(storage)?.delete(use);
  };
}

/** @throws InvalidArgumentError where a call of an extension will use its memory yet */
export function checkNotHeld({ storage }: Tensor): void {
  const [use] = holds.get(storage) ?? [];
  if (use !== undefined) throw tensorInUse(use);
}
