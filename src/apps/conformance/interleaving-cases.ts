/**
 * Several groups at work at once on every rank: the sub-groups of a mesh, and random interleavings, in which each rank
 * issues the calls of its groups in an order of its own (within a group the order is everybody's). Finds queues that
 * hold each other up, streams and buffers that belong to the wrong group, and engines that start calls of two groups in
 * two orders and wait for ever. All calls of a round are issued before any is waited for: a program that waits between
 * them, in orders that differ, deadlocks by its own fault.
 */
import { asPrecise, findWrong, operationInfo, referenceOutput } from "../../collectives/index.ts";
import { type ArrayOf, type DType, newArray, type Tensor, type TypedArray } from "../../core/index.ts";
import type { Communicator, Work } from "../../runtime/comm/index.ts";
import type { World } from "../../runtime/world/index.ts";
import { elementCounts } from "../bench/internal.ts";
import { SOON, turn } from "./expectations.ts";
import type { RankContext, SemanticCase } from "./rank-context.ts";
import { fillRandom, hashOf, pick } from "./seeded-random.ts";

const DTYPES = ["f32", "i32", "bf16", "u8"] as const satisfies readonly DType[];
const OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"] as const;
const REDOPS = ["sum", "max", "min"] as const;
/** Calls of one group in a round, at most. */
const MAX_CALLS = 3;
/** Elements of a part: mostly few, sometimes as many as the buffers hold. */
const SMALL = 33;
const MOST = 1024;

interface Slot {
  readonly input: Tensor;
  readonly output: Tensor;
}

interface Member {
  readonly comm: Communicator;
  /** By call of the round and dtype. */
  readonly slots: readonly (readonly Slot[])[];
}

interface Call {
  readonly comm: Communicator;
  readonly op: (typeof OPERATIONS)[number];
  readonly dtype: DType;
  readonly redop: (typeof REDOPS)[number];
  readonly count: number;
  readonly root: number;
  readonly seed: number;
  readonly input: Tensor;
  readonly output: Tensor;
}

function memberOf(world: World, comm: Communicator): Member {
  const make = (dtype: DType) => world.tensor(dtype, [comm.size * MOST]);
  return {
    comm,
    slots: Array.from({ length: MAX_CALLS }, () => DTYPES.map((d) => ({ input: make(d), output: make(d) }))),
  };
}

/** The calls of a group in a round: the same on all its members. */
function callsOf({ comm, slots }: Member, key: number): Call[] {
  const number = 1 + (hashOf(key, 0) % MAX_CALLS);
  return slots.slice(0, number).map((byDtype, k): Call => {
    const draw = (what: number) => hashOf(key, k + 1, what);
    const op = pick(OPERATIONS, draw(1));
    const which = draw(2) % DTYPES.length;
    const { input, output } = byDtype[which] as Slot;
    const count = draw(3) % 8 === 0 ? MOST : 1 + (draw(4) % SMALL);
    const lengths = elementCounts(op, comm.size, count);
    return {
      comm,
      op,
      dtype: DTYPES[which] as DType,
      redop: pick(REDOPS, draw(5)),
      count,
      root: draw(6) % comm.size,
      seed: draw(7),
      input: input.slice(0, lengths.input),
      output: output.slice(0, lengths.output),
    };
  });
}

function inputOf({ op, dtype, seed, comm, count }: Call, rank: number): TypedArray {
  const array = newArray(dtype, elementCounts(op, comm.size, count).input);
  fillRandom(dtype, "numbers", seed, rank, 0, array);
  return array as TypedArray;
}

function issue({ comm, op, redop, root, input, output }: Call): Work<Tensor> {
  const options = { ...SOON, output };
  switch (op) {
    case "all_reduce":
      return comm.allReduce(input, { ...options, op: redop });
    case "reduce_scatter":
      return comm.reduceScatter(input, { ...options, op: redop });
    case "reduce":
      return comm.reduce(input, { ...options, op: redop, root });
    case "all_gather":
      return comm.allGather(input, options);
    case "broadcast":
      return comm.broadcast(input, { ...options, root });
    case "all_to_all":
      return comm.allToAll(input, options);
  }
}

