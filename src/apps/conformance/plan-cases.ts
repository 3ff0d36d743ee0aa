/**
 * A user's own plan, by `comm.run`: its result, among other calls and in groups; what is refused; ranks that run different
 * plans. A backend that runs no plans says so.
 */
import { algorithm } from "../../authoring/algorithms/index.ts";
import { compile, copied, customCollective, type Program, program } from "../../authoring/language/index.ts";
import { equal, fails, finish, holds, ownGroup, SOON, works } from "./expectations.ts";
import type { SemanticCase } from "./rank-context.ts";

/** Chunk 0 of each rank's output is chunk 1 of the rank before it; chunk 1 is its own chunk 0. */
function handOn(numRanks: number): Program {
  const before = (rank: number) => (rank + numRanks - 1) % numRanks;
  const collective = customCollective("hand_on", numRanks, {
    inputChunks: () => 2,
    outputChunks: () => 2,
    post: (rank, chunk) => (chunk === 0 ? copied(before(rank), 1) : copied(rank, 0)),
  });
  return program({ name: "hand-on", collective, autoSync: "full" }, (p) => {
    for (const rank of p.ranks) {
      p.copy(p.rank((rank.id + 1) % numRanks).output.at(0), rank.input.at(1));
      p.copy(rank.output.at(1), rank.input.at(0));
    }
  });
}

/** Among processes, plans on GPUs may reach scratch only; and they are compiled there. */
const onHost = "plans on GPUs need NVRTC: src/runtime/backends/nccl has tests of theirs";
const value = (rank: number, i: number) => rank * 1_000_000 + i;

export const PLAN_CASES: readonly SemanticCase[] = [
  {
    name: "a user's own plan does what its collective says, at every size and among other calls",
    ranks: 3,
    needs: ["run", "split"],
    onHost,
    async run(context) {
      const { comm, world } = context;
      const group = await ownGroup(context, "plans");
      const { rank, size: n } = group;
      const plan = compile(handOn(n));
      for (const half of [1, 0, 20_011, 3]) {
        for (const storage of ["array", "tensor"] as const) {
          const made = () => (storage === "array" ? new Int32Array(2 * half) : world.tensor("i32", [2 * half]));
          const [input, output] = [made(), made()];
          const valuesOf = (one: typeof input) => (one instanceof Int32Array ? one : one.data);
          for (let i = 0; i < 2 * half; i++) valuesOf(input)[i] = value(rank, i);
          const run = group.run(plan, { input, output, ...SOON });
          // A call of another group beside it, and one of the same group behind it.
          const beside = works(context, `beside ${half} in each ${storage}`, comm);
          await finish(group, run);
          await works(context, `after ${half} in each ${storage}`, group);
          await beside;
          const before = (rank + n - 1) % n;
          const expected = Int32Array.from({ length: 2 * half }, (_, i) =>
            i < half ? value(before, half + i) : value(rank, i - half),
          );
          const wrong = expected.findIndex((one, i) => one !== valuesOf(output)[i]);
          holds(context, `output ${wrong} of 2 x ${half} (${storage}) is ${valuesOf(output)[wrong]}`, wrong < 0);
        }
      }
      await group.close();
    },
  },
  {
    name: "a program of the library runs in a group, with every operator of the call",
    ranks: 3,
    needs: ["run", "split"],
    onHost,
    async run(context) {
      const { comm } = context;
      const pair = await comm.split(comm.rank === 1 ? -1 : 0, comm.rank);
      if (pair === undefined) return;
      const made = algorithm("ring-all-reduce").make({ numRanks: pair.size });
      for (const [op, expected] of [
        ["sum", 4],
        ["max", 3],
        ["avg", 2],
        [pair.preMulSum(2), 8],
      ] as const) {
        const input = new Float32Array(37).fill(comm.rank + 1);
        const result = await finish(pair, pair.run(made, { input, op, ...SOON }));
        equal(context, `element 36 by ${typeof op === "string" ? op : "preMulSum(2)"}`, result?.data[36], expected);
      }
      await pair.close();
    },
  },
  {
    name: "ranks that run different plans all learn both sides",
    ranks: 3,
    needs: ["run", "split"],
    onHost,
    async run(context) {
      const group = await ownGroup(context, "plans apart");
      const name = group.rank === 1 ? "binomial-all-reduce" : "ring-all-reduce";
      const made = algorithm(name).make({ numRanks: group.size });
      const attempt = () => finish(group, group.run(made, { input: new Float32Array(6), timeoutMs: 6_000 }));
      const error = await fails(context, "different plans", ["MISMATCH"], attempt);
      const said = error?.message ?? "";
      holds(context, `both runs are named: ${said}`, /rank 1: run\(/.test(said) && /rank [02]: run\(/.test(said));
      await works(context, "the world afterwards", context.comm);
      await group.close().catch(() => {});
    },
  },
  {
    name: "a plan that cannot run is refused before anything moves",
    ranks: 2,
    async run(context) {
      const { comm } = context;
      const input = new Float32Array(6).fill(comm.rank);
      const forTwo = algorithm("ring-all-reduce").make({ numRanks: 2 });
      const runs = comm.capabilities().operations.includes("run");
      const refuse = async (what: string, attempt: () => unknown) => {
        await fails(context, what, [runs ? "INVALID_ARGUMENT" : "UNSUPPORTED"], attempt);
        equal(context, `the input after ${what}`, input[5], comm.rank);
      };
      await refuse("a plan for three ranks", () =>
        comm.run(algorithm("ring-all-reduce").make({ numRanks: 3 }), { input }),
      );
      await refuse("a plan that was not proved", () => comm.run(structuredClone(forTwo.plan()), { input }));
      await refuse("an output that is the input", () => comm.run(forTwo, { input, output: input }));
      const longer = new Float32Array(9);
      await refuse("an output that overlaps the input", () =>
        comm.run(forTwo, { input: longer.subarray(0, 6), output: longer.subarray(3) }),
      );
      await works(context, "afterwards", comm);
    },
  },
];
