/** `chorale demo` on GPUs: over the stand-in of CUDA and NCCL, whose kernels are those of the example, run on the host. */
import { spawnSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { useEmulatedGpu } from "../../../examples/sharded-llama/testing/emulated-gpu.ts";
import { spread } from "../../../test/support/spread.ts";
import { type Inventory, parseSystem } from "../../machine/topology/index.ts";
import { findDevices } from "./demo/demo-devices.ts";
import { makeStyle, runDemo, showSpeed, showText } from "./index.ts";

const available = useEmulatedGpu();
const machine = (name: string) => parseSystem(name) as Inventory;

describe.skipIf(!available)("the demo on two GPUs over a stand-in library (needs g++)", { timeout: 180_000 }, () => {
  // By turns with the demo of the installed package (test/e2e/pack.test.ts).
  const isDue = spread(["devices", "installed"], 2).includes("devices");
  it.runIf(isDue)("runs the model and the sweep on them, beside the CPU", async () => {
    const sweeps: [ranks: number, backend: string][] = [];
    const report = await runDemo({
      inventory: machine("rtx4090-2"),
      maxNewTokens: 2,
      maxSweepBytes: 4096,
      listener: { sweepStarts: (ranks, backend) => sweeps.push([ranks, backend]) },
    });
    expect(report.tokensIdentical).toBe(true);
    const { devices } = report;
    if (devices === undefined || "failed" in devices) throw new Error(`not on the GPUs: ${JSON.stringify(devices)}`);
    expect(devices).toMatchObject({ backend: "nccl", equalsReference: true });
    expect(devices.run).toMatchObject({ backend: "nccl", ranks: 2, mesh: { dp: 1, pp: 1, tp: 2 } });
    expect(devices.run.tokens).toEqual(report.runs.single.tokens);
    expect(devices.maxLogitDifference).toBeLessThan(1e-3);
    expect(devices.plan.ranks.map(({ deviceId }) => deviceId)).toEqual(["gpu0", "gpu1"]);
    expect(report.runs.sharded).toMatchObject({ backend: "threads", ranks: 4 });
    expect(sweeps[0]).toEqual([2, "nccl"]);
    expect(sweeps[1]?.[1]).toBe("threads");
    expect(devices.sweep?.rows.map(({ backend, wrong }) => [backend, wrong])).toEqual([
      ["nccl", 0],
      ["nccl", 0],
    ]);
    const style = makeStyle(false);
    expect(showText(style, report.prompt, report).join("\n")).toMatch(/✓ 2 tokens of 2 GPUs with nccl are those, too/);
    expect(showSpeed(style, report.runs, report.cores, devices).join("\n")).toMatch(/nccl, tp 2 x pp 1 +\d+ tokens/);
    const wrong = { ...report, devices: { ...devices, equalsReference: false } };
    expect(showText(style, report.prompt, wrong).join("\n")).toContain("✗ 2 tokens of 2 GPUs");
  });

  it("takes as many of them as a plan can use", async () => {
    const meshOn = async (name: string) => {
      const found = await findDevices(machine(name));
      if (found === undefined || "unused" in found) throw new Error(`no devices: ${found?.unused}`);
      const { pp, tp } = found.plan.plan.mesh.axes;
      return [found.count, pp, tp];
    };
    expect(await meshOn("l4")).toEqual([1, 1, 1]);
    expect(await meshOn("rtx4090-2")).toEqual([2, 1, 2]);
    expect(await meshOn("hgx-h100-8")).toEqual([8, 2, 2]);
  });
});

describe("the demo's search for GPUs", () => {
  it("finds none on a machine without, nor any that nothing here drives", async () => {
    const h100 = machine("hgx-h100-8");
    const cpus = { ...h100, devices: h100.devices.filter(({ family }) => family === "cpu") };
    expect(await findDevices(cpus)).toBeUndefined();
    expect(await findDevices(machine("mi300x-8"))).toBeUndefined();
  });

  // In a process of its own: libraries are looked for once.
  it.each(["CUDA", "NCCL"])("says why GPUs stand idle where %s is missing", (library) => {
    const file = (path: string) => JSON.stringify(new URL(`../../../.cache/dev/${path}`, import.meta.url).href);
    const program = `
      import { findDevices } from ${file("apps/bench/demo/demo-devices.js")};
      import { showUnused } from ${file("apps/bench/index.js")};
      import { parseSystem } from ${file("machine/topology/index.js")};
      console.log(showUnused((await findDevices(parseSystem("rtx4090-2"))).unused).join(" "));`;
    const env = { ...process.env, [`CHORALE_${library}_LIBRARY`]: "/nowhere/lib.so" };
    const { stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
      encoding: "utf8",
      env,
    });
    expect(stderr).toBe("");
    expect(stdout.replace(/\s+/g, " ")).toMatch(/The GPUs here are not used: .*is not available.*\/nowhere\/lib\.so/);
  });
});
