// Run by tsx, which compiles with esbuild's keepNames.
import { launch } from "chorale";

const sums: number[] = await launch({
  ranks: 2,
  run: async (world) => {
    function square(x: number): number {
      return x * x;
    }
    const add = (a: number, b: number): number => a + b;
    class Counter {
      count = 0;
    }
    return add(square(world.rank + 2), new Counter().count) + (square.name === "square" ? 0 : 100);
  },
});
console.log(sums.join(" "));
