/**
 * What a probe may ask of a machine: files, commands, environment, NVML. Everything goes through this interface, so that
 * a recorded root, an emulated tool or a test can stand in for the live machine.
 */
import type { Unavailable } from "../../core/index.ts";
import type { NvmlSnapshot } from "./nvml-snapshot.ts";

/** Most bytes taken from one command: full `vulkaninfo` of four GPUs is about 400 KiB, `nvidia-smi -q -x` of eight 250 KiB. */
export const MAX_COMMAND_OUTPUT_BYTES = 1024 * 1024;
/** Most bytes kept of a command's error output: enough for a message. */
export const MAX_COMMAND_ERROR_BYTES = 64 * 1024;
/** Most bytes read of one file: the largest we read, /proc/cpuinfo of 512 threads, is about 800 KiB. */
export const MAX_FILE_BYTES = 1024 * 1024;
/** Most entries read of one folder: /sys/bus/pci/devices of a large server has about 500. */
export const MAX_FOLDER_ENTRIES = 4096;
/** Time that one command may take. `nvidia-smi` without persistence mode initialises GPUs one after the other. */
export const COMMAND_TIMEOUT_MS = 10_000;
/** Time that one probe may take: a library that hangs, and after it the tool that stands in for it. */
export const PROBE_TIMEOUT_MS = 25_000;

export interface CommandRequest {
  /** Name of the tool, without folder. */
  readonly tool: string;
  readonly args: readonly string[];
  readonly timeoutMs?: number;
  /** Which recorded arguments answer this request too, beside equal ones: `nvidia-smi` with other query columns. */
  readonly accepts?: (args: readonly string[]) => boolean;
}

export interface CommandResult {
  /** The arguments that were really used, the tool's name first. */
  readonly argv: readonly string[];
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;
  /** The output was longer than MAX_COMMAND_OUTPUT_BYTES; the tool was stopped there. */
  readonly truncated?: boolean;
}

/** Runs tools. Gives undefined when the tool is not on the machine or may not be run. Never throws. */
export interface CommandRunner {
  run(request: CommandRequest): Promise<CommandResult | undefined>;
}

export type Access = "absent" | "denied" | "ok";

/** Reads files. Paths are absolute and posix. Never throws: what cannot be read is undefined or empty. */
export interface FileSystem {
  readText(path: string, maxBytes?: number): Promise<string | undefined>;
  /** Names in a folder, sorted; empty when there is no such folder. At most `maxEntries`, or MAX_FOLDER_ENTRIES. */
  list(path: string, maxEntries?: number): Promise<readonly string[]>;
  /** The path with every symbolic link resolved; undefined when it leads nowhere or out of the root. */
  realPath(path: string): Promise<string | undefined>;
  /** Whether this process may read and write it. */
  access(path: string): Promise<Access>;
  /** What was refused, for the warnings. */
  readonly refused: readonly string[];
}

export type NvmlSource = () => Promise<NvmlSnapshot | Unavailable>;

/** Facts of the running system that only the operating system's interface tells (none of a recorded root). */
export interface HostFacts {
  readonly cpuModel?: string;
  readonly cpuCount?: number;
  readonly memoryBytes?: number;
  readonly freeMemoryBytes?: number;
}

export interface Machine {
  readonly platform: NodeJS.Platform;
  readonly arch: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly files: FileSystem;
  readonly commands: CommandRunner;
  readonly nvml: NvmlSource;
  readonly host: HostFacts;
  /** True of a recording: probes of every platform run, since nothing is executed. */
  readonly recorded: boolean;
  /** What the root itself gave cause to warn of. */
  readonly warnings: readonly { readonly source: string; readonly message: string; readonly hint?: string }[];
}
