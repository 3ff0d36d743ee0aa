/** Tensors that the ranks of a host read of each other: right results however soon they change again, a rank that dies, what is left. */
import { existsSync, readdirSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { freePort } from "../../../../test/support/free-port.mjs";
import { isFull } from "../../../../test/support/spread.ts";
import { launch } from "../../world/launch.ts";
import type { World } from "../../world/world.ts";

/** Files and folders of this process in /dev/shm: it is their maker. */
const ownFiles = () => readdirSync("/dev/shm").filter((name) => name.includes(`-${process.pid}-`));

describe.skipIf(!existsSync("/dev/shm"))("tensors that ranks of a host share (Linux)", () => {
  it("can change as soon as a call has ended, and be freed", { timeout: 60_000 }, async () => {
    const ranks = await launch({
      ranks: 3,
      backend: "tcp",
      data: { rounds: isFull ? 8 : 4 },
      timeoutMs: 60_000,
      run: async (world: World, { rounds }) => {
        const { comm, rank, size } = world;
        const { readdirSync, readFileSync } = await import("node:fs");
        await comm.barrier();
        const count = 1_100_001;
        const [x, y] = [world.tensor("i32", [count]), world.tensor("i32", [count])];
        const all = world.tensor("i32", [size * count]);
        // Some lie elsewhere: who reads what where changes from call to call.
        const own = new Int32Array(count);
        const problems: string[] = [];
        const check = (what: string, data: ArrayLike<number>, expected: (i: number) => number) => {
          for (let i = 0; i < data.length; i += 1997) {
            if (data[i] !== expected(i)) problems.push(`${what}: element ${i} is ${data[i]} and not ${expected(i)}`);
          }
        };
        for (let round = 0; round < rounds; round++) {
          const input = round % 4 === rank ? own : x.data;
          const output = round % 3 === rank && input !== own ? own : y.data;
          for (let i = 0; i < count; i++) input[i] = i + round + rank;
          await comm.allReduce(input, { output });
          input.fill(-1);
          check(`out of place, round ${round}`, output, (i) => 3 * (i + round) + 3);
          x.data.fill(rank + round);
          comm.allReduce(x).wait();
          check(`in place, round ${round}`, x.data, () => 3 + 3 * round);
          x.data.fill(rank);
          comm.allGather(x, { output: all }).wait();
          x.data.fill(-1);
          check(`gathered, round ${round}`, all.data, (i) => Math.floor(i / count));
          comm.broadcast(all, { root: 1 }).wait();
          all.data.fill(rank);
          comm.reduceScatter(all, { output: y }).wait();
          all.data.fill(-1);
          check(`scattered, round ${round}`, y.data, () => 3);
          x.data.fill(round);
          comm.reduce(x, { root: 2 }).wait();
          check(`reduced, round ${round}`, x.data, () => (rank === 2 ? 3 * round : round));
        }
        const late = comm.allReduce(x);
        let use = "";
        try {
          world.free(x);
        } catch (error) {
          use = (error as Error).message;
        }
        await late;
        const view = x.data;
        world.free(x);
        const again = world.tensor("i32", [count]);
        const deleted = readFileSync("/proc/self/maps", "latin1").match(/chorale-flight\S+\/chorale\S+ \(deleted\)/g);
        const folders = readdirSync("/dev/shm").filter((name) => name.includes(`-${process.ppid}-`));
        return {
          problems,
          kinds: [y, again, world.tensor("f32", [4])].map(({ storage }) => storage.kind),
          use: /in use by all_reduce/.test(use),
          freed: view.length,
          zeros: again.data.every((value) => value === 0),
          isMapped: (deleted ?? []).length > 0,
          files: folders.flatMap((name) => readdirSync(`/dev/shm/${name}`)).filter((name) => !name.startsWith("rank-")),
        };
      },
    });
    for (const one of ranks) {
      expect(one).toEqual({
        problems: [],
        kinds: ["shared", "shared", "private"],
        use: true,
        freed: 0,
        zeros: true,
        isMapped: true,
        files: [],
      });
    }
    expect(ownFiles()).toEqual([]);
  });

  it("are reduced by the ranks' other threads too, and are the program's again when a rank dies in the midst of a call", {
    timeout: 120_000,
  }, async () => {
    process.env["CHORALE_SECRET"] = "0123456789abcdef0123456789abcdef";
    const port = await freePort();
    const nodes = (rank: number) => ({ count: 2, rank, rendezvous: `127.0.0.1:${port}` });
    const said: unknown[][] = [];
    await Promise.allSettled(
      [0, 1].map((host) =>
        launch({
          ranks: 2,
          nodes: nodes(host),
          backend: "tcp",
          backendOptions: { sendThread: "on", connections: 3 },
          onOutput: ({ stream, text }) => {
            if (stream === "stdout") said.push(JSON.parse(text));
          },
          graceMs: 10_000,
          // By six every operator has been waited for in both ways.
          data: { rounds: isFull ? 12 : 6 },
          timeoutMs: 100_000,
          run: async (world: World, { rounds }) => {
            const { comm, rank } = world;
            const count = 3_000_001;
            const x = world.tensor("f32", [count]);
            const problems: string[] = [];
            const pattern = (of: (i: number) => number) => Float32Array.from({ length: 1000 }, (_, i) => of(i));
            /** Repeats 1,000 values over all of the tensor. */
            const fill = (data: Float32Array, values: Float32Array) => {
              data.set(values);
              for (let filled = values.length; filled < count; filled *= 2) data.copyWithin(filled, 0, filled);
            };
            const bytesOf = (data: Float32Array) => Buffer.from(data.buffer, data.byteOffset, data.byteLength);
            const wanted = new Float32Array(count);
            const pids = (await comm.gatherObjects(process.pid)) as number[];
            for (let round = 0; round < rounds; round++) {
              fill(
                x.data as Float32Array,
                pattern((i) => i + rank),
              );
              const op = round % 2 === 0 ? "sum" : "avg";
              if (round % 3 === 0) comm.allReduce(x, { op }).wait();
              else await comm.allReduce(x, { op });
              fill(
                wanted,
                pattern((i) => (op === "sum" ? 4 * i + 6 : i + 1.5)),
              );
              if (bytesOf(x.data as Float32Array).equals(bytesOf(wanted))) continue;
              const at = x.data.findIndex((value, i) => value !== wanted[i]);
              problems.push(`round ${round}: element ${at} is ${x.data[at]}`);
            }
            let code = "";
            try {
              for (let call = 0; ; call++) {
                const work = comm.allReduce(x, { op: "max" });
                if (rank === 0 && call === 2) process.kill(pids[1] as number, "SIGKILL");
                await work;
              }
            } catch (error) {
              code = (error as { code?: string }).code ?? String(error);
            }
            x.data.fill(-7);
            await new Promise((resolve) => setTimeout(resolve, 500));
            console.log(JSON.stringify([rank, code, problems, x.data.every((value) => value === -7)]));
          },
        }),
      ),
    );
    // Rank 1 is told of by nobody but the others.
    const order = said.sort(([a], [b]) => Number(a) - Number(b));
    expect(order).toEqual([0, 2, 3].map((rank) => [rank, "RANK_FAILED", [], true]));
  });

  it("are refused after a rank has died, and those of the next generation are shared again", {
    timeout: 60_000,
  }, async () => {
    const told = await launch({
      ranks: 3,
      backend: "tcp",
      onFailure: "shrink",
      onOutput: () => {},
      data: {},
      timeoutMs: 60_000,
      run: async (first: World) => {
        let world = first;
        const x = world.tensor("f32", [2_000_000]);
        const values = x.data.fill(1);
        let code = "";
        try {
          for (let calls = 0; ; calls++) {
            if (world.rank === 1 && calls === 5) process.kill(process.pid, "SIGKILL");
            if (world.rank === 0) world.comm.allReduce(x, { op: "max" }).wait();
            else await world.comm.allReduce(x, { op: "max" });
          }
        } catch (error) {
          code = (error as { code?: string }).code ?? "";
          world = await world.rebuild();
        }
        let refused = "";
        try {
          world.comm.allReduce(x).wait();
        } catch (error) {
          refused = (error as { code?: string }).code ?? "";
        }
        // What was kept of it can still be read.
        const last = values.at(-1);
        const y = world.tensor("f32", [2_000_000]);
        y.data.fill(world.rank + 1);
        await world.comm.allReduce(y);
        return [code, refused, last, y.storage.kind, y.data.every((value) => value === 3)];
      },
    });
    const expected = ["RANK_FAILED", "CLOSED", 1, "shared", true];
    expect(told).toEqual([expected, expected]);
    expect(ownFiles()).toEqual([]);
  });
});
