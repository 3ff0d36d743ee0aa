/** What each rank of random-faults.mjs does: seeded random collectives with checked results, until it is told to break. */
import { closeSync, existsSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { manyDrawsOf, say, sleep } from "./draws-and-waits.mjs";

const never = () => sleep(600_000);

function check(data, expected, what) {
  const at = data.findIndex((value, i) => value !== expected(i));
  if (at >= 0) throw new Error(`WRONG: ${what}: element ${at} is ${data[at]}, not ${expected(at)}`);
}

/** Makes one call that all ranks draw alike. @returns its end, with the results checked */
async function callOnce(world, draw, largestBytes) {
  const { comm, rank, size } = world;
  const count = 1 + Math.floor(2 ** (draw() * Math.log2(largestBytes / 4)));
  const kind = Math.floor(draw() * 7);
  const root = Math.floor(draw() * size);
  const total = (size * (size + 1)) / 2;
  const x = world.tensor("i32", [count]);
  x.data.fill(rank + 1);
  if (kind === 0) check((await comm.allReduce(x)).data, () => total, `all_reduce of ${count}`);
  else if (kind === 1) check((await comm.broadcast(x, { root })).data, () => root + 1, `broadcast of ${count}`);
  else if (kind === 2) {
    await comm.reduce(x, { root });
    if (rank === root) check(x.data, () => total, `reduce of ${count}`);
  } else if (kind === 3) {
    const all = await comm.allGather(x);
    check(all.data, (i) => Math.floor(i / count) + 1, `all_gather of ${count}`);
  } else if (kind === 4) {
    const many = world.tensor("i32", [count * size]);
    for (let i = 0; i < many.data.length; i++) many.data[i] = rank + 1 + Math.floor(i / count);
    check((await comm.reduceScatter(many)).data, () => total + size * rank, `reduce_scatter of ${count}`);
  } else if (kind === 5) {
    const got = world.tensor("i32", [count]);
    const sending = comm.send(x, (rank + 1) % size);
    const previous = (rank + size - 1) % size;
    check((await comm.recv(got, previous)).data, () => previous + 1, `recv of ${count}`);
    await sending;
  } else await comm.barrier();
}

/** Descriptors that a fault has used up, until the next generation. */
const taken = [];

/** How a rank breaks itself; those that return go on. */
const BREAKS = {
  throw: () => {
    throw new Error("this rank breaks");
  },
  exit: () => process.exit(3),
  "exit-0": () => process.exit(0),
  callback: async () => {
    setTimeout(() => {
      throw new Error("this rank breaks in a timer");
    }, 1);
    await never();
  },
  // In the midst of a call that the others wait in.
  midcall: (world) => {
    void world.comm.allReduce(world.tensor("i32", [200_000])).catch(() => {});
    process.exit(4);
  },
  silent: never,
  spin: () => {
    for (;;);
  },
  abort: (world) => world.comm.abort("this rank gives up"),
  mismatch: (world) => world.comm.allReduce(world.tensor("f64", [3])),
  leave: (world) => world.rebuild(),
  descriptors: (world) => {
    try {
      for (;;) taken.push(openSync("/dev/null", "r"));
    } catch {
      // None is left: the world must go on, or fail in words, and this rank can rebuild or be replaced.
    }
    say({ kind: "exhausted", rank: world.rank, generation: world.generation, taken: taken.length });
  },
};

/** The longest time in which this rank's event loop did not turn, ms: a late report may be the machine's. */
let stoodMs = 0;
let turnedAt = performance.now();
setInterval(() => {
  const now = performance.now();
  stoodMs = Math.max(stoodMs, now - turnedAt);
  turnedAt = now;
}, 20).unref();

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");

/** What this process holds once its garbage is collected: a program may still look at the tensors of ended generations. */
async function gauges() {
  for (let i = 0; i < 2; i++) {
    collect();
    await sleep(5);
  }
  try {
    const status = readFileSync("/proc/self/status", "utf8");
    const [rssKiB, sharedKiB] = ["VmRSS", "RssShmem"].map((name) =>
      Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? 0),
    );
    const { heapTotal, external, arrayBuffers } = process.memoryUsage();
    const [heapKiB, externalKiB, buffersKiB] = [heapTotal, external, arrayBuffers].map((bytes) => bytes / 1024);
    const [fds, threads] = ["fd", "task"].map((what) => readdirSync(`/proc/self/${what}`).length);
    return { rssKiB, sharedKiB, heapKiB, externalKiB, buffersKiB, fds, threads };
  } catch {
    return {};
  }
}

/** Has this rank come too late, if it was started again and others have not been late often enough. */
function beLate(folder, born, { lateStarts, lateMs }) {
  const late = readdirSync(folder).filter((name) => name.startsWith("late-")).length;
  if (born === 1 || late >= lateStarts) return;
  writeFileSync(join(folder, `late-${born}`), "");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, lateMs);
}

export default async function run(first, { folder, seed, largestBytes, ...lateness }) {
  let world = first;
  const born = world.generation;
  beLate(folder, born, lateness);
  for (;;) {
    const { generation, rank, size } = world;
    const draw = manyDrawsOf(seed + generation);
    const about = { rank, generation, pid: process.pid };
    const order = join(folder, `${generation}-${rank}`);
    try {
      await world.comm.barrier();
      stoodMs = 0;
      say({ kind: "ready", ...about, size, born, at: Date.now(), ...(await gauges()) });
      for (let step = 0; ; step++) {
        if (existsSync(order)) {
          const how = readFileSync(order, "utf8");
          if (how !== "") {
            rmSync(order);
            await BREAKS[how](world);
          }
        }
        await callOnce(world, draw, largestBytes);
        if (existsSync(join(folder, `ask-${generation}`))) {
          const answer = join(folder, `answer-${generation}-${rank}`);
          if (!existsSync(answer)) writeFileSync(answer, String(step));
        }
      }
    } catch (error) {
      const message = String(error.message).slice(0, 300);
      const stood = Math.round(Math.max(stoodMs, performance.now() - turnedAt));
      say({ kind: "told", ...about, at: Date.now(), code: error.code, dead: error.rank, message, stood });
      if (error.code === undefined) throw error;
      world = await world.rebuild();
      // The next fault is another one's.
      for (const fd of taken.splice(0)) closeSync(fd);
    }
  }
}
