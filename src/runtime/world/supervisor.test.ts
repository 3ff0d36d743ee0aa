/** The supervisor alone, with hosts that do what the test says: orders of events that threads show once in a while. */
import { existsSync, readdirSync } from "node:fs";
import { afterEach, describe, expect, it, vi } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { AbortedError } from "../../core/index.ts";
import type { NcclHandle } from "../backends/nccl/nccl-handle.ts";
import { ncclFailure } from "../backends/nccl/nccl-host.ts";
import { NCCL_KIND } from "../backends/nccl/nccl-kind.ts";
import { attachThreads, type ThreadsHandle } from "../backends/threads/index.ts";
import { THREADS_KIND } from "../backends/threads/threads-kind.ts";
import { errorOf, type Failure, type Isolation } from "../comm/index.ts";
import type { WorldEvent } from "./events.ts";
import { runWorld } from "./launch.ts";
import type { FromRank, Job, ToRank } from "./messages.ts";
import type { RankHost, RankListener } from "./rank-host.ts";
import { plainRecord } from "./remote-error.ts";
import { type RestartOptions, restartPolicy } from "./restart-policy.ts";
import { Supervisor } from "./supervisor.ts";

class FakeHost implements RankHost {
  readonly kind: Isolation;
  exited = false;
  terminated = false;
  readonly told: string[] = [];
  #listener: RankListener | undefined;

  constructor(kind: Isolation = "thread") {
    this.kind = kind;
  }
  listen(listener: RankListener | undefined): void {
    this.#listener = listener;
  }
  run(job: Job): void {
    this.told.push(`run as ${job.rank} of generation ${job.generation}`);
  }
  send(message: ToRank): void {
    if (message.kind === "rebuilt") this.told.push(`rebuilt as ${message.place.rank}`);
    else this.told.push(message.kind);
  }
  flush(): void {}
  setIdle(): void {}
  terminate(): void {
    this.terminated = true;
  }

  say(message: FromRank): void {
    this.#listener?.message(message);
  }
  exit(exitCode: number, reason = `its thread exited with code ${exitCode}`): void {
    this.exited = true;
    this.#listener?.exit(exitCode, reason);
  }
  returns(value: unknown): void {
    this.say({ kind: "done", value, final: true });
    this.exit(0);
  }
}

interface Setting extends RestartOptions {
  readonly signal?: AbortSignal;
  readonly onEvent?: (event: WorldEvent) => void;
  readonly isolation?: Isolation;
}

/** A world of fake hosts, and the hosts that were taken later. */
function world(hosts: readonly FakeHost[], setting: Setting, takeHost: () => RankHost = () => new FakeHost()) {
  const { signal, onEvent, isolation = "thread", ...restarts } = setting;
  const supervisor = new Supervisor({
    ranks: hosts.length,
    kind: isolation === "process" ? NCCL_KIND : THREADS_KIND,
    backendOptions: undefined,
    isolation,
    policy: restartPolicy(restarts, hosts.length),
    timeoutMs: undefined,
    graceMs: 100,
    signal,
    env: undefined,
    onOutput: () => {},
    onEvent,
    job: {
      module: { url: "", path: "", isCommonJs: false },
      isFunction: false,
      args: [],
      data: undefined,
      reused: false,
    },
    takeHost,
  });
  supervisor.start(hosts);
  return supervisor;
}

const rebuild = { kind: "rebuild", generation: 1 } as const;

