/**
 * The quantised all-reduce beside the exact one. On GPUs by replay of captured calls, in turn: NCCL, what the table of choices serves, and
 * quantised; first results beside those of CPUs, bit for bit, and within the bound. On other backends call by call. After `npm run build`:
 *   NCCL_NVLS_ENABLE=0 node bench/quantized-all-reduce.mjs [cuda|nccl|threads|shm|tcp] [--isolation thread|process] [--ranks 2]
 *     [--dtypes f32,bf16] [--formats e4m3] [--block 128] [--from BYTES] [--to BYTES] [--repeat CALLS] [--pieces 0,1,4] [--check [--elements N]] [--json]
 * --check: correctness alone, of every element type, format, block size and operator. BYTES are those of the tensor; a graph has CALLS; 0
 *   pieces are as many as the size asks for.
 */
import { launch } from "chorale/world";
import { flagsOf, integer } from "../dist/apps/bench/script-flags.js";
import { oneOf } from "../dist/core/internal.js";

const config = {
  allowPositionals: true,
  options: {
    isolation: { type: "string" },
    ranks: { type: "string", default: "2" },
    dtypes: { type: "string", default: "f32,bf16" },
    formats: { type: "string", default: "e4m3" },
    block: { type: "string", default: "128" },
    from: { type: "string", default: String(1 << 20) },
    to: { type: "string", default: String(256 << 20) },
    pieces: { type: "string", default: "0" },
    repeat: { type: "string" },
    elements: { type: "string", default: "60000" },
    check: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
  },
};
const { values, backend, ranks } = flagsOf(import.meta.url, config, ({ values, positionals }) => ({
  values,
  ranks: integer(values.ranks, "--ranks", 1),
  backend: oneOf(positionals[0] ?? "cuda", "the backend", ["cuda", "nccl", "threads", "shm", "tcp"]),
}));
const sizes = [];
for (let bytes = Number(values.from); bytes <= Number(values.to); bytes *= 4) sizes.push(bytes);

/** Results of device tensors beside those of host memory, and of both beside the exact sums and the bound. */
const check = async (world, { elements }) => {
  const { quantizedAllReduce, quantizedAllReduceErrorBound } = await import("chorale/extensions");
  const { decodeArray, newArray } = await import("chorale");
  const { comm } = world;
  const onDevice = comm.capabilities().deviceTensors;
  let state = 12345 + 1000 * world.rank;
  const random = () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >>> 8) / 2 ** 24;
  };
  const found = { calls: 0, elements: 0, different: 0, beyond: 0, nearest: 0 };
  const blockSizes = [32, 64, 128, 256, 512, 1024];
  let turn = 0;
  for (const dtype of ["f32", "f16", "bf16"])
    for (const format of ["e4m3", "e5m2"])
      for (const op of ["sum", "avg"]) {
        const blockSize = blockSizes[turn++ % blockSizes.length];
        for (const count of [1, 4099, elements + turn]) {
          const values = newArray(dtype, count);
          const words = new Uint16Array(values.buffer);
          // Half of them any bits: subnormal, huge, infinite and NaN.
          for (let i = 0; i < words.length; i++)
            words[i] = random() < 0.5 ? 0x3f80 + Math.floor(random() * 256) : Math.floor(random() * 65536);
          const options = { format, blockSize, op };
          const host = new values.constructor(count);
          await quantizedAllReduce(comm, values, { ...options, dtype, output: host });
          const results = [host];
          if (onDevice) {
            const x = world.tensor(dtype, [count + 1]).slice(turn % 2, count + (turn % 2));
            world.upload(x, values);
            const y = world.tensor(dtype, [count]);
            await quantizedAllReduce(comm, x, { ...options, output: y });
            await quantizedAllReduce(comm, x, { ...options, pieces: 3 });
            results.push(world.download(y), world.download(x));
          }
          found.calls += results.length;
          const bytes = results.map((one) => Buffer.from(one.buffer, one.byteOffset, one.byteLength));
          found.different += bytes.filter((one) => !one.equals(bytes[0])).length;
          const all = await comm.allGather(values, { dtype });
          const decode = (array) => (dtype === "f32" ? array : decodeArray(dtype, array));
          const inputs = Array.from({ length: comm.size }, (_, r) =>
            decode(all.data.slice(r * count, (r + 1) * count)),
          );
          const mine = decode(host);
          for (let from = 0; from < count; from += blockSize) {
            const end = Math.min(count, from + blockSize);
            let largest = 0;
            for (const input of inputs) {
              let most = 0;
              for (let i = from; i < end; i++) if (Number.isFinite(input[i])) most = Math.max(most, Math.abs(input[i]));
              largest += most;
            }
            for (let i = from; i < end; i++) {
              let [sum, magnitude] = [0, 0];
              for (const input of inputs) {
                sum += input[i];
                magnitude += Math.abs(input[i]);
              }
              found.elements++;
              if (!Number.isFinite(magnitude)) {
                if (!Number.isNaN(mine[i])) found.beyond++;
                continue;
              }
              const element = { magnitude, largest, sum: Math.abs(sum) };
              const bound = quantizedAllReduceErrorBound(element, { numRanks: comm.size, format, op, dtype });
              if (bound === Number.POSITIVE_INFINITY) continue;
              const off = Math.abs(mine[i] - (op === "avg" ? sum / comm.size : sum));
              if (!(off <= bound)) found.beyond++;
              if (bound > 0) found.nearest = Math.max(found.nearest, off / bound);
            }
          }
        }
      }
  return found;
};

