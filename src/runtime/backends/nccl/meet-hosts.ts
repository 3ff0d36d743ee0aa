/**
 * How the ranks of a world of several hosts find out which of them share a host: each says which host it is on, and what NCCL
 * goes by when it tells hosts apart. What would make NCCL hang, or fail in its own words, is refused here with its reason.
 */
import { hostname, networkInterfaces } from "node:os";
import { FormatError, InvalidArgumentError, MismatchError, RankFailedError } from "../../../core/index.ts";
import { type Bootstrap, runningTime } from "../../comm/index.ts";
import { machine } from "../../memory/index.ts";
import { chosenBy, LOCAL_NETWORK } from "./interface-list.ts";

/** Where the ranks of a world are, as one of them sees it. */
export interface RankPlaces {
  /** Ranks of this host, and this one's place among them. */
  readonly local: readonly number[];
  readonly localRank: number;
  /** Ranks of other hosts. */
  readonly remote: readonly number[];
}

/** What a rank says of its place. */
interface Place {
  /** Chorale's name of its host. */
  readonly host: string;
  /** Host and machine, for messages. */
  readonly name: string;
  /** NCCL's name of its host, where it was told one; it makes one of the machine otherwise. */
  readonly ncclHost: string | undefined;
}

/**
 * Tells the other ranks where this one is, and hears where they are.
 * @throws TimeoutError naming the ranks that did not come; RankFailedError when one fails meanwhile; MismatchError when NCCL
 *   would take two hosts for one, or one for two; InvalidArgumentError when NCCL_SOCKET_IFNAME chooses no interface that
 *   is here, or that the others could reach
 */
export async function meetHosts(hostId: string, bootstrap: Bootstrap, timeoutMs: number): Promise<RankPlaces> {
  const { rank, worldSize, generation } = bootstrap;
  const here = Object.keys(networkInterfaces());
  const sockets = process.env["NCCL_SOCKET_IFNAME"];
  checkSockets(sockets, here, false);
  const own: Place = { host: hostId, name: `${hostname()} (${machine()})`, ncclHost: process.env["NCCL_HOSTID"] };
  await bootstrap.set(`nccl/place/${rank}`, Buffer.from(JSON.stringify(own)));
  const until = runningTime() + timeoutMs;
  const meeting = Promise.all(
    Array.from({ length: worldSize }, async (_, other) =>
      parsePlace(await bootstrap.get(`nccl/place/${other}`, { timeoutMs: Math.max(1, until - runningTime()) }), other),
    ),
  );
  const failing = new Promise<never>((_, reject) => {
    bootstrap.onFailure(({ rank: dead, message }) => reject(new RankFailedError(dead, generation, new Error(message))));
  });
  // What loses the race is no unhandled rejection.
  for (const one of [meeting, failing]) one.catch(() => {});
  const places = await Promise.race([meeting, failing]);
  checkHostNames(places);
  checkSockets(sockets, here, new Set(places.map(({ name }) => name)).size > 1);
  const all = places.map((_, other) => other);
  const local = all.filter((other) => places[other]?.host === hostId);
  return { local, localRank: local.indexOf(rank), remote: all.filter((other) => !local.includes(other)) };
}

/** Hosts of chorale's must be hosts to NCCL: it uses shared memory and peer access within what it takes for one. */
export function checkHostNames(places: readonly Place[]): void {
  const nameOf = ({ ncclHost, name }: Place) => ncclHost ?? name;
  const sideOf = (rank: number, { ncclHost, name }: Place) => {
    const told = ncclHost === undefined ? "NCCL_HOSTID is not set" : `NCCL_HOSTID=${ncclHost}`;
    return { rank, call: `${told}, on ${name}` };
  };
  for (const [rank, place] of places.entries()) {
    for (const [other, theirs] of places.entries()) {
      if (other <= rank) continue;
      const isOne = theirs.host === place.host;
      if (isOne === (nameOf(theirs) === nameOf(place))) continue;
      const problem = isOne
        ? "NCCL would take ranks of one host for ranks of two, and use the network between them: give them one NCCL_HOSTID, or none"
        : "NCCL would take ranks of two hosts for ranks of one: give each host an NCCL_HOSTID of its own";
      throw new MismatchError(problem, [sideOf(rank, place), sideOf(other, theirs)]);
    }
  }
}

/**
 * NCCL ends with "no socket interface found" where its list chooses none that is up, and hangs where others cannot reach it.
 * @param sockets NCCL_SOCKET_IFNAME
 * @param here the interfaces of this host that have an address
 * @param hasOthers whether other machines must reach it
 */
export function checkSockets(sockets: string | undefined, here: readonly string[], hasOthers: boolean): void {
  if (sockets === undefined || sockets.trim() === "") return;
  const chosen = chosenBy(sockets, here);
  const reaching = hasOthers ? chosen.filter((name) => name !== "lo" && !LOCAL_NETWORK.test(name)) : chosen;
  if (reaching.length > 0) return;
  const there = here.join(", ");
  throw new InvalidArgumentError(
    "NCCL_SOCKET_IFNAME",
    sockets,
    chosen.length === 0
      ? `the beginning of an interface with an address on ${hostname()} (${there}), after = a whole name, or unset`
      : `one that other hosts can reach, which ${chosen.join(", ")} of ${hostname()} is not (it has ${there}), or unset`,
  );
}

/** @throws FormatError */
function parsePlace(bytes: Uint8Array, rank: number): Place {
  try {
    const { host, name, ncclHost } = JSON.parse(Buffer.from(bytes).toString()) as Partial<Record<keyof Place, unknown>>;
    const isText = (value: unknown): value is string => typeof value === "string";
    if (isText(host) && isText(name) && (ncclHost === undefined || isText(ncclHost))) return { host, name, ncclHost };
  } catch {
    // Said below.
  }
  throw new FormatError(`the place of rank ${rank}`, "cannot be read");
}

/** @throws InvalidArgumentError for options that worlds of several hosts do not have */
export function checkAcrossHosts({ registerBuffers }: { readonly registerBuffers?: boolean }): void {
  if (registerBuffers !== true) return;
  throw new InvalidArgumentError("registerBuffers", true, "false in a world of several hosts");
}
