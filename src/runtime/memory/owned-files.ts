/**
 * Names for files that a process must remove and cannot when it is killed: `KIND-MACHINE-PID-START-...` says whose they
 * are, so that the next process finds those of makers that are gone.
 */
import { createHash } from "node:crypto";
import { lstatSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, type Stats } from "node:fs";
import { join } from "node:path";
import { UnavailableError } from "../../core/index.ts";

/** Where process numbers mean the same, then the maker, then what only the file's kind knows. */
const AFTER_KIND = /^-([0-9a-f]{8})-(\d+)-(\d+)-(.*)$/;

/** The name of a file of this process. */
export function ownName(kind: string, rest: string): string {
  return `${kind}-${machine()}-${process.pid}-${startTime("self")}-${rest}`;
}

/**
 * Reads a name that `ownName` made.
 * @returns what came after the maker, and whether the maker was a process of this machine that is gone
 */
export function parseName(
  kind: string,
  name: string,
): { readonly rest: string; readonly isOrphan: boolean } | undefined {
  if (!name.startsWith(kind)) return undefined;
  const [, where, pid = "", started, rest = ""] = AFTER_KIND.exec(name.slice(kind.length)) ?? [];
  if (where === undefined) return undefined;
  return { rest, isOrphan: where === machine() && startTime(pid) !== started };
}

/**
 * Removes what this user's processes that are gone have left in `folder`. Never throws.
 * @param isOne whether a file or folder is of the kind to remove, by the rest of its name
 * @returns the names
 */
export function removeOrphans(folder: string, kind: string, isOne: (file: Stats, rest: string) => boolean): string[] {
  return listed(folder).filter((name) => {
    const owner = parseName(kind, name);
    if (!owner?.isOrphan) return false;
    const path = join(folder, name);
    try {
      const file = lstatSync(path);
      if (file.uid !== process.geteuid?.() || !isOne(file, owner.rest)) return false;
      rmSync(path, { recursive: true });
      return true;
    } catch {
      // Another process removed it meanwhile.
      return false;
    }
  });
}

/** Folders of this process that stand. */
const standing = new Set<string>();

/** Removes the folders that a process still has when it ends, also by process.exit(). */
function removeStanding(): void {
  for (const path of standing) removeOwnFolder(path);
}

/**
 * Makes a folder that only this user can open, and removes those of the kind that killed processes have left beside it.
 * It is removed by `removeOwnFolder`, when the process exits, or by the next process that makes one.
 * @param what it is for, in words
 * @returns its path
 * @throws UnavailableError when it cannot be made there
 */
export function makeOwnFolder(parent: string, kind: string, what: string): string {
  removeOrphans(parent, kind, (file) => file.isDirectory());
  let path: string;
  try {
    path = mkdtempSync(join(parent, ownName(kind, "")));
  } catch (cause) {
    const how = "Set TMPDIR to a folder that exists, that you may write, and that has room.";
    throw new UnavailableError(`a folder for ${what} in ${parent}`, (cause as Error).message, how, { cause });
  }
  if (standing.size === 0) process.on("exit", removeStanding);
  standing.add(path);
  return path;
}

export function removeOwnFolder(path: string): void {
  if (standing.delete(path) && standing.size === 0) process.off("exit", removeStanding);
  rmSync(path, { recursive: true, force: true });
}

function listed(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** When a process started, in ticks since boot; "0" where the system does not say; "" when there is no such process. */
function startTime(pid: string): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The second field is the program's name in parentheses, which may hold anything.
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "0";
  } catch {
    return process.platform === "linux" || !isAlive(pid) ? "" : "0";
  }
}

function isAlive(pid: string): boolean {
  if (pid === "self") return true;
  try {
    process.kill(Number(pid), 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

let machineKey: string | undefined;

/** Names the space in which process numbers and memory are shared: this boot of this machine, and the container. */
export function machine(): string {
  if (machineKey === undefined) {
    let text = process.platform;
    try {
      text += readFileSync("/proc/sys/kernel/random/boot_id", "latin1") + readlinkSync("/proc/self/ns/pid");
    } catch {
      // Not Linux: the folder is this machine's.
    }
    machineKey = createHash("sha256").update(text).digest("hex").slice(0, 8);
  }
  return machineKey;
}
