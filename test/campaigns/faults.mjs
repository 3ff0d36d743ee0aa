/**
 * The fault campaign: one world that is broken again and again, and must come back each time with typed errors on every
 * survivor, right sums, and no device memory lost. Run on a host with GPUs after `npm run build`:
 *   node test/campaigns/faults.mjs [--backend nccl|cuda|…] [--isolation thread|process] [--ranks 4] [--kills 50] [--each 5]
 *                                  [--only KIND,KIND] [--deadline MS] [--late MS] [--big ELEMENTS] [--json]
 * A KIND is a way to break, alone or with the way in which the survivors wait: see kinds.mjs.
 * Exits 1 when a survivor was told nothing, or --late MS (2000) after its deadline, or something without a code, or a sum was wrong, or memory is gone,
 * or a case was not what its name says: nothing was on the device's stream when the victim broke in mid-flight.
 * Takes some two seconds a failure on GPUs. Says on stderr how far it is; told to end (SIGTERM) it reports what it has seen.
 */
import { mkdtempSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InvalidArgumentError } from "chorale/core";
import { launch, parseBackend, parseIsolation } from "chorale/world";
import { flagsOf, integer } from "../../dist/apps/bench/script-flags.js";
import { ENDS_PROCESS, IN_FLIGHT, parseKind } from "./kinds.mjs";

const config = {
  options: {
    backend: { type: "string", default: "nccl" },
    isolation: { type: "string", default: "thread" },
    ranks: { type: "string", default: "4" },
    kills: { type: "string", default: "50" },
    each: { type: "string", default: "5" },
    only: { type: "string" },
    deadline: { type: "string", default: "3000" },
    late: { type: "string", default: "2000" },
    big: { type: "string", default: String(16 * 1024 * 1024) },
    json: { type: "boolean", default: false },
  },
};
const flags = flagsOf(import.meta.url, config, ({ values }) => {
  const isolation = parseIsolation(values.isolation, "--isolation");
  for (const kind of values.only?.split(",") ?? []) {
    const { how } = parseKind(kind, "--only");
    if (isolation === "thread" && ENDS_PROCESS.has(how)) {
      throw new InvalidArgumentError("--only", kind, "--isolation process: it ends the process of all ranks");
    }
  }
  return {
    backend: parseBackend(values.backend, "--backend"),
    isolation,
    ranks: integer(values.ranks, "--ranks"),
    kills: integer(values.kills, "--kills", 0),
    each: integer(values.each, "--each", 0),
    only: values.only,
    deadlineMs: integer(values.deadline, "--deadline"),
    lateMs: integer(values.late, "--late"),
    big: integer(values.big, "--big"),
    json: values.json,
  };
});
const { ranks, deadlineMs } = flags;
const onDevices = flags.backend === "nccl" || flags.backend === "cuda";
const byProcess = flags.isolation === "process";
const killings = ["throw", "exit", "callback", "midflight"];
if (byProcess) killings.push(...ENDS_PROCESS);
const others = ["never-calls", "mismatch", "abort", "midflight+wait", "never-calls+wait"];
if (onDevices) others.push("out-of-memory", "midflight+synchronize");
others.push("spin");
if (byProcess && onDevices) others.push("illegal-address");
// Last, for these wait in the driver's neighbourhood: what hangs there keeps its thread from ending.
if (onDevices) others.push("midflight+download", "never-calls+download", "abort+upload");
if (onDevices) others.push("midflight+allocate", "never-calls+allocate");

/** The default set, or what --only names: of that the kinds that end a rank as often as --kills says, taking turns. */
const only = flags.only?.split(",").filter((kind) => kind !== "illegal-address" || byProcess);
const chosen = only === undefined ? killings : killings.filter((kind) => only.includes(kind));
const rest = only === undefined ? others : only.filter((kind) => !killings.includes(kind));
const planned = [
  ...Array.from({ length: chosen.length === 0 ? 0 : flags.kills }, (_, k) => chosen[k % chosen.length]),
  ...rest.flatMap((kind) => Array(flags.each).fill(kind)),
];
const schedule = planned.map((how, k) => ({ how, victim: k }));
const poisonsThreads = !byProcess && onDevices && flags.only?.split(",").includes("illegal-address") !== false;
if (schedule.length === 0 && !poisonsThreads) throw new Error("nothing is left of the campaign: see --only");

