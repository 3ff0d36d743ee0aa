/**
 * The fault campaign: one world that is broken again and again, and must come back each time with typed errors on every
 * survivor, right sums, and no device memory lost. Run on a host with GPUs after `npm run build`:
 *   node test/campaigns/faults.mjs [--backend nccl] [--isolation thread|process] [--ranks 4] [--kills 50] [--each 5] [--only HOW,HOW] [--json]
 * Exits 1 when a survivor was told nothing, or late, or something without a code, or a sum was wrong, or memory is gone.
 */
import { parseArgs } from "node:util";
import { launch } from "chorale/world";

const { values: flags } = parseArgs({
  options: {
    backend: { type: "string", default: "nccl" },
    isolation: { type: "string", default: "thread" },
    ranks: { type: "string", default: "4" },
    kills: { type: "string", default: "50" },
    each: { type: "string", default: "5" },
    only: { type: "string" },
    deadline: { type: "string", default: "3000" },
    big: { type: "string", default: String(16 * 1024 * 1024) },
    json: { type: "boolean", default: false },
  },
});
const ranks = Number(flags.ranks);
const deadlineMs = Number(flags.deadline);
const byThread = ["throw", "exit", "callback", "midflight"];
const byProcess = [...byThread, "sigkill", "sigsegv", "sigkill-midflight"];
const others = ["never-calls", "mismatch", "abort", ...(flags.backend === "nccl" ? ["out-of-memory"] : []), "spin"];
const killings = flags.isolation === "process" ? byProcess : byThread;
const only = flags.only?.split(",");

const planned = [
  ...Array.from({ length: Number(flags.kills) }, (_, k) => killings[k % killings.length]),
  ...others.flatMap((how) => Array(Number(flags.each)).fill(how)),
  ...(flags.isolation === "process" && flags.backend === "nccl"
    ? Array(Number(flags.each)).fill("illegal-address")
    : []),
].filter((how) => only === undefined || only.includes(how));
const schedule = planned.map((how, k) => ({ how, victim: k }));
if (schedule.length === 0) throw new Error("nothing is left of the campaign: see --only");

const records = [];
let result;
const start = performance.now();
try {
  result = await launch({
    ranks,
    backend: flags.backend,
    isolation: flags.isolation,
    module: new URL("fault-rank.mjs", import.meta.url),
    data: { schedule, deadlineMs, bigCount: Number(flags.big) },
    onFailure: "respawn",
    restarts: schedule.length + 1,
    rebuildTimeoutMs: deadlineMs + 4_000,
    timeoutMs: 570_000,
    onOutput: ({ rank, stream, text }) => {
      if (stream === "stdout" && text.startsWith("{")) records.push(JSON.parse(text));
      else console.error(`[${rank}] ${text}`);
    },
  });
} catch (error) {
  console.error(`the world ended: ${error.stack ?? error}`);
}

const problems = [];
if (result === undefined) problems.push("the world did not come to its end");
const perKind = new Map();
for (const [index, { how, victim }] of schedule.entries()) {
  const generation = index + 1;
  const told = records.filter((r) => r.kind === "told" && r.generation === generation);
  const survivors = told.filter((r) => r.rank !== victim % ranks);
  const rebuilt = records.filter((r) => r.kind === "rebuilt" && r.generation === generation + 1);
  const works = records.filter((r) => r.kind === "works" && r.generation === generation + 1);
  const row = perKind.get(how) ?? { how, times: 0, toldMs: 0, rebuildMs: 0, codes: new Set() };
  perKind.set(how, row);
  row.times++;
  for (const r of survivors) {
    row.codes.add(r.code ?? "none");
    row.toldMs = Math.max(row.toldMs, r.ms);
  }
  for (const r of rebuilt) row.rebuildMs = Math.max(row.rebuildMs, r.ms);
  const at = `generation ${generation} (${how})`;
  if (survivors.length !== ranks - 1) problems.push(`${at}: ${survivors.length} of ${ranks - 1} survivors were told`);
  const late = survivors.filter((r) => r.ms > deadlineMs + 2000);
  if (late.length > 0) problems.push(`${at}: told after ${late.map((r) => r.ms).join(", ")} ms`);
  if (survivors.some((r) => r.code === undefined)) problems.push(`${at}: an error without a code`);
  if (works.length !== ranks) problems.push(`${at}: ${works.length} of ${ranks} ranks work in the next generation`);
  if (rebuilt.some((r) => !/generation/.test(r.refused))) problems.push(`${at}: a stale tensor was not refused`);
}

/** Least free memory of each rank's device, early and at the end, once every rank had been respawned or not alike. */
const free = (generation) => records.filter((r) => r.kind === "works" && r.generation === generation);
const memory = free(1)
  .filter((r) => r.freeBytes !== undefined)
  .map(({ rank, freeBytes }) => {
    const last = free(schedule.length + 1).find((r) => r.rank === rank)?.freeBytes;
    return { rank, first: freeBytes, last, lostBytes: last === undefined ? undefined : freeBytes - last };
  });
for (const { rank, lostBytes } of memory) {
  if (lostBytes === undefined || lostBytes > 8 * 1024 * 1024)
    problems.push(`rank ${rank}: ${lostBytes} bytes of device memory are gone`);
}

/** Threads share their process's contexts: an illegal address ends the world, and the error must say so. Last, for this process is lost after it. */
let lost;
if (
  flags.isolation === "thread" &&
  flags.backend === "nccl" &&
  (only === undefined || only.includes("illegal-address"))
) {
  lost = await launch({
    ranks,
    backend: "nccl",
    module: new URL("fault-rank.mjs", import.meta.url),
    data: { schedule: [{ how: "illegal-address", victim: 1 }], deadlineMs, bigCount: Number(flags.big) },
    onFailure: "respawn",
    rebuildTimeoutMs: deadlineMs + 4_000,
    timeoutMs: 60_000,
    onOutput: () => {},
  }).then(
    () => "nothing",
    (error) => String(error.message),
  );
  if (!/end the process/.test(lost)) problems.push(`an illegal address with threads was answered by: ${lost}`);
}

const rows = [...perKind.values()].map((row) => ({ ...row, codes: [...row.codes].sort() }));
if (flags.json) console.log(JSON.stringify({ rows, memory, lost, problems }));
else {
  console.log(
    `${flags.backend}, ${ranks} ranks as ${flags.isolation === "process" ? "processes" : "threads"}, ${schedule.length} failures in one world, ${((performance.now() - start) / 1000).toFixed(0)} s`,
  );
  console.log("how                times  told after (max ms)  rebuild (max ms)  survivors' errors");
  for (const { how, times, toldMs, rebuildMs, codes } of rows) {
    console.log(
      `${how.padEnd(18)} ${String(times).padStart(5)}  ${String(toldMs).padStart(19)}  ${String(rebuildMs).padStart(16)}  ${codes.join(" ")}`,
    );
  }
  for (const { rank, first, last, lostBytes } of memory)
    console.log(`rank ${rank}: ${first} bytes free at first, ${last} at last (${lostBytes} lost)`);
  if (lost !== undefined) console.log(`illegal address with threads: ${lost}`);
  for (const problem of problems.slice(0, 20)) console.log(`PROBLEM ${problem}`);
}
process.exitCode = problems.length === 0 ? 0 : 1;
