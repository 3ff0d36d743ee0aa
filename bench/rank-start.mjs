/**
 * What a rank's start costs: CPU time of the whole process for a world of N threads over a world of one, by rank, from an
 * empty function. Run after `npm run build`: node bench/rank-start.mjs [--ranks 8] [--repeats 5]
 */
import { spawnSync } from "node:child_process";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";

const config = { options: { ranks: { type: "string", default: "8" }, repeats: { type: "string", default: "5" } } };
const { ranks, repeats } = flagsOf(import.meta.url, config, ({ values }) => ({
  ranks: integer(values.ranks, "--ranks", 2),
  repeats: integer(values.repeats, "--repeats"),
}));
const program = `import { launch } from ${JSON.stringify(new URL("../dist/index.js", import.meta.url).href)};
await launch({ ranks: Number(process.argv[1]), run: () => 0 });
const { user, system } = process.cpuUsage();
console.log((user + system) / 1e3);`;
const cpuMs = (n) => Number(spawnSync(process.execPath, ["--input-type=module", "-e", program, String(n)]).stdout);
const perRank = Array.from({ length: repeats }, () => (cpuMs(ranks) - cpuMs(1)) / (ranks - 1)).sort((a, b) => a - b);
const median = perRank[perRank.length >> 1].toFixed(0);
console.log(
  `a rank's start: ${median} ms of CPU (${perRank.map((ms) => ms.toFixed(0)).join(", ")}), Node ${process.version}`,
);
