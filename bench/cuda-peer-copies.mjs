/**
 * What copies between two GPUs reach, both ways at once, by the copy engines: the bound that collectives of the same bytes are
 * held against. Ranks are threads. After `npm run build`:
 *   NCCL_NVLS_ENABLE=0 node bench/cuda-peer-copies.mjs [--bytes 134217728,...] [--json]
 * Each rank copies `bytes` of its own to the other 10 times behind each other; medians of 9 turns, microseconds a copy.
 */
import { launch } from "chorale/world";
import { flagsOf } from "../dist/apps/bench/script-flags.js";

const config = {
  options: {
    bytes: { type: "string", default: "8388608,33554432,134217728" },
    json: { type: "boolean", default: false },
  },
};
const flags = flagsOf(import.meta.url, config, ({ values }) => ({
  sizes: values.bytes.split(",").map(Number),
  json: values.json,
}));

const run = async (world, sizes) => {
  const { devicePtr, PeerMemory } = await import("chorale/device");
  const { deviceOf } = await import("chorale/world");
  const { comm } = world;
  const at = deviceOf(world);
  const COPIES = 10;
  const rows = [];
  for (const bytes of sizes) {
    const [own, from] = [world.tensor("u8", [bytes]), world.tensor("u8", [bytes])];
    const peers = new PeerMemory(at.device, at.pool, { interprocess: false });
    const notes = await comm.gatherObjects([...peers.describe(devicePtr(own, at.device, at.generation), bytes)]);
    const to = peers.locate(Int32Array.from(notes[1 - world.rank])).address;
    const source = devicePtr(from, at.device, at.generation);
    const times = [];
    for (let turn = -2; turn < 9; turn++) {
      await comm.barrier();
      const start = performance.now();
      for (let i = 0; i < COPIES; i++)
        at.device.call("cuMemcpyDtoDAsync_v2", "copy to a peer", to, source, bytes, at.main.handle);
      at.main.synchronize();
      if (turn >= 0) times.push(((performance.now() - start) * 1000) / COPIES);
    }
    await comm.barrier();
    peers.close();
    for (const tensor of [own, from]) world.free(tensor);
    const us = times.sort((a, b) => a - b)[4];
    rows.push({ bytes, us, GBps: bytes / us / 1000 });
  }
  return rows;
};

const all = await launch({ ranks: 2, backend: "cuda", run, data: flags.sizes, timeoutMs: 60_000 });
// Both go on until both are done: the slower one's time counts.
const rows = all[0].map((row, i) => (row.us > all[1][i].us ? row : all[1][i]));
if (flags.json) console.log(JSON.stringify(rows));
else
  for (const { bytes, us, GBps } of rows)
    console.log(`${bytes} bytes each way: ${us.toFixed(2)} us, ${GBps.toFixed(1)} GB/s`);
