// Writes the library's all-reduce, all-gather and reduce-scatter plans for two ranks as files of MSCCL++'s executor, those that
// it runs right, and a manifest of them: for `beside executor FOLDER`, and for ours.mjs.
// node bench/mscclpp/prepare.mjs FOLDER [instances]   (after npm run build)
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ALGORITHMS } from "chorale/algorithms";
import { compile } from "chorale/language";
import { verifyPlan } from "chorale/verifier";
import { writeMscclpp } from "../../dist/authoring/interchange/index.js";

const [folder = "mscclpp-plans", instances = "4"] = process.argv.slice(2);
const OPS = ["all_reduce", "all_gather", "reduce_scatter"];

mkdirSync(folder, { recursive: true });
const manifest = [];
for (const { name, collective, make, legal, needsSwitch } of ALGORITHMS) {
  if (!OPS.includes(collective) || !legal(2) || needsSwitch) continue;
  const args = { numRanks: 2, instances: Number(instances) };
  const program = make(args);
  try {
    const { ok, findings } = verifyPlan(compile(program, { verify: false }), { lint: false, target: "mscclpp" });
    if (!ok) throw new Error(findings[0]?.message);
    const pieces = [];
    writeMscclpp(program, (piece) => pieces.push(piece));
    writeFileSync(join(folder, `${name}.json`), pieces.join(""));
    manifest.push(`${name} ${collective}`);
  } catch (error) {
    console.log(`${name}: left out: ${String(error.message).split("\n")[0]}`);
  }
}
writeFileSync(join(folder, "manifest"), `${manifest.join("\n")}\n`);
console.log(`${manifest.length} plans in ${folder}`);
