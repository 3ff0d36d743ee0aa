/** How the ranks of a world find and connect to each other: each listens, publishes where, and calls the lower ones. */
import { FormatError, RankFailedError, TimeoutError } from "../../../core/index.ts";
import { afterRunning, type Bootstrap, runningTime } from "../../comm/index.ts";
import type { ChoiceDocument } from "../../executor/internal.ts";
import { type Introduction, knock, PeerDoor, type PeerSocket, type TlsIdentity } from "../../rendezvous/index.ts";
import { MAX_CONNECTIONS } from "./capabilities.ts";
import type { LinkKeys } from "./link.ts";
import { describeInterfaces, HOST_SETTINGS } from "./own-address.ts";
import { digestOf } from "./tcp-choices.ts";
import type { ChecksumMode } from "./tcp-handle.ts";

/** Number of the frames' form: ranks of one world must have the same. Raised whenever frame.ts or a schedule changes. */
const FRAMES = 6;

/** The connections to one peer. */
export interface PeerSockets {
  readonly sockets: readonly PeerSocket[];
  /** `HOST:PORT`, for messages. */
  readonly address: string;
  readonly keys: LinkKeys;
}

interface MeetOptions {
  readonly bootstrap: Bootstrap;
  readonly secret: string;
  /** Where this rank listens. */
  readonly host: string;
  /** Connections to each rank that calls this one: the callee of a pair says how many it has. */
  readonly connections: number;
  /** All ranks must have the same. */
  readonly checksum: ChecksumMode;
  /** As well. */
  readonly choices?: ChoiceDocument | undefined;
  readonly timeoutMs: number;
  /** Connections are over TLS. */
  readonly tls?: TlsIdentity | undefined;
}

/** What both ends of a connection must have the same of: the frames' form, whether they have checksums, and tables of choices. */
const versionOf = (checksum: ChecksumMode, choices: string) =>
  `frames ${FRAMES}, checksum ${checksum}, choices ${choices}`;

/** @returns undefined for a version of other frames */
function settingsOf(version: string): { readonly checksum: string; readonly choices: string } | undefined {
  const [, frames, checksum, choices] = /^frames (\d+), checksum (\w+), choices (\w+)$/.exec(version) ?? [];
  return checksum === undefined || choices === undefined || frames !== String(FRAMES)
    ? undefined
    : { checksum, choices };
}

/** How a difference is mended. */
const SETTINGS = {
  checksum: "option checksum, or CHORALE_TCP_CHECKSUM",
  choices: "option choices; without it all take the tables of the first host",
} as const;

/** Says why a rank is not let in. */
function refusalOf(mine: Introduction, theirs: Introduction, taken: ReadonlySet<string>): string | undefined {
  const differing = (["worldSize", "generation", "version"] as const).find((key) => mine[key] !== theirs[key]);
  const [here, there] = [settingsOf(mine.version), settingsOf(theirs.version)];
  const setting = (["checksum", "choices"] as const).find((name) => here?.[name] !== there?.[name]);
  if (differing === "version" && there !== undefined && setting !== undefined) {
    const both = `"${here?.[setting]}" on rank ${mine.to} and "${there[setting]}" on rank ${theirs.from}`;
    const what =
      setting === "choices" ? `the tables of choices are ${both} (digests, or none)` : `${setting} is ${both}`;
    return `${what}: give all ranks the same (${SETTINGS[setting]})`;
  }
  if (differing !== undefined) return `the ${differing} is ${mine[differing]}, not ${theirs[differing]}`;
  if (theirs.to !== mine.to) return `this is rank ${mine.to}, not ${theirs.to}`;
  if (theirs.from <= mine.to || theirs.from >= mine.worldSize)
    return `rank ${theirs.from} does not call rank ${mine.to}`;
  if (theirs.index >= mine.index) return `pairs have ${mine.index} connections here`;
  return taken.has(`${theirs.from} ${theirs.index}`) ? `rank ${theirs.from} is connected already` : undefined;
}

/**
 * Connects this rank to all others.
 * @returns the connections, by rank; none for this one
 * @throws TimeoutError naming the ranks that did not come; RankFailedError when one fails meanwhile; UnavailableError
 *   when the address cannot be listened on; what `knock` throws
 */
