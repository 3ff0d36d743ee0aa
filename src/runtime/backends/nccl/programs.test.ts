/**
 * Random programs over the stand-in library against a plain model of every rank's tensors: collectives, sends and
 * receives, batches, writes on the main stream, and groups that come behind each other in every way there is. Each call
 * is settled at some time by each rank for itself. The seed is printed with a failure.
 */

import { describe, expect, it } from "vitest";
import { buildFakeGpu, fakeGpuFolder, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { launch } from "../../../../test/helpers/kept-ranks.ts";
import { spread } from "../../../../test/support/spread.ts";

const available = buildFakeGpu() !== undefined && useFakeGpu();
const first = Number(process.env["CHORALE_SEED"] ?? Math.floor(Math.random() * 2 ** 30));
const PROGRAMS = Number(process.env["CHORALE_PROGRAMS"] ?? 2);
const seeds = Array.from({ length: PROGRAMS }, (_, i) => first + i);
const WAYS = [
  { isolation: "thread", blocking: true },
  { isolation: "thread", blocking: false },
  { isolation: "process", blocking: true },
] as const;

async function runProgram(seed: number, isolation: "thread" | "process", blocking: boolean) {
  return await launch({
    ranks: 2 + (seed % 3),
    backend: "nccl",
    isolation,
    timeoutMs: 40_000,
    backendOptions: { timeoutMs: 15_000, blocking },
    data: { seed },
    run: async (world, { seed }) => {
      type Group = import("./communicator.ts").NcclCommunicator;
      const { deviceOf } = await import("chorale/world");
      const main = deviceOf(world)?.main;
      if (main === undefined) throw new Error("no device");
      const generator = (start: number) => {
        let state = start >>> 0 || 1;
        return (below: number) => {
          state ^= state << 13;
          state ^= state >>> 17;
          state ^= state << 5;
          return (state >>> 0) % below;
        };
      };
      // What all ranks draw alike, and what each draws for itself.
      const draw = generator(seed * 7919 + 1);
      const own = generator(seed * 7919 + 2 + world.rank);
      const { rank: me, size } = world;
      const [numTensors, length] = [4, 24];
      const model = Array.from({ length: size }, (_, rank) =>
        Array.from({ length: numTensors }, (_, k) => Array.from({ length }, (_, i) => rank * 1000 + k * 100 + i)),
      );
      const at = (rank: number, k: number) => model[rank]?.[k] ?? [];
      const put = (rank: number, k: number, values: readonly number[]) => model[rank]?.splice(k, 1, [...values]);
      const tensors = Array.from({ length: numTensors }, (_, k) => {
        const made = world.tensor("i32", [length]);
        world.upload(made, Int32Array.from(at(me, k)));
        return made;
      });
      const tensor = (k: number) => tensors[k] as (typeof tensors)[number];
      const all = Array.from({ length: size }, (_, rank) => rank);
      const groups: { readonly members: readonly number[]; readonly comm: Group | undefined }[] = [
        { members: all, comm: world.comm as Group },
      ];
      for (const members of [all, all.slice(0, 2), all.slice(-2).reverse()]) {
        const place = members.indexOf(me);
        groups.push({ members, comm: (await world.comm.split(place < 0 ? -1 : 0, place)) as Group | undefined });
      }
      let pending: { wait(): unknown; then: PromiseLike<unknown>["then"] }[] = [];
      const lastOn: (Group | undefined)[] = [];
      const settle = async () => {
        for (const work of pending) own(3) === 0 ? work.wait() : await work;
        pending = [];
        lastOn.length = 0;
      };
      const wrong: string[] = [];
      const check = (k: number, what: string) => {
        lastOn[k]?.orderBefore(main);
        const found = world.download(tensor(k));
        const bad = at(me, k).findIndex((value, i) => value !== found[i]);
        if (bad >= 0) wrong.push(`${what}: tensor ${k}[${bad}] is ${found[bad]}, not ${at(me, k)[bad]}`);
      };
      const make = async (comm: Group, used: readonly number[], calls: readonly (() => (typeof pending)[number])[]) => {
        for (const k of used) {
          const last = lastOn[k];
          if (last === undefined || last === comm) continue;
          const how = own(4);
          if (how === 0) await settle();
          else if (how === 1) last.orderBefore(main);
          else if (how === 2) last.orderBefore(comm.stream);
          else {
            last.orderBefore();
            comm.orderAfter(last.stream);
          }
        }
        for (const k of used) lastOn[k] = comm;
        for (const call of calls) pending.push(call());
        if (own(6) === 0) await settle();
      };
      for (let step = 0; step < 80; step++) {
        const group = groups[draw(groups.length)] ?? { members: [], comm: undefined };
        const { members, comm } = group;
        const [kind, a, offset, root, value] = [
          draw(8),
          draw(numTensors),
          1 + draw(numTensors - 1),
          draw(2),
          draw(1000),
        ];
        const b = (a + offset) % numTensors;
        const mine = members.indexOf(me);
        const [from, to] = [members[root] ?? 0, members[1 - root] ?? 0];
        const sum = at(from, a).map((_, i) => members.reduce((total, rank) => (total + (at(rank, a)[i] ?? 0)) | 0, 0));
        const sent = [...at(from, a)];
        const ring = members.map((_, i) => [...at(members[(i + members.length - 1) % members.length] ?? 0, a)]);
        if (kind <= 1) {
          if (comm !== undefined) await make(comm, [a], [() => comm.allReduce(tensor(a))]);
          for (const rank of members) put(rank, a, sum);
        } else if (kind === 2) {
          if (comm !== undefined) await make(comm, [a], [() => comm.broadcast(tensor(a), { root })]);
          for (const rank of members) put(rank, a, sent);
        } else if (kind === 3) {
          if (comm !== undefined && me === from) await make(comm, [a], [() => comm.send(tensor(a), 1 - root)]);
          if (comm !== undefined && me === to) await make(comm, [b], [() => comm.recv(tensor(b), root)]);
          put(to, b, sent);
        } else if (kind === 4) {
          if (comm !== undefined) {
            const calls = [
              () => comm.send(tensor(a), (mine + 1) % members.length),
              () => comm.recv(tensor(b), (mine + members.length - 1) % members.length),
            ];
            await make(comm, [a, b], own(2) === 0 ? calls : calls.reverse());
          }
          for (const [i, rank] of members.entries()) put(rank, b, ring[i] ?? []);
        } else if (kind === 5) {
          if (comm !== undefined) {
            const both = (batch: import("chorale").Communicator) => {
              batch.allReduce(tensor(a));
              batch.broadcast(tensor(b), { root });
            };
            await make(comm, [a, b], [() => comm.batch(both)]);
          }
          const broadcast = [...at(from, b)];
          for (const rank of members) put(rank, a, sum);
          for (const rank of members) put(rank, b, broadcast);
        } else if (kind === 6) {
          // Behind what uses it.
          if (own(2) === 0) await settle();
          else lastOn[a]?.orderBefore(main);
          lastOn[a] = undefined;
          for (const rank of all)
            put(
              rank,
              a,
              Array.from({ length }, (_, i) => value * 17 + rank * 1000 + i),
            );
          world.upload(tensor(a), Int32Array.from(at(me, a)));
        } else if (own(2) === 0) check(a, `step ${step}`);
        else await new Promise((resolve) => setTimeout(resolve, own(3)));
      }
      await settle();
      for (let k = 0; k < numTensors; k++) check(k, "at the end");
      return wrong;
    },
  });
}

describe.skipIf(!available)("random programs (needs a C++ compiler)", () => {
  it.each(spread(WAYS, 2))(
    "compute what their model does: ranks as $isolation, blocking $blocking",
    async ({ isolation, blocking }) => {
      const folder = fakeGpuFolder();
      if (isolation === "process") process.env["FAKE_GPU_FOLDER"] = folder.path;
      try {
        for (const seed of isolation === "process" ? seeds.slice(0, Math.ceil(PROGRAMS / 2)) : seeds) {
          const found = await runProgram(seed, isolation, blocking).catch((error) => [[String(error)]]);
          expect(found.flat(), `CHORALE_SEED=${seed}`).toEqual([]);
        }
      } finally {
        delete process.env["FAKE_GPU_FOLDER"];
        folder.remove();
      }
    },
    120_000,
  );
});
