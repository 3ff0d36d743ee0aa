/**
 * What a process shows and accepts where connections are encrypted: its certificate and key, and the authority that has signed
 * those of all others. Read from files, checked before anything connects. Certificates are not compared with names: who has one
 * of the authority's is a host of the cluster, and the secret says whether it is of this world.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";

/** Paths of PEM files. */
export interface TlsFiles {
  /** Certificates of the authorities that sign the peers' certificates. */
  readonly ca: string;
  /** This host's certificate, and those between it and the authority. */
  readonly cert: string;
  /** Its key, not encrypted; a file of this user alone. */
  readonly key: string;
}

/** The same, read: PEM. */
export interface TlsIdentity {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

type Part = keyof TlsFiles;
/** The variables that name the files. */
const TLS_VARIABLES = { ca: "CHORALE_TLS_CA", cert: "CHORALE_TLS_CERT", key: "CHORALE_TLS_KEY" } as const;
const PARTS = ["ca", "cert", "key"] as const;
/** More than any chain of certificates has: the file is something else. */
const MAX_FILE_BYTES = 1024 * 1024;

/**
 * The files that were named, with absolute paths: by an option, else by the environment.
 * @param names what the caller calls them, where that is not the option or the variables
 * @throws InvalidArgumentError where some are named and others are not
 */
export function tlsFiles(
  given: TlsFiles | undefined,
  env: Readonly<Record<string, string | undefined>>,
  names?: TlsFiles,
): TlsFiles | undefined {
  const named = PARTS.map((part) => (given === undefined ? env[TLS_VARIABLES[part]] || undefined : given[part]));
  if (given === undefined && named.every((path) => path === undefined)) return undefined;
  const [ca, cert, key] = PARTS.map((part, at) => {
    const path: unknown = named[at];
    if (typeof path === "string" && path !== "") return resolve(path);
    const what = names?.[part] ?? (given === undefined ? TLS_VARIABLES[part] : `tls.${part}`);
    throw new InvalidArgumentError(what, path, "the path of a PEM file: TLS needs ca, cert and key");
  });
  return { ca: ca ?? "", cert: cert ?? "", key: key ?? "" };
}

/** The variables by which the processes that this one starts find the files. */
export function tlsVariables(files: TlsFiles | undefined): Record<string, string> {
  return files === undefined ? {} : Object.fromEntries(PARTS.map((part) => [TLS_VARIABLES[part], files[part]]));
}

/** Reads and checks the files. @throws InvalidArgumentError saying which is wrong, and why */
export function tlsIdentity(files: TlsFiles): TlsIdentity {
  const ca = readPem("ca", files.ca);
  const cert = readPem("cert", files.cert);
  const key = readPem("key", files.key);
  const refuse = (part: Part, why: string): never => {
    throw new InvalidArgumentError(`the TLS ${part}`, files[part], why);
  };
  const parsed = <T>(part: Part, what: string, parse: () => T): T => {
    try {
      return parse();
    } catch (error) {
      return refuse(part, `${what} (${(error as Error).message})`);
    }
  };
  parsed("ca", "a certificate in PEM", () => new X509Certificate(ca));
  const own = parsed("cert", "a certificate in PEM", () => new X509Certificate(cert));
  const secret = parsed("key", "a private key in PEM that is not encrypted", () => createPrivateKey(key));
  if (!own.checkPrivateKey(secret)) refuse("key", `the key of the certificate ${files.cert}`);
  const now = Date.now();
  if (Date.parse(own.validTo) < now) refuse("cert", `one that has not expired (${own.validTo})`);
  if (Date.parse(own.validFrom) > now) refuse("cert", `one that is valid already (from ${own.validFrom})`);
  return { ca, cert, key };
}

/** What the environment says, read and checked. @throws InvalidArgumentError */
export function tlsFromEnvironment(env: Readonly<Record<string, string | undefined>>): TlsIdentity | undefined {
  const files = tlsFiles(undefined, env);
  return files === undefined ? undefined : tlsIdentity(files);
}

function readPem(part: Part, path: string): string {
  const what = `the TLS ${part}`;
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (cause) {
    throw new InvalidArgumentError(what, path, `a file that can be read (${(cause as Error).message})`);
  }
  try {
    const { mode, size } = fstatSync(fd);
    if ((mode & constants.S_IFMT) !== constants.S_IFREG || size > MAX_FILE_BYTES) {
      throw new InvalidArgumentError(what, path, `a regular file of at most ${MAX_FILE_BYTES} bytes`);
    }
    if (part === "key" && process.platform !== "win32" && (mode & 0o077) !== 0) {
      const found = `${path}, which others can read (mode ${(mode & 0o777).toString(8)})`;
      throw new InvalidArgumentError(what, described(found), "a file of this user alone: chmod 600");
    }
    return readFileSync(fd, "utf8");
  } finally {
    closeSync(fd);
  }
}

/** Looks at the first message of a peer, which says so when it takes connections over TLS only. @throws InvalidArgumentError */
export function refusePlain({ kind }: Readonly<Record<string, unknown>>, peer: string): void {
  if (kind !== "tls") return;
  const how = Object.values(TLS_VARIABLES).join(", ");
  throw new InvalidArgumentError(
    "TLS",
    described("off"),
    `on, as at ${peer}: tls of launch(), --tls-ca and so on, or ${how}`,
  );
}
