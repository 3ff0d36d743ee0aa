/**
 * Small sums by tensors on even ranks, which go the short way (quick-calls.ts), and by arrays on odd ones, which go the long
 * way: in place and apart, some with a call of another kind behind them that is issued first. Gives the first that is wrong.
 */
export function sumsBothWays(world) {
  const { comm, rank, size } = world;
  const ranks = (size * (size + 1)) / 2;
  const [x, y] = [world.tensor("f32", [300]), world.tensor("f32", [300])];
  for (let i = 0; i < 200; i++) {
    const isApart = i % 3 === 0;
    const input = rank % 2 === 0 ? x.fill(rank + 1) : new Float32Array(300).fill(rank + 1);
    const work = comm.allReduce(input, isApart ? { output: y } : {});
    const all = i % 5 === 0 ? comm.allGather(Int32Array.of(rank)) : undefined;
    const found = work.wait().at(299);
    if (found !== ranks || (isApart && y.at(0) !== ranks)) return `sum ${i} is ${found}, not ${ranks}`;
    if (all !== undefined && all.wait().at(size - 1) !== size - 1) return `ranks ${i}: ${all.wait().toArray()}`;
  }
  return "right";
}

/**
 * Collectives of the same tensors again and again, which are made from what was kept of the last (known-calls.ts), with other data each
 * time; now and then one rank gives an array, and has its call checked anew. Small parts, and such as others read where they are.
 */
export function callsAgain(world) {
  const { comm, rank, size } = world;
  for (const count of [3, 6000]) {
    const [part, taken] = [1, 2].map(() => world.tensor("f32", [count]));
    const [whole, other] = [1, 2].map(() => world.tensor("f32", [count * size]));
    for (let i = 0; i < 12; i++) {
      const root = (i >> 2) % size;
      const mine = (tensor) => (i % 4 === 3 && rank === size - 1 ? new Float32Array(tensor.size) : tensor);
      const given = mine(part).fill(rank + i);
      const sum = (size * (size - 1)) / 2 + size * i;
      // In this order the calls read what the ones before have written; each is looked at before the next.
      const calls = [
        ["all_gather", () => comm.allGather(given, { output: whole }), (_, at) => Math.floor(at / count) + i],
        ["all_to_all", () => comm.allToAll(whole, { output: other }), () => rank + i],
        ["reduce_scatter", () => comm.reduceScatter(other, { output: taken }), () => sum],
        ["broadcast", () => comm.broadcast(given, { root }), () => root + i],
        ["reduce", () => comm.reduce(given, { root, output: taken }), () => (rank === root ? size * (root + i) : sum)],
      ];
      const outputs = [whole, other, taken, given, taken];
      for (const [nth, [name, call, expected]] of calls.entries()) {
        call().wait();
        const values = outputs[nth].data ?? outputs[nth];
        const wrong = values.findIndex((value, at) => value !== expected(value, at));
        if (wrong >= 0) return `${name} ${i} of ${count}: ${values[wrong]} at ${wrong}`;
      }
    }
    if (count === 3) continue;
    world.free(part);
    try {
      comm.broadcast(part, { root: 0 });
      return "a tensor that was freed is taken";
    } catch (error) {
      if (error.code !== "CLOSED") return String(error);
    }
  }
  return "right";
}
