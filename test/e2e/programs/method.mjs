// A job as an object with a method, its data and a getter.
import { launch } from "chorale";

const job = {
  ranks: 3,
  get data() {
    return { scale: 10 };
  },
  async run(world, { scale }) {
    const x = world.tensor("f32", [1]);
    x.data[0] = world.rank * scale;
    await world.comm.allReduce(x);
    return x.data[0];
  },
};
console.log((await launch(job)).join(" "));

class Training {
  get run() {
    return (world) => world.size;
  }
  static async evaluate(world) {
    return world.rank;
  }
}
console.log((await launch({ ranks: 2, run: new Training().run })).join(" "));
console.log((await launch({ ranks: 2, run: Training.evaluate })).join(" "));
