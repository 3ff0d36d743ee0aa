/** What the ranks of one generation get from their launcher. */
import type { HostHandle } from "../../comm/index.ts";
import type { ChoiceDocument } from "../../executor/internal.ts";
import type { GrowingArena } from "../../memory/index.ts";

/** Whether ranks of a host use its memory: where it is known to be faster, always, or never. */
export const HIERARCHY_MODES = ["auto", "on", "off"] as const;
export type HierarchyMode = (typeof HIERARCHY_MODES)[number];
/** Whether a rank has a thread that writes large payloads: where that gains, always, or never. */
export const SEND_THREAD_MODES = ["auto", "on", "off"] as const;
export type SendThreadMode = (typeof SEND_THREAD_MODES)[number];

/** Whether frames carry a checksum. */
export const CHECKSUM_MODES = ["on", "off"] as const;
export type ChecksumMode = (typeof CHECKSUM_MODES)[number];

export interface TcpHandle extends HostHandle {
  readonly kind: "tcp";
  /** Tables of choices, the same on all hosts; absent where there are none for tcp. */
  readonly choices?: ChoiceDocument | undefined;
  /** By which the ranks know each other. Never leaves the way between a launcher and its own ranks. */
  readonly secret: string;
  /** Of a world of several hosts: what its ranks' secret was drawn from, beside the secret that the hosts share. */
  readonly salt?: string;
  /** Folder of the ranks' flight logs on this host; absent where there was no room for one. */
  readonly flightFolder: string | undefined;
  /** In which ranks of this host have tensors that the others can read; absent where there was no room for it. */
  readonly tensors?: GrowingArena | undefined;
}

/** What `attach` takes; `launch` takes the same as `backendOptions`. */
export interface TcpOptions {
  /** Deadline of every wait; 60 s by default. */
  readonly timeoutMs?: number;
  /** Calls that nobody awaited or waited for make `close` throw; otherwise they are a warning. */
  readonly strictWork?: boolean;
  /** The address of this host that the ranks listen on and tell each other; CHORALE_TCP_HOST, or loopback, by default. */
  readonly host?: string;
  /**
   * Connections of each pair of ranks. By default 3 in worlds of at most 4 ranks where this machine has two cores for each and connections
   * are not encrypted, and 1 elsewhere. From 3 on large messages leave over half of those behind the first, and come over the
   * others; fewer share them. The rank that is called, the lower one, decides for a pair.
   */
  readonly connections?: number;
  /**
   * Whether ranks of one host exchange data by shared memory, and hosts by sockets: where that is known to be faster (`auto`, the
   * default), always (`on`) or never (`off`); CHORALE_TCP_HIERARCHY says the same. `off` on one rank counts for its groups.
   */
  readonly hierarchy?: HierarchyMode;
  /**
   * Whether a second thread writes the large payloads of a rank, and a third one reduces, while its own reads and reduces: where this machine has two cores for
   * each rank on it, connections are not encrypted, and pairs have three connections or the world four ranks (`auto`, the default),
   * always (`on`) or never (`off`); CHORALE_TCP_SEND_THREAD says the same.
   */
  readonly sendThread?: SendThreadMode;
  /**
   * Whether each frame between ranks carries a CRC-32 of its head and its payload, which the receiver verifies before it uses either:
   * `on`, or `off`, the default; CHORALE_TCP_CHECKSUM says the same. All ranks of a world must have the same. It finds data that
   * was damaged on the way, and does not protect against anybody who changes it: TLS does.
   */
  readonly checksum?: ChecksumMode;
  /**
   * Which algorithm serves a collective, by size: this machine's own tables (`chorale tune`) by default, `"shipped"` for none of them, or
   * a document of choices. Of several hosts the first one's count for all.
   */
  readonly choices?: ChoiceDocument | "shipped";
}
