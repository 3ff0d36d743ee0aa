/**
 * Files of recorded roots and machines' stores as `FileOption`s: each is one file among many that a command reads, so
 * that a broken one may be a warning, or no finding at all, where a file that is an option's own value is refused.
 */
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { FileOption } from "./file-option.ts";

const ROOTS = fileURLToPath(new URL("../fixtures/machines/roots/", import.meta.url));

interface Recorded {
  readonly argv: readonly string[];
  readonly exitCode: number;
  readonly stdout: string;
}

/** Small roots of every vendor whose tools or files are parsed, and the files of each that are changed. */
const FILES: readonly (readonly [machine: string, files: readonly string[]])[] = [
  ["nvidia-rtx4090-2", ["commands/00-nvidia-smi.json", "commands/01-nvidia-smi.json", "commands/02-nvidia-smi.json"]],
  ["nvidia-nvml-a40-bridges", ["nvml.json", "proc/meminfo", "proc/cpuinfo"]],
  ["nvidia-container-limits", ["env.json"]],
  ["amd-smi-mi350x-2", ["commands/00-amd-smi.json", "commands/01-amd-smi.json"]],
  [
    "amd-mi250x-8",
    [
      "sys/class/kfd/kfd/topology/nodes/8/io_links/3/properties",
      "sys/class/kfd/kfd/topology/nodes/8/mem_banks/0/properties",
    ],
  ],
  [
    "amd-strix-halo",
    [
      "sys/devices/pci0000:00/0000:00:08.1/current_link_speed",
      "sys/devices/pci0000:00/0000:00:08.1/0000:c5:00.0/mem_info_gtt_total",
    ],
  ],
  ["gaudi2-8", ["commands/00-hl-smi.json"]],
  ["neuron-inf2.48xlarge", ["commands/00-neuron-ls.json"]],
  ["apple-m4-max", ["commands/00-sysctl.json", "commands/01-system_profiler.json", "commands/02-system_profiler.json"]],
  ["intel-max1100-xe-link", ["commands/00-xpu-smi.json", "commands/01-xpu-smi.json"]],
];

/** The roots that stand as copies, and the one file that each differs by. */
const copies = new Map<string, string>();

/** A copy of a machine's root in the folder of `path`, with what `path` holds in place of one file, or of its output. */
function rootWith(machine: string, file: string, path: string): string {
  const root = join(dirname(path), "root");
  const target = join(root, file);
  if (copies.get(root) === target && existsSync(target))
    writeFileSync(target, readFileSync(join(ROOTS, machine, file)));
  else {
    rmSync(root, { recursive: true, force: true });
    cpSync(join(ROOTS, machine), root, { recursive: true, verbatimSymlinks: true });
    copies.set(root, target);
  }
  const changed = readFileSync(path);
  if (/^commands\//.test(file)) {
    const recorded = JSON.parse(readFileSync(target, "utf8")) as Recorded;
    writeFileSync(target, JSON.stringify({ ...recorded, stdout: changed.toString("utf8") }));
  } else writeFileSync(target, changed);
  return root;
}

/** What a command printed, or what a file holds. */
function contentOf(machine: string, file: string): Uint8Array {
  const bytes = readFileSync(join(ROOTS, machine, file));
  if (!/^commands\//.test(file)) return bytes;
  return Buffer.from((JSON.parse(bytes.toString("utf8")) as Recorded).stdout);
}

/** A root whose `nvidia-smi` is a program that prints what the file holds. */
function toolsOf(path: string): readonly string[] {
  const tools = join(dirname(path), "tools");
  if (!existsSync(tools)) mkdirSync(tools);
  writeFileSync(join(tools, "nvidia-smi"), `#!/bin/sh\nexec cat '${path}'\n`, { mode: 0o755 });
  return ["--root", join(ROOTS, "amd-smi-mi350x-2"), "--tools", tools];
}

/** Every command that reads a recorded root, and every file of it that has a parser of its own. */
export function rootOptions(plan: string): readonly FileOption[] {
  const one = "commands/00-nvidia-smi.json";
  const nvidia = "nvidia-rtx4090-2";
  const readers: readonly (readonly [string, (root: string) => readonly string[]])[] = [
    ["topo --root", (root) => ["topo", "--root", root]],
    ["doctor --root", (root) => ["doctor", "--root", root]],
    ["plan --hardware: root", (root) => ["plan", "gpt2", "--hardware", root]],
    ["sim --topology: root", (root) => ["sim", plan, "--topology", root, "-b", "64K", "-e", "64K"]],
    ["synth --topology: root", (root) => ["synth", "broadcast", "--topology", root]],
  ];
  return [
    ...FILES.flatMap(([machine, files]) =>
      files.map(
        (file): FileOption => ({
          name: `detect --root: ${machine}/${file}`,
          file: "part.txt",
          content: contentOf(machine, file),
          argv: (path) => ["detect", "--root", rootWith(machine, file, path), "--json"],
        }),
      ),
    ),
    {
      name: "detect --root: a recorded command",
      file: "part.json",
      content: readFileSync(join(ROOTS, nvidia, one)),
      argv: (path) => {
        const root = rootWith(nvidia, one, path);
        writeFileSync(join(root, one), readFileSync(path));
        return ["detect", "--root", root];
      },
    },
    ...readers.map(
      ([name, argv]): FileOption => ({
        name,
        file: "part.txt",
        content: contentOf(nvidia, one),
        argv: (path) => argv(rootWith(nvidia, one, path)),
      }),
    ),
    ...(process.platform === "win32" ? [] : ["detect", "topo", "doctor"]).map(
      (command): FileOption => ({
        name: `${command} --tools`,
        file: "part.txt",
        content: contentOf(nvidia, one),
        argv: (path) => [command, ...toolsOf(path)],
        isSlow: true,
      }),
    ),
  ];
}
