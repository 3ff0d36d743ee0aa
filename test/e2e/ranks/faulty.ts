/**
 * A rank that works in steps, dies as its plan says, and rebuilds its world after every failure of another one. Checks
 * every sum itself: a wrong one is reported, not thrown, so that no policy can hide it.
 */
import { AbortedError, MismatchError, OutOfMemoryError, RankFailedError, TimeoutError, type World } from "chorale";

/**
 * How a rank can go: `late` once another one went; `loop`, `block` and `idle` stay, and must be ended. The others spoil the
 * generation and come to the rebuild: `again` only asks for it, `mismatch` makes another call than its peers, `abort`
 * ends a call that is under way, `memory` asks for more than there is.
 */
export type How =
  | ("throw" | "reject" | "exit1" | "exit0" | "late" | "loop" | "block" | "idle")
  | ("again" | "mismatch" | "abort" | "memory");

export interface Fault {
  /** In which generation, and as which rank of it. */
  readonly generation: number;
  readonly rank: number;
  readonly how: How;
  /** Before this step. */
  readonly step: number;
}

export interface Plan {
  readonly faults: readonly Fault[];
  readonly steps: number;
  /** Elements of each all-reduce. */
  readonly count?: number;
  /** Deadline of each wait from a generation's first fault on, ms: before it, ranks may be slow to start. */
  readonly timeoutMs?: number;
  /**
   * In the first generation rank 0 asks for the rebuild when another survivor has asked (which counts in `asked`, shared
   * memory), and has it wait so long for who does not come. Then no survivor can be late, however slow the machine is.
   */
  readonly lastAsks?: { readonly asked: Int32Array; readonly timeoutMs: number };
}

export interface Report {
  readonly rank: number;
  readonly size: number;
  readonly generation: number;
  /** Errors that began a rebuild, as `Name generation rank`. */
  readonly errors: readonly string[];
  readonly wrong: readonly string[];
}

const KNOWN = [RankFailedError, TimeoutError, MismatchError, AbortedError, OutOfMemoryError];

class Dies extends Error {}

function die(how: How): void | Promise<void> {
  switch (how) {
    case "reject":
      void Promise.reject(new Dies("unhandled"));
      return new Promise(() => {});
    case "exit1":
      process.exit(1);
      break;
    case "exit0":
      process.exit(0);
      break;
    case "loop":
      for (;;);
    case "block":
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
      break;
    case "idle":
      return new Promise(() => {});
    default:
      throw new Dies(how);
  }
}

function rebuilt(world: World, { lastAsks }: Plan): Promise<World> {
  if (lastAsks === undefined || world.generation > 1) return world.rebuild();
  const { asked, timeoutMs } = lastAsks;
  if (world.rank === 0) {
    Atomics.wait(asked, 0, 0, 60_000);
    return world.rebuild({ timeoutMs });
  }
  const next = world.rebuild();
  Atomics.store(asked, 0, 1);
  Atomics.notify(asked, 0);
  return next;
}

export default async function run(first: World, plan: Plan): Promise<Report> {
  const errors: string[] = [];
  const wrong: string[] = [];
  let world = first;
  const dueNow = (step: number) =>
    plan.faults.find(
      (fault) => fault.generation === world.generation && fault.rank === world.rank && fault.step === step,
    );

  const work = async () => {
    const { comm, size, rank } = world;
    const mesh = world.mesh({ dp: "auto", tp: size % 2 === 0 ? 2 : 1 });
    const tp = await world.communicator(mesh, "tp");
    const x = world.tensor("f64", [plan.count ?? 16]);
    for (let step = 0; step < plan.steps; step++) {
      const fault = dueNow(step);
      const isSpoilt = plan.faults.some((one) => one.generation === world.generation && one.step <= step);
      const limit = isSpoilt && plan.timeoutMs !== undefined ? { timeoutMs: plan.timeoutMs } : {};
      if (fault?.how === "late") {
        // Dies when another one has failed, in place of coming to the rebuild.
        const { signal } = world;
        if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
        await die("throw");
      }
      if (fault !== undefined) await spoil(fault.how, step);
      world.upload(x, new Float64Array(x.size).fill(rank + 1 + step));
      await comm.allReduce(x, limit);
      check(world.download(x), (size * (size + 1)) / 2 + size * step, `all-reduce ${step}`);
      const y = Float64Array.of(10 ** rank);
      await tp.allReduce(y, limit);
      check(
        y,
        tp.ranks.reduce((sum, r) => sum + 10 ** r, 0),
        `group's all-reduce ${step}`,
      );
      // A rebuild that nobody had to die for.
      if (fault?.how === "again") throw new TimeoutError("patience", 0);
    }
    await comm.barrier();
  };
  const spoil = async (how: How, step: number) => {
    const { comm } = world;
    if (how === "again") return;
    if (how === "mismatch") await comm.allReduce(world.tensor("f64", [7]));
    else if (how === "memory") world.tensor("f64", [2 ** 40]);
    else if (how === "abort") {
      // With the data that its peers expect: they may have theirs before they hear of it.
      const x = world.tensor("f64", [plan.count ?? 16]);
      world.upload(x, new Float64Array(x.size).fill(world.rank + 1 + step));
      const pending = comm.allReduce(x);
      comm.abort("by the plan");
      await pending;
    } else await die(how);
  };
  const check = (data: Float64Array, expected: number, what: string) => {
    const at = data.findIndex((value) => value !== expected);
    if (at >= 0)
      wrong.push(`${what} of generation ${world.generation}, rank ${world.rank}: ${data[at]} for ${expected}`);
  };

  for (;;) {
    try {
      await work();
      return { rank: world.rank, size: world.size, generation: world.generation, errors, wrong };
    } catch (error) {
      if (error instanceof Dies) throw error;
      if (
        plan.faults.some((one) => one.how === "late" && one.generation === world.generation && one.rank === world.rank)
      ) {
        throw new Dies("late, before its step");
      }
      if (!KNOWN.some((known) => error instanceof known)) throw error;
      const whose = error instanceof RankFailedError ? ` ${error.generation} ${error.rank}` : "";
      errors.push(`${(error as Error).name}${whose}`);
      world = await rebuilt(world, plan);
    }
  }
}
