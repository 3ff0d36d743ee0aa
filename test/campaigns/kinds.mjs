/**
 * The kinds of failure of the campaign: how the victim breaks, and how the survivors wait meanwhile. A kind is written
 * `BREAK` (survivors await) or `BREAK+WAIT`, such as `midflight+download`.
 */
import { InvalidArgumentError } from "chorale/core";
import { deviceOf } from "chorale/world";

const never = () => new Promise((resolve) => setTimeout(resolve, 600_000));
/** Calls that the victim leaves on its stream when it breaks in mid-flight; survivors make more, which cannot end. */
const VICTIM_CALLS = 8;
const SURVIVOR_CALLS = 16;

/** `midflight+download` -> how the victim breaks and how survivors wait. @throws InvalidArgumentError when there is no such kind */
export function parseKind(kind, argument = "kind") {
  const [how, wait = "await", ...rest] = kind.split("+");
  const known = BREAKS[how] !== undefined && WAITS[wait] !== undefined && rest.length === 0;
  if (!known) {
    const [breaks, waits] = [BREAKS, WAITS].map((ways) => Object.keys(ways).join(", "));
    throw new InvalidArgumentError(argument, kind, `one of ${breaks}, alone or with + and one of ${waits}`);
  }
  return { how, wait };
}

/** Kinds whose victim breaks with a collective running on its device. */
export const IN_FLIGHT = new Set(["midflight", "sigkill-midflight", "abort"]);
/** Kinds that end the victim's whole process, and with it all ranks where ranks are threads. */
export const ENDS_PROCESS = new Set(["sigkill", "sigsegv", "sigkill-midflight"]);
/** Kinds whose victim dies of its error, as a program that does not handle it would. */
export const DIES = new Set(["throw", "out-of-memory", "illegal-address"]);

/** Whether collectives of this rank run: by its stream, where it has one, and not by what the library believes. */
const running = ({ comm }) => (comm.stream === undefined ? comm.stats().pending > 0 : !comm.stream.isDone());

/** Makes calls of a kind that is connected already, and leaves them running. @returns the last, and whether they run */
function intoFlight(world, big, calls, options) {
  let work;
  for (let i = 0; i < calls; i++) work = world.comm.allReduce(big, options);
  return { work, inFlight: running(world) };
}

/** The victim's side: says whether its calls run at the very moment, and breaks. */
function breakInFlight(world, big, say) {
  const { work, inFlight } = intoFlight(world, big, VICTIM_CALLS);
  say({ kind: "breaks", inFlight });
  return work;
}

/** The survivors' side. */
export const survive = (world, big, timeoutMs) => intoFlight(world, big, SURVIVOR_CALLS, { timeoutMs });

/** Each way to break: what the victim does once the survivors wait. `big` is a large tensor of the world. */
export const BREAKS = {
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
  midflight: (world, big, { say }) => {
    breakInFlight(world, big, say);
    process.exit(4);
  },
  spin: () => {
    for (;;);
  },
  sigkill: () => process.kill(process.pid, "SIGKILL"),
  sigsegv: () => process.kill(process.pid, "SIGSEGV"),
  "sigkill-midflight": (world, big, { say }) => {
    breakInFlight(world, big, say);
    process.kill(process.pid, "SIGKILL");
  },
  "never-calls": async (world, _big, { deadlineMs }) => {
    // Until the survivors' deadline, and as long as a busy machine needs to see it: a call that comes before they have given
    // up would be another's mismatch. The victim's own comes to a world that has failed.
    const giveUpMs = performance.now() + deadlineMs + 30_000;
    await new Promise((resolve) => setTimeout(resolve, deadlineMs + 100));
    while (!world.signal.aborted && performance.now() < giveUpMs)
      await new Promise((resolve) => setTimeout(resolve, 10));
    await world.comm.allReduce(world.tensor("f32", [8]));
  },
  mismatch: (world) => world.comm.allReduce(world.tensor("f32", [9])),
  abort: async (world, big, { say }) => {
    const pending = breakInFlight(world, big, say);
    world.comm.abort("the victim gives up");
    await pending;
  },
  "out-of-memory": (world) => {
    const tensors = [];
    for (let k = 0; k < 64; k++) tensors.push(world.tensor("u8", [2 ** 33]));
    return tensors.length;
  },
  "illegal-address": async (world, big) => {
    const { CudaModule, KernelArguments, requireNvrtc } = await import("chorale/device");
    const { device, main } = deviceOf(world);
    const source = 'extern "C" __global__ void bad(unsigned long long p) { *(volatile int*)p = 7; }';
    const module = CudaModule.compile(device, requireNvrtc(), source);
    module
      .kernel("bad")
      .launch(main, { grid: [1], block: [1] }, new KernelArguments(device, [{ type: "u64", value: 0x123456789000n }]));
    await world.comm.allReduce(big);
  },
};

/**
 * Each way to wait for `work`, the last of many calls on `big` that never end. All must throw: what comes back from a
 * device whose collectives failed is not their result. An allocation that does not fit throws of its own.
 */
export const WAITS = {
  await: async (_world, work) => void (await work),
  wait: (_world, work) => void work.wait(),
  synchronize: (world, _work, _big, timeoutMs) => world.comm.synchronize({ timeoutMs }),
  download: (world, _work, big) => {
    world.comm.orderBefore(deviceOf(world).main);
    world.download(big);
  },
  upload: (world, _work, big) => {
    world.comm.orderBefore(deviceOf(world).main);
    world.upload(big, new Float32Array(big.size));
  },
  allocate: async (world, work) => {
    const part = Math.floor(deviceOf(world).device.memoryInfo().totalBytes / 16);
    // A piece that the pool keeps: when memory runs out it wants to give that back, for which the device must be idle.
    world.free(world.tensor("u8", [part / 2]));
    const tensors = [];
    try {
      while (tensors.length < 32) tensors.push(world.tensor("u8", [part]));
    } catch (error) {
      if (error.code !== "OUT_OF_MEMORY") throw error;
      await work;
    }
  },
};
