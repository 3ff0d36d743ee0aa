/** The store of programs, without a network. */
import { describe, expect, it } from "vitest";
import { ClosedError, InvalidArgumentError, RankFailedError, TimeoutError } from "../../core/index.ts";
import { type Asker, isStoreAsk, type StoreAsk, ValueStore } from "./value-store.ts";
import { StoreClient, storeOver } from "./value-store-client.ts";

/** A store and its ranks in one thread; what they ask arrives on the next turn. */
function ranks(worldSize: number, values = new ValueStore()) {
  const askers: Asker[] = [];
  const clients = Array.from({ length: worldSize }, (_, rank) => {
    const asker: Asker = { rank, worldSize, answer: (id, answer) => queueMicrotask(() => client.take(id, answer)) };
    const client: StoreClient = new StoreClient(worldSize, (id, ask) =>
      queueMicrotask(() => values.ask(asker, id, ask)),
    );
    askers.push(asker);
    return client;
  });
  return { values, clients: clients as [StoreClient, StoreClient, StoreClient], askers };
}

describe("the store of a world's programs", () => {
  it("keeps values, gives them to those that wait, and removes them", async () => {
    const [a, b] = ranks(2).clients;
    const waiting = b.get("k");
    expect(await b.find("k")).toBeUndefined();
    await a.set("k", "ü\u0000\ud800");
    expect([await waiting, await b.find("k"), await b.get("k")]).toEqual(Array(3).fill("ü\u0000\ud800"));
    expect([await b.delete("k"), await a.delete("k"), await a.find("k")]).toEqual([true, false, undefined]);
  });

  it("counts: no two ranks get the same number, and what is no counter is refused", async () => {
    const { clients } = ranks(3);
    const got = await Promise.all(clients.flatMap((one) => Array.from({ length: 20 }, () => one.add("tickets"))));
    expect(got.toSorted((x, y) => x - y)).toEqual(Array.from({ length: 60 }, (_, i) => i + 1));
    const [a] = clients;
    expect(await a.add("tickets", -100)).toBe(-40);
    expect(await a.find("tickets")).toBe("-40");
    await a.set("name", "x");
    await expect(a.add("name")).rejects.toThrow('key is "name"; expected a key of a whole number; its value is "x"');
    await a.add("high", Number.MAX_SAFE_INTEGER);
    await expect(a.add("high")).rejects.toThrow("a sum within 2^53; the counter stands at 9007199254740991");
    await expect(a.add("tickets", 0.5)).rejects.toThrow("a whole number within 2^53");
  });

  it("has barriers that name who is missing, and can be tried again", async () => {
    const [a, b, c] = ranks(3).clients;
    const late = await a.barrier("start", { timeoutMs: 30 }).catch((error: unknown) => error as TimeoutError);
    expect(late).toBeInstanceOf(TimeoutError);
    expect((late as Error).message).toBe(
      'store.barrier("start") did not complete within 30 ms; arrived: ranks [0], missing: ranks [1, 2]',
    );
    let passed = 0;
    const all = [a, b, c].map((one) => one.barrier("start").then(() => passed++));
    await Promise.all(all);
    // The second time is another barrier.
    const again = [a.barrier("start"), b.barrier("start")];
    await expect(c.get("never", { timeoutMs: 20 })).rejects.toThrow(
      'store.get("never"), which no rank has set, did not complete within 20 ms',
    );
    expect(passed).toBe(3);
    await Promise.all([...again, c.barrier("start")]);
  });

  it("ends what waits when the generation fails or is left, and keeps what was set", async () => {
    const { values, clients, askers } = ranks(2);
    const [a, b] = clients;
    await a.set("step", "17");
    const waits = [b.get("other"), b.barrier("start")];
    const failure = new RankFailedError(0, 1, new Error("it died"));
    const settled = Promise.allSettled(waits);
    b.fail(failure);
    expect((await settled).map((one) => one.status === "rejected" && one.reason)).toEqual([failure, failure]);
    for (const asker of askers) values.forget(asker);
    await expect(b.barrier("start")).rejects.toBe(failure);
    await expect(b.get("other")).rejects.toBe(failure);
    expect([await b.get("step"), await b.add("failures")]).toEqual(["17", 1]);
    b.end(storeOver(1));
    await expect(b.find("step")).rejects.toBeInstanceOf(ClosedError);
    const [next] = ranks(1, values).clients;
    expect(await next.get("step")).toBe("17");
    const controller = new AbortController();
    const given = next.get("never", { signal: controller.signal });
    controller.abort("enough");
    await expect(given).rejects.toBe("enough");
  });

  it("bounds what it holds, and refuses what cannot be", async () => {
    const { values, clients } = ranks(1);
    const [a] = clients;
    const refused = (work: Promise<unknown>) => expect(work).rejects.toThrow(InvalidArgumentError);
    await refused(a.set("", "x"));
    await refused(a.set("k".repeat(257), "x"));
    await refused(a.set("k", 7 as unknown as string));
    // As JSON a NUL takes six bytes.
    await refused(a.set("k", "\0".repeat(11_000)));
    await refused(a.get("k", { timeoutMs: 0 }));
    const answers: unknown[] = [];
    const asker: Asker = { rank: 0, worldSize: 2, answer: (_, answer) => void answers.push(answer) };
    for (let id = 0; id < 1_030; id++) values.ask(asker, id, { op: "get", key: `key ${id}` });
    expect(answers).toEqual(Array(6).fill({ error: "fewer than 1024 waiting calls of a rank" }));
    values.forget(asker);
    answers.length = 0;
    for (let id = 0; id < 16_385; id++) values.ask(asker, id, { op: "set", key: String(id), value: "" });
    expect(answers.filter((one) => (one as { error?: string }).error !== undefined)).toHaveLength(1);
    const nonsense: unknown[] = [null, 7, {}, { op: "get" }, { op: "get", key: "" }, { op: "set", key: "k" }];
    nonsense.push(
      { op: "add", key: "k", amount: 0.5 },
      { op: "barrier", key: "k" },
      { op: "leave" },
      { op: "x", key: "k" },
    );
    expect(nonsense.filter(isStoreAsk)).toEqual([]);
    const good: StoreAsk = { op: "add", key: "k", amount: 3 };
    expect(isStoreAsk(good)).toBe(true);
  });
});
