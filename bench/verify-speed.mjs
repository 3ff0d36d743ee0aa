/**
 * Times the verifier on large plans: `npm run build && node bench/verify-speed.mjs`. Each case runs in a process of its
 * own. CPU seconds are of all threads, V8's collector included: on a busy machine they say more than the clock. Peak
 * memory here is what V8 lets itself grow to; `chorale check` holds it lower (src/apps/cli/check-memory.test.ts).
 */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { flagsOf } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const CASES = {
  "two-shot-packet-all-reduce 64": ["twoShotPacketAllReduce", { numRanks: 64 }],
  "one-shot-packet-all-reduce 64": ["oneShotPacketAllReduce", { numRanks: 64 }],
  "allreduce_pkt 64": ["mscclppAllReducePackets", { numRanks: 64 }],
  "ring-all-reduce 256": ["ringAllReduce", { numRanks: 256 }],
  "one-shot-all-reduce 64": ["oneShotAllReduce", { numRanks: 64 }],
  "direct-all-gather 128": ["directAllGather", { numRanks: 128 }],
  "direct-all-to-all 128": ["directAllToAll", { numRanks: 128 }],
  "direct-all-gather 256": ["directAllGather", { numRanks: 256 }],
  "direct-all-to-all 256": ["directAllToAll", { numRanks: 256 }],
  "direct-all-gather 512": ["directAllGather", { numRanks: 512 }],
};
const name = flagsOf(import.meta.url, { allowPositionals: true }, ({ positionals: [one] }) =>
  one === undefined ? undefined : oneOf(one, "the case", Object.keys(CASES)),
);
if (name === undefined) {
  console.log(
    "| plan | operations | compile, CPU s | verify, CPU s | verify, s | peak RSS MB |\n|---|---|---|---|---|---|",
  );
  for (const key of Object.keys(CASES)) {
    const { stdout, stderr } = spawnSync(process.execPath, [fileURLToPath(import.meta.url), key], { encoding: "utf8" });
    process.stdout.write(stdout === "" ? `${key}: ${stderr.slice(-400)}\n` : stdout);
  }
} else {
  const dist = new URL(process.env.CHORALE_DIST ?? "../dist/", import.meta.url);
  const algorithms = await import(new URL("authoring/algorithms/index.js", dist).href);
  const { compile } = await import(new URL("authoring/language/index.js", dist).href);
  const { countOps } = await import(new URL("authoring/plan/index.js", dist).href);
  const { verifyPlan } = await import(new URL("authoring/verifier/index.js", dist).href);
  const [make, args] = CASES[name];
  const cpu = () => (process.cpuUsage().user + process.cpuUsage().system) / 1e6;
  const c0 = cpu();
  const plan = compile(algorithms[make](args), { verify: false });
  const c1 = cpu();
  const t1 = performance.now();
  const before = process.resourceUsage().maxRSS / 1024;
  const verdict = verifyPlan(plan);
  const t2 = performance.now();
  const c2 = cpu();
  console.log(
    `| ${name} (${verdict.ok ? "right" : "WRONG"}) | ${countOps(plan)} | ${(c1 - c0).toFixed(2)} | ${(c2 - c1).toFixed(2)} | ${((t2 - t1) / 1000).toFixed(2)} | ${(process.resourceUsage().maxRSS / 1024).toFixed(0)} (${before.toFixed(0)} before) |`,
  );
}
