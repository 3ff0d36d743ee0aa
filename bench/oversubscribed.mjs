/**
 * `node bench/oversubscribed.mjs [RANKS]` (8 by default): what waiting costs with more ranks than cores. On 2 cores
 * the targets are at most 0.5 s of CPU time while one rank sleeps 5 s, and a median of at most 500 us for 1 KiB.
 */
import { availableParallelism } from "node:os";
import { measureOversubscribed } from "../dist/apps/bench/index.js";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";

const ranks = flagsOf(import.meta.url, { allowPositionals: true }, ({ positionals }) =>
  integer(positionals[0] ?? "8", "RANKS"),
);
let missed = 0;
console.log(`${ranks} ranks on ${availableParallelism()} cores, ${new Date().toISOString().slice(0, 10)}`);
for (const drive of ["wait", "await"]) {
  const r = await measureOversubscribed({ ranks, drive });
  const cpuOk = r.cpuSeconds <= 0.5;
  const callOk = r.allReduceMedianUs <= 500;
  missed += Number(!cpuOk) + Number(!callOk);
  console.log(
    `${drive}: CPU ${r.cpuSeconds.toFixed(3)} s while rank 0 slept ${r.sleptSeconds.toFixed(1)} s (${cpuOk ? "pass" : "FAIL"} <= 0.5 s); ` +
      `1 KiB all-reduce median ${r.allReduceMedianUs.toFixed(0)} us, p99 ${r.allReduceP99Us.toFixed(0)} us (${callOk ? "pass" : "FAIL"} <= 500 us)`,
  );
}
process.exitCode = missed > 0 ? 1 : 0;
