/**
 * Attacks on chorale's listening sockets by somebody who does not know the secret: malformed frames by the hundred thousand,
 * silent connections by the thousand, senders of one byte at a time, and handshakes that are replayed, cut short or out of
 * order. Each victim is a process of its own, which goes on with its own work meanwhile: its memory and its descriptors must
 * stay bounded, and its work must end right. Needs `npm run build` and Linux:
 *   node test/campaigns/attacks.mjs [--frames 100000] [--silent 1000] [--victims store,door,launcher] [--tls] [--dist dist] [--json]
 *
 * With --tls the victims use TLS. Half of the attackers have no certificate: they send the same bytes in the clear, and changed
 * handshakes of TLS. The others have one of the right authority, so that all they lack is the secret: they send theirs encrypted.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { loadavg, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { connect as connectTls, createSecureContext } from "node:tls";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { transform } from "esbuild";
import { freePort } from "../support/free-port.mjs";
import { sleep } from "./draws-and-waits.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const VICTIMS = ["store", "door", "launcher"];
const { values } = parseArgs({
  options: {
    frames: { type: "string", default: "100000" },
    silent: { type: "string", default: "1000" },
    victims: { type: "string", default: VICTIMS.join(",") },
    tls: { type: "boolean", default: false },
    dist: { type: "string", default: join(here, "../../dist") },
    json: { type: "boolean", default: false },
  },
});
const [numFrames, numSilent] = [values.frames, values.silent].map(Number);
/** What a victim may take more while it is attacked, MiB: connections that are not known yet, and V8's own slack. */
const MAX_GROWTH_MIB = 150;
/** Attackers at a time; each connection comes from one of several addresses, for ports are few. */
const AT_ONCE = 64;
const ADDRESSES = 16;
const FRAMES_A_CONNECTION = 4;
/** What 1,000 silent connections may take of descriptors: 256 that lack the secret, and with TLS 256 that have shown no certificate. */
const maxDescriptors = () => (tls === undefined ? 300 : 2 * 256 + 50);
/** What may be left of them a moment after the attack. */
const MAX_LEFT = 20;

const secret = randomBytes(32).toString("hex");
const rendezvous = JSON.stringify(join(resolve(values.dist), "runtime/rendezvous/index.js"));
const world = JSON.stringify(join(resolve(values.dist), "runtime/world/index.js"));

