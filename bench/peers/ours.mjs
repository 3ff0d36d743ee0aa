/** One sweep of chorale's for `npm run bench:peers`: `node ours.mjs RANKS wait|await OP BYTES:ITERATIONS...` */
import { bench } from "../../dist/apps/bench/index.js";

const [ranks, drive, op, ...sizes] = process.argv.slice(2);
const pairs = sizes.map((text) => text.split(":").map(Number));
await bench({
  op,
  ranks: Number(ranks),
  drive: drive === "await" ? "await" : "wait",
  sizes: pairs.map(([bytes]) => bytes),
  iterationsBySize: pairs.map(([, iterations]) => iterations),
  check: true,
  inPlace: false,
  repeats: 1,
  timeoutMs: 280_000,
  onRow: ({ sizeBytes, timeUs, wrong }) => console.log(JSON.stringify({ op, sizeBytes, timeUs, wrong })),
});
console.log(JSON.stringify({ engine: `chorale, Node ${process.version}` }));
