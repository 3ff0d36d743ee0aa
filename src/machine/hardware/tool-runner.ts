/**
 * Runs vendor tools: found in known folders, started by absolute path without a shell, in a clean environment and a
 * process group of their own. Output is taken while it comes and capped; at the deadline, or at the cap, the whole group
 * is killed.
 */

import { spawn } from "node:child_process";
import { constants } from "node:fs";
import { access, realpath, stat } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { wordTable } from "../../core/index.ts";
import { isBelow } from "./files.ts";
import {
  COMMAND_TIMEOUT_MS,
  type CommandRequest,
  type CommandResult,
  type CommandRunner,
  MAX_COMMAND_ERROR_BYTES,
  MAX_COMMAND_OUTPUT_BYTES,
} from "./machine.ts";

/** Where vendors install their tools, beside PATH. */
const VENDOR_FOLDERS = [
  "/usr/bin",
  "/usr/local/bin",
  "/usr/sbin",
  "/sbin",
  "/bin",
  "/opt/rocm/bin",
  "/opt/aws/neuron/bin",
  "/opt/habanalabs/bin",
  "/opt/qti-aic/tools",
  "/opt/cerebras/bin",
  "/usr/local/nvidia/bin",
  "/usr/lib/wsl/lib",
  "C:\\Windows\\System32",
  "C:\\Windows\\System32\\WindowsPowerShell\\v1.0",
  "C:\\Program Files\\NVIDIA Corporation\\NVSMI",
];

/** The tool's whole environment. Loader variables (LD_PRELOAD and its like) never reach it. */
const CLEAN_ENV: Readonly<Record<string, string>> = wordTable({
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  LANG: "C",
  LC_ALL: "C",
  TERM: "dumb",
  HOME: "/nonexistent",
});

export interface RunnerOptions {
  /** Folders to look in; nothing else is looked at. Default: PATH's absolute folders and the vendors' own. */
  readonly folders?: readonly string[];
  /** Run only programs that really stand in `folders`: links that lead elsewhere are refused. */
  readonly confined?: boolean;
  /** Told of every link that is refused. */
  readonly onRefused?: (path: string) => void;
  readonly timeoutMs?: number;
  /** Told of every tool that is started: its absolute path and arguments. */
  readonly onSpawn?: (path: string, args: readonly string[]) => void;
}

/** Makes a runner that starts real processes. */
export function processRunner(options: RunnerOptions = {}): CommandRunner {
  const folders = options.folders ?? [...pathFolders(), ...VENDOR_FOLDERS];
  const found = new Map<string, Promise<string | undefined>>();
  return {
    async run(request) {
      const tool = found.get(request.tool) ?? findTool(request.tool, folders, options);
      found.set(request.tool, tool);
      const path = await tool;
      if (path === undefined) return undefined;
      options.onSpawn?.(path, request.args);
      return runProcess(path, request, request.timeoutMs ?? options.timeoutMs ?? COMMAND_TIMEOUT_MS);
    },
  };
}

/** A runner that runs nothing. */
export const noCommands: CommandRunner = { run: async () => undefined };

function pathFolders(): string[] {
  const separator = process.platform === "win32" ? ";" : ":";
  // A relative folder in PATH would run whatever stands in the current folder.
  return (process.env["PATH"] ?? "").split(separator).filter((folder) => isAbsolute(folder));
}

async function findTool(
  tool: string,
  folders: readonly string[],
  { confined = false, onRefused }: RunnerOptions,
): Promise<string | undefined> {
  if (!/^[\w.-]+$/.test(tool)) return undefined;
  const names = process.platform === "win32" ? [`${tool}.exe`, tool] : [tool];
  for (const folder of folders) {
    for (const name of names) {
      const path = join(folder, name);
      try {
        await access(path, constants.X_OK);
        if (!(await stat(path)).isFile()) continue;
        const real = await realpath(path);
        if (confined && !isBelow(await realpath(folder), real)) {
          onRefused?.(path);
          continue;
        }
        return sameName(real, tool) ? real : path;
      } catch {
        // Not in this folder.
      }
    }
  }
  return undefined;
}

/** A link to a multi-call program keeps its own name, since the program looks at it. */
function sameName(path: string, tool: string): boolean {
  return (
    path
      .split(/[\\/]/)
      .at(-1)
      ?.replace(/\.exe$/i, "") === tool
  );
}

function runProcess(path: string, request: CommandRequest, timeoutMs: number): Promise<CommandResult> {
  const argv = [request.tool, ...request.args];
  return new Promise((settle) => {
    const windows = process.platform === "win32";
    let child: ReturnType<typeof spawn>;
    try {
      child = spawn(path, [...request.args], {
        cwd: windows ? "C:\\" : "/",
        env: windows ? { SystemRoot: process.env["SystemRoot"] ?? "C:\\Windows", ...CLEAN_ENV } : { ...CLEAN_ENV },
        stdio: ["ignore", "pipe", "pipe"],
        detached: !windows,
        windowsHide: true,
        shell: false,
      });
    } catch (error) {
      settle({ argv, exitCode: null, stdout: "", stderr: String(error), timedOut: false });
      return;
    }
    const out = new Capped(MAX_COMMAND_OUTPUT_BYTES);
    const err = new Capped(MAX_COMMAND_ERROR_BYTES);
    let settled = false;
    const finish = (exitCode: number | null, timedOut: boolean, problem = ""): void => {
      if (settled) return;
      settled = true;
      clearTimeout(timer);
      child.stdout?.destroy();
      child.stderr?.destroy();
      child.unref();
      settle({
        argv,
        exitCode,
        stdout: out.text(),
        stderr: problem + err.text(),
        timedOut,
        ...(out.full && { truncated: true }),
      });
    };
    const kill = (): void => {
      try {
        if (child.pid !== undefined && !windows) process.kill(-child.pid, "SIGKILL");
        else child.kill("SIGKILL");
      } catch {
        // The group is gone already.
      }
    };
    const timer = setTimeout(() => {
      kill();
      finish(null, true);
    }, timeoutMs);
    child.stdout?.on("data", (chunk: Buffer) => {
      if (out.push(chunk)) return;
      kill();
      finish(null, false);
    });
    child.stderr?.on("data", (chunk: Buffer) => {
      err.push(chunk);
    });
    child.on("error", (error) => {
      kill();
      finish(null, false, `${error.message}\n`);
    });
    child.on("close", (code) => finish(code, false));
  });
}

/** Collects at most `limit` bytes. */
class Capped {
  readonly #chunks: Buffer[] = [];
  #length = 0;
  full = false;
  readonly #limit: number;
  constructor(limit: number) {
    this.#limit = limit;
  }
  /** False when the limit is passed. */
  push(chunk: Buffer): boolean {
    const room = this.#limit - this.#length;
    if (chunk.length > room) this.full = true;
    const part = chunk.subarray(0, room);
    if (part.length > 0) this.#chunks.push(Buffer.from(part));
    this.#length += part.length;
    return !this.full;
  }
  text(): string {
    return Buffer.concat(this.#chunks).toString("utf8");
  }
}