/** The files of a victim with TLS, as its environment names them, and what an attacker shows. */
async function makeTls() {
  const source = readFileSync(join(here, "../support/certificates.ts"), "utf8");
  const { code } = await transform(source, { loader: "ts", format: "esm" });
  const { Authority, writeTls } = await import(`data:text/javascript,${encodeURIComponent(code)}`);
  const authority = new Authority();
  const folder = mkdtempSync(join(tmpdir(), "chorale-attacks-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  const { ca, cert, key } = writeTls(folder, authority);
  const identity = { ca: authority.cert, ...authority.issue("attacker") };
  // One for all attackers: to make it takes longer than a handshake.
  const secureContext = createSecureContext(identity);
  return { env: { CHORALE_TLS_CA: ca, CHORALE_TLS_CERT: cert, CHORALE_TLS_KEY: key }, identity, secureContext };
}
const tls = values.tls ? await makeTls() : undefined;

/** Each says `{ port }`, works on, and says `{ ok, ... }` when its standard input ends. */
const PROGRAMS = {
  // A member that sets and gets all the time.
  store: () => `
    const { RendezvousStore, TcpBootstrap, tlsFromEnvironment } = await import(${rendezvous});
    const tls = tlsFromEnvironment(process.env);
    const claims = (rank) => ({ rank, worldSize: 2, generation: 1, version: "v", engine: "e", host: "h", pid: 1 });
    const secret = process.env.CHORALE_SECRET;
    const store = await RendezvousStore.open({ secret, claims: claims(0), tls });
    const { port } = store;
    const a = await TcpBootstrap.join({ secret, claims: claims(0), host: "127.0.0.1", port, tls });
    console.log(JSON.stringify({ port }));
    let turns = 0, slowestMs = 0, failed;
    a.onFailure((cause) => (failed = cause.message));
    process.stdin.resume().on("end", () => (over = true));
    let over = false;
    while (!over) {
      const began = performance.now();
      await a.set("k" + (turns % 7), Buffer.from(String(turns)));
      const got = Buffer.from(await a.get("k" + (turns % 7))).toString();
      if (got !== String(turns)) failed = "a wrong value";
      slowestMs = Math.max(slowestMs, performance.now() - began);
      turns++;
      await new Promise((done) => setTimeout(done, 5));
    }
    const b = await TcpBootstrap.join({ secret, claims: claims(1), host: "127.0.0.1", port, timeoutMs: 20_000, tls });
    const joined = store.numJoined;
    console.log(JSON.stringify({ ok: failed === undefined && joined === 2, failed, turns, slowestMs: Math.round(slowestMs) }));
    process.exit(0);`,
  // A rank's door: ranks knock all the time.
  door: () => `
    const { PeerDoor, knock, tlsFromEnvironment } = await import(${rendezvous});
    const tls = tlsFromEnvironment(process.env);
    const secret = process.env.CHORALE_SECRET;
    let welcomed = 0;
    const door = await PeerDoor.open({ secret, tls, host: "127.0.0.1", refuse: () => undefined, welcome: (_, { socket }) => { welcomed++; socket.destroy(); } });
    const { port } = door;
    console.log(JSON.stringify({ port }));
    let turns = 0, crowdedOut = 0, slowestMs = 0, over = false;
    process.stdin.resume().on("end", () => (over = true));
    const one = { from: 1, to: 0, index: 0, worldSize: 2, generation: 1, version: "v" };
    const knockOnce = async (timeoutMs) => {
      const began = performance.now();
      const { socket } = await knock({ host: "127.0.0.1", port }, one, { secret, timeoutMs, tls });
      slowestMs = Math.max(slowestMs, performance.now() - began);
      socket.destroy();
    };
    while (!over) {
      turns++;
      await knockOnce(10_000).catch(() => crowdedOut++);
      await new Promise((done) => setTimeout(done, 20));
    }
    await knockOnce(20_000);
    console.log(JSON.stringify({ ok: crowdedOut < turns / 2, turns, crowdedOut, welcomed, slowestMs: Math.round(slowestMs) }));
    process.exit(0);`,
  // The launcher of host 0, which waits for host 1: that comes when the attack is over.
  launcher: (port) => `
    const { launch } = await import(${world});
    const nodes = { count: 2, rendezvous: "127.0.0.1:${port}", joinTimeoutMs: 600_000 };
    const run = async (world) => {
      const x = world.tensor("f32", [1000]);
      x.data.fill(world.rank + 1);
      await world.comm.allReduce(x);
      return x.data[999];
    };
    const first = launch({ ranks: 1, backend: "tcp", run, nodes: { ...nodes, rank: 0 } });
    first.catch(() => {});
    console.log(JSON.stringify({ port: ${port} }));
    await new Promise((done) => process.stdin.resume().on("end", done));
    const began = performance.now();
    const [sums] = await Promise.all([first, launch({ ranks: 1, backend: "tcp", run, nodes: { ...nodes, rank: 1 } })]);
    console.log(JSON.stringify({ ok: JSON.stringify(sums) === "[3,3]", sums, formedMs: Math.round(performance.now() - began) }));
    process.exit(0);`,
};

async function startVictim(name) {
  const program = PROGRAMS[name](await freePort());
  const env = { ...process.env, CHORALE_SECRET: secret, ...tls?.env };
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    env,
    stdio: ["pipe", "pipe", "pipe"],
  });
  const said = [];
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (chunk) => {
    for (const line of chunk.split("\n").filter((one) => one.startsWith("{"))) said.push(JSON.parse(line));
  });
  child.stderr.setEncoding("utf8").on("data", (chunk) => (text += chunk));
  const closed = once(child, "close");
  while (said.length === 0 && child.exitCode === null) await sleep(20);
  if (said.length === 0) throw new Error(`the victim ${name} did not start: ${text}`);
  const { port } = said[0];
  // The launcher listens a moment later.
  for (let isOpen = false; !isOpen; )
    isOpen = await openSocket(port).then(
      (socket) => socket.destroy(),
      () => sleep(50),
    );
  const gauges = () => {
    try {
      const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
      const rssMiB = Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0) / 1024;
      return { rssMiB, fds: readdirSync(`/proc/${child.pid}/fd`).length };
    } catch (cause) {
      const how = `code ${child.exitCode}, signal ${child.signalCode}`;
      throw new Error(`the victim ${name} has ended (${how}): ${text.slice(-2000)}`, { cause });
    }
  };
  const finish = async () => {
    child.stdin.end();
    const timer = setTimeout(() => child.kill("SIGKILL"), 60_000);
    await closed;
    clearTimeout(timer);
    return { ...(said.find(({ ok }) => ok !== undefined) ?? { ok: false, why: text.slice(-800) }), told: text.length };
  };
  return { port, gauges, finish, leaks: () => (text.includes(secret) ? ["its messages hold the secret"] : []) };
}

