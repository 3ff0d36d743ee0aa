/**
 * One world on one host that is broken at random moments, hundreds of times: ranks that die, hang, stop and go on, lie or
 * leave, a full disk, no descriptors. After each event every survivor must have been told in time, the next generation must
 * have right results, and nothing may be left: no process, no file, no descriptor, no memory. Events that break nothing (a
 * short stop, a full disk) must end no call. Needs `npm run build` and Linux; a full disk needs root:
 *   node test/campaigns/random-faults.mjs [--backend tcp|threads|shm] [--ranks 3] [--events 50] [--seed 1]
 *                                         [--kinds KIND,KIND] [--deadline 2000] [--option NAME=VALUE] [--largest 131072]
 *                                         [--seconds S] [--late-starts N] [--dist dist] [--json] [--gauges]
 * `--option` is one of the backend, such as sendThread=on; `--largest` is in bytes; `--gauges` prints what ranks held over time.
 * `--seconds`: no event begins after so many. `--late-starts`: so many ranks that are started again come too late for their generation, as on a machine that is overloaded.
 * Exits 1 when something was wrong. Takes about a second an event.
 */
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { drawsOf, sleep, until } from "./draws-and-waits.mjs";
import { smallDisk } from "./small-disk.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values } = parseArgs({
  options: {
    backend: { type: "string", default: "tcp" },
    ranks: { type: "string", default: "3" },
    events: { type: "string", default: "50" },
    seed: { type: "string", default: "1" },
    kinds: { type: "string" },
    deadline: { type: "string", default: "2000" },
    option: { type: "string", multiple: true, default: [] },
    largest: { type: "string", default: "131072" },
    seconds: { type: "string", default: "Infinity" },
    "late-starts": { type: "string", default: "0" },
    gauges: { type: "boolean", default: false },
    dist: { type: "string", default: join(here, "../../dist") },
    json: { type: "boolean", default: false },
  },
});
const [ranks, events, seed, deadlineMs, lateStarts] = ["ranks", "events", "seed", "deadline", "late-starts"].map(
  (name) => Number(values[name]),
);
/** NAME=VALUE, where a whole number is one. */
const optionOf = (text) => {
  const [name, value] = text.split("=");
  return [name, /^\d+$/.test(value) ? Number(value) : value];
};
const byProcess = values.backend !== "threads";
/** The victim is told by a file, and dies of it. */
const DEADLY = ["throw", "exit", "exit-0", "callback", "midcall"];
/** The victim makes no more calls: its peers' deadline ends theirs. */
const HANGING = ["silent", "spin"];
/** All ranks fail, and all of them live on. */
const BLOODLESS = ["abort", "mismatch", "leave"];
/** Nothing may fail, though it takes a while. */
const HARMLESS = byProcess ? ["stop-short", "disk-full"] : ["stop-short"];
const OWN = byProcess ? ["kill", "stop-long", "descriptors"] : [];
const KINDS = [...DEADLY, ...HANGING, ...BLOODLESS, ...HARMLESS, ...OWN];
const kinds = values.kinds?.split(",") ?? KINDS;
for (const kind of kinds) if (!KINDS.includes(kind)) throw new Error(`--kinds ${kind}: expected ${KINDS.join(", ")}`);
/** How long all that follows an event may take, ms: the deadline of calls, that of the rebuild, and the start of a rank. */
const REBUILD_MS = 1.5 * deadlineMs;
const TOLD_MS = deadlineMs + 3_000;
const BACK_MS = TOLD_MS + REBUILD_MS + 20_000;
/**
 * How long a world that forms one generation after the other may take to have all ranks in one, ms. Where a rank takes longer to
 * start than its peers wait for it (their deadline, and then the rebuild's) it is ended, and another one started.
 */
const FORMING_MS = 180_000;

const draw = drawsOf(seed);

