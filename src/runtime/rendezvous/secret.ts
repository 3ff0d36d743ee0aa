/** The secret that a world's processes share: from the environment, or from a file that only its user can read. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { InvalidArgumentError, UnavailableError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { MIN_SECRET_CHARS } from "./handshake.ts";

const FILE_VARIABLE = "CHORALE_SECRET_FILE";
/** More than any secret has: the file is something else. */
const MAX_FILE_BYTES = 4096;

/** The variables that hold the secret, or lead to it. */
export const SECRET_VARIABLES = ["CHORALE_SECRET", FILE_VARIABLE] as const;

/**
 * Reads the secret: CHORALE_SECRET, or the file that CHORALE_SECRET_FILE names.
 * @throws UnavailableError saying how to make one; InvalidArgumentError for a file that others can read
 */
export function rendezvousSecret(env: Readonly<Record<string, string | undefined>>): string {
  const secret = env["CHORALE_SECRET"];
  if (secret !== undefined && secret !== "") return secret;
  const file = env[FILE_VARIABLE];
  if (file !== undefined && file !== "") return readSecret(file);
  throw new UnavailableError(
    "the secret by which the ranks know each other",
    `neither CHORALE_SECRET nor ${FILE_VARIABLE} is set`,
    'Make one before you start them: export CHORALE_SECRET="$(openssl rand -hex 32)" (with mpirun also: -x CHORALE_SECRET)',
  );
}

function readSecret(file: string): string {
  let fd: number;
  try {
    fd = openSync(file, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (cause) {
    throw new InvalidArgumentError(FILE_VARIABLE, file, `a file that can be read (${(cause as Error).message})`);
  }
  try {
    const { mode, size } = fstatSync(fd);
    const isRegular = (mode & constants.S_IFMT) === constants.S_IFREG;
    if (!isRegular || size > MAX_FILE_BYTES) {
      throw new InvalidArgumentError(FILE_VARIABLE, file, `a regular file of at most ${MAX_FILE_BYTES} bytes`);
    }
    if (process.platform !== "win32" && (mode & 0o077) !== 0) {
      const found = `${file}, which others can read (mode ${(mode & 0o777).toString(8)})`;
      throw new InvalidArgumentError(FILE_VARIABLE, described(found), "a file of this user alone: chmod 600");
    }
    const secret = readFileSync(fd, "utf8").trim();
    if (secret.length < MIN_SECRET_CHARS) {
      const found = described(`${file}, which holds ${secret.length} characters`);
      throw new InvalidArgumentError(
        FILE_VARIABLE,
        found,
        `${MIN_SECRET_CHARS} at least, such as openssl rand -hex 32 makes`,
      );
    }
    return secret;
  } finally {
    closeSync(fd);
  }
}
