/** Folders to write to. */
import { mkdirSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, isAbsolute, join, resolve } from "node:path";

/** Where the XDG Base Directory Specification has folders of a user that no variable names. */
const BELOW_HOME = { XDG_DATA_HOME: [".local", "share"], XDG_CACHE_HOME: [".cache"] } as const;

/**
 * The user's folder for data or caches.
 * @returns `undefined` for a user without a home, such as a container's whose number has no name
 */
export function userFolder(
  variable: keyof typeof BELOW_HOME,
  env: NodeJS.ProcessEnv = process.env,
  home: () => string = homedir,
): string | undefined {
  const named = env[variable];
  // By the specification a relative path counts as none.
  if (named !== undefined && isAbsolute(named)) return named;
  try {
    const folder = home();
    return isAbsolute(folder) ? join(folder, ...BELOW_HOME[variable]) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Makes a folder and those above it, unless they are there. Node's `mkdir` with `recursive` never returns on file
 * systems that allow none, such as /proc.
 * @throws the system's error
 */
export function makeFolder(folder: string, mode = 0o777): void {
  try {
    makeOne(folder, mode);
  } catch (error) {
    const above = dirname(resolve(folder));
    if ((error as NodeJS.ErrnoException).code !== "ENOENT" || above === resolve(folder)) throw error;
    makeFolder(above, mode);
    makeOne(folder, mode);
  }
}

function makeOne(folder: string, mode: number): void {
  try {
    mkdirSync(folder, { mode });
  } catch (error) {
    if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true) throw error;
  }
}
