/** `launch()` as programs in plain JavaScript may call it: nothing hangs, nothing ends the calling process. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it, vi } from "vitest";
import { createNcclHost, releaseNcclHost } from "../backends/nccl/nccl-host.ts";
import { NCCL_KIND } from "../backends/nccl/nccl-kind.ts";
import { HostSide } from "./host-side.ts";
import { joinLaunched } from "./join-launched.ts";
import { launch, runWorld } from "./launch.ts";
import { loadableUrl } from "./package-location.ts";
import type { World } from "./world.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-test-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const call = (options: unknown) => launch(options as Parameters<typeof launch>[0]);

describe("launch refuses, before it starts anything,", () => {
  it.each([undefined, null, "options", 5])("%j as options", async (options) => {
    await expect(call(options)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  it("an option that there is none of", async () => {
    await expect(call({ ranks: 1, run: () => 0, bakend: "nccl" })).rejects.toThrow(
      /options of launch\(\) is "bakend"; expected one of ranks, run, module, .*backend,/,
    );
  });

  it("data that ranks would get as something else", async () => {
    class Settings {
      epochs = 3;
    }
    for (const data of [new Settings(), { late: [() => 1] }, Object.assign(new Date(0), { zone: "UTC" })]) {
      await expect(call({ ranks: 1, run: () => 0, data })).rejects.toMatchObject({ argument: "data" });
    }
    const shared = new SharedArrayBuffer(8);
    const run = (_: unknown, given: { shared: SharedArrayBuffer }) => given.shared.byteLength;
    expect(await call({ ranks: 1, run, data: { shared } })).toEqual([8]);
  });

  it.each<[string, readonly unknown[]]>([
    ["ranks", ["2", 0, 257, 1.5, Number.NaN, null, 2n]],
    ["timeoutMs", ["500", 0, -1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31, null]],
    ["graceMs", ["500", -1, Number.NaN, Number.POSITIVE_INFINITY, null]],
    ["args", ["word", 5, [5], ["a\0b"], null]],
    ["env", [5, "A=B", null, { A: 5 }, { A: null }, { "": "x" }, { "A=B": "x" }, { A: "x\0y" }]],
    ["signal", [5, {}, null]],
    ["onOutput", [5, "print"]],
    ["onEvent", [5, {}]],
    ["run", [5, null, "() => 1"]],
    ["isolation", ["fork", 5]],
    ["backend", ["pigeon", 5]],
    ["backendOptions", [5, null]],
    ["backendOptions.timeoutMs", [-5, Number.NaN, "60"]],
    ["restarts", ["3", -1, Number.NaN]],
    ["rebuildTimeoutMs", ["5", 0, Number.POSITIVE_INFINITY]],
  ])("%s that is none", async (name, values) => {
    for (const value of values) {
      const [outer = "", inner] = name.split(".");
      const options = { ranks: 1, run: () => 0, [outer]: inner === undefined ? value : { [inner]: value } };
      await expect(call(options), String(value)).rejects.toMatchObject({ code: "INVALID_ARGUMENT", argument: name });
    }
  });

  it.each([5, null, new URL("http://example.org/a.js"), "file://%zz", "a\0b.ts", ""])("module %s", async (module) => {
    await expect(call({ ranks: 1, module })).rejects.toMatchObject({ code: "INVALID_ARGUMENT", argument: "module" });
  });
});

describe("a rank's result", () => {
  it("is refused when it would arrive as something else, in words that say how to give it", async () => {
    const refused = async (run: (world: World) => unknown) =>
      String(await launch({ ranks: 1, run }).catch((error: Error) => (error.cause as Error).message));
    expect(await refused((world) => world.tensor("f32", [2]).fill(1.5))).toMatch(
      /result of the rank is Tensor f32 \[2\].*; expected its values: tensor\.toArray\(\)/,
    );
    expect(await refused((world) => ({ best: [world.tensor("f32", [2])] }))).toMatch(/an instance of Tensor/);
    expect(await refused(() => new (class Losses {})())).toMatch(/result of the rank is an instance of Losses/);
    expect(await refused(() => Object.assign(new Map(), { epochs: 3 }))).toMatch(/Map with the property epochs/);
    expect(await refused(() => ({ next: () => 1 }))).toMatch(/one that holds a function/);
  });
});

describe("more ranks than an nccl world of one host can have are refused", () => {
  const tooMany = { code: "INVALID_ARGUMENT", value: 17, accepted: expect.stringContaining("from 1 to 16") };

  it.each(["thread", "process"] as const)("before any %s is started", async (isolation) => {
    const takeHost = vi.fn(() => {
      throw new RangeError("a rank was started");
    });
    const options = { ranks: 17, backend: "nccl", isolation, run: () => 0 } as const;
    await expect(runWorld(options, takeHost, false)).rejects.toMatchObject(tooMany);
    expect(takeHost).not.toHaveBeenCalled();
    // With a rank less it is none of these that is wrong.
    await expect(runWorld({ ...options, ranks: 16 }, takeHost, false)).rejects.toThrow("a rank was started");
  });

  it("by every rank that another launcher started, before it looks for the others", async () => {
    const place = {
      launcher: "torchrun",
      variables: "RANK, WORLD_SIZE",
      rank: 3,
      size: 17,
      localRank: 3,
      generation: 1,
      spansHosts: undefined,
    };
    const argument = "number of ranks (of torchrun)";
    await expect(joinLaunched(place, NCCL_KIND)).rejects.toMatchObject({ ...tooMany, argument });
  });

  it("by a rebuild, and by programs that start their ranks themselves", () => {
    for (const isolation of ["thread", "process"] as const) {
      expect(() => new HostSide(NCCL_KIND, { ranks: 17, generation: 2, isolation })).toThrow(
        expect.objectContaining(tooMany),
      );
    }
    const host = createNcclHost({ ranks: 16 });
    expect(host.ranks).toBe(16);
    releaseNcclHost(host);
  });
});

describe("a rank that is a thread", () => {
  it.each([
    ["null", null],
    ["a message that looks like ours", { kind: "output", stream: "nowhere", text: 5 }],
    ["half a failure", { kind: "failed" }],
    ["a word", "hello"],
    ["a kind of Object.prototype's", { kind: "constructor" }],
  ])("fails, and nobody else, when its program posts %s to the launcher", async (_, message) => {
    const failing = launch({
      ranks: 2,
      data: { message },
      graceMs: 50,
      onOutput: () => {},
      run: async (world, data: { message: unknown }) => {
        const { parentPort } = await import("node:worker_threads");
        if (world.rank === 1) parentPort?.postMessage(data.message);
        return new Promise(() => setInterval(() => {}, 1000));
      },
    });
    await expect(failing).rejects.toMatchObject({
      rank: 1,
      cause: { message: expect.stringContaining("none of chorale's") },
    });
  });
});

it("says why the ranks' memory cannot be, and ends their threads", async () => {
  const call = launch({ ranks: 2, run: () => 0, backendOptions: { memoryLimitBytes: 5 } });
  await expect(call).rejects.toMatchObject({ code: "INVALID_ARGUMENT", argument: "memoryLimitBytes" });
});

it("ends the world with what onOutput throws", async () => {
  const failing = launch({
    ranks: 2,
    onOutput: () => {
      throw new RangeError("of the listener");
    },
    run: () => {
      console.log("a line");
      for (;;);
    },
  });
  await expect(failing).rejects.toThrow(new RangeError("of the listener"));
});

describe("a launching program", () => {
  const program = (run: string, afterFailure = "throw error") => {
    const path = join(folder, "program.mjs");
    const index = JSON.stringify(loadableUrl("runtime/world/index").href);
    writeFileSync(
      path,
      `import { mkdirSync } from "node:fs";
      import { launch } from ${index};
      const start = () => launch({ ranks: 1, run: ${run} });
      await start().catch((error) => { ${afterFailure}; });\n`,
    );
    return path;
  };

  it("that was killed leaves a folder that the next one removes", async () => {
    const scratch = join(folder, "scratch");
    mkdirSync(scratch);
    const env = { ...process.env, TMPDIR: scratch };
    const stuck = spawn(process.execPath, [program("() => { console.log('up'); for (;;); }")], { env });
    await once(stuck.stdout, "data");
    expect(readdirSync(scratch)).toHaveLength(1);
    stuck.kill("SIGKILL");
    await once(stuck, "exit");
    writeFileSync(join(scratch, "chorale-notes"), "the user's own");
    const [code] = await once(spawn(process.execPath, [program("() => 1")], { env, stdio: "inherit" }), "exit");
    expect(code).toBe(0);
    expect(readdirSync(scratch)).toEqual(process.platform === "linux" ? ["chorale-notes"] : expect.anything());
  });

  it("without a temporary folder is told so", async () => {
    const env = { ...process.env, TMPDIR: join(folder, "missing") };
    const child = spawn(process.execPath, [program("() => 1")], { env });
    const text: string[] = [];
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => text.push(chunk));
    await once(child, "close");
    expect(text.join("")).toContain("Set TMPDIR to a folder that exists");
    expect(existsSync(env.TMPDIR)).toBe(false);
  });

  it("may launch the same function again when the reason for its failure is gone", async () => {
    const env = { ...process.env, TMPDIR: join(folder, "made later") };
    const again = "mkdirSync(process.env.TMPDIR); return start()";
    const child = spawn(process.execPath, [program("() => console.log('works')", again)], { env });
    const text: string[] = [];
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (chunk: string) => text.push(chunk));
    }
    await once(child, "close");
    expect(text.join("")).toBe("[0] works\n");
  });
});
