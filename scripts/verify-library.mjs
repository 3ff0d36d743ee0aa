/**
 * Verifies the whole library: every algorithm at every legal number of ranks from 2 to 16, in and out of place, with one
 * to three instances, over memory channels, and over port channels where an algorithm only puts plain data.
 * `npm run build && node scripts/verify-library.mjs`. Exits 1 when a plan is not right, and done when each rank ends.
 */
import { fileURLToPath } from "node:url";

const dist = process.env.CHORALE_DIST ?? fileURLToPath(new URL("../dist", import.meta.url));
const { ALGORITHMS } = await import(`${dist}/authoring/algorithms/index.js`);
const { compile } = await import(`${dist}/authoring/language/index.js`);
const { verifyPlan } = await import(`${dist}/authoring/verifier/index.js`);

/** Reads from peers, packets and switches need memory channels. */
const onlyPuts = (algorithm) => !algorithm.packets && !algorithm.needsSwitch && !/read/.test(algorithm.name);
let plans = 0;
let wrong = 0;
const started = performance.now();
for (const algorithm of ALGORITHMS) {
  for (let numRanks = 2; numRanks <= 16; numRanks++) {
    if (!algorithm.legal(numRanks)) continue;
    for (const inPlace of algorithm.inPlace ? [false, true] : [false]) {
      for (const instances of numRanks <= 8 ? [1, 2, 3] : [1]) {
        for (const channel of onlyPuts(algorithm) && numRanks <= 8 ? ["memory", "port"] : ["memory"]) {
          const plan = compile(algorithm.make({ numRanks, inPlace, instances, channel }), { verify: false });
          const { ok, findings } = verifyPlan(plan, { promises: { outputAtRankEnd: true } });
          plans++;
          if (ok) continue;
          wrong++;
          const { message } = findings.find((finding) => finding.severity === "error");
          console.log(
            `${algorithm.name} ${numRanks} ranks${inPlace ? " in place" : ""} x${instances} ${channel}: ${message}`,
          );
        }
      }
    }
  }
}
console.log(
  `${ALGORITHMS.length} algorithms, ${plans} plans, ${wrong} wrong, ${((performance.now() - started) / 1000).toFixed(0)} s`,
);
process.exitCode = wrong === 0 ? 0 : 1;
