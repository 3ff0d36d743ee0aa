/** Arguments that the types do not let through and JavaScript does: each is refused in words, and changes nothing. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { buildFakeGpu, heldByFakeGpu, NOTHING_HELD, useFakeGpu } from "../../../../test/helpers/fake-gpu.ts";
import { attachThreads, createThreadsHost } from "../threads/index.ts";
import { attachNccl } from "./backend.ts";
import {
  buryNcclRank,
  createNcclHost,
  dumpNcclFlight,
  failNcclRank,
  ncclFailure,
  openNcclControl,
  releaseNcclHost,
} from "./nccl-host.ts";
import { reapNccl } from "./reap.ts";

const available = useFakeGpu();
const library = buildFakeGpu() ?? "";
const none = (value: unknown) => value as never;

describe.skipIf(!available)("arguments that are none (needs a C++ compiler)", () => {
  const host = createNcclHost({ ranks: 1 });
  let backend: ReturnType<typeof attachNccl>;
  beforeAll(() => {
    backend = attachNccl(host, 0, { timeoutMs: 5000 });
  });
  afterAll(async () => {
    await backend.close();
    releaseNcclHost(host);
    expect(heldByFakeGpu(library)).toEqual(NOTHING_HELD);
  });

  it.each<[what: string, words: RegExp, attempt: () => unknown]>([
    ["a deadline NaN", /timeoutMs is NaN/, () => backend.world.synchronize({ timeoutMs: Number.NaN })],
    ["a deadline below 0", /timeoutMs is -1/, () => backend.world.synchronize({ timeoutMs: -1 })],
    ["a deadline as text", /timeoutMs is "x"/, () => backend.world.synchronize({ timeoutMs: none("x") })],
    ["no options", /options is null/, () => backend.world.synchronize(none(null))],
    ["a stream to come before", /stream is .*expected/, () => backend.world.orderBefore(none({}))],
    ["a stream's name to come before", /stream is "main"/, () => backend.world.orderBefore(none("main"))],
    ["a stream to come after", /stream is .*expected/, () => backend.world.orderAfter(none({}))],
    ["no stream to come after", /stream is undefined/, () => backend.world.orderAfter(none(undefined))],
    ["a batch of a number", /fn is 5/, () => backend.world.batch(none(5))],
    ["a capture of a number", /fn is 5/, () => backend.world.capture(none(5))],
    ["a rank to reap beyond the world", /rank is 99; expected a rank of the world, 0 to 0/, () => reapNccl(host, 99)],
    ["a rank to reap below 0", /rank is -1/, () => reapNccl(host, -1)],
    ["no world to reap in", /handle is/, () => reapNccl(none({}), 0)],
    ["no world to fail", /handle is {}/, () => failNcclRank(none({}), 0, "x")],
    ["no world to bury in", /handle is undefined/, () => buryNcclRank(none(undefined), 0)],
    ["no world to ask for its failure", /handle is {}/, () => ncclFailure(none({}))],
    ["no world to dump", /handle is {}/, () => dumpNcclFlight(none({}))],
    ["no world to release", /handle is null/, () => releaseNcclHost(none(null))],
    [
      "a world without its segment",
      /handle is {"kind":"nccl"/,
      () => openNcclControl(none({ kind: "nccl", ranks: 1 })),
    ],
    ["a world of nothing", /options is null/, () => createNcclHost(none(null))],
    ["a group's name that is none", /name is 5/, () => backend.world.split(0, 0, none({ name: 5 }))],
  ])("refuses %s", async (_, words, attempt) => {
    const { world } = backend;
    const x = backend.tensor("f32", [4]);
    backend.upload(x, Float32Array.of(1, 2, 3, 4));
    await world.allReduce(x);
    expect(attempt).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringMatching(words) }),
    );
    expect(world.stats().pending).toBe(0);
    const { seq } = world.allReduce(x);
    expect(world.allReduce(x).seq).toBe(seq + 1);
    world.synchronize({ timeoutMs: 5000 });
    expect(backend.download(x)).toEqual(Float32Array.of(1, 2, 3, 4));
  });

  it.each(["nccl", "threads"])("refuses groups of no name, and ranks that are none (%s)", async (name) => {
    await using threads = attachThreads(createThreadsHost({ ranks: 1 }), 0);
    const one = name === "nccl" ? backend : threads;
    for (const [group, ranks, words] of [
      [5, [0], /name is 5/],
      ["", [0], /name is ""/],
      ["g", "0", /ranks is "0"/],
      ["g", undefined, /ranks is undefined/],
      ["g", [], /ranks is \[\]/],
      ["g", [0, 0], /ranks is \[0,0\]/],
      ["g", [0, 9], /distinct ranks of the world, 0 to 0/],
      ["g", [0.5], /ranks/],
    ] as const) {
      await expect(one.group(none(group), none(ranks))).rejects.toMatchObject({
        code: "INVALID_ARGUMENT",
        message: expect.stringMatching(words),
      });
    }
    await (await one.group("g", [0])).close();
  });

  it.each(["nccl", "threads"])("refuses to wait for a time that is none (%s)", async (name) => {
    await using threads = attachThreads(createThreadsHost({ ranks: 1 }), 0);
    const { world } = name === "nccl" ? backend : threads;
    const x = Float32Array.of(1, 2);
    const works = [world.allReduce(x), world.batch((group) => void group.allReduce(x)), world.barrier()];
    for (const work of works) {
      for (const [options, words] of [
        [{ timeoutMs: Number.NaN }, /timeoutMs is NaN/],
        [{ timeoutMs: -1 }, /timeoutMs is -1/],
        [{ timeoutMs: "x" }, /timeoutMs is "x"/],
        [null, /options is null/],
      ] as const) {
        expect(() => work.wait(none(options))).toThrow(words);
      }
      work.wait({ timeoutMs: 5000 });
    }
  });

  it("refuses to attach with options or peers that are none, and holds nothing", () => {
    const before = heldByFakeGpu(library);
    const fresh = createNcclHost({ ranks: 1 });
    for (const [options, words] of [
      [null, /options is null/],
      ["x", /options is "x"/],
      [{ device: 1, peers: "x" }, /peers is "x"/],
      [{ device: 1, peers: 5 }, /peers is 5/],
      [{ device: 1, peers: [-1] }, /peers is \[-1\]/],
      [{ device: 1, peers: [0.5] }, /peers is \[0.5\]/],
    ] as const) {
      expect(() => attachNccl(fresh, 0, none(options))).toThrow(words);
      expect(heldByFakeGpu(library)).toEqual(before);
    }
    releaseNcclHost(fresh);
  });
});
