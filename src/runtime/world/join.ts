/** `joinWorld()`: how a program learns which rank it is. */
import { ClosedError, UnavailableError } from "../../core/index.ts";
import { attachThreads, createThreadsHost } from "../backends/threads/index.ts";
import { createWorld, isRebuilding, type World } from "./world.ts";

/** Where a rank's worker leaves its world for the user's module; one per thread, found from any copy of this file. */
const SLOT = Symbol.for("chorale.world");
type Slot = { [SLOT]?: { readonly world: World; readonly launched: boolean } | undefined };

/** For the launcher's workers: sets the world that `joinWorld()` gives in this thread. */
export function offerWorld(world: World | undefined): void {
  (globalThis as Slot)[SLOT] = world === undefined ? undefined : { world, launched: true };
}

interface ForeignLauncher {
  readonly name: string;
  readonly rank: string;
  readonly size: string;
}

/** The variables by which other launchers tell a process its place. */
const FOREIGN: readonly ForeignLauncher[] = [
  { name: "torchrun", rank: "RANK", size: "WORLD_SIZE" },
  { name: "Open MPI", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE" },
  { name: "MPICH", rank: "PMI_RANK", size: "PMI_SIZE" },
  { name: "Slurm", rank: "SLURM_PROCID", size: "SLURM_STEP_NUM_TASKS" },
];

/**
 * Joins the world that this program was started in: as one rank of `chorale launch` or `launch()`, or, when nothing
 * launched it, as the only rank of a world of 1. Every call gives the same world until it is closed.
 * @throws ClosedError when this rank has closed the world it was launched in
 * @throws UnavailableError when torchrun, Slurm, Open MPI or MPICH started several processes: no backend of this
 *   version joins processes, and a world of 1 each would be silently wrong
 * @example
 * import { joinWorld } from "chorale";
 *
 * await using world = await joinWorld();
 * const x = world.tensor("f32", [4]);
 * x.data.fill(world.rank + 1);
 * await world.comm.allReduce(x);
 * console.log(x.data); // the sum over all ranks
 */
export async function joinWorld(): Promise<World> {
  const slot = globalThis as Slot;
  const offered = slot[SLOT];
  if (offered !== undefined && !offered.world.closed) return offered.world;
  if (offered !== undefined && isRebuilding(offered.world)) return offered.world.rebuild();
  if (offered?.launched) throw new ClosedError("world", `was closed by this rank (${offered.world.rank})`);
  const foreign = FOREIGN.find(({ rank, size }) => process.env[rank] !== undefined && Number(process.env[size]) > 1);
  if (foreign !== undefined) {
    throw new UnavailableError(
      "a world of several processes",
      `${foreign.name} started this one as rank ${process.env[foreign.rank]} of ${process.env[foreign.size]} (${foreign.rank}, ${foreign.size}), but the threads backend joins only threads of one process`,
      `Start it with: chorale launch -n ${process.env[foreign.size]} SCRIPT; or unset ${foreign.size} for a world of 1.`,
    );
  }
  return soloWorld(1);
}

/** The world of a rank that nobody launched: it rebuilds without asking anybody. */
function soloWorld(generation: number): World {
  const world = createWorld(attachThreads(createThreadsHost({ ranks: 1, generation }), 0), {
    args: process.argv.slice(2),
    data: undefined,
    rebuild: { refusal: undefined, request: async () => soloWorld(generation + 1) },
  });
  (globalThis as Slot)[SLOT] = { world, launched: false };
  return world;
}
