/** The launcher's side of a tcp world: the secret of its ranks, and the folder in which they keep their flight logs. */
import { randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { FLIGHT_SCHEMA_VERSION, type FlightDump, type HostSpec } from "../../comm/index.ts";
import { ownName, removeOrphans } from "../../memory/index.ts";
import { readFlightLog } from "./flight-log.ts";
import type { TcpHandle } from "./tcp-handle.ts";

const SECRET_BYTES = 32;
const KIND = "chorale-flight";
const NONCE = /^[0-9a-f]{16}$/;

/** What the launcher knows of ranks that have failed, by their world's folder. */
const failed = new Map<string, Map<number, string>>();

export function createTcpHost({ ranks, generation }: HostSpec): TcpHandle {
  const secret = randomBytes(SECRET_BYTES).toString("hex");
  return { kind: "tcp", ranks, generation, secret, flightFolder: makeFolder() };
}

/** A folder that only this user can open; removed by the next launcher when this one is killed. */
function makeFolder(): string | undefined {
  for (const folder of ["/dev/shm", tmpdir()]) {
    removeOrphans(folder, KIND, (file, rest) => file.isDirectory() && NONCE.test(rest));
    try {
      const path = join(folder, ownName(KIND, randomBytes(8).toString("hex")));
      mkdirSync(path, { mode: 0o700 });
      return path;
    } catch {
      // Full, or not there: the next one. Without any the world runs, and its dumps are empty.
    }
  }
  return undefined;
}

export function releaseTcpHost({ flightFolder }: TcpHandle): void {
  if (flightFolder === undefined) return;
  failed.delete(flightFolder);
  rmSync(flightFolder, { recursive: true, force: true });
}

/** Notes that a rank is dead. The ranks hear it from its connections, and from the launcher's bootstrap. */
export function failTcpRank({ flightFolder = "" }: TcpHandle, rank: number, cause: string): void {
  const known = failed.get(flightFolder) ?? new Map<number, string>();
  failed.set(flightFolder, known);
  if (!known.has(rank)) known.set(rank, cause);
}

/** Where a rank keeps its log. */
export const flightFile = (folder: string, rank: number): string => join(folder, `rank-${rank}.flight`);

export function readTcpFlight({ ranks, generation, flightFolder }: TcpHandle): FlightDump {
  const groups = new Map<string, readonly number[]>();
  const all = Array.from({ length: ranks }, (_, rank) => {
    const entries = flightFolder === undefined ? [] : readLog(flightFile(flightFolder, rank));
    for (const { group } of entries)
      groups.set(
        group,
        [...(groups.get(group) ?? []), rank].filter((r, i, list) => list.indexOf(r) === i),
      );
    return { rank, failed: failed.get(flightFolder ?? "")?.get(rank), entries };
  });
  return {
    schemaVersion: FLIGHT_SCHEMA_VERSION,
    backend: "tcp",
    generation,
    worldSize: ranks,
    host: hostname(),
    pid: process.pid,
    groups: [...groups].map(([name, members]) => ({ name, ranks: members, failure: undefined })),
    ranks: all,
  };
}

function readLog(path: string) {
  try {
    return readFlightLog(readFileSync(path));
  } catch {
    return [];
  }
}
