/**
 * One rank of the fault campaign: works until it is this generation's turn to break, breaks in the way the schedule
 * says, and, when it survives, reports what it was told and takes part in the next generation.
 */
import { deviceOf } from "chorale/world";

const say = (record) => console.log(JSON.stringify(record));
const never = () => new Promise((resolve) => setTimeout(resolve, 600_000));

/** Each way to break: what the victim does after the world was seen working. `big` is a large tensor of the world. */
const BREAKS = {
  throw: async () => {
    throw new Error("the victim throws");
  },
  exit: () => process.exit(3),
  callback: async () => {
    setTimeout(() => {
      throw new Error("the victim throws in a timer");
    }, 1);
    await never();
  },
  midflight: async (world, big) => {
    world.comm.allReduce(big);
    process.exit(4);
  },
  spin: () => {
    for (;;);
  },
  sigkill: () => process.kill(process.pid, "SIGKILL"),
  sigsegv: () => process.kill(process.pid, "SIGSEGV"),
  "sigkill-midflight": async (world, big) => {
    world.comm.allReduce(big);
    process.kill(process.pid, "SIGKILL");
  },
  "never-calls": async (world, _big, data) => {
    await new Promise((resolve) => setTimeout(resolve, data.deadlineMs + 500));
    await world.comm.allReduce(world.tensor("f32", [8]));
  },
  mismatch: (world) => world.comm.allReduce(world.tensor("f32", [9])),
  abort: async (world, big) => {
    const pending = world.comm.allReduce(big);
    world.comm.abort("the victim gives up");
    await pending;
  },
  "out-of-memory": (world) => {
    const tensors = [];
    for (let k = 0; k < 64; k++) tensors.push(world.tensor("u8", [2 ** 33]));
    return tensors.length;
  },
  "illegal-address": async (world, big) => {
    const { CudaModule, KernelArguments, requireNvrtc } = await import("chorale/cuda");
    const { device, main } = deviceOf(world);
    const source = 'extern "C" __global__ void bad(unsigned long long p) { *(volatile int*)p = 7; }';
    const module = CudaModule.compile(device, requireNvrtc(), source);
    module
      .kernel("bad")
      .launch(main, { grid: [1], block: [1] }, new KernelArguments(device, [{ type: "u64", value: 0x123456789000n }]));
    await world.comm.allReduce(big);
  },
};

/** Sums what every rank contributes and compares with the closed form. */
async function work(world) {
  const n = 1000 + world.generation;
  const x = world.tensor("f32", [n]);
  world.upload(
    x,
    Float32Array.from({ length: n }, (_, i) => (i % 17) * (world.rank + 1)),
  );
  await world.comm.allReduce(x);
  const ranks = (world.size * (world.size + 1)) / 2;
  const wrong = world.download(x).findIndex((value, i) => value !== (i % 17) * ranks);
  world.free(x);
  if (wrong >= 0) throw new Error(`wrong sum at ${wrong} in generation ${world.generation}`);
}

export default async function main(first, data) {
  let world = first;
  for (;;) {
    const { generation, rank, size } = world;
    await work(world);
    const freeBytes = deviceOf(world)?.device.memoryInfo().freeBytes;
    say({ kind: "works", generation, rank, freeBytes });
    await world.comm.barrier();
    const step = data.schedule[generation - 1];
    if (step === undefined) return { generation, rank, size };
    const big = world.tensor("f32", [data.bigCount]);
    const stale = world.tensor("f32", [4]);
    const start = performance.now();
    try {
      if (rank === step.victim % size) await BREAKS[step.how](world, big, data);
      for (;;) await world.comm.allReduce(big, { timeoutMs: data.deadlineMs });
    } catch (error) {
      const ms = Math.round(performance.now() - start);
      say({ kind: "told", generation, rank, how: step.how, code: error.code, message: String(error.message), ms });
      // A victim of these kinds dies of its error, as a program that does not handle it would.
      const dies = ["throw", "out-of-memory", "illegal-address"].includes(step.how) && rank === step.victim % size;
      if (dies || error.code === undefined) throw error;
    }
    const before = performance.now();
    world = await world.rebuild();
    const rebuildMs = Math.round(performance.now() - before);
    let refused = "";
    try {
      await world.comm.allReduce(stale);
    } catch (error) {
      refused = `${error.code}: ${error.message}`;
    }
    say({ kind: "rebuilt", generation: world.generation, rank: world.rank, ms: rebuildMs, refused });
  }
}
