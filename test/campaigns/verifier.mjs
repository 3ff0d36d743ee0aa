import { parseArgs } from "node:util";
import { importTests } from "../../scripts/bundle-tests.mjs";

const option = { type: "string" };
const { values } = parseArgs({
  options: { exhaustive: option, stride: option, plans: option, adversary: option, seed: option },
});
for (const [name, value] of Object.entries(values)) {
  if (!/^[1-9]\d*$/.test(value)) {
    console.error(`--${name} is ${JSON.stringify(value)}; expected a whole number, 1 or more`);
    process.exit(2);
  }
}
if (values.exhaustive === undefined && values.plans === undefined && values.adversary === undefined) {
  console.error("nothing to do: name --exhaustive, --plans or --adversary");
  process.exit(2);
}
const seed = Number(values.seed ?? Date.now() % 1_000_000);
const { compareAll, describeSmallPlan, meaninglessPlans, SHAPES } = await importTests("test/oracle/index.ts");
let wrong = 0;
const seconds = (since) => `${((performance.now() - since) / 1000).toFixed(0)} s`;
if (values.exhaustive !== undefined) {
  const stride = Number(values.stride ?? 1);
  for (const shape of SHAPES) {
    const began = performance.now();
    const { wrongPasses, falseAlarms, ...counts } = compareAll(shape, {
      mostOps: Number(values.exhaustive),
      strideOf: (numOps) => (numOps < 3 ? 1 : stride),
      first: seed,
    });
    for (const ref of wrongPasses.slice(0, 20)) console.log(`PASSED WRONGLY ${describeSmallPlan(shape, ref)}`);
    for (const ref of falseAlarms.slice(0, 3)) console.log(`refused though right: ${describeSmallPlan(shape, ref)}`);
    console.log(
      shape,
      JSON.stringify({ ...counts, wrongPasses: wrongPasses.length, falseAlarms: falseAlarms.length }),
      seconds(began),
    );
    wrong += wrongPasses.length;
  }
}
for (const [name, search] of [
  ["plans", false],
  ["adversary", true],
]) {
  if (values[name] === undefined) continue;
  const began = performance.now();
  const result = meaninglessPlans({
    plans: Number(values[name]),
    seed,
    search,
    onProgress: (counts) => console.log(`seed ${seed} ${name}`, JSON.stringify(counts), seconds(began)),
  });
  for (const line of result.broken) console.log(`PASSED WRONGLY ${line}`);
  console.log(`seed ${seed} ${name}`, JSON.stringify({ ...result, broken: result.broken.length }), seconds(began));
  wrong += result.broken.length;
}
process.exitCode = wrong > 0 ? 1 : 0;
