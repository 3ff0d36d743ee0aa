/** A tool or a recording that is broken or hostile: always an inventory, in bounded time and memory, nothing left behind. */
import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { islands } from "../topology/index.ts";
import { detect, detectOn, openMachine } from "./detect.ts";
import { number } from "./field-readers.ts";
import { openFiles } from "./files.ts";
import type { CommandRequest, CommandResult, CommandRunner } from "./machine.ts";
import { MAX_COMMAND_OUTPUT_BYTES } from "./machine.ts";
import { processRunner } from "./tool-runner.ts";

const scratch = () => scratchFolder("safety");

/** A folder with one tool, a shell script. */
function toolFolder(name: string, script: string): string {
  const folder = scratch();
  writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`);
  chmodSync(join(folder, name), 0o755);
  return folder;
}

/** A minimal recorded root. */
function root(files: Readonly<Record<string, string>> = {}): string {
  const folder = scratch();
  for (const [path, text] of Object.entries({ "proc/meminfo": "MemTotal: 1048576 kB\n", ...files })) {
    mkdirSync(join(folder, path, ".."), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
  return folder;
}

/** A runner that answers from a function, and remembers what was asked. */
function injected(
  answer: (request: CommandRequest) => Partial<CommandResult> | undefined,
): CommandRunner & { asked: string[] } {
  const asked: string[] = [];
  return {
    asked,
    run: async (request) => {
      asked.push(request.tool);
      const result = answer(request);
      return (
        result && {
          argv: [request.tool, ...request.args],
          exitCode: 0,
          stdout: "",
          stderr: "",
          timedOut: false,
          ...result,
        }
      );
    },
  };
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    // A zombie that init has not reaped yet is dead as well.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

async function until(condition: () => boolean, ms = 15_000): Promise<boolean> {
  const end = performance.now() + ms;
  while (!condition() && performance.now() < end) await new Promise((resolve) => setTimeout(resolve, 5));
  return condition();
}

describe.skipIf(process.platform === "win32")("running tools (posix)", () => {
  it("kills a hanging tool with its whole process group at the deadline", async () => {
    const pids = join(scratch(), "pids");
    const folder = toolFolder("nvidia-smi", `sleep 600 &\necho $$ $! > ${pids}\nwait`);
    const begin = performance.now();
    const result = await processRunner({ folders: [folder] }).run({ tool: "nvidia-smi", args: [], timeoutMs: 4_000 });
    expect(result).toMatchObject({ timedOut: true, exitCode: null });
    // The tool itself takes ten minutes.
    expect(performance.now() - begin).toBeLessThan(20_000);
    const started = readFileSync(pids, "utf8").trim().split(" ").map(Number);
    expect(started).toHaveLength(2);
    expect(await until(() => started.every((pid) => !alive(pid)))).toBe(true);
  });

  it("stops a tool that prints 100 MiB after 1 MiB, and keeps what it read", async () => {
    const folder = toolFolder("vulkaninfo", "head -c 104857600 /dev/zero | tr '\\0' 'x'; echo done");
    const before = process.memoryUsage().arrayBuffers;
    const result = await processRunner({ folders: [folder] }).run({ tool: "vulkaninfo", args: [], timeoutMs: 20_000 });
    expect(result).toMatchObject({ truncated: true, timedOut: false });
    expect(result?.stdout).toHaveLength(MAX_COMMAND_OUTPUT_BYTES);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(16 * 1024 ** 2);
  });

  it("reads while the tool runs: more than a pipe holds does not block it", async () => {
    const folder = toolFolder("vulkaninfo", "head -c 400000 /dev/zero | tr '\\0' 'y'; exit 3");
    const result = await processRunner({ folders: [folder] }).run({ tool: "vulkaninfo", args: [], timeoutMs: 20_000 });
    expect(result).toMatchObject({ exitCode: 3, timedOut: false });
    expect(result?.stdout).toHaveLength(400_000);
  });

  it("gives tools a clean environment, no input and no shell", async () => {
    const folder = toolFolder("hl-smi", 'env; echo "arg=$1"; read line && echo "read $line"; exit 0');
    process.env["LD_PRELOAD_PROBE"] = "x";
    process.env["CHORALE_SECRET"] = "s3cret";
    const result = await processRunner({ folders: [folder] }).run({
      tool: "hl-smi",
      args: ["$(touch /tmp/pwned); `id`"],
    });
    delete process.env["LD_PRELOAD_PROBE"];
    delete process.env["CHORALE_SECRET"];
    expect(result?.stdout).toContain("arg=$(touch /tmp/pwned); `id`");
    expect(result?.stdout).not.toMatch(/s3cret|LD_PRELOAD|read /);
    expect(result?.stdout).toMatch(/^PATH=\/usr\/local\/sbin/m);
  });

  it("finds tools in the named folders only, by absolute path", async () => {
    const folder = toolFolder("nvidia-smi", "echo $0");
    const spawned: string[] = [];
    const runner = processRunner({ folders: [folder], onSpawn: (path) => spawned.push(path) });
    expect((await runner.run({ tool: "nvidia-smi", args: [] }))?.stdout.trim()).toBe(join(folder, "nvidia-smi"));
    expect(await runner.run({ tool: "ls", args: [] })).toBeUndefined();
    expect(await runner.run({ tool: "../nvidia-smi", args: [] })).toBeUndefined();
    expect(spawned).toEqual([join(folder, "nvidia-smi")]);
  });

  it("runs emulated tools beside a root, in parallel, and says nothing of this machine", async () => {
    const tools = join(import.meta.dirname, "../../../test/fixtures/tools/h200");
    const inventory = await detect({ root: root(), tools });
    const gpus = inventory.devices.filter((d) => d.family === "nvidia-gpu");
    expect(gpus.map((d) => [d.name, d.memoryBytes])).toEqual(Array(4).fill(["NVIDIA H200", 143771 * 1024 ** 2]));
    expect(islands(inventory)).toMatchObject([{ devices: { length: 4 }, kind: "nvlink" }]);
    expect(inventory.devices[0]?.memoryBytes).toBe(1024 ** 3);
    await expect(openMachine({ tools })).rejects.toThrow(/--root/);
    // Without execution the tools are not run either.
    expect((await detect({ root: root(), tools, exec: false })).devices).toHaveLength(1);
  });

  it("takes as long as the slowest tool, not as all together", async () => {
    const names = ["nvidia-smi", "rocm-smi", "amd-smi", "xpu-smi", "hl-smi", "neuron-ls", "vulkaninfo"];
    const here = scratch();
    const present = names.map((name) => `[ -e ${here}/${name} ]`).join(" && ");
    const tools = scratch();
    for (const name of names) {
      // Each waits for all the others: one after the other, the first would wait until its time is over.
      const script = `: > ${here}/${name}\nuntil ${present}; do sleep 0.05; done\necho ${name} >> ${here}/met\nexit 1\n`;
      writeFileSync(join(tools, name), `#!/bin/sh\n${script}`);
      chmodSync(join(tools, name), 0o755);
    }
    await detect({ root: root(), tools });
    // Some are asked more than once.
    expect(new Set(readFileSync(join(here, "met"), "utf8").trim().split("\n"))).toEqual(new Set(names));
  });
});

