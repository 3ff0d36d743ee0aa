/** Files that list hosts, as Open MPI, MPICH and Slurm's scripts write them: one a line, with its number of ranks. */
import { InvalidArgumentError } from "../../core/index.ts";
import { readTextFile } from "../../foreign/formats/internal.ts";
import { MAX_RANKS } from "../../runtime/world/index.ts";

export interface ListedHost {
  /** As ssh takes it: a name, an address, or `user@name`. */
  readonly target: string;
  /** The target without its user. */
  readonly name: string;
  readonly ranks: number;
  /** The file says how many. */
  readonly hasSlots: boolean;
}

const MAX_FILE_BYTES = 1024 * 1024;
/** `name`, `name:4`, `name slots=4 max_slots=8`; a target that begins with a dash would be an option of ssh. */
const LINE =
  /^((?:[\w.-]+@)?([A-Za-z0-9_][\w.-]*|\[[0-9A-Fa-f:]+\]))(?:(?::|\s+slots=)(\d{1,4}))?(?:\s+max[_-]slots=(\d{1,4}))?$/;

/**
 * Reads a file of hosts. Empty lines and what follows a # are passed over.
 * @param ranks of hosts that do not say how many they have
 * @throws InvalidArgumentError for a line that is none and a list without hosts; FormatError for a file that cannot be read,
 *   is none, or has more than a mebibyte
 */
export function readHostFile(path: string, ranks: number | undefined): readonly ListedHost[] {
  const text = readTextFile(path, MAX_FILE_BYTES);
  const hosts = text.split(/\r?\n/).flatMap((line, index): ListedHost[] => {
    const words = line.replace(/#.*$/, "").trim();
    if (words === "") return [];
    const [, target, name = "", slots, mostSlots] = LINE.exec(words) ?? [];
    const place = `line ${index + 1} of ${path}`;
    if (target === undefined) {
      throw new InvalidArgumentError(place, words, "HOST, HOST:RANKS, or HOST slots=RANKS");
    }
    const given = slots ?? mostSlots;
    const count = given === undefined ? ranks : Number(given);
    if (count === undefined) throw new InvalidArgumentError(place, words, "a number of ranks (slots=N), or -n N");
    if (count < 1 || count > MAX_RANKS) throw new InvalidArgumentError(place, words, `1 to ${MAX_RANKS} ranks`);
    const hasSlots = given !== undefined;
    return [{ target: target.replace(/[[\]]/g, ""), name: name.replace(/[[\]]/g, ""), ranks: count, hasSlots }];
  });
  if (hosts.length === 0) throw new InvalidArgumentError("--hostfile", path, "a file that lists hosts, one a line");
  return hosts;
}
