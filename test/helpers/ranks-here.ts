import { ThreadsBackend } from "../../src/runtime/backends/threads/backend.ts";
import { createThreadsHost } from "../../src/runtime/backends/threads/index.ts";

/** Ranks of one world, all on this thread: their calls meet in the event loop. */
export function ranksHere(n: number, firstCall = 0) {
  const handle = createThreadsHost({ ranks: n });
  const backends = Array.from({ length: n }, (_, rank) => new ThreadsBackend(handle, rank, {}, firstCall));
  const [a, b] = backends;
  if (a === undefined || b === undefined) throw new Error("no ranks");
  return { handle, backends, a, b };
}