describe("an injected runner", () => {
  const base = async (runner: CommandRunner, probeTimeoutMs = 5000) =>
    detectOn({ ...(await openMachine({ root: root() })), commands: runner }, { probeTimeoutMs });

  it("that never answers costs the probe's deadline and a warning", async () => {
    const begin = performance.now();
    const inventory = await base({ run: () => new Promise<undefined>(() => {}) }, 300);
    expect(performance.now() - begin).toBeLessThan(20_000);
    expect(inventory.devices.map((d) => d.family)).toEqual(["cpu"]);
    expect(inventory.warnings.map((w) => w.message)).toContain("the nvidia probe did not end within 300 ms");
  });

  it("that throws costs a warning", async () => {
    const inventory = await base({ run: () => Promise.reject(new Error("boom\u001b[31m")) });
    expect(inventory.devices).toHaveLength(1);
    expect(inventory.warnings.map((w) => w.message)).toContain("the nvidia probe failed: boom");
  });

  it("that prints 100 MiB is answered by what it kept", async () => {
    const huge = "0, NVIDIA H100 80GB HBM3, 1, 2\n".repeat(35_000).slice(0, MAX_COMMAND_OUTPUT_BYTES);
    const inventory = await base(
      injected(({ tool }) => (tool === "nvidia-smi" ? { stdout: huge, truncated: true, exitCode: null } : undefined)),
    );
    expect(inventory.warnings.some((w) => /more than 1 MiB/.test(w.message))).toBe(true);
    expect(inventory.devices.length).toBeLessThan(130);
  });

  it("that prints terminal escapes leaves none in the inventory", async () => {
    const evil = "\u001b]0;title\u0007\u001b[2J\u001b[31m";
    const row = `0, ${evil}NVIDIA L4\u001b[0m, GPU-1\u0008, 00000000:01:00.0, 23034, 0, 23034, 550\u202e.54`;
    const inventory = await base(
      injected(({ tool, args }) =>
        tool === "nvidia-smi" && args[0]?.startsWith("--query-gpu") === true
          ? {
              argv: [
                "nvidia-smi",
                "--query-gpu=index,name,uuid,pci.bus_id,memory.total,memory.used,memory.free,driver_version",
              ],
              stdout: `${row}\n`,
            }
          : tool === "hl-smi"
            ? { exitCode: 1, stderr: `${evil}oops` }
            : undefined,
      ),
    );
    expect(inventory.devices[1]).toMatchObject({ name: "NVIDIA L4", uuid: "GPU-1", driverVersion: "550.54" });
    expect(JSON.stringify(inventory)).not.toMatch(/\\u00(0[0-8]|1[b-f]|[89])|\\u202e/);
    expect(inventory.warnings.some((w) => w.message.endsWith(": oops"))).toBe(true);
  });

  it("is not called at all without execution", async () => {
    const runner = injected(() => ({ stdout: "" }));
    await detectOn({ ...(await openMachine({ root: root() })), commands: runner }, { exec: false });
    expect(runner.asked).toEqual([]);
  });
});

