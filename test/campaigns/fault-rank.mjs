/**
 * One rank of the fault campaign: works until it is this generation's turn to break, breaks in the way the schedule
 * says, and, when it survives, reports what it was told and takes part in the next generation.
 */
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { deviceOf } from "chorale/world";
import { BREAKS, DIES, parseKind, survive, WAITS } from "./kinds.mjs";

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

/** Says, for the victim to see, that this rank is about to wait. */
const waitingFile = (world, data, rank) => join(data.folder, `${world.generation}-${rank}`);

/** Waits until every survivor is about to wait. */
async function untilSurvivorsWait(world, data) {
  const until = performance.now() + data.deadlineMs;
  for (let rank = 0; rank < world.size; rank++) {
    if (rank === world.rank) continue;
    while (!existsSync(waitingFile(world, data, rank))) {
      if (performance.now() > until) throw new Error(`rank ${rank} does not come to wait`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }
}

export default async function main(first, data) {
  let world = first;
  for (;;) {
    const { generation, rank, size } = world;
    await work(world);
    const freeBytes = deviceOf(world)?.device.memoryInfo().freeBytes;
    console.log(JSON.stringify({ kind: "works", generation, rank, freeBytes }));
    const step = data.schedule[generation - 1];
    if (step === undefined) {
      await world.comm.barrier();
      return { generation, rank, size };
    }
    const { how, wait } = parseKind(step.how);
    const say = (record) => console.log(JSON.stringify({ ...record, generation, rank, how: step.how }));
    const isVictim = rank === step.victim % size;
    const big = world.tensor("f32", [data.bigCount]);
    const stale = world.tensor("f32", [4]);
    // Twice: a call of a kind never made before is not put on the stream before all members have made it.
    for (let i = 0; i < 2; i++) await world.comm.allReduce(big);
    await world.comm.barrier();
    const start = performance.now();
    let inFlight = false;
    let waits = false;
    let returned = false;
    try {
      if (isVictim) {
        await untilSurvivorsWait(world, data);
        await BREAKS[how](world, big, { ...data, say });
        for (;;) await world.comm.allReduce(big, { timeoutMs: data.deadlineMs });
      }
      const calls = survive(world, big, data.deadlineMs);
      inFlight = calls.inFlight;
      waits = true;
      writeFileSync(waitingFile(world, data, rank), "");
      await WAITS[wait](world, calls.work, big, data.deadlineMs);
      returned = true;
      await calls.work;
      throw new Error("the calls ended well, though a rank had broken");
    } catch (error) {
      const ms = Math.round(performance.now() - start);
      const { code, message } = error;
      say({ kind: "told", code, message: String(message), ms, inFlight, waits, returned });
      if ((DIES.has(how) && isVictim) || code === undefined) throw error;
    }
    const before = performance.now();
    world = await world.rebuild();
    const ms = Math.round(performance.now() - before);
    let refused = "";
    try {
      await world.comm.allReduce(stale);
    } catch (error) {
      refused = `${error.code}: ${error.message}`;
    }
    console.log(JSON.stringify({ kind: "rebuilt", generation: world.generation, rank: world.rank, ms, refused }));
  }
}
