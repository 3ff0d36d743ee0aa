/**
 * Records a machine: whatever the probes read, list, resolve and run is written below a folder, which then replays to the
 * identical inventory. Only variables of a fixed list are recorded. Redaction replaces serial numbers, UUIDs, host
 * addresses and instance ids by stable stand-ins, so that equal ones stay equal.
 */
import { createHash } from "node:crypto";
import { mkdir, readdir, readlink, symlink, writeFile } from "node:fs/promises";
import { dirname, join, posix } from "node:path";
import { InvalidArgumentError } from "../../core/index.ts";
import { makeFolder } from "../../foreign/formats/internal.ts";
import type { Inventory } from "../topology/index.ts";
import { type DetectOptions, detectOn, openMachine } from "./detect.ts";
import { RECORDED_VARIABLES } from "./environment.ts";
import type { Access, CommandRequest, CommandResult, FileSystem, Machine } from "./machine.ts";

export interface RecordOptions extends DetectOptions {
  /** Replace serial numbers, UUIDs, MAC and IP addresses and instance ids. Default true. */
  readonly redact?: boolean;
  /** Record what nvidia-smi says also where NVML answers, so that both ways can be replayed. Default true. */
  readonly bothNvidiaSources?: boolean;
}

/**
 * Detects, and records all that detection saw below `folder`.
 * @returns the inventory that the recording replays to
 * @throws InvalidArgumentError when `folder` exists and is not empty
 */
export async function recordMachine(folder: string, options: RecordOptions = {}): Promise<Inventory> {
  const present = await readdir(folder).catch(() => []);
  if (folder === "" || present.length > 0)
    throw new InvalidArgumentError("--record", folder, "a folder that is empty or does not exist");
  const machine = await openMachine(options);
  try {
    makeFolder(folder);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new InvalidArgumentError("--record", folder, `a folder that can be made (${code ?? message})`);
  }
  const recording = new Recording(machine);
  await detectOn(recording.machine, options);
  if (options.bothNvidiaSources !== false && options.exec !== false && machine.platform !== "darwin") {
    await detectOn(recording.machine, { ...options, nvidiaSource: "nvidia-smi", families: ["nvidia-gpu"] });
  }
  await recording.write(folder, options.redact === false ? (text) => text : redactor());
  // What the recording says is the answer, so that what is printed is what will be replayed.
  const { root: _root, tools: _tools, machine: _machine, exec: _exec, ...rest } = options;
  return detectOn(await openMachine({ root: folder }), rest);
}

type Redact = (text: string) => string;

const DEVICE_NODES =
  /^(accel|apusys|cerebras|dri$|dxg$|groq|hl\d|infiniband$|ipu|kfd$|mtk|neuron|npu|nvidia|nvgpu|nvmap|nvswitch|qaic|samsung|vertex|vfio$)/;

