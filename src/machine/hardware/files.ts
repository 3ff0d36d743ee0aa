/**
 * Reads files of the machine or of a recorded root. Below a root every path is made canonical first and refused when it
 * leaves the root; only regular files are opened, without blocking, and never more than a bounded part of them is read.
 */
import { closeSync, constants, fstatSync, openSync, readdirSync, readSync, realpathSync } from "node:fs";
import { access, lstat, open, opendir, realpath, stat } from "node:fs/promises";
import { join, resolve, sep } from "node:path";
import { line } from "./field-readers.ts";
import { type Access, type FileSystem, MAX_FILE_BYTES, MAX_FOLDER_ENTRIES } from "./machine.ts";

/** What the paths below a folder begin with. The root of the file system ends in a separator by itself. */
function prefixOf(folder: string): string {
  return folder.endsWith(sep) ? folder : folder + sep;
}

/** Whether a canonical path lies below a canonical folder. */
export function isBelow(folder: string, path: string): boolean {
  return path.startsWith(prefixOf(folder));
}

/** Files of this machine (`root` absent) or of the folder `root`. */
export function openFiles(root?: string): FileSystem {
  return new RootedFiles(root);
}

/**
 * Files of the live kernel that are answered from its memory, without asking a device: reading them at once costs
 * microseconds, a round through the thread pool many times that. Everything else may block on a sick device and is read on
 * the pool.
 */
const FROM_KERNEL_MEMORY = /^\/(proc|sys\/devices\/system|sys\/devices\/virtual\/dmi|sys\/fs\/cgroup|sys\/module)\//;

function readNow(path: string, limit: number): string | undefined {
  let file: number | undefined;
  try {
    file = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    if (!fstatSync(file).isFile()) return undefined;
    const chunks: Buffer[] = [];
    for (let length = 0; length < limit; ) {
      const buffer = Buffer.alloc(Math.min(65_536, limit - length));
      const bytesRead = readSync(file, buffer, 0, buffer.length, null);
      if (bytesRead === 0) break;
      chunks.push(buffer.subarray(0, bytesRead));
      length += bytesRead;
    }
    return Buffer.concat(chunks).toString("utf8");
  } catch {
    return undefined;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function listNow(path: string, maxEntries: number): readonly string[] {
  try {
    return readdirSync(path).sort(byNumber).slice(0, maxEntries);
  } catch {
    return [];
  }
}

function resolveNow(path: string): string | undefined {
  try {
    return realpathSync.native(path);
  } catch {
    return undefined;
  }
}

const { compare: byNumber } = new Intl.Collator("en", { numeric: true });

/** Most refused links that are remembered (a hostile root may hold a million), and most that are told. */
const MAX_REFUSED = 4096;
const MAX_TOLD = 16;

class RootedFiles implements FileSystem {
  readonly #refused = new Set<string>();
  readonly #root: string | undefined;
  #realRoot: Promise<string | undefined> | undefined;

  constructor(root: string | undefined) {
    this.#root = root === undefined ? undefined : resolve(root);
  }

  /** In a fixed order: which file is asked for first depends on the disk. */
  get refused(): readonly string[] {
    return [...this.#refused].sort(byNumber).slice(0, MAX_TOLD);
  }

  async readText(path: string, maxBytes = MAX_FILE_BYTES): Promise<string | undefined> {
    if (this.#root === undefined && FROM_KERNEL_MEMORY.test(path))
      return readNow(path, Math.min(maxBytes, MAX_FILE_BYTES));
    const target = await this.#locate(path);
    if (target === undefined) return undefined;
    try {
      const handle = await open(target, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
      try {
        if (!(await handle.stat()).isFile()) return undefined;
        const limit = Math.min(maxBytes, MAX_FILE_BYTES);
        const chunks: Buffer[] = [];
        let length = 0;
        while (length < limit) {
          // sysfs files are a page at most, and their stat() size says nothing: read until nothing comes.
          const { bytesRead, buffer } = await handle.read(Buffer.alloc(Math.min(16_384, limit - length)), 0);
          if (bytesRead === 0) break;
          chunks.push(buffer.subarray(0, bytesRead));
          length += bytesRead;
          // sysfs gives a file at once; /proc may give it in pieces.
          if (bytesRead < 4096 && path.startsWith("/sys/")) break;
        }
        return Buffer.concat(chunks).toString("utf8");
      } finally {
        await handle.close();
      }
    } catch {
      return undefined;
    }
  }

  async list(path: string, maxEntries = MAX_FOLDER_ENTRIES): Promise<readonly string[]> {
    // A live folder of sysfs or /dev is the kernel's own list of names.
    if (this.#root === undefined) return listNow(path, maxEntries);
    const target = await this.#locate(path);
    if (target === undefined) return [];
    try {
      const names: string[] = [];
      for await (const entry of await opendir(target)) {
        names.push(entry.name);
        if (names.length >= maxEntries) break;
      }
      return names.sort(byNumber);
    } catch {
      return [];
    }
  }

  async realPath(path: string): Promise<string | undefined> {
    if (this.#root === undefined) return resolveNow(path);
    const target = await this.#locate(path);
    if (target === undefined) return undefined;
    const root = await this.#realRootPath();
    return root === undefined ? undefined : `/${target.slice(prefixOf(root).length).split(sep).join("/")}`;
  }

  async access(path: string): Promise<Access> {
    const target = await this.#locate(path);
    if (target === undefined) return "absent";
    try {
      await stat(target);
      await access(target, constants.R_OK | constants.W_OK);
      return "ok";
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === "ENOENT" ? "absent" : "denied";
    }
  }

  /** The canonical path on this machine; undefined when there is nothing, or when it leaves the root. */
  async #locate(path: string): Promise<string | undefined> {
    try {
      if (this.#root === undefined) return path;
      const root = await this.#realRootPath();
      if (root === undefined) return undefined;
      const wanted = join(root, path);
      const target = await realpath(wanted);
      if (target === root || isBelow(root, target)) return target;
      this.#refuse(path);
    } catch (error) {
      // A link that leads out of the root to nothing is refused as well, not merely absent.
      if (this.#root !== undefined && (await this.#isEscapingLink(path))) this.#refuse(path);
      else if ((error as NodeJS.ErrnoException).code === "ELOOP") this.#refuse(path);
    }
    return undefined;
  }

  async #isEscapingLink(path: string): Promise<boolean> {
    try {
      const wanted = join(this.#root as string, path);
      if (!(await lstat(wanted)).isSymbolicLink()) return false;
      const { readlink } = await import("node:fs/promises");
      const target = resolve(wanted, "..", await readlink(wanted));
      return target !== this.#root && !isBelow(this.#root as string, target);
    } catch {
      return false;
    }
  }

  #refuse(path: string): void {
    if (this.#refused.size < MAX_REFUSED) this.#refused.add(line(path));
  }

  #realRootPath(): Promise<string | undefined> {
    this.#realRoot ??= realpath(this.#root as string).catch(() => undefined);
    return this.#realRoot;
  }
}
