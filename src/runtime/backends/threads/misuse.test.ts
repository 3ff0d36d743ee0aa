/** Calls that JavaScript lets through and the types do not: each is a typed error at once, and nothing is sent. */
import { getEventListeners } from "node:events";
import { expect, it } from "vitest";
import { InvalidArgumentError, Tensor, tensor } from "../../../core/index.ts";
import { attachThreads, createThreadsHost } from "./index.ts";

it("refuses to wait for work inside the batch that issues it: it has not started", async () => {
  await using backend = attachThreads(createThreadsHost({ ranks: 2 }), 0);
  const comm = backend.world;
  for (const issue of [() => comm.barrier(), () => comm.send(new Float32Array(1), 1)]) {
    expect(() =>
      comm.batch(() => {
        issue().wait();
      }),
    ).toThrow(/(barrier|send) inside the batch/);
  }
  expect(comm.stats().pending).toBe(0);
});

it("lets a batch's work be waited for when its function has returned, and older work inside", async () => {
  await using backend = attachThreads(createThreadsHost({ ranks: 1 }), 0);
  const older = backend.world.allReduce(new Float32Array([3]));
  const batched: { wait(): unknown }[] = [];
  backend.world.batch((group) => {
    expect(older.wait().data[0]).toBe(3);
    batched.push(group.barrier(), group.allReduce(new Float32Array([4])));
  });
  for (const work of batched) work.wait();
});

it("refuses dtypes, shapes and tensors that are none", async () => {
  await using backend = attachThreads(createThreadsHost({ ranks: 1 }), 0);
  const before = backend.world.stats().memory.usedBytes;
  expect(() => backend.tensor("f33" as "f32", [1])).toThrow(InvalidArgumentError);
  expect(() => backend.tensor("f32", 5 as unknown as number[])).toThrow(/shape is 5; expected an array/);
  expect(() => backend.free(undefined as never)).toThrow(InvalidArgumentError);
  expect(backend.world.stats().memory.usedBytes).toBe(before);
});

it("lets nobody reach the world's own words, nor a neighbour, through a tensor or its storage", async () => {
  await using backend = attachThreads(createThreadsHost({ ranks: 1 }), 0);
  const x = backend.tensor("u32", [64]);
  const neighbour = backend.tensor("u32", [64]);
  const end = x.byteOffset + x.sizeBytes;
  for (const at of [0, 4, x.byteOffset - 4, end - 252, neighbour.byteOffset]) {
    expect(() => new Tensor("u32", [64], x.storage, at), String(at)).toThrow(/within the storage/);
  }
  expect(() => new Tensor("u32", [64], x.storage)).toThrow(InvalidArgumentError);
  expect(new Tensor("u32", [64], x.storage, x.byteOffset).data).toEqual(x.data);
  // Through the elements' own buffer, as an operand: refused where the world's words lie, taken where the elements do.
  const words = new Uint32Array(x.data.buffer, 0, 64);
  const [first] = words;
  const before = backend.world.stats().memory.usedBytes;
  expect(() => backend.world.allReduce(words)).toThrow(/the world's memory.*elements of a tensor/);
  expect(() => backend.world.allReduce(tensor("u32", [64], words))).toThrow(InvalidArgumentError);
  expect(() => backend.world.allGather(new Uint32Array(64), { output: words })).toThrow(InvalidArgumentError);
  expect([words[0], backend.world.stats().memory.usedBytes]).toEqual([first, before]);
  expect((await backend.world.allReduce(x.data.fill(3).subarray(0, 8))).data[7]).toBe(3);
});

it("refuses to free a tensor that pending work still uses, until that is done", async () => {
  const handle = createThreadsHost({ ranks: 2 });
  await using a = attachThreads(handle, 0);
  await using b = attachThreads(handle, 1);
  const x = a.tensor("f32", [1000]);
  const y = a.tensor("f32", [4]);
  const z = a.tensor("f32", [4]);
  const reduced = a.world.allReduce(x.slice(10));
  const received = a.world.recv(y, 1);
  expect(() => a.free(x)).toThrow(/tensor is in use by all_reduce #0 of group world.*await/);
  expect(() => a.free(y)).toThrow(/in use by recv #0/);
  a.free(z);
  const sent = b.world.send(new Float32Array([1, 2, 3, 4]), 0);
  await Promise.all([reduced, b.world.allReduce(new Float32Array(990)), received, sent]);
  expect([...y.data]).toEqual([1, 2, 3, 4]);
  a.free(x);
  a.free(y);
});

it("frees a tensor although an object collective is pending", async () => {
  const handle = createThreadsHost({ ranks: 2 });
  await using a = attachThreads(handle, 0);
  await using b = attachThreads(handle, 1);
  const tensors = Array.from({ length: 20 }, () => a.tensor("u8", [4096]));
  // The length of the text is a number that lies within the addresses of the tensors.
  const { byteOffset } = tensors[10]!;
  const mine = a.world.gatherObjects("x".repeat(byteOffset));
  for (const tensor of tensors) a.free(tensor);
  const [all] = await Promise.all([mine, b.world.gatherObjects("y")]);
  expect(all[1]).toBe("y");
});

it("gives batches and splits a deadline, and lets go of their signals", async () => {
  const handle = createThreadsHost({ ranks: 2 });
  await using a = attachThreads(handle, 0);
  await using b = attachThreads(handle, 1);
  const { signal } = new AbortController();
  const both = [a, b].map(({ world }) =>
    world.batch((group) => void group.allReduce(new Float32Array([1])), { signal, timeoutMs: 60_000 }),
  );
  await Promise.all(both);
  expect(getEventListeners(signal, "abort")).toEqual([]);
  const [left, right] = await Promise.all([a, b].map(({ world }) => world.split(0)));
  const late = { timeoutMs: 50 };
  await expect(left?.batch((group) => void group.allReduce(new Float32Array([1])), late)).rejects.toThrow(
    /within 50 ms/,
  );
  await right?.close().catch(() => {});
  await expect(a.world.split(0, 0, late)).rejects.toThrow(/split\(\) #\d+ .*within 50 ms/);
});
