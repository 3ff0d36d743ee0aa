/**
 * The campaign of worlds over several hosts: hosts are network namespaces of this machine, whose packets pass through this
 * program (tun-hosts.mjs), or a bridge (`--net bridge`). In each round a world of `--hosts` times `--ranks` runs random
 * collectives, something breaks at a random moment, and every survivor must be told within the deadline, the launchers must
 * end, nothing may be left running, and with shrink the survivors must go on with right results. Needs root on Linux and
 * `npm run build`:
 *   node test/campaigns/hosts.mjs [--rounds 20] [--hosts 2] [--ranks 2] [--seed 1] [--kinds KIND,KIND] [--host-timeout 2]
 *                                 [--net tun|bridge] [--main dist/apps/cli/main.js] [--json]
 * KINDS: kill-rank, kill-launcher, kill-first (the launcher with the rendezvous), cut-link, partition, stop-launcher, vanish
 * and vanish-first (a host whose processes end while its link is cut: nobody hears of it). Without a bridge also delay (200 ms
 * each way for 3 s), loss (5 % for 3 s), and stop-short (a rank, 0.2 to 1.2 s): these must end no call, and a rank is killed
 * after them.
 * Exits 1 when something was wrong, 3 where namespaces are not permitted.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { drawsOf, sleep, until } from "./draws-and-waits.mjs";
import { makeHosts, pidsIn } from "./host-namespaces.mjs";
import { makeTunHosts } from "./tun-hosts.mjs";

const here = dirname(fileURLToPath(import.meta.url));
/** Things get slow, and nothing may end. */
const HARMLESS = ["delay", "loss", "stop-short"];
const LOSSES = ["kill-rank", "kill-launcher", "kill-first", "cut-link", "partition", "stop-launcher"];
const KINDS = [...LOSSES, "vanish", "vanish-first", ...HARMLESS];
const SLOW_MS = 3_000;
/** What the ranks of host 0 are told of a launcher that was silent. */
const SILENCE = {
  "cut-link": /does not answer/,
  partition: /does not answer/,
  vanish: /does not answer/,
  "stop-launcher": /though its host answers/,
};
const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "20" },
    hosts: { type: "string", default: "2" },
    ranks: { type: "string", default: "2" },
    seed: { type: "string", default: "1" },
    kinds: { type: "string", default: KINDS.join(",") },
    net: { type: "string", default: "tun" },
    "host-timeout": { type: "string", default: "2" },
    main: { type: "string", default: join(here, "../../dist/apps/cli/main.js") },
    json: { type: "boolean", default: false },
  },
});
const [rounds, numHosts, numRanks, seed] = [values.rounds, values.hosts, values.ranks, values.seed].map(Number);
const hostTimeoutMs = Number(values["host-timeout"]) * 1000;
const kinds = values.kinds.split(",");
for (const kind of kinds) if (!KINDS.includes(kind)) throw new Error(`--kinds ${kind}: expected ${KINDS.join(", ")}`);
/** Detection by the heartbeat, its period, and what a loaded machine adds; the end adds the grace of survivors. */
const TOLD_MS = hostTimeoutMs + 3_000;
const ENDED_MS = TOLD_MS + 12_000;

const { hosts, setLink, setShape, endAll, remove } =
  values.net === "tun" ? makeTunHosts(numHosts) : makeHosts(numHosts);

const draw = drawsOf(seed);

const program = `import { main } from ${JSON.stringify(pathToFileURL(resolve(values.main)).href)}; process.exitCode = await main(process.argv.slice(1));`;

