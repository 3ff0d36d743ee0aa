/** The launcher's side of a tcp world: the secret of its ranks, and the folder in which they keep their flight logs. */
import { createHmac, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { FormatError, invariant } from "../../../core/index.ts";
import { type FlightDump, flightDump, type HostSpec } from "../../comm/index.ts";
import { createHostTensors } from "../../hosts/index.ts";
import { makeOwnFolder, removeOwnFolder } from "../../memory/index.ts";
import { readFlightLog } from "./flight-log.ts";
import { adoptedChoices, worldChoices } from "./tcp-choices.ts";
import type { TcpHandle, TcpOptions } from "./tcp-handle.ts";

const MEMORY_FOLDER = "/dev/shm";
const SECRET_BYTES = 32;
const KIND = "chorale-flight";
const PUBLISHED = "what the first rank's host published";
const SALT = /^[0-9a-f]{64}$/;

/** What the launcher knows of ranks that have failed, by their world's folder. */
const failed = new Map<string, Map<number, string>>();

/** @throws FormatError for tables of choices that are wrong */
export function createTcpHost({ ranks, generation, worldSecret }: HostSpec, options: TcpOptions = {}): TcpHandle {
  const choices = worldChoices(options.choices);
  const drawn = randomBytes(SECRET_BYTES).toString("hex");
  const own = { kind: "tcp", ranks, generation, ...(choices && { choices }), ...makeFiles(ranks) } as const;
  if (worldSecret === undefined) return { ...own, secret: drawn };
  return { ...own, salt: drawn, secret: secretOf(worldSecret, generation, drawn) };
}

/** The secret of one generation's ranks. It is never sent: every host has what it is made of. */
function secretOf(worldSecret: string, generation: number, salt: string): string {
  return createHmac("sha256", worldSecret).update(`chorale tcp ranks\n${generation}\n${salt}`).digest("hex");
}

/** What other hosts need of it: nothing that must be kept secret. */
export function publishTcpHost({ ranks, generation, salt, choices }: TcpHandle): object {
  invariant(salt !== undefined, "a tcp world of several hosts has a secret that they share");
  return { kind: "tcp", ranks, generation, salt, ...(choices && { choices }) };
}

/** Another host's side of what was published. @throws FormatError */
export function adoptTcpHost(published: unknown, worldSecret: string): TcpHandle {
  const { kind, ranks, generation, salt, choices: given } = (published ?? {}) as Partial<Record<string, unknown>>;
  const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;
  if (kind !== "tcp" || !isCount(ranks) || !isCount(generation) || typeof salt !== "string" || !SALT.test(salt)) {
    throw new FormatError(PUBLISHED, "is no world of the tcp backend");
  }
  const choices = adoptedChoices(given, PUBLISHED);
  const secret = secretOf(worldSecret, generation, salt);
  return { kind, ranks, generation, salt, secret, ...(choices && { choices }), ...makeFiles(ranks) };
}

/** What the ranks of this host share. */
function makeFiles(ranks: number): Pick<TcpHandle, "flightFolder" | "tensors"> {
  const flightFolder = makeFolder();
  // Not on a disk, to which all that is written in a tensor would go.
  const isMemory = flightFolder !== undefined && dirname(flightFolder) === MEMORY_FOLDER;
  return { flightFolder, tensors: ranks > 1 && isMemory ? createHostTensors(flightFolder) : undefined };
}

function makeFolder(): string | undefined {
  for (const folder of [MEMORY_FOLDER, tmpdir()]) {
    try {
      return makeOwnFolder(folder, KIND, "flight files");
    } catch {
      // Full, or not there: the next one. Without any the world runs, and its dumps are empty.
    }
  }
  return undefined;
}

export function releaseTcpHost({ flightFolder }: TcpHandle): void {
  if (flightFolder === undefined) return;
  failed.delete(flightFolder);
  removeOwnFolder(flightFolder);
}

/** Notes that a rank is dead. The ranks hear it from its connections, and from the launcher's bootstrap. */
export function failTcpRank({ flightFolder = "" }: TcpHandle, rank: number, cause: string, blamed = rank): void {
  // Who only ends because of another rank has not failed by itself.
  if (blamed !== rank) return;
  const known = failed.get(flightFolder) ?? new Map<number, string>();
  failed.set(flightFolder, known);
  if (!known.has(rank)) known.set(rank, cause);
}

/** Where a rank keeps its log. */
export const flightFile = (folder: string, rank: number): string => join(folder, `rank-${rank}.flight`);

export function readTcpFlight({ ranks, generation, flightFolder }: TcpHandle): FlightDump {
  // A rank that died before its first call is of the world all the same; of other groups only their calls tell.
  const groups = new Map<string, readonly number[]>([["world", Array.from({ length: ranks }, (_, rank) => rank)]]);
  const entries = Array.from({ length: ranks }, (_, rank) =>
    flightFolder === undefined ? [] : readLog(flightFile(flightFolder, rank)),
  );
  for (const [rank, calls] of entries.entries())
    for (const { group } of calls)
      groups.set(
        group,
        [...(groups.get(group) ?? []), rank].filter((r, i, list) => list.indexOf(r) === i),
      );
  const heads = [...groups].map(([name, members]) => ({ name, ranks: members, failure: undefined }));
  return flightDump({ backend: "tcp", generation, worldSize: ranks }, heads, (rank) => ({
    rank,
    failed: failed.get(flightFolder ?? "")?.get(rank),
    entries: entries[rank] ?? [],
  }));
}

function readLog(path: string) {
  try {
    return readFlightLog(readFileSync(path));
  } catch {
    return [];
  }
}
