// Forgets that the function is sent as text.
import { launch } from "chorale";

const learningRate = 0.1;
await launch({ ranks: 2, run: async (world) => world.rank * learningRate });
