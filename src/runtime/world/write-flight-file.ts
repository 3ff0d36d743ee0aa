/** Writes what every rank of a generation did last, for `chorale doctor --flight`. */
import { closeSync, constants, openSync, renameSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeFolder } from "../../foreign/formats/internal.ts";
import type { FlightDump } from "../comm/index.ts";
import { culpritOf, type RankFailure } from "./remote-error.ts";

/** The environment variable that names the folder for dumps. */
const FOLDER_VARIABLE = "CHORALE_FLIGHT_DIR";

/** Whether this launcher was told to write dumps. */
export function recordsFlight(): boolean {
  const folder = process.env[FOLDER_VARIABLE];
  return folder !== undefined && folder !== "";
}

/**
 * As `recordFlight`, in two steps: reads at once, and writes when asked to. Survivors are told between them, because a disk may
 * be slow. @returns writes it, and gives its path as `recordFlight` does
 */
export function takeFlight(
  read: () => FlightDump,
  generation: number,
  failures: readonly RankFailure[],
): () => string | undefined {
  if (!recordsFlight()) return () => undefined;
  const known = [...failures];
  let dump: FlightDump;
  try {
    dump = read();
  } catch (error) {
    return () => {
      process.stderr.write(`chorale: cannot read what the ranks did last: ${String(error)}\n`);
      return undefined;
    };
  }
  return () => recordFlight(() => dump, generation, known);
}

/**
 * Writes the dump of one generation, which `read` gives, to the folder that CHORALE_FLIGHT_DIR names. Never throws.
 * @param failures of ranks of which the dump may say nothing
 * @param host the end of the file's name, of a dump that another host sent
 * @returns its path; `undefined` when no folder is named, or it cannot be written, which is said on stderr
 */
export function recordFlight(
  read: () => FlightDump,
  generation: number,
  failures: readonly RankFailure[] = [],
  host = "",
): string | undefined {
  const folder = process.env[FOLDER_VARIABLE];
  if (!recordsFlight() || folder === undefined) return undefined;
  try {
    makeFolder(folder, 0o700);
    const path = join(folder, `flight-${Date.now()}-${process.pid}-${generation}${host}.json`);
    // Under its name only when it is whole: a reader must not find half of it, nor this process's end leave it.
    const part = `${path}.part`;
    // Its user's alone (calls and failures are quoted in it), and never through a link or into a file that was there.
    const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
    const fd = openSync(part, O_WRONLY | O_CREAT | O_EXCL | (O_NOFOLLOW ?? 0), 0o600);
    try {
      writeFileSync(fd, JSON.stringify(withFailures(read(), failures)));
    } catch (error) {
      unlinkSync(part);
      throw error;
    } finally {
      closeSync(fd);
    }
    renameSync(part, path);
    return path;
  } catch (error) {
    process.stderr.write(`chorale: cannot write to ${FOLDER_VARIABLE}: ${String(error)}\n`);
    return undefined;
  }
}

function withFailures(dump: FlightDump, failures: readonly RankFailure[]): FlightDump {
  if (failures.length === 0) return dump;
  // Who reports another one's end has not failed by itself.
  const culprits = failures.map((failure) => culpritOf(failure, dump.worldSize));
  const ranks = dump.ranks.map((one) => {
    const culprit = culprits.find(({ rank }) => rank === one.rank);
    return { ...one, failed: one.failed ?? culprit?.text };
  });
  return { ...dump, ranks };
}