describe("the supervisor", () => {
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllEnvs();
  });

  it.each([0, 3])("does not count on a rank that calls process.exit(%i) while it waits for a rebuild", async (code) => {
    const [a, b, c] = [new FakeHost(), new FakeHost(), new FakeHost()];
    const events: WorldEvent[] = [];
    const supervisor = world([a, b], { onFailure: "respawn", onEvent: (event) => events.push(event) }, () => c);
    const finished = supervisor.finish();
    b.say(rebuild);
    b.say({ kind: "exiting", exitCode: code, worldOpen: true });
    a.say(rebuild);
    // Its thread is still there, and is not asked any more.
    expect([...a.told, ...b.told]).toEqual([
      "run as 0 of generation 1",
      "bootstrap-failed",
      "run as 1 of generation 1",
      "bootstrap-failed",
    ]);
    b.exit(code);
    expect(a.told.at(-1)).toBe("rebuilt as 0");
    expect(c.told).toEqual(["run as 1 of generation 2"]);
    a.returns("a");
    c.returns("c");
    expect(await finished).toEqual(["a", "c"]);
    expect(events.filter(({ kind }) => kind === "rank-failed")).toEqual([
      expect.objectContaining({ rank: 1, generation: 1, message: `called process.exit(${code})` }),
    ]);
    supervisor.close();
  });

  it("tells the survivors of a failure before it writes down what the ranks did: a disk may be slow", async () => {
    const folder = scratchFolder("flight-order");
    vi.stubEnv("CHORALE_FLIGHT_DIR", folder);
    const written: number[] = [];
    const hosts = [new FakeHost(), new FakeHost()];
    const [dying, survivor] = hosts as [FakeHost, FakeHost];
    survivor.send = ({ kind }) => void (kind === "bootstrap-failed" && written.push(readdirSync(folder).length));
    const supervisor = world(hosts, {});
    const finished = supervisor.finish();
    dying.exit(1);
    expect([written, readdirSync(folder).length]).toEqual([[0], 1]);
    survivor.exit(1);
    await expect(finished).rejects.toThrow("rank 0 failed (generation 1): its thread exited with code 1");
    supervisor.close();
  });

  it.each([
    ["end", "thread"],
    ["end", "process"],
    ["respawn", "thread"],
    ["respawn", "process"],
  ] as const)(
    "tells survivors who failed, though a peer reports it before that rank ends (%s, %s)",
    async (onFailure, kind) => {
      const hosts = [new FakeHost(kind), new FakeHost(kind), new FakeHost(kind)];
      const [survivor, dying, reporter] = hosts as [FakeHost, FakeHost, FakeHost];
      const told: unknown[] = [];
      survivor.send = (message) =>
        void (message.kind === "bootstrap-failed" && told.push([message.rank, message.message]));
      let call: (() => Promise<unknown>) | undefined;
      survivor.run = ({ engine: { host } }) => {
        if (kind === "process") call = async () => Promise.reject(errorOf(ncclFailure(host as NcclHandle) as Failure));
        else call = async () => attachThreads(host as ThreadsHandle, 0).world.barrier();
      };
      const supervisor = world(hosts, { isolation: kind, onFailure }, () => {
        throw new Error("no host is left");
      });
      const finished = supervisor.finish();
      const error = {
        ...plainRecord("rank 1 failed (generation 1): gone"),
        failedRank: 1,
        cause: plainRecord("gone"),
      };
      reporter.say({ kind: "failed", error });
      expect(told).toEqual([[1, "gone"]]);
      await expect(call?.()).rejects.toThrow("rank 1 failed (generation 1): gone");
      for (const host of [reporter, dying, survivor]) host.exit(1);
      await expect(finished).rejects.toMatchObject({ rank: 1 });
      supervisor.close();
    },
  );

  it("fails with the first rank's own error, though one that followed from it is reported before", async () => {
    const hosts = [new FakeHost(), new FakeHost()];
    const [follower, origin] = hosts as [FakeHost, FakeHost];
    const supervisor = world(hosts, {});
    const finished = supervisor.finish();
    const heard = { ...plainRecord("rank 1 failed (generation 1): TypeError: no data"), failedRank: 1 };
    follower.say({ kind: "failed", error: { ...plainRecord("step 7 failed"), cause: heard } });
    origin.say({ kind: "failed", error: { ...plainRecord("no data"), name: "TypeError" } });
    for (const host of hosts) host.exit(1);
    await expect(finished).rejects.toMatchObject({ rank: 1, cause: { name: "TypeError", message: "no data" } });
    supervisor.close();
  });

  it("hears a signal that is aborted while the world starts", async () => {
    const host = new FakeHost();
    const controller = new AbortController();
    const supervisor = world([host], { signal: controller.signal, onEvent: () => controller.abort("at once") });
    const finished = supervisor.finish();
    expect(host.terminated).toBe(true);
    host.exit(1);
    await expect(finished).rejects.toThrow(AbortedError);
    supervisor.close();
  });

  it("reports a rank that cannot be ended, also when no other has failed", async () => {
    vi.useFakeTimers();
    const [a, b] = [new FakeHost(), new FakeHost()];
    const supervisor = world([a, b], { onFailure: "respawn", restarts: 0 });
    const finished = supervisor.finish();
    finished.catch(() => {});
    a.say(rebuild);
    await vi.advanceTimersByTimeAsync(999);
    expect(a.told.at(-1)).not.toBe("rebuild-refused");
    await vi.advanceTimersByTimeAsync(2);
    expect(a.told.at(-1)).toBe("rebuild-refused");
    a.returns("dealt with it");
    await vi.advanceTimersByTimeAsync(101);
    expect(b.terminated).toBe(true);
    await vi.advanceTimersByTimeAsync(5_001);
    await expect(finished).rejects.toMatchObject({ name: "RankFailedError", rank: 1 });
    await expect(finished).rejects.toThrow("could not be ended");
    supervisor.close();
  });

  it.skipIf(!existsSync("/dev/shm"))(
    "leaves nothing of a generation that could not be started (needs /dev/shm)",
    () => {
      const segments = () => readdirSync("/dev/shm").filter((name) => name.includes(`-${process.pid}-`));
      const before = segments();
      const hosts = [new FakeHost("process"), new FakeHost("process")];
      const supervisor = world(hosts, { onFailure: "respawn", isolation: "process" }, () => {
        throw new Error("no process is left");
      });
      const finished = supervisor.finish();
      expect(segments()).toHaveLength(before.length + 1);
      hosts[0]?.say(rebuild);
      hosts[1]?.exit(1, "its process exited with code 1");
      expect(hosts[0]?.told.at(-1)).toBe("rebuild-refused");
      hosts[0]?.returns(undefined);
      supervisor.close();
      expect(segments()).toEqual(before);
      return expect(finished).rejects.toThrow("its process exited with code 1");
    },
  );
});

describe("a launch", () => {
  it("ends the hosts that it has when it cannot get all", async () => {
    const host = new FakeHost();
    const hosts: RankHost[] = [host];
    const take = () => {
      const next = hosts.pop();
      if (next === undefined) throw new Error("no thread is left");
      return next;
    };
    await expect(runWorld({ ranks: 2, run: () => 1 }, take, false)).rejects.toThrow("no thread is left");
    expect(host.terminated).toBe(true);
  });

  it("goes on when it is asked what the ranks did before there are any", async () => {
    const dumps = scratchFolder("asked-early");
    vi.stubEnv("CHORALE_FLIGHT_DIR", dumps);
    let numListeners = 0;
    const take = () => {
      numListeners = process.listenerCount("SIGUSR2");
      process.emit("SIGUSR2");
      throw new Error("no thread is left");
    };
    await expect(runWorld({ ranks: 1, run: () => 1 }, take, false)).rejects.toThrow("no thread is left");
    vi.unstubAllEnvs();
    expect(numListeners).toBe(1);
    expect(process.listenerCount("SIGUSR2")).toBe(0);
    expect(readdirSync(dumps)).toEqual([]);
  });
});