let next = 0;
/** A connection from one of several addresses. */
async function openSocket(port) {
  const localAddress = `127.0.1.${1 + (next++ % ADDRESSES)}`;
  const socket = connect({ port, host: "127.0.0.1", localAddress });
  await once(socket, "connect");
  socket.on("error", () => {});
  socket.resume();
  return socket;
}

/** A connection of somebody with a certificate. */
async function openSecure(port) {
  const { secureContext } = tls;
  const socket = connectTls({ secureContext, socket: await openSocket(port), checkServerIdentity: () => undefined });
  socket.on("error", () => {});
  socket.resume();
  const isReady = new Promise((resolve) => socket.once("secureConnect", resolve).once("close", resolve));
  await Promise.race([isReady, sleep(5_000)]);
  return socket;
}

/** The first bytes of a client that speaks TLS. */
async function clientHello() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connectTls({ port: server.address().port, host: "127.0.0.1", ...tls.identity });
  client.on("error", () => {});
  const [socket] = await once(server, "connection");
  const [hello] = await once(socket, "data");
  socket.destroy();
  server.close();
  return hello;
}
const hello = tls === undefined ? undefined : await clientHello();

const framed = (text, length = text.length) => {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(length >>> 0);
  return Buffer.concat([head, Buffer.from(text)]);
};
const hex = (bytes) => randomBytes(bytes).toString("hex");