function verify({ world, fail }: RankContext, round: number, call: Call): void {
  const { comm, op, dtype, redop, count, root } = call;
  if (operationInfo(op).outputAt === "root" && comm.rank !== root) return;
  const inputs = Array.from({ length: comm.size }, (_, rank) => inputOf(call, rank));
  const found = world.download(call.output as Tensor<DType>) as TypedArray;
  const options = { numRanks: comm.size, rank: comm.rank, count, root };
  for (const { at, expected } of referenceOutput(op, dtype, redop, inputs, options)) {
    const wrong = findWrong(asPrecise(expected, comm.capabilities().features["accumulatesInF32"]), found, at);
    if (wrong === undefined) continue;
    fail(
      `round ${round}, ${op} ${dtype} ${redop} of ${count} in ${comm.group}: ${wrong.count} wrong elements; [${wrong.index}] is ${wrong.actual}, expected ${wrong.expected}`,
    );
  }
}

/** The calls of all groups in an order that keeps each group's own. */
function interleave(queues: readonly Call[][], draw: (step: number) => number): Call[] {
  const left = queues.map((queue) => [...queue]).filter((queue) => queue.length > 0);
  const order: Call[] = [];
  for (let step = 0; left.length > 0; step++) {
    const which = draw(step) % left.length;
    const queue = left[which] as Call[];
    order.push(queue.shift() as Call);
    if (queue.length === 0) left.splice(which, 1);
  }
  return order;
}

/**
 * Runs rounds of calls on all of a rank's groups at once.
 * @param isOwnOrder each rank interleaves its groups in an order of its own, and pauses where it likes
 */
async function rounds(
  context: RankContext,
  groups: readonly Communicator[],
  numRounds: number,
  isOwnOrder: boolean,
): Promise<void> {
  const { world, seed } = context;
  const members = groups.map((comm) => memberOf(world, comm));
  for (let round = 0; round < numRounds; round++) {
    const own = isOwnOrder ? world.rank + 1 : 0;
    const queues = members.map((member) =>
      callsOf(member, hashOf(seed, round, ...member.comm.ranks, member.comm.group.length)),
    );
    const order = interleave(queues, (step) => hashOf(seed, round, 77, own, step));
    for (const call of order) world.upload(call.input, inputOf(call, call.comm.rank) as ArrayOf<DType>);
    const works: { readonly call: Call; readonly work: Work<Tensor> }[] = [];
    for (const [step, call] of order.entries()) {
      works.push({ call, work: issue(call) });
      if (isOwnOrder && hashOf(seed, round, 78, own, step) % 8 === 0) await turn();
    }
    // Whichever is looked at first, the others must come to their end too.
    const first = hashOf(seed, round, 79, own) % works.length;
    const looked = [...works.slice(first), ...works.slice(0, first)];
    for (const { work } of looked) {
      if (isOwnOrder && hashOf(seed, round, 80, own) % 3 === 0) work.wait();
      else await work;
    }
    for (const { call } of works) verify(context, round, call);
  }
  for (const { slots } of members) {
    for (const { input, output } of slots.flat()) {
      world.free(input);
      world.free(output);
    }
  }
}

/** Rounds of the mesh case. */
const MESH_ROUNDS = 20;
const MESH_ROUNDS_OF_FULL = 400;

export const INTERLEAVING_CASES: readonly SemanticCase[] = [
  {
    name: "sub-groups of a tp x dp mesh at once",
    ranks: 4,
    async run(context) {
      const { world } = context;
      const mesh = world.mesh({ dp: 2, tp: 2 });
      const groups = [await world.communicator(mesh, "tp"), await world.communicator(mesh, "dp")];
      await rounds(context, groups, context.full ? MESH_ROUNDS_OF_FULL : MESH_ROUNDS, false);
    },
  },
  {
    name: "random interleavings of groups",
    ranks: 4,
    needs: ["split"],
    async run(context) {
      const { world, comm } = context;
      const mesh = world.mesh({ dp: 2, tp: 2 });
      const opened = [
        await comm.split(0, comm.rank, { name: "copy" }),
        await comm.split(comm.rank === 3 ? -1 : 0, -comm.rank, { name: "three" }),
        await comm.split(comm.rank === 1 ? -1 : 0, comm.rank, { name: "others" }),
      ].filter((group) => group !== undefined);
      const groups = [comm, await world.communicator(mesh, "tp"), await world.communicator(mesh, "dp"), ...opened];
      await rounds(context, groups, context.interleavings, true);
      for (const group of opened) await group.close();
    },
  },
];
