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
