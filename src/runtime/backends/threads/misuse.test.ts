/** Calls that JavaScript lets through and the types do not: each is a typed error at once, and nothing is sent. */
import { expect, it } from "vitest";
import { InvalidArgumentError } from "../../../core/index.ts";
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