/** Patterns of what identifies a machine or its owner. */
const IDENTIFYING: readonly RegExp[] = [
  /\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi,
  /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi,
  /\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b/gi,
  /\b(?:\d{1,3}\.){3}\d{1,3}\b/g,
  /\bi-[0-9a-f]{8,17}\b/g,
  /(?<=(?:serial|serial_number|Serial Number)["\s:>=]{1,4})[\w-]{6,32}/gi,
];

/** Makes a function that replaces identifying text by text of the same form, the same for the same. */
function redactor(): Redact {
  const stand = (found: string): string => {
    const digest = createHash("sha256").update(found.toLowerCase()).digest("hex");
    let at = 0;
    if (/^(\d{1,3}\.){3}\d{1,3}$/.test(found)) {
      // Versions such as 1.2.3.4 look the same; those of drivers have three parts and are not matched.
      return `10.${[0, 2, 4].map((i) => Number.parseInt(digest.slice(i, i + 2), 16)).join(".")}`;
    }
    return found.replace(/[0-9a-f]/gi, (digit, offset: number) =>
      /^(GPU|MIG)-/i.test(found) && offset < 4 ? digit : (digest[at++ % digest.length] ?? "0"),
    );
  };
  return (text) => IDENTIFYING.reduce((result, pattern) => result.replace(pattern, stand), text);
}

/** Only the mount of the root tells about a container; the others tell about their owner. */
function rootMount(mounts: string | undefined): string | undefined {
  return mounts?.split("\n").find((row) => /^\S+ \S+ \S+ \S+ \/ /.test(row));
}

class Recording {
  readonly machine: Machine;
  readonly #inner: Machine;
  readonly #texts = new Map<string, string>();
  readonly #folders = new Map<string, readonly string[]>();
  readonly #links = new Map<string, string>();
  readonly #access = new Map<string, Access>();
  readonly #commands: CommandResult[] = [];
  #nvml: unknown;

  constructor(inner: Machine) {
    this.#inner = inner;
    const files: FileSystem = {
      readText: async (path, maxBytes) => {
        const text = await inner.files.readText(path, maxBytes);
        const kept = path === "/proc/self/mountinfo" ? rootMount(text) : text;
        if (kept !== undefined && kept.length >= (this.#texts.get(path)?.length ?? 0)) this.#texts.set(path, kept);
        return kept;
      },
      list: async (path, maxEntries) => {
        const all = await inner.files.list(path, maxEntries);
        // Of /dev only what can belong to an accelerator is anyone's business.
        const names = path === "/dev" ? all.filter((name) => DEVICE_NODES.test(name)) : all;
        if (names.length > 0) this.#folders.set(path, names);
        return names;
      },
      realPath: async (path) => {
        const real = await inner.files.realPath(path);
        if (real !== undefined) this.#links.set(path, real);
        return real;
      },
      access: async (path) => {
        const access = await inner.files.access(path);
        this.#access.set(path, access);
        return access;
      },
      get refused() {
        return inner.files.refused;
      },
    };
    this.machine = {
      ...inner,
      files,
      commands: { run: (request) => this.#run(request) },
      nvml: async () => {
        const answer = await inner.nvml();
        if (!("available" in answer)) this.#nvml = answer;
        return answer;
      },
    };
  }

  async #run(request: CommandRequest): Promise<CommandResult | undefined> {
    const result = await this.#inner.commands.run(request);
    if (result !== undefined) {
      // The latest answer to the same call is the one that a replay gives.
      const same = this.#commands.findIndex((other) => other.argv.join("\n") === result.argv.join("\n"));
      if (same >= 0) this.#commands.splice(same, 1);
      this.#commands.push(result);
    }
    return result;
  }

  async write(folder: string, redact: Redact): Promise<void> {
    const at = (path: string) => join(folder, ...path.split("/"));
    const put = async (path: string, text: string) => {
      const real = await this.#canonical(path);
      await mkdir(dirname(at(real)), { recursive: true });
      await writeFile(at(real), redact(text));
    };
    const json = (name: string, value: unknown) =>
      writeFile(join(folder, name), `${redact(JSON.stringify(value, null, 2))}\n`);
    await mkdir(folder, { recursive: true });
    for (const [path, names] of this.#folders) {
      const real = await this.#canonical(path);
      await mkdir(at(real), { recursive: true });
      await this.#link(folder, path);
      for (const name of names) await this.#link(folder, `${path}/${name}`);
    }
    for (const path of this.#links.keys()) await this.#link(folder, path);
    for (const [path, text] of this.#texts) {
      await put(path, text);
      await this.#link(folder, path);
    }
    const odd: Record<string, Access> = {};
    for (const [path, access] of this.#access) if (access !== "absent") odd[path] = access;
    await this.#writeNames(folder);
    const env = Object.fromEntries(
      RECORDED_VARIABLES.flatMap((name) =>
        this.#inner.env[name] === undefined ? [] : [[name, this.#inner.env[name]]],
      ),
    );
    await json("env.json", env);
    await json("meta.json", {
      platform: this.#inner.platform,
      arch: this.#inner.arch,
      access: odd,
      recordedAt: new Date().toISOString(),
      redacted: redact("i-0123456789abcdef0") !== "i-0123456789abcdef0",
    });
    if (this.#nvml !== undefined) await json("nvml.json", this.#nvml);
    if (this.#commands.length > 0) await mkdir(join(folder, "commands"), { recursive: true });
    for (const [i, command] of this.#commands.entries()) {
      const name = `${String(i).padStart(2, "0")}-${command.argv[0]?.replace(/[^\w-]/g, "")}`;
      await json(join("commands", `${name}.json`), command);
    }
  }

  /** The path without symbolic links, as the recorded machine has it. */
  async #canonical(path: string): Promise<string> {
    return (await this.#inner.files.realPath(path)) ?? path;
  }

  /** Makes the link at `path`, and those above it, that lead to its canonical place. */
  async #link(folder: string, path: string): Promise<void> {
    const parts = path.split("/").filter((part) => part !== "");
    let real = "";
    for (const part of parts) {
      const child = `${real}/${part}`;
      const target = await this.#inner.files.realPath(child);
      if (target === undefined) return;
      if (target !== child) {
        await mkdir(join(folder, ...real.split("/")), { recursive: true });
        await mkdir(join(folder, ...dirname(target).split("/")), { recursive: true });
        const place = join(folder, ...child.split("/"));
        const known = await readlink(place).catch(() => undefined);
        if (known === undefined)
          await symlink(posix.relative(real === "" ? "/" : real, target), place).catch(() => undefined);
        // What the link leads to must be there for the link to resolve; a folder serves, a file replaces nothing.
        await this.#place(folder, target);
      }
      real = target;
    }
    await this.#place(folder, real);
  }

  async #place(folder: string, real: string): Promise<void> {
    const names = await this.#inner.files.list(real);
    const place = join(folder, ...real.split("/"));
    if (names.length > 0) await mkdir(place, { recursive: true });
  }

  /** Names in listed folders that nothing else made: device nodes, unread files. They become empty files. */
  async #writeNames(folder: string): Promise<void> {
    for (const [path, names] of this.#folders) {
      const real = await this.#canonical(path);
      for (const name of names) {
        const place = join(folder, ...real.split("/"), name);
        await writeFile(place, "", { flag: "wx" }).catch(() => undefined);
      }
    }
    for (const [path, access] of this.#access) {
      if (access === "absent") continue;
      const place = join(folder, ...(await this.#canonical(path)).split("/"));
      await mkdir(dirname(place), { recursive: true });
      await writeFile(place, "", { flag: "wx" }).catch(() => undefined);
    }
  }
}