const folder = mkdtempSync(join(tmpdir(), "chorale-faults-"));
const records = [];
let result;
const start = performance.now();
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort(new Error("the campaign was told to end")));
let saidMs = 0;
/** Says now and then how many failures the world has come back from. */
function tellProgress({ kind, rank, generation }) {
  const tookMs = performance.now() - start;
  if (kind !== "works" || rank !== 0 || tookMs - saidMs < 5_000) return;
  saidMs = tookMs;
  console.error(`${generation - 1} of ${schedule.length} failures after ${(tookMs / 1000).toFixed(0)} s`);
}
try {
  result = await launch({
    ranks,
    backend: flags.backend,
    isolation: flags.isolation,
    module: new URL("fault-rank.mjs", import.meta.url),
    data: { schedule, deadlineMs, bigCount: flags.big, folder },
    onFailure: "respawn",
    restarts: schedule.length + 1,
    rebuildTimeoutMs: deadlineMs + 4_000,
    timeoutMs: 570_000,
    signal: stop.signal,
    onOutput: ({ rank, stream, text }) => {
      if (stream === "stdout" && text.startsWith("{")) {
        const record = JSON.parse(text);
        records.push(record);
        tellProgress(record);
      } else console.error(`[${rank}] ${text}`);
    },
  });
} catch (error) {
  console.error(`the world ended: ${error.stack ?? error}`);
}

const problems = [];
if (result === undefined) problems.push("the world did not come to its end");
const perKind = new Map();
for (const [index, { how: kind, victim }] of schedule.entries()) {
  const generation = index + 1;
  const { how } = parseKind(kind);
  const of = (what, at = generation) => records.filter((r) => r.kind === what && r.generation === at);
  if (of("works").length === 0) {
    problems.push(`generation ${generation} (${kind}) and what follows did not take place`);
    break;
  }
  const survivors = of("told").filter((r) => r.rank !== victim % ranks);
  const rebuilt = of("rebuilt", generation + 1);
  const works = of("works", generation + 1);
  const row = perKind.get(kind) ?? { how: kind, times: 0, inFlight: 0, toldMs: 0, rebuildMs: 0, codes: new Set() };
  perKind.set(kind, row);
  row.times++;
  for (const r of survivors) {
    row.codes.add(r.code ?? "none");
    row.toldMs = Math.max(row.toldMs, r.ms);
  }
  for (const r of rebuilt) row.rebuildMs = Math.max(row.rebuildMs, r.ms);
  const at = `generation ${generation} (${kind})`;
  const ranksFly = survivors.length > 0 && survivors.every((r) => r.inFlight && r.waits);
  const victimFlies = !IN_FLIGHT.has(how) || of("breaks").some((r) => r.inFlight);
  if (ranksFly && victimFlies) row.inFlight++;
  else problems.push(`${at}: not what its name says: ${ranksFly ? "the victim" : "a survivor"} had nothing in flight`);
  if (survivors.length !== ranks - 1) problems.push(`${at}: ${survivors.length} of ${ranks - 1} survivors were told`);
  const late = survivors.filter((r) => r.ms > deadlineMs + flags.lateMs);
  if (late.length > 0) problems.push(`${at}: told after ${late.map((r) => r.ms).join(", ")} ms`);
  const codeless = survivors.find((r) => r.code === undefined);
  if (codeless !== undefined) problems.push(`${at}: an error without a code: ${codeless.message}`);
  if (survivors.some((r) => r.returned))
    problems.push(`${at}: what waited for failed calls returned as if they had not`);
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
if (poisonsThreads && result !== undefined) {
  lost = await launch({
    ranks,
    backend: "nccl",
    module: new URL("fault-rank.mjs", import.meta.url),
    data: {
      schedule: [{ how: "illegal-address", victim: 1 }],
      deadlineMs,
      bigCount: Number(flags.big),
      folder: mkdtempSync(join(folder, "lost-")),
    },
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
rmSync(folder, { recursive: true, force: true });

const rows = [...perKind.values()].map((row) => ({ ...row, codes: [...row.codes].sort() }));
const print = (text) => writeSync(1, `${text}\n`);
if (flags.json) print(JSON.stringify({ rows, memory, lost, problems }));
else {
  print(
    `${flags.backend}, ${ranks} ranks as ${byProcess ? "processes" : "threads"}, ${schedule.length} failures in one world, ${((performance.now() - start) / 1000).toFixed(0)} s`,
  );
  print("how                    times  in flight  told after (max ms)  rebuild (max ms)  survivors' errors");
  for (const { how, times, inFlight, toldMs, rebuildMs, codes } of rows) {
    const cells = [String(times).padStart(5), String(inFlight).padStart(9), String(toldMs).padStart(19)];
    print(`${[how.padEnd(22), ...cells, String(rebuildMs).padStart(16), codes.join(" ")].join("  ")}`);
  }
  for (const { rank, first, last, lostBytes } of memory)
    print(`rank ${rank}: ${first} bytes free at first, ${last} at last (${lostBytes} lost)`);
  if (lost !== undefined) print(`illegal address with threads: ${lost}`);
  for (const problem of problems.slice(0, 20)) print(`PROBLEM ${problem}`);
}
process.exitCode = problems.length === 0 ? 0 : 1;
// A rank that is stuck in the driver cannot be ended, and this process not while it has such a thread.
if (result === undefined) process.kill(process.pid, "SIGKILL");