export async function meet(options: MeetOptions): Promise<readonly (PeerSockets | undefined)[]> {
  const { bootstrap, secret, host, connections, checksum, choices, timeoutMs, tls } = options;
  const { rank, worldSize, generation } = bootstrap;
  const version = versionOf(checksum, digestOf(choices));
  const until = runningTime() + timeoutMs;
  const sockets: PeerSocket[][] = Array.from({ length: worldSize }, () => []);
  const addresses: string[] = [];
  const taken = new Set<string>();
  /** How many connections each pair has, as far as this rank knows. */
  const counts = sockets.map((_, peer) => (peer > rank ? connections : undefined));
  const all = (peer: number) => sockets[peer]?.filter((one) => one !== undefined).length === counts[peer];
  const missing = () => sockets.flatMap((_, peer) => (peer === rank || all(peer) ? [] : [peer]));
  let arrived = () => {};
  const own: Introduction = { from: rank, to: rank, index: connections, worldSize, generation, version };
  const put = (peer: number, index: number, socket: PeerSocket, address: string) => {
    const list = sockets[peer];
    if (list !== undefined) list[index] = socket;
    addresses[peer] = address;
    arrived();
  };
  const door = await PeerDoor.open({
    secret,
    host,
    tls,
    howToChoose: `Name an address or an interface of this host (${describeInterfaces()}): ${HOST_SETTINGS}.`,
    // Each opens its connections one after the other.
    numCallers: worldSize,
    refuse: (theirs) => {
      const refusal = refusalOf(own, theirs, taken);
      if (refusal === undefined) taken.add(`${theirs.from} ${theirs.index}`);
      return refusal;
    },
    welcome: ({ from, index }, peer) =>
      put(from, index, peer, `${peer.socket.remoteAddress ?? ""}:${peer.socket.remotePort ?? 0}`),
  });
  let isOver = false;
  try {
    await bootstrap.set(`tcp/${rank}`, Buffer.from(JSON.stringify({ host, port: door.port, connections })));
    const calling = Array.from({ length: rank }, async (_, peer) => {
      const address = parseAddress(
        await bootstrap.get(`tcp/${peer}`, { timeoutMs: Math.max(1, until - runningTime()) }),
        peer,
      );
      counts[peer] = address.connections;
      for (let index = 0; index < address.connections; index++) {
        const limit = { secret, tls, timeoutMs: Math.max(1, until - runningTime()) };
        const socket = await knock(address, { ...own, to: peer, index }, limit);
        if (isOver) socket.socket.destroy();
        else put(peer, index, socket, `${address.host}:${address.port}`);
      }
    });
    const waiting = new Promise<void>((resolve) => {
      arrived = () => {
        if (missing().length === 0) resolve();
      };
      arrived();
    });
    const failing = new Promise<never>((_, reject) => {
      bootstrap.onFailure(({ rank: dead, message }) =>
        reject(new RankFailedError(dead, generation, new Error(message))),
      );
    });
    let timer: ReturnType<typeof afterRunning> | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = afterRunning(timeoutMs, () => {
        const absent = missing();
        const ranks = sockets.map((_, peer) => ({ rank: peer, arrived: !absent.includes(peer) }));
        const why = door.refusals.length === 0 ? {} : { cause: new Error(`refused: ${door.refusals.join("; ")}`) };
        reject(new TimeoutError("connecting to the other ranks", timeoutMs, ranks, why));
      });
    });
    try {
      await Promise.race([Promise.all([waiting, ...calling]), failing, late]);
    } finally {
      timer?.cancel();
      // What loses the race is no unhandled rejection.
      for (const one of [...calling, failing, late]) one.catch(() => {});
    }
  } catch (error) {
    isOver = true;
    for (const { socket } of sockets.flat()) socket.destroy();
    throw error;
  } finally {
    door.close();
  }
  return sockets.map((list, peer) => {
    const [first] = list;
    return first === undefined ? undefined : { sockets: list, address: addresses[peer] ?? "", keys: first.keys };
  });
}

/** @throws FormatError */
function parseAddress(bytes: Uint8Array, rank: number): { host: string; port: number; connections: number } {
  const isCount = (value: unknown, most: number): value is number =>
    Number.isInteger(value) && (value as number) > 0 && (value as number) <= most;
  try {
    const { host, port, connections } = JSON.parse(Buffer.from(bytes).toString()) as Record<string, unknown>;
    if (typeof host === "string" && isCount(port, 65_535) && isCount(connections, MAX_CONNECTIONS))
      return { host, port, connections };
  } catch {
    // Said below.
  }
  throw new FormatError(`the address of rank ${rank}`, "cannot be read");
}