function startWorld(mode, callSeed) {
  const env = { ...process.env, CHORALE_SECRET: randomBytes(32).toString("hex") };
  return hosts.map(({ ns, address }, node) => {
    const words = [
      "launch",
      "-n",
      String(numRanks),
      "--backend",
      "tcp",
      "--nnodes",
      String(numHosts),
      "--node-rank",
      String(node),
    ];
    words.push("--rdzv", `${hosts[0].address}:29517`, "--host-timeout", values["host-timeout"]);
    if (mode === "shrink") words.push("--on-failure", "shrink", "--restarts", "3", "--rebuild-timeout", "10");
    words.push(join(here, "hosts-rank.mjs"), "--", String(callSeed), "20", mode);
    const child = spawn(
      "ip",
      ["netns", "exec", ns, process.execPath, "--input-type=module", "-e", program, "--", ...words],
      {
        env,
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    const launcher = { node, address, child, said: [], text: "", exit: undefined };
    let rest = "";
    child.stdout.setEncoding("utf8").on("data", (chunk) => {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        try {
          launcher.said.push({ ...JSON.parse(line.replace(/^\[-?\d+\] /, "")), node });
        } catch {
          launcher.text += `${line}\n`;
        }
      }
    });
    child.stderr.setEncoding("utf8").on("data", (chunk) => (launcher.text += chunk));
    child.on("close", (code, signal) => (launcher.exit = { code, signal, at: Date.now() }));
    return launcher;
  });
}

/** Breaks something. @returns which hosts are dead or cut off from the first, whose own ranks count apart */
function breakWorld(kind, launchers, ready) {
  const victim = 1 + Math.floor(draw() * (numHosts - 1));
  switch (kind) {
    case "kill-rank": {
      const one = ready[Math.floor(draw() * ready.length)];
      process.kill(one.pid, "SIGKILL");
      return { silent: new Set([one.rank]), mend: () => {}, lostHosts: [] };
    }
    case "kill-launcher":
    case "kill-first": {
      const node = kind === "kill-first" ? 0 : victim;
      launchers[node].child.kill("SIGKILL");
      return { silent: ranksOf(node), mend: () => {}, lostHosts: [node] };
    }
    case "vanish":
    case "vanish-first": {
      const node = kind === "vanish-first" ? 0 : victim;
      setLink(node, "down");
      endAll(hosts[node]);
      return { silent: ranksOf(node), mend: () => setLink(node, "up"), lostHosts: [node], isCut: true, isDead: true };
    }
    case "cut-link":
      setLink(victim, "down");
      return { silent: new Set(), mend: () => setLink(victim, "up"), lostHosts: [victim], isCut: true };
    case "partition": {
      const far = hosts.map((_, node) => node).slice(Math.ceil(numHosts / 2));
      for (const node of far) setLink(node, "down");
      return { silent: new Set(), mend: () => far.map((node) => setLink(node, "up")), lostHosts: far, isCut: true };
    }
    default:
      launchers[victim].child.kill("SIGSTOP");
      return {
        silent: new Set(),
        mend: () => launchers[victim].child.kill("SIGCONT"),
        lostHosts: [victim],
        isCut: true,
      };
  }
}

/** Makes the world slow for a while. @returns what went wrong */
async function slowDown(kind, all, ready) {
  const node = Math.floor(draw() * numHosts);
  if (kind === "stop-short") {
    const { pid } = ready[Math.floor(draw() * ready.length)];
    process.kill(pid, "SIGSTOP");
    await sleep(200 + draw() * 1_000);
    process.kill(pid, "SIGCONT");
  } else {
    setShape(node, kind === "delay" ? { delayMs: 200 } : { loss: 0.05 });
    await sleep(SLOW_MS);
    setShape(node);
  }
  const since = Date.now();
  const isAlive = () =>
    new Set(all("step").flatMap(({ at, rank }) => (at > since ? [rank] : []))).size === ready.length;
  await until(() => isAlive() || all("told").length > 0, 5_000);
  const told = all("told").map(({ rank, message }) => `rank ${rank} was told while nothing was lost: ${message}`);
  return isAlive() || told.length > 0 ? told : ["the ranks make no calls any more"];
}

const ranksOf = (node) => new Set(Array.from({ length: numRanks }, (_, i) => node * numRanks + i));

async function round(number) {
  const named = kinds[number % kinds.length];
  const kind = HARMLESS.includes(named) ? "kill-rank" : named;
  const mode = !kind.endsWith("-first") && draw() < 0.5 ? "shrink" : "end";
  const faults = [];
  const began = Date.now();
  const launchers = startWorld(mode, Math.floor(draw() * 1e6));
  const all = (what) => launchers.flatMap(({ said }) => said.filter((one) => one.kind === what));
  const isReady = () => all("ready").filter(({ generation }) => generation === 1).length === numHosts * numRanks;
  if (!(await until(isReady, 60_000))) faults.push("the world did not form within 60 s");
  const formMs = Date.now() - began;
  let detectMs;
  let endMs;
  let rebuildMs;
  if (faults.length === 0) {
    await sleep(draw() * 400);
    if (named !== kind) faults.push(...(await slowDown(named, all, all("ready"))));
    const at = Date.now();
    const { silent, mend, lostHosts, isCut, isDead } = breakWorld(kind, launchers, all("ready"));
    const expected = Array.from({ length: numHosts * numRanks }, (_, rank) => rank).filter((rank) => !silent.has(rank));
    const told = () => new Map(all("told").map((one) => [`${one.node} ${one.rank}`, one]));
    const first = () =>
      new Map(
        all("told")
          .map((one) => [one.rank, one])
          .reverse(),
      );
    await until(() => first().size >= expected.length, TOLD_MS);
    const heard = first();
    for (const rank of expected) {
      // A stopped launcher cannot print what its ranks say before it goes on.
      const isMute = kind === "stop-launcher" && ranksOf(lostHosts[0]).has(rank);
      if (!heard.has(rank) && !isMute) faults.push(`rank ${rank} was not told within ${TOLD_MS} ms`);
    }
    for (const { rank, code, message } of told().values()) {
      if (code !== "RANK_FAILED") faults.push(`rank ${rank} was told ${code}: ${message}`);
    }
    const why = SILENCE[kind];
    const atFirst = [...told().values()].filter(({ node }) => node === 0);
    if (why !== undefined && !atFirst.some(({ message }) => why.test(message)))
      faults.push(`nobody was told that the host ${why.source}: ${atFirst[0]?.message}`);
    detectMs = Math.max(0, ...[...heard.values()].map((one) => one.at - at));
    if (kind === "stop-launcher") mend();
    if (!(await until(() => launchers.every(({ exit }) => exit !== undefined), ENDED_MS))) {
      const left = launchers.filter(({ exit }) => exit === undefined).map(({ node }) => node);
      faults.push(`the launchers of hosts ${left} did not end within ${ENDED_MS} ms`);
    }
    endMs = Math.max(...launchers.map(({ exit }) => (exit?.at ?? Date.now()) - at));
    if (isCut && kind !== "stop-launcher") mend();
    const numLost = kind === "kill-rank" ? 1 : lostHosts.length * numRanks;
    const finished = all("finished");
    if (mode === "shrink") {
      const size = numHosts * numRanks - numLost;
      if (finished.length !== size || finished.some((one) => one.size !== size || one.generation < 2)) {
        faults.push(`${finished.length} ranks finished after the rebuild, not ${size}`);
      }
      rebuildMs = Math.max(...all("ready").flatMap((one) => (one.generation > 1 ? [one.at - at] : [])));
    }
    for (const { node, exit } of launchers) {
      const isKilled = (kind.startsWith("kill-") && kind !== "kill-rank") || isDead === true;
      const wanted =
        isKilled && lostHosts.includes(node) ? null : mode === "shrink" && !lostHosts.includes(node) ? 0 : 1;
      if (exit !== undefined && exit.code !== wanted)
        faults.push(`the launcher of host ${node} ended with ${exit.code}, not ${wanted}`);
    }
    for (const one of told().values()) if (one.message?.includes("WRONG")) faults.push(one.message);
  }
  const orphans = () => hosts.flatMap(pidsIn);
  if (!(await until(() => orphans().length === 0, 5_000))) faults.push(`left running: ${orphans().length} processes`);
  if (faults.length > 0) for (const { text } of launchers) process.stderr.write(text.slice(-1500));
  for (const { child } of launchers) child.kill("SIGKILL");
  return { number, kind: named, mode, formMs, detectMs, endMs, rebuildMs, faults };
}

const results = [];
try {
  for (let number = 0; number < rounds; number++) {
    const result = await round(number);
    results.push(result);
    const { kind, mode, formMs, detectMs, endMs, faults } = result;
    process.stderr.write(
      `${number + 1}/${rounds} ${kind} ${mode}: formed ${formMs} ms, told ${detectMs} ms, ended ${endMs} ms${faults.map((fault) => `\n  FAULT ${fault}`).join("")}\n`,
    );
    hosts.forEach((host, node) => {
      endAll(host);
      setLink(node, "up");
    });
  }
} finally {
  remove();
}
const table = kinds.map((kind) => {
  const mine = results.filter((one) => one.kind === kind);
  const sorted = (key) =>
    mine
      .map((one) => one[key])
      .filter((ms) => ms !== undefined)
      .sort((a, b) => a - b);
  const [detect, end, rebuild] = ["detectMs", "endMs", "rebuildMs"].map(sorted);
  const at = (list, q) => list[Math.min(list.length - 1, Math.floor(q * list.length))];
  return {
    kind,
    rounds: mine.length,
    toldMedianMs: at(detect, 0.5),
    toldMaxMs: at(detect, 1),
    rebuiltMaxMs: at(rebuild, 1),
    endedMaxMs: at(end, 1),
    faults: mine.flatMap((one) => one.faults).length,
  };
});
if (values.json)
  console.log(
    JSON.stringify({ seed, hosts: numHosts, ranks: numRanks, table, faults: results.flatMap(({ faults }) => faults) }),
  );
else console.table(table);
process.exitCode = results.some(({ faults }) => faults.length > 0) ? 1 : 0;