describe.skipIf(process.platform === "win32")("a hostile root (posix)", () => {
  it("cannot lead out of itself by links, and says which were refused", async () => {
    const folder = root({ "sys/class/net/keep": "" });
    mkdirSync(join(folder, "sys/class/drm/card0"), { recursive: true });
    symlinkSync("../../../../../../../../../../proc/self", join(folder, "sys/class/drm/card0/device"));
    symlinkSync("/etc", join(folder, "sys/class/infiniband"));
    symlinkSync("loop", join(folder, "loop"));
    const inventory = await detect({ root: folder });
    expect(inventory.devices.map((d) => d.family)).toEqual(["cpu"]);
    const refused = inventory.warnings.filter((w) => w.source === "files").map((w) => w.message);
    expect(refused).toContain("/sys/class/infiniband leads out of the root; refused");
    expect(refused.some((m) => m.startsWith("/sys/class/drm/card0/device"))).toBe(true);
  });

  it("cannot be left by dots, nor read a pipe, nor fill the memory", async () => {
    const folder = root({ big: "x".repeat(3 * 1024 ** 2), inner: "y" });
    const files = openFiles(folder);
    expect(await files.readText("/../../../../etc/passwd")).toBeUndefined();
    expect(await files.readText("/inner")).toBe("y");
    expect((await files.readText("/big"))?.length).toBe(1024 ** 2);
    expect(await files.readText("/big", 10)).toBe("xxxxxxxxxx");
    const { execFileSync } = await import("node:child_process");
    execFileSync("mkfifo", [join(folder, "pipe")]);
    expect(await files.readText("/pipe")).toBeUndefined();
    symlinkSync("/dev/zero", join(folder, "zero"));
    expect(await files.readText("/zero")).toBeUndefined();
    expect(files.refused).toContain("/zero");
  });

  it("with broken JSON still gives an inventory, and says which file", async () => {
    const folder = root({
      "env.json": "[",
      "nvml.json": '{"devices": 7}',
      "meta.json": "[]",
      "commands/a.json": "{",
      "commands/b.json": '{"argv": []}',
    });
    const { devices, warnings } = await detect({ root: folder });
    expect(devices).toHaveLength(1);
    expect(warnings.map((w) => w.source).sort()).toEqual([
      "commands/a.json",
      "commands/b.json",
      "env.json",
      "meta.json",
      "nvml.json",
    ]);
  });

  it("that is none is refused", async () => {
    await expect(detect({ root: scratch() })).rejects.toThrow(/recorded root is/);
    await expect(detect({ root: "/no/such/folder" })).rejects.toThrow(/recorded root is/);
  });
});

describe("a figure with an exponent", () => {
  it.each(["1e400", "1E+21", "1e-7 W"])("is none, rather than its first digits: %s", (text) => {
    expect(number(text)).toBeUndefined();
  });

  it.each([
    ["31", 31],
    ["70.12 W", 70.12],
    ["5 e", 5],
  ])("while a unit is ignored: %s", (text, value) => {
    expect(number(text)).toBe(value);
  });
});

describe("an island of GPUs in a row", () => {
  it.each([
    ["a", "b", "c"],
    ["b", "a", "c"],
  ])("carries nothing directly between its ends, whichever device is first: %s %s %s", (...ids) => {
    const found = islands({
      devices: ids.map((id, index) => ({
        id,
        family: "nvidia-gpu" as const,
        vendor: "NVIDIA",
        name: "GPU",
        index,
        dtypes: [],
        visible: true,
      })),
      topology: {
        nodes: ids.map((id) => ({ id, kind: "device" as const })),
        links: [
          { a: "a", b: "b", kind: "nvlink" as const, bandwidthGBps: 50 },
          { a: "b", b: "c", kind: "nvlink" as const, bandwidthGBps: 25 },
        ],
        pairs: [],
      },
    });
    expect(found).toMatchObject([{ devices: ids, bandwidthGBps: 0 }]);
  });
});
