/** Writes what every rank of a generation did last, for `chorale doctor --flight`. */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { FlightDump } from "../comm/index.ts";

/** The environment variable that names the folder for dumps. */
const FOLDER_VARIABLE = "CHORALE_FLIGHT_DIR";

/**
 * Writes the dump of one generation, which `read` gives, to the folder that CHORALE_FLIGHT_DIR names. Never throws.
 * @returns its path; `undefined` when no folder is named, or it cannot be written, which is said on stderr
 */
export function recordFlight(read: () => FlightDump, generation: number): string | undefined {
  const folder = process.env[FOLDER_VARIABLE];
  if (folder === undefined || folder === "") return undefined;
  try {
    mkdirSync(folder, { recursive: true });
    const path = join(folder, `flight-${Date.now()}-${process.pid}-${generation}.json`);
    // Under its name only when it is whole: a reader must not find half of it, nor this process's end leave it.
    const part = `${path}.part`;
    writeFileSync(part, JSON.stringify(read()));
    renameSync(part, path);
    return path;
  } catch (error) {
    process.stderr.write(`chorale: cannot write to ${FOLDER_VARIABLE}: ${String(error)}\n`);
    return undefined;
  }
}
