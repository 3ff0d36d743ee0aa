/** Processes that exit while their threads hold communicators, over a stand-in whose destructors crash then. */
import { spawnSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { buildFakeGpu } from "../../../../test/helpers/fake-gpu.ts";

const library = buildFakeGpu();
const world = new URL("../../../../.cache/dev/runtime/world/index.js", import.meta.url).href;

/** Runs a program that calls `end` when both ranks of a world have a communicator. */
function exitOf(end: string) {
  const program = `
    import { launch } from ${JSON.stringify(world)};
    process.exitCode = 0;
    const told = (line) => { if (line.text.startsWith("ready")) { setTimeout(() => { ${end} }); } };
    await launch({ ranks: 2, backend: "nccl", onOutput: told, run: async (world) => {
      await world.comm.allReduce(new Float32Array(4));
      if (world.rank === 0) console.log("ready");
      if (${JSON.stringify(end)} !== "") await new Promise((resolve) => setTimeout(resolve, 20_000));
    } });
    console.log("over");`;
  const path = library ?? "";
  return spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    encoding: "utf8",
    timeout: 60_000,
    env: { ...process.env, CHORALE_CUDA_LIBRARY: path, CHORALE_NCCL_LIBRARY: path, FAKE_GPU_STRICT_EXIT: "1" },
  });
}

const nccl = new URL("../../../../.cache/dev/runtime/backends/nccl/index.js", import.meta.url).href;

/** Runs a program that is a rank itself, in its main thread, as torchrun, mpirun and srun start one. */
function exitOfRank(end: string) {
  const program = `
    import { attachNccl, createNcclHost, releaseNcclHost } from ${JSON.stringify(nccl)};
    const handle = createNcclHost({ ranks: 1, interprocess: true });
    const backend = attachNccl(handle, 0);
    const x = backend.tensor("f32", [4]);
    await backend.world.allReduce(x);
    releaseNcclHost(handle);
    ${end}`;
  const path = library ?? "";
  return spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    encoding: "utf8",
    timeout: 60_000,
    env: { ...process.env, CHORALE_CUDA_LIBRARY: path, CHORALE_NCCL_LIBRARY: path, FAKE_GPU_STRICT_EXIT: "1" },
  });
}

describe.skipIf(library === undefined)("exits of a process with ranks over NCCL (needs a C++ compiler)", () => {
  it("tells an uncaught error and its code, and crashes in no destructor", () => {
    const { status, signal, stderr } = exitOf(`throw new Error("nobody caught this")`);
    expect({ status, signal }).toEqual({ status: 1, signal: null });
    expect(stderr.match(/nobody caught this/g)).not.toBeNull();
  });

  it("keeps the code of process.exit(), and what later listeners do", () => {
    const { status, signal, stdout } = exitOf(`process.on("exit", () => console.log("listener")); process.exit(7);`);
    expect({ status, signal }).toEqual({ status: 7, signal: null });
    expect(stdout).toContain("listener");
  });

  it("exits as ever once the world has ended", () => {
    const { status, signal, stdout } = exitOf("");
    expect({ status, signal }).toEqual({ status: 0, signal: null });
    expect(stdout).toContain("over");
  });

  it("does the same for a rank that is the process's main thread", () => {
    expect(exitOfRank("process.exit(3);")).toMatchObject({ status: 3, signal: null });
    const thrown = exitOfRank(`throw new Error("my own bug");`);
    expect(thrown).toMatchObject({ status: 1, signal: null });
    expect(thrown.stderr).toContain("my own bug");
    expect(exitOfRank(`console.log("left open");`)).toMatchObject({ status: 0, signal: null, stdout: "left open\n" });
    const listens = `process.on("exit", () => console.log("listener")); await backend.close(); process.exit(4);`;
    expect(exitOfRank(listens)).toMatchObject({ status: 4, signal: null, stdout: "listener\n" });
  });
});