/** With a small disk of its own, for what the world writes. */
const { folder, disk, isOwn, end: removeFolder } = smallDisk(kinds.includes("disk-full") ? 4 : 0);
if (kinds.includes("disk-full") && !isOwn) {
  process.stderr.write("disk-full is left out: this user may not mount a small disk\n");
  kinds.splice(kinds.indexOf("disk-full"), 1);
}
// Before chorale is loaded: temporary files and flight dumps of the world go to the small disk.
process.env.CHORALE_FLIGHT_DIR = join(disk, "flight");
// V8 keeps up to 48 MiB for its young generation, which would hide a leak.
process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ""} --max-semi-space-size=1`;
const { launch } = await import(pathToFileURL(resolve(values.dist, "runtime/world/index.js")).href);

const records = [];
const noise = [];
const of = (kind, generation) => records.filter((one) => one.kind === kind && one.generation === generation);
const stop = new AbortController();
let ended;
/** What the world said of itself, and the number of the generation that it formed last. */
const said = [];
let youngest = 1;
const world = launch({
  ranks,
  backend: values.backend,
  module: join(here, "random-faults-rank.mjs"),
  data: { folder, seed, largestBytes: Number(values.largest), lateStarts, lateMs: deadlineMs + REBUILD_MS + 500 },
  onFailure: "respawn",
  restarts: 100_000,
  rebuildTimeoutMs: REBUILD_MS,
  graceMs: 500,
  backendOptions: { timeoutMs: deadlineMs, ...Object.fromEntries(values.option.map(optionOf)) },
  signal: stop.signal,
  onEvent: (event) => {
    said.push({ ms: Math.round(performance.now()), ...event });
    if (event.kind === "generation-started") youngest = event.generation;
  },
  onOutput: ({ rank, stream, text }) => {
    if (stream === "stdout" && text.startsWith("{")) records.push(JSON.parse(text));
    else noise.push(`[${rank}] ${text}`);
  },
}).then(
  () => (ended = "it ended"),
  (error) => (ended = `${error.name}: ${error.message}`),
);

/** Processes below this one, those that are about to be gone left out. */
function children() {
  const parents = new Map();
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
      const [, status, parent] = /\) (\S) (\d+)/.exec(stat) ?? [];
      if (status !== "Z") parents.set(Number(pid), Number(parent));
    } catch {
      // It has ended meanwhile.
    }
  }
  const isBelow = (pid) => pid !== undefined && (pid === process.pid || isBelow(parents.get(pid)));
  return [...parents.keys()].filter((pid) => pid !== process.pid && isBelow(pid));
}
const ownFiles = () =>
  ["/dev/shm", tmpdir()].flatMap((place) =>
    readdirSync(place).filter((name) => name.startsWith("chorale-") && name.split("-").includes(String(process.pid))),
  );
/** What this process holds once its garbage is collected: shared memory of ended generations is freed with it. */
async function rssNow() {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  for (let i = 0; i < 3; i++) {
    collect();
    await sleep(20);
  }
  return process.memoryUsage.rss();
}
const ownFds = () => readdirSync("/proc/self/fd").length;

/** Whether all ranks of a generation have met. */
const isWhole = (generation) => new Set(of("ready", generation).map(({ rank }) => rank)).size === ranks;

/** Breaks the world. @returns what ends it, for kinds that last */
async function breakWorld(kind, generation, victim) {
  const pid = victim.pid;
  const order = (how) => writeFileSync(join(folder, `${generation}-${victim.rank}`), how);
  switch (kind) {
    case "kill":
      process.kill(pid, "SIGKILL");
      return;
    case "stop-long":
      process.kill(pid, "SIGSTOP");
      setTimeout(() => {
        try {
          process.kill(pid, "SIGCONT");
        } catch {
          // The supervisor has ended it meanwhile.
        }
      }, deadlineMs + 1_500);
      return;
    case "stop-short": {
      const ms = 100 + draw() * 700;
      // Of threads, their whole process stops: another one lets it go on.
      const wakeUp = `sleep ${(ms / 1000).toFixed(3)}; kill -CONT ${pid}`;
      const waker = spawn("sh", ["-c", byProcess ? wakeUp : `kill -STOP ${pid}; ${wakeUp}`], { stdio: "ignore" });
      if (byProcess) process.kill(pid, "SIGSTOP");
      await new Promise((done) => waker.on("close", done));
      return;
    }
    case "disk-full":
      try {
        writeFileSync(join(disk, "filler"), Buffer.alloc(8 * 1024 * 1024));
      } catch {
        // It is full now.
      }
      await sleep(200);
      return;
    default:
      order(kind);
  }
}

/** Whether every rank of a generation still makes calls. */
async function isAlive(generation, members) {
  const ask = join(folder, `ask-${generation}`);
  const answers = () => members.map(({ rank }) => join(folder, `answer-${generation}-${rank}`));
  for (const path of answers()) rmSync(path, { force: true });
  writeFileSync(ask, "");
  const alive = await until(() => answers().every((path) => existsSync(path)), TOLD_MS);
  for (const path of [ask, ...answers()]) rmSync(path, { force: true });
  return alive;
}

const rows = [];
const problems = [];
let generation = 1;
let baseline;
let helpers;
const began = performance.now();
const isInTime = () => performance.now() - began < 1000 * Number(values.seconds);
for (let number = 0; number < events && isInTime(); number++) {
  const kind = number < kinds.length ? kinds[number] : kinds[Math.floor(draw() * kinds.length)];
  const what = `event ${number} (${kind}, generation ${generation})`;
  const isReady = () => isWhole(generation) || ended !== undefined;
  if (!(await until(isReady, 60_000)) || ended !== undefined) {
    problems.push(`${what}: the world was not there${ended === undefined ? "" : `: ${ended}`}`);
    break;
  }
  // What serves the launcher itself: the bundler, and the process that ends orphans.
  helpers ??= children().length - (byProcess ? ranks : 0);
  if (number === Math.min(10, events - 1)) baseline = { fds: ownFds(), rss: await rssNow() };
  const members = of("ready", generation);
  const victim = members[Math.floor(draw() * members.length)];
  await sleep(draw() * 250);
  const at = Date.now();
  await breakWorld(kind, generation, victim);
  if (HARMLESS.includes(kind)) {
    const alive = await isAlive(generation, members);
    if (!alive || of("told", generation).length > 0) {
      const told = of("told", generation).map(({ rank, message }) => `rank ${rank}: ${message}`);
      problems.push(`${what}: calls ended, or ranks make none any more; ${told.join("; ")}`);
    }
    rows.push({ kind });
    if (kind !== "disk-full" || !alive) continue;
    // A rank that dies while the disk is full: no dump can be written, and nothing else may suffer.
    process.kill(victim.pid, "SIGKILL");
  }
  const mustHear = members.filter(({ rank }) => rank !== victim.rank || BLOODLESS.includes(kind));
  // The rebuild may meet what is still broken: then its next one counts.
  const formed = () => {
    for (let next = generation + 1; next <= youngest; next++) if (isWhole(next)) return next;
    return undefined;
  };
  const back = () => formed() !== undefined || ended !== undefined;
  // Without descriptors a world may go on: then another fault ends the generation, in which that rank cannot connect.
  if (kind === "descriptors" && !(await until(back, deadlineMs)) && of("told", generation).length === 0) {
    const other = members.find(({ rank }) => rank !== victim.rank);
    process.kill(other.pid, "SIGKILL");
    mustHear.splice(mustHear.indexOf(other), 1);
  }
  // Whoever is stopped while it holds the lock of shared memory keeps the others from calls: then none of them is late.
  if (kind === "stop-long") {
    const isTold = () => of("told", generation).length > 0 || back();
    if (!(await until(isTold, TOLD_MS)) && (await isAlive(generation, members))) {
      rows.push({ kind });
      continue;
    }
  }
  let isBack = await until(back, BACK_MS);
  // It is no standstill while generations follow each other.
  for (let seen; !isBack && seen !== youngest && Date.now() - at < FORMING_MS; isBack = await until(back, BACK_MS))
    seen = youngest;
  if (kind === "disk-full") rmSync(join(disk, "filler"), { force: true });
  const told = new Map(of("told", generation).map((one) => [one.rank, one]));
  const toldMs = mustHear.map(({ rank }) => (told.get(rank)?.at ?? Number.NaN) - at);
  for (const { rank } of mustHear) {
    const one = told.get(rank);
    if (one === undefined) problems.push(`${what}: rank ${rank} was not told`);
    else if (one.code === undefined) problems.push(`${what}: rank ${rank} was told without a code: ${one.message}`);
    else if (one.at - at > TOLD_MS)
      problems.push(
        `${what}: rank ${rank} was told after ${one.at - at} ms (its event loop stood still for ${one.stood} ms): ${one.message}`,
      );
    if (one?.message.includes("WRONG")) problems.push(`${what}: ${one.message}`);
  }
  if (!isBack || ended !== undefined) {
    problems.push(
      `${what}: no next generation with all ranks after ${Date.now() - at} ms, ${youngest - generation} were formed${ended === undefined ? "" : `: ${ended}`}`,
    );
    noise.push(...said.slice(-20).map((event) => JSON.stringify(event)));
    break;
  }
  const next = formed();
  const rebuiltMs = Math.max(...of("ready", next).map((one) => one.at)) - at;
  rows.push({
    kind,
    toldMs: Math.max(...toldMs),
    rebuiltMs,
    code: [...new Set([...told.values()].map((o) => o.code))],
  });
  generation = next;
  const expected = helpers + (byProcess ? ranks : 0);
  if (!(await until(() => children().length <= expected, 3_000)))
    problems.push(`${what}: ${children().length} processes live, of ${expected}`);
  if (number % 25 === 24) {
    const seconds = Math.round((performance.now() - began) / 1000);
    process.stderr.write(`${number + 1} of ${events} events after ${seconds} s, ${problems.length} problems\n`);
  }
}

// Leaks: of this process, which supervised all generations, and of the ranks that lived through many.
await until(() => ownFds() <= (baseline?.fds ?? 0), 3_000);
const fds = ownFds() - (baseline?.fds ?? ownFds());
const rssMiB = ((await rssNow()) - (baseline?.rss ?? 0)) / 2 ** 20;
if (fds > 4) problems.push(`this process has ${fds} more descriptors than after the tenth event`);
if (rssMiB > 150) problems.push(`this process has ${rssMiB.toFixed(0)} MiB more memory than after the tenth event`);
const heldText = ({ rssKiB, fds, ...more }) => {
  const names = ["sharedKiB", "heapKiB", "externalKiB", "buffersKiB"];
  const parts = names.map((name) => `${name.slice(0, -3)} ${Math.round(more[name] / 1024)}`);
  return `${Math.round(rssKiB / 1024)} MiB (${parts.join(", ")}), ${fds} descriptors, ${more.threads} threads`;
};
const lives = new Map();
for (const one of records.filter(({ kind }) => kind === "ready")) {
  const key = `${one.pid} ${byProcess ? "" : one.rank} ${one.born}`;
  lives.set(key, [...(lives.get(key) ?? []), one]);
}
let longest = 0;
for (const life of byProcess ? lives.values() : []) {
  longest = Math.max(longest, life.length);
  const [early, late] = [life[Math.min(2, life.length - 1)], life.at(-1)];
  // A thread that starts or ends has descriptors of its own, and files of its modules open.
  if (
    late.fds - early.fds > 4 &&
    late.threads <= early.threads &&
    !records.some(({ kind, rank, generation: g }) => kind === "exhausted" && rank === late.rank && g <= late.generation)
  )
    problems.push(`rank ${late.rank}, ${life.length} generations: ${early.fds} descriptors, then ${late.fds}`);
  if (values.gauges)
    for (const one of life) process.stderr.write(`rank ${one.rank} ${one.generation} ${heldText(one)}\n`);
  if (life.length > 10 && late.rssKiB - early.rssKiB > 1024 * (30 + life.length / 2))
    problems.push(`rank ${late.rank}, ${life.length} generations: ${heldText(early)}, then ${heldText(late)}`);
}
stop.abort("the campaign is over");
await world;
if (!(await until(() => children().length <= (helpers ?? 0), 5_000)))
  problems.push(`left running: ${children().join(", ")}, of which ${helpers} serve the launcher`);
// The bundled modules go with this process.
const files = () => ownFiles().filter((name) => !name.startsWith("chorale-modules-"));
if (!(await until(() => files().length === 0, 3_000))) problems.push(`left behind: ${files().join(", ")}`);
removeFolder();

const at = (list, q) => list.sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))];
const table = kinds.map((kind) => {
  const mine = rows.filter((row) => row.kind === kind);
  const told = mine.flatMap(({ toldMs }) => (toldMs === undefined ? [] : [toldMs]));
  const rebuilt = mine.flatMap(({ rebuiltMs }) => (rebuiltMs === undefined ? [] : [rebuiltMs]));
  const codes = [...new Set(mine.flatMap(({ code = [] }) => code))].sort().join(" ");
  return {
    kind,
    events: HARMLESS.includes(kind) ? mine.filter(({ toldMs }) => toldMs === undefined).length : mine.length,
    toldMedianMs: at(told, 0.5),
    toldMaxMs: at(told, 1),
    rebuiltMedianMs: at(rebuilt, 0.5),
    rebuiltMaxMs: at(rebuilt, 1),
    codes,
  };
});
const report = {
  backend: values.backend,
  seed,
  events: rows.length,
  generations: generation,
  lateStarts,
  longestLife: longest,
  load: loadavg()[0],
  leaks: { fds, rssMiB: Math.round(rssMiB) },
  table,
  problems,
};
if (values.json) console.log(JSON.stringify(report));
else {
  console.log(
    `${values.backend}, ${ranks} ranks, ${rows.length} events, ${generation} generations, load ${report.load}`,
  );
  console.table(table);
  console.log(`descriptors ${fds >= 0 ? "+" : ""}${fds}, memory ${rssMiB.toFixed(0)} MiB after the tenth event`);
  for (const problem of problems) console.log(`PROBLEM ${problem}`);
  if (problems.length > 0)
    console.log([...noise.slice(-30), ...records.slice(-12).map((one) => JSON.stringify(one))].join("\n"));
}
process.exitCode = problems.length === 0 ? 0 : 1;