/** What is sent as frames that are none. */
const MALFORMED = [
  () => randomBytes(1 + Math.floor(Math.random() * 300)),
  () => framed("", 0),
  () => framed("x", 0xffffffff),
  () => framed("x".repeat(100), 4097),
  () => framed("{}"),
  () => framed("[1,2,3]"),
  () => framed("null"),
  () => framed(randomBytes(64)),
  () => framed(`${"[".repeat(2000)}`),
  () => framed(JSON.stringify({ kind: "join", nonce: hex(32), claims: "{}", proof: hex(32) })),
  () => framed(JSON.stringify({ kind: "knock", nonce: hex(32), introduction: "{}", proof: hex(32) })),
  () => framed(JSON.stringify({ kind: "knock", nonce: "z", introduction: {}, proof: 1 })),
  () => framed(JSON.stringify({ kind: "__proto__", constructor: 1, nonce: hex(32) })),
  () => framed(JSON.stringify({ kind: "hello", protocol: 1, nonce: hex(32) })),
  () => framed(JSON.stringify({ kind: "answer", answer: "{}", proof: hex(32) })),
  () => Buffer.from("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
];
/** The same, as handshakes and records of TLS. */
const MALFORMED_TLS = [
  () => {
    const bytes = Buffer.from(hello);
    for (let i = 0; i < 3; i++) bytes[Math.floor(Math.random() * bytes.length)] ^= 1 + Math.floor(Math.random() * 255);
    return bytes;
  },
  () => hello.subarray(0, 1 + Math.floor(Math.random() * hello.length)),
  () => Buffer.concat([hello, randomBytes(200)]),
  () => Buffer.concat([hello, hello]),
  () => Buffer.concat([Buffer.from([0x16, 3, 1, 0xff, 0xff]), randomBytes(1000)]),
  () => Buffer.concat([Buffer.from([0x17, 3, 3, 0, 100]), randomBytes(100)]),
  () => Buffer.from([0x15, 3, 3, 0, 2, 2, 40]),
];

/** When the memory is noted, as parts of all frames: it must not grow with their number. */
const MARKS = [0.05, 0.25, 1];

async function sendMalformed(port, count, reached) {
  let sent = 0;
  const marks = MARKS.map((part) => Math.round(part * count));
  const worker = async () => {
    while (sent < count) {
      const many = Math.min(FRAMES_A_CONNECTION, count - sent);
      sent += many;
      while (sent >= marks[0]) reached(marks.shift());
      const isSecure = tls !== undefined && sent % 2 === 0;
      const socket = await (isSecure ? openSecure : openSocket)(port).catch(() => undefined);
      if (socket === undefined) {
        sent -= many;
        await sleep(5);
        continue;
      }
      const kinds = tls === undefined || isSecure ? MALFORMED : [...MALFORMED, ...MALFORMED_TLS];
      const bytes = Array.from({ length: many }, () => kinds[Math.floor(Math.random() * kinds.length)]());
      socket.end(Buffer.concat(bytes));
      // Half a frame may leave the other side waiting for the rest.
      await Promise.race([new Promise((resolve) => socket.once("close", resolve)), sleep(200)]);
      socket.destroy();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

async function sendSlowly(port) {
  const text = framed(JSON.stringify({ kind: "knock", nonce: hex(32), introduction: "{}", proof: hex(32) }));
  const many = (open, bytes) => Array.from({ length: 50 }, async () => ({ socket: await open(port), bytes }));
  const both = tls === undefined ? many(openSocket, text) : [...many(openSocket, hello), ...many(openSecure, text)];
  const senders = await Promise.all(both);
  const sockets = senders.map(({ socket }) => socket);
  for (let i = 0; i < 60; i++) {
    for (const { socket, bytes } of senders) if (!socket.destroyed) socket.write(bytes.subarray(i, i + 1));
    await sleep(20);
  }
  for (const socket of sockets) socket.destroy();
}

async function beSilent(port, count, gauges) {
  const sockets = [];
  for (let i = 0; i < count; i += 50) {
    const open = tls !== undefined && i % 100 === 0 ? openSecure : openSocket;
    sockets.push(...(await Promise.all(Array.from({ length: Math.min(50, count - i) }, () => open(port)))));
  }
  await sleep(500);
  const during = gauges();
  const left = sockets.filter(({ destroyed }) => !destroyed).length;
  for (const socket of sockets) socket.destroy();
  return { ...during, left };
}

/** Records a whole handshake of somebody who knows the secret, and plays it again in every wrong way. @returns how many got in */
async function replay(port, dist) {
  const { knock, TcpBootstrap } = await import(join(resolve(dist), "runtime/rendezvous/index.js"));
  const recorded = [];
  const proxy = createServer((socket) => {
    const onward = connect({ port, host: "127.0.0.1" });
    socket.on("data", (chunk) => {
      recorded.push(chunk);
      onward.write(chunk);
    });
    onward.on("data", (chunk) => socket.write(chunk));
    for (const [one, other] of [
      [socket, onward],
      [onward, socket],
    ])
      one.on("error", () => {}).on("close", () => other.destroy());
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const to = { host: "127.0.0.1", port: proxy.address().port };
  // Of another world's size: let in by nobody, but its handshake is whole.
  const claims = { rank: 1, worldSize: 3, generation: 1, version: "v", engine: "e", host: "h", pid: 1 };
  const introduction = { from: 1, to: 0, index: 0, worldSize: 9, generation: 1, version: "other" };
  const own = tls?.identity;
  await knock(to, introduction, { secret, timeoutMs: 2_000, tls: own }).then(
    ({ socket }) => socket.destroy(),
    () => {},
  );
  await TcpBootstrap.join({ secret, claims, ...to, timeoutMs: 2_000, tls: own }).then(
    (one) => one.close(),
    () => {},
  );
  proxy.close();
  const whole = Buffer.concat(recorded);
  const variants = [whole, Buffer.concat([whole, whole]), Buffer.concat([...recorded].reverse())];
  for (let cut = 1; cut < whole.length; cut += 37) variants.push(whole.subarray(0, cut), whole.subarray(cut));
  for (let at = 0; at < whole.length; at += 23) {
    const changed = Buffer.from(whole);
    changed[at] ^= 1;
    variants.push(changed);
  }
  let answers = 0;
  for (const bytes of variants) {
    const socket = await openSocket(port);
    let heard = "";
    socket.on("data", (chunk) => (heard += chunk.toString("latin1")));
    socket.end(bytes);
    await Promise.race([once(socket, "close"), sleep(100)]);
    socket.destroy();
    if (heard.includes('"answer"')) answers++;
  }
  return { variants: variants.length, answers, recordedBytes: whole.length };
}

const results = [];
const problems = [];
for (const name of values.victims.split(",")) {
  const victim = await startVictim(name);
  const before = victim.gauges();
  let peakMiB = before.rssMiB;
  const watch = setInterval(() => (peakMiB = Math.max(peakMiB, victim.gauges().rssMiB)), 100);
  const began = performance.now();
  const rssAt = [];
  const note = (frames) => rssAt.push(`${frames}: ${victim.gauges().rssMiB.toFixed(0)}`);
  await sendMalformed(victim.port, numFrames, note);
  const framesMs = Math.round(performance.now() - began);
  const silent = await beSilent(victim.port, numSilent, victim.gauges);
  await sendSlowly(victim.port);
  const replayed = await replay(victim.port, values.dist);
  await sleep(300);
  const after = victim.gauges();
  clearInterval(watch);
  const ended = await victim.finish();
  const row = {
    victim: tls === undefined ? name : `${name} over TLS`,
    frames: numFrames,
    framesMs,
    rssMiB: `${before.rssMiB.toFixed(0)} -> ${peakMiB.toFixed(0)} -> ${after.rssMiB.toFixed(0)}`,
    rssMiBAfterFrames: rssAt.join(", "),
    fds: `${before.fds} -> ${silent.fds} -> ${after.fds}`,
    silentLeft: silent.left,
    replayed: `${replayed.answers} answered of ${replayed.variants}`,
    ended: JSON.stringify(ended),
  };
  results.push(row);
  const problem = (text) => problems.push(`${name}: ${text}`);
  if (!ended.ok) problem(`its own work failed: ${JSON.stringify(ended)}`);
  if (peakMiB - before.rssMiB > MAX_GROWTH_MIB) problem(`its memory grew to ${peakMiB.toFixed(0)} MiB`);
  if (silent.fds - before.fds > maxDescriptors())
    problem(`${silent.fds} descriptors with ${numSilent} silent connections`);
  if (after.fds - before.fds > MAX_LEFT) problem(`${after.fds} descriptors afterwards, ${before.fds} before`);
  if (replayed.answers > 0) problem(`${replayed.answers} replayed handshakes were answered`);
  if (replayed.recordedBytes < 100) problem("no handshake was recorded");
  for (const text of victim.leaks()) problem(text);
}
const load = loadavg()[0];
if (values.json) console.log(JSON.stringify({ load, results, problems }));
else {
  console.log(`load ${load}`);
  for (const row of results) console.log(row);
  for (const problem of problems) console.log(`PROBLEM ${problem}`);
}
process.exitCode = problems.length === 0 ? 0 : 1;