const run = async (world, { dtypes, formats, blockSize, sizes, calls, pieces }) => {
  const { quantizedAllReduce } = await import("chorale/extensions");
  const { newArray } = await import("chorale");
  const { comm } = world;
  const onDevice = comm.capabilities().deviceTensors;
  const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
  const rows = [];
  for (const dtype of dtypes)
    for (const bytes of sizes) {
      const count = bytes / (dtype === "f32" ? 4 : 2);
      const [x, y] = [world.tensor(dtype, [count]), world.tensor(dtype, [count])];
      const values = newArray(dtype, count);
      for (let i = 0; i < Math.min(count, 4096); i++)
        values[i] = dtype === "f32" ? Math.sin(i + world.rank) : 0x3f80 + ((i * 7 + world.rank) % 128);
      for (let done = 4096; done < count; done *= 2) values.copyWithin(done, 0, Math.min(done, count - done));
      if (onDevice) world.upload(x, values);
      else x.data.set(values);
      const exact = (algorithm) => (group) => group.allReduce(x, { output: y, ...(algorithm && { algorithm }) });
      const contenders = [
        ...(comm.backend === "cuda" ? [{ label: "nccl", call: exact("nccl") }] : []),
        { label: "exact", call: exact(undefined) },
        ...formats.flatMap((format) =>
          pieces.map((many) => ({
            label: many === 0 ? format : `${format}/${many}`,
            call: (group) =>
              quantizedAllReduce(group, x, { output: y, format, blockSize, ...(many > 0 && { pieces: many }) }),
          })),
        ),
      ];
      const repeat = calls ?? (onDevice ? (bytes > 64 << 20 ? 10 : bytes > 4 << 20 ? 40 : 200) : 1);
      for (const one of contenders) {
        await comm.barrier();
        one.times = [];
        await one.call(comm);
        await one.call(comm);
        if (onDevice) {
          one.graph = comm.capture((group) => {
            for (let k = 0; k < repeat; k++) one.call(group);
          });
          await comm.replay(one.graph);
        }
      }
      const turns = onDevice ? 7 : Math.max(9, Math.min(101, Math.round((64 << 20) / bytes)));
      for (let turn = 0; turn < turns; turn++)
        for (const one of contenders) {
          comm.barrier().wait();
          const begin = performance.now();
          if (one.graph === undefined) one.call(comm).wait();
          else {
            comm.replay(one.graph);
            comm.replay(one.graph).wait();
          }
          const calls = one.graph === undefined ? 1 : 2 * repeat;
          one.times.push(((performance.now() - begin) * 1000) / calls);
        }
      const first = median(contenders[0].times);
      for (const { label, times, graph } of contenders) {
        graph?.close();
        rows.push({ dtype, bytes, label, us: median(times), ratio: first / median(times) });
      }
      for (const one of [x, y]) world.free(one);
    }
  return rows;
};

const isolation = values.isolation ?? (backend === "shm" ? "process" : "thread");
const data = {
  dtypes: values.dtypes.split(","),
  formats: values.formats.split(","),
  blockSize: Number(values.block),
  sizes,
  pieces: values.pieces.split(",").map(Number),
  calls: values.repeat === undefined ? undefined : integer(values.repeat, "--repeat", 1),
};
const told = { ranks, backend, isolation, timeoutMs: 400_000 };
if (values.check) {
  const all = await launch({ ...told, run: check, data: { elements: integer(values.elements, "--elements", 1) } });
  const found = all.reduce((sum, one) => ({
    calls: sum.calls + one.calls,
    elements: sum.elements + one.elements,
    different: sum.different + one.different,
    beyond: sum.beyond + one.beyond,
    nearest: Math.max(sum.nearest, one.nearest),
  }));
  if (values.json) console.log(JSON.stringify(found));
  else
    console.log(
      `${backend}, ${ranks} ranks: ${found.calls} results, ${found.different} differ from those of CPUs; of ${found.elements} elements ${found.beyond} are beyond the bound, the nearest at ${found.nearest.toFixed(3)} of it`,
    );
  if (found.different > 0 || found.beyond > 0) process.exitCode = 1;
} else {
  const [rows] = await launch({ ...told, run, data });
  if (values.json) console.log(JSON.stringify(rows));
  else
    for (const { dtype, bytes, label, us, ratio } of rows)
      console.log(`${backend} ${isolation} ${dtype} ${bytes} ${label} ${us.toFixed(2)} us ${ratio.toFixed(2)}x`);
}
