/**
 * A recorded root: `proc/`, `sys/`, `dev/` as files, `env.json`, `nvml.json`, `meta.json` (platform, architecture, what
 * could not be accessed) and `commands/*.json`. Nothing is executed and no library is loaded, unless a folder of
 * emulated tools is named.
 */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { InvalidArgumentError, type Unavailable } from "../../core/index.ts";
import { json, line, record } from "./field-readers.ts";
import { openFiles } from "./files.ts";
import type { Access, CommandResult, CommandRunner, FileSystem, Machine } from "./machine.ts";
import { MAX_COMMAND_ERROR_BYTES, MAX_COMMAND_OUTPUT_BYTES } from "./machine.ts";
import { nvmlSnapshotSchema } from "./nvml-snapshot.ts";
import { processRunner } from "./tool-runner.ts";

/** Most recorded commands that are read; a real recording has about a dozen. */
const MAX_RECORDED_COMMANDS = 256;
const PLATFORMS = ["linux", "darwin", "win32", "freebsd"] as const;

const commandSchema = z.object({
  argv: z.array(z.string()).min(1),
  exitCode: z.number().int().nullable().default(0),
  stdout: z.string().default(""),
  stderr: z.string().default(""),
  timedOut: z.boolean().default(false),
  truncated: z.boolean().optional(),
});

const metaSchema = z.object({
  platform: z.enum(PLATFORMS).optional(),
  arch: z.string().optional(),
  /** Paths whose access differs from that of the recorded (empty) file. */
  access: z.record(z.string(), z.enum(["absent", "denied", "ok"])).optional(),
  recordedAt: z.string().optional(),
  redacted: z.boolean().optional(),
});

interface Warning {
  readonly source: string;
  readonly message: string;
  readonly hint?: string;
}

/**
 * Opens a recorded root.
 * @throws InvalidArgumentError when `root` is no folder that holds a recording, or `tools` is no folder
 */
export async function openRecorded(root: string, options: { readonly tools?: string } = {}): Promise<Machine> {
  const { tools } = options;
  const found = tools === undefined ? undefined : await stat(tools).catch(() => undefined);
  if (tools !== undefined && found?.isDirectory() !== true) {
    throw new InvalidArgumentError("--tools", tools, "a folder that exists");
  }
  const files = openFiles(root);
  const names = await files.list("/");
  const expected = ["proc", "sys", "dev", "env.json", "nvml.json", "meta.json", "commands"];
  if (!names.some((name) => expected.includes(name))) {
    throw new InvalidArgumentError("recorded root", root, `a folder with at least one of ${expected.join(", ")}`);
  }
  const warnings: Warning[] = [];
  const read = async (name: string): Promise<unknown> => {
    const text = await files.readText(`/${name}`);
    const value = json(text);
    if (value === undefined && names.includes(name)) {
      const why = text === undefined ? "cannot be read as a regular file" : "is not JSON";
      warnings.push({ source: name, message: `${name} ${why}; ignored` });
    }
    return value;
  };
  const parsedMeta = metaSchema.safeParse((await read("meta.json")) ?? {});
  if (!parsedMeta.success)
    warnings.push({ source: "meta.json", message: "meta.json is not of the expected form; ignored" });
  const meta = parsedMeta.success ? parsedMeta.data : {};
  const env = Object.fromEntries(
    Object.entries(record(await read("env.json")) ?? {}).filter(
      (entry): entry is [string, string] => typeof entry[1] === "string",
    ),
  );
  const recorded = await readCommands(files, warnings);
  const nvml = await readNvml(await read("nvml.json"), warnings);
  return {
    platform: meta.platform ?? guessPlatform(names, recorded),
    arch: meta.arch ?? "unknown",
    env,
    files: withAccess(files, meta.access ?? {}),
    commands: recordedRunner(recorded, options.tools, warnings),
    nvml: async () => nvml,
    host: {},
    recorded: true,
    warnings,
  };
}

async function readNvml(value: unknown, warnings: Warning[]) {
  const absent: Unavailable = {
    available: false,
    what: "NVML",
    why: "the recording has no nvml.json",
    howToGetIt: "record the machine with chorale detect --record",
  };
  if (value === undefined) return absent;
  const parsed = nvmlSnapshotSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const where = line(issue?.path.join(".") ?? "");
  warnings.push({
    source: "nvml.json",
    message: `nvml.json is not of the expected form at ${where || "its top"}; ignored`,
  });
  return absent;
}

async function readCommands(files: FileSystem, warnings: Warning[]): Promise<CommandResult[]> {
  const names = (await files.list("/commands"))
    .filter((name) => name.endsWith(".json"))
    .slice(0, MAX_RECORDED_COMMANDS);
  const results: CommandResult[] = [];
  for (const name of names) {
    const value = json(await files.readText(`/commands/${name}`));
    const parsed = z.union([commandSchema, z.array(commandSchema).max(MAX_RECORDED_COMMANDS)]).safeParse(value);
    if (!parsed.success) {
      warnings.push({
        source: `commands/${line(name)}`,
        message: "not of the expected form (argv, exitCode, stdout, stderr, timedOut); ignored",
      });
      continue;
    }
    for (const { truncated, ...result } of [parsed.data].flat()) {
      const long = truncated === true || result.stdout.length > MAX_COMMAND_OUTPUT_BYTES;
      results.push({
        ...result,
        stdout: result.stdout.slice(0, MAX_COMMAND_OUTPUT_BYTES),
        stderr: result.stderr.slice(0, MAX_COMMAND_ERROR_BYTES),
        ...(long && { truncated: true }),
      });
    }
  }
  return results;
}

/** The tool's name in argv, without folder and `.exe`. */
function toolOf(argv: readonly string[]): string {
  return (argv[0]?.split(/[\\/]/).at(-1) ?? "").replace(/\.exe$/i, "");
}

function recordedRunner(
  recorded: readonly CommandResult[],
  tools: string | undefined,
  warnings: Warning[],
): CommandRunner {
  const onRefused = (path: string) =>
    warnings.push({ source: "tools", message: `${line(path)} leads out of the folder of tools; refused` });
  const emulated =
    tools === undefined ? undefined : processRunner({ folders: [join(tools)], confined: true, onRefused });
  return {
    async run(request) {
      const executed = await emulated?.run(request);
      if (executed !== undefined) return executed;
      const own = recorded.filter((result) => toolOf(result.argv) === request.tool);
      const equal = own.find(
        (r) => r.argv.length === request.args.length + 1 && request.args.every((a, i) => a === r.argv[i + 1]),
      );
      return equal ?? own.find((result) => request.accepts?.(result.argv.slice(1)) === true);
    },
  };
}

function guessPlatform(names: readonly string[], recorded: readonly CommandResult[]): NodeJS.Platform {
  if (names.includes("proc") || names.includes("sys")) return "linux";
  const tools = new Set(recorded.map((result) => toolOf(result.argv).toLowerCase()));
  if (tools.has("system_profiler")) return "darwin";
  if (tools.has("powershell") || tools.has("wmic")) return "win32";
  return "linux";
}

function withAccess(files: FileSystem, access: Readonly<Record<string, Access>>): FileSystem {
  return {
    readText: async (path, maxBytes) => (access[path] === "denied" ? undefined : files.readText(path, maxBytes)),
    list: (path, maxEntries) => files.list(path, maxEntries),
    realPath: (path) => files.realPath(path),
    access: async (path) => access[path] ?? files.access(path),
    get refused() {
      return files.refused;
    },
  };
}
