/** Joins processes that the engine's own launcher started, such as MPI's: the engine brings them together. */
import { UnsupportedError } from "../../core/index.ts";
import type { BackendKind } from "../comm/index.ts";
import type { ForeignPlace } from "../rendezvous/index.ts";
import { endWithProgram } from "./join-launched.ts";
import { createWorld, type World } from "./world.ts";
import { recordFlight } from "./write-flight-file.ts";

/**
 * Joins the world of all processes of this job; one process that nobody launched is a world of 1.
 * @throws what the backend's `join` throws
 */
export async function joinThroughEngine(
  { rebuildRefusal = "the engine's launcher started the ranks, and only it can start them again" }: BackendKind,
  join: NonNullable<BackendKind["join"]>,
  place: ForeignPlace | undefined,
  { timeoutMs }: { readonly timeoutMs?: number },
): Promise<World> {
  const generation = place?.generation ?? 1;
  const { backend, release, readFlight } = await join({ timeoutMs, generation });
  let recorded = false;
  const end = () => {
    if (backend.failure !== undefined && !recorded && readFlight !== undefined) {
      recorded = true;
      recordFlight(readFlight, generation);
    }
    release();
  };
  const world = createWorld(backend, {
    args: process.argv.slice(2),
    data: undefined,
    onClosed: end,
    rebuild: {
      refusal: rebuildRefusal,
      request: async () => {
        throw new UnsupportedError("world.rebuild() in this world", rebuildRefusal);
      },
    },
  });
  const left = (message: string) => {
    if (!world.closed) backend.fail(backend.rank, message);
  };
  process.once("exit", (code) => {
    if (!world.closed) left(`called process.exit(${code}) with its world open`);
    end();
  });
  endWithProgram(world, left);
  return world;
}
