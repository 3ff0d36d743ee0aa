/**
 * `BackendKind`: what the launcher, `joinWorld`, the bench, the doctor and the command line need to know of a backend.
 * Each folder of `backends/` gives one; `world/backend-table.ts` names them all, one line each, and loads a kind when it
 * is first used. Nobody else asks which backend it is. A kind's module must load fast and need no engine: what needs a
 * library or a device is imported by the methods that use it.
 */
import type { CollectiveName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import type { LibrarySpec } from "../../foreign/native/index.ts";
import type { Family } from "../../machine/topology/index.ts";
import type { Backend, Bootstrap } from "./contract.ts";
import type { FlightDump } from "./flight-record.ts";
import type { Isolation } from "./isolation.ts";

/** The launcher's side of one generation, as its ranks get it: plain data that structuredClone can copy. */
export interface HostHandle {
  readonly ranks: number;
  readonly generation: number;
}

/** What a generation's host side is made for. */
export interface HostSpec {
  readonly ranks: number;
  readonly generation: number;
  readonly isolation: Isolation;
  /** The secret that the hosts of the world share, where there are several. */
  readonly worldSecret?: string;
}

/** One host's part in what the hosts of a generation tell each other for a backend. It runs in their launchers. */
export interface HostMirror {
  /** Takes what another host's part has sent; of one host in its order. */
  receive(message: unknown): void;
  /** Ends it: sends what is still to be sent. Idempotent. */
  close(): void;
}

/** What a backend needs for worlds of several hosts: `H` is its handle, `O` its options. */
export interface AcrossHosts<H extends HostHandle = HostHandle, O extends object = object> {
  /** What ranks on other hosts need of the handle: it is sent in the clear. */
  publish(host: H): unknown;
  /** Makes the handle of another host of what was published; removed by `releaseHost`. @throws FormatError */
  adopt(published: unknown, worldSecret: string): H;
  /** The options of the ranks of this host, which others reach at `address`. */
  optionsAt(options: O, address: string): O;
  /**
   * Makes this host's part, where the hosts have something to tell each other: then their launchers must be ours.
   * @param isFirst whether this is the first host
   * @param send sends a message, which structuredClone can copy, to the parts of all other hosts
   */
  mirror?(host: H, isFirst: boolean, send: (message: object) => void): HostMirror;
}

/** Says what an option must be when `value` is not that. `ranks`: the size of the world that it is for. */
export type OptionCheck = (value: unknown, ranks: number) => string | undefined;
/** A check for each option that a backend knows. */
export type OptionSchema<O extends object> = { readonly [K in keyof Required<O>]: OptionCheck };

/** One backend: `H` is the handle that its ranks attach with, `O` its options, as `launch` takes them. */
export interface BackendKind<H extends HostHandle = HostHandle, O extends object = object> {
  readonly name: string;
  readonly options: OptionSchema<O>;
  /** What its ranks can run in, the one they run in unless told otherwise first. */
  readonly isolations: readonly Isolation[];
  /** Why they run in nothing else, as a sentence about them: `its ranks ...`. */
  readonly isolationReason?: string;
  /** Whether calls may name the algorithm that serves them, and run plans of their own. */
  readonly servesPlans?: true;
  /** Beside plans: the names of what it has by itself for a collective, as `algorithm:` and tables of choices take them. Absent where that is one thing. */
  ways?(collective: CollectiveName): readonly string[];
  /** Whether all that its ranks send between hosts can be over TLS. */
  readonly encrypts?: true;
  /** Most ranks of a world on any machine. */
  readonly maxRanks: number;
  /** Whether every rank needs a device of its own. */
  readonly usesDevices: boolean;
  /** Whose devices those are. Absent where it uses none. */
  readonly deviceFamily?: Family;
  /** Counts the ranks that this machine has room for. @throws UnavailableError when the engine is not here */
  availableRanks(): number | Promise<number>;
  /** Makes what the ranks of a generation share, in the launcher. The options are checked. @throws OutOfMemoryError, UnavailableError */
  createHost(spec: HostSpec, options: O): H;
  /** Removes what `createHost` made, when no rank of it is left. Idempotent. */
  releaseHost(host: H): void;
  /**
   * Attaches this thread as one rank.
   * @param bootstrap how ranks that share nothing find each other; it outlives the backend
   * @throws UnavailableError when the engine is not on this machine
   */
  attach(host: H, rank: number, options: O, bootstrap: Bootstrap): Promise<Backend>;
  /**
   * Says, from the launcher's thread, that a rank is dead: to its groups, or to `everybody` when the generation is over.
   * Idempotent: the first cause stays.
   * @param blamed the rank that survivors are told of: another one where `rank` ended because that one died. The launcher
   * may not have seen that death yet, so it is not to be taken for dead.
   */
  fail(host: H, rank: number, cause: string, everybody: boolean, blamed?: number): void;
  /** Repairs shared memory in which a rank's thread or process may have ended in the midst of a change. */
  bury(host: H, rank: number): void;
  /**
   * Frees what a killed thread held in the engine's libraries, from any thread of its process, once the survivors have
   * abandoned the generation. Idempotent. Absent where threads hold nothing there.
   * @param killed all killed threads of the generation that are not freed yet: they may have left kernels running on their
   * devices that use what this one held, and those end first. Other threads may free those at the same time.
   */
  reap?(host: H, rank: number, killed: readonly number[]): Promise<void>;
  /** Reads what every rank did last, of dead and stuck ranks too. */
  readFlight(host: H): FlightDump;
  /** The libraries that it loads, for `doctor`. */
  libraries(): Promise<readonly LibrarySpec[]>;
  /**
   * Finds the engine and the device of a process that another launcher started as number `localRank` of this host.
   * Absent where such processes cannot join a world. Rank 0 makes the host side; the others get it as JSON.
   * @throws UnavailableError without the engine, InvalidArgumentError without a device for the rank
   */
  prepareJoin?(localRank: number, launcher: string): Promise<JoiningRank>;
  /**
   * Joins processes that the engine's own launcher started, and that know each other through it: no rendezvous is needed.
   * Absent where the engine has no launcher. @throws UnavailableError, TimeoutError
   */
  join?(options: EngineJoin): Promise<JoinedEngine>;
  /**
   * The command that starts `ranks` processes of `program` together, of an engine whose ranks only its own launcher can
   * bring together. Absent: each rank is started by itself.
   * @param folder for the launcher's own files; removed when it has ended
   * @param env what the ranks are given beside this process's variables
   * @throws UnavailableError when that launcher is not here
   */
  startTogether?(
    ranks: number,
    program: readonly string[],
    folder: string,
    env: Readonly<Record<string, string>>,
  ): Promise<StartCommand>;
  /** Absent where all ranks must be on one host. */
  readonly acrossHosts?: AcrossHosts<H, O>;
  /** Why no world of it can be rebuilt, as a sentence. Absent where it can. */
  readonly rebuildRefusal?: string;
}

/** A command that starts the ranks of a world. */
export interface StartCommand {
  readonly command: string;
  readonly args: readonly string[];
  /** Variables beside this process's. */
  readonly env: Readonly<Record<string, string>>;
  /** Folders of this process (`makeOwnFolder`) in which ranks that are killed leave something: removed when it has ended. */
  readonly folders?: readonly string[];
}

/** What a process that joins through its engine is told. */
export interface EngineJoin {
  /** How long ranks wait for each other, and default deadline of every wait, ms. */
  readonly timeoutMs?: number | undefined;
  readonly generation: number;
}

/** A process that has joined through its engine. */
export interface JoinedEngine {
  readonly backend: Backend;
  /** Removes what this rank made for all of them. Idempotent. */
  readonly release: () => void;
  /** Reads what every rank did last, on the rank that can. */
  readonly readFlight: (() => FlightDump) | undefined;
}

/** A process of another launcher that is about to be a rank of a world on one host. */
export interface JoiningRank {
  /** Name and version of the engine: must be equal on all ranks. */
  readonly engine: string;
  /** Identity of the rank's device: no two ranks may have the same. */
  readonly device: string;
  /** How the user gives each rank a device of its own, for the message when two have the same one. */
  readonly howToChoose: string;
  /** Attaches with the handle that rank 0 published. @throws FormatError when it is not a handle */
  attach(host: unknown, rank: number, timeoutMs: number, way: JoinedWay): Promise<Backend>;
}

/** How a process that joins reaches the others. */
export interface JoinedWay {
  readonly bootstrap: Bootstrap;
  /** The address of this host at which the rendezvous was reached. */
  readonly address: string;
}

export const isFlag: OptionCheck = (value) => (typeof value === "boolean" ? undefined : "true or false");
export const isIntegerFrom =
  (least: number): OptionCheck =>
  (value) =>
    Number.isSafeInteger(value) && (value as number) >= least ? undefined : `an integer of ${least} or more`;
export const isDuration: OptionCheck = (value) =>
  typeof value === "number" && value > 0 ? undefined : "a number of milliseconds above 0";

/**
 * Checks a backend's options for a world of `ranks`.
 * @throws InvalidArgumentError for an option that the backend does not have, or a wrong value
 */
export function checkBackendOptions(kind: BackendKind, options: object, ranks: number): void {
  const known = kind.options as Readonly<Record<string, OptionCheck>>;
  for (const [key, value] of Object.entries(options)) {
    const check = Object.hasOwn(known, key) ? known[key] : undefined;
    if (check === undefined) {
      const accepted = `one of ${Object.keys(known).join(", ")}, which the ${kind.name} backend knows`;
      throw new InvalidArgumentError("backendOptions", key, accepted);
    }
    const wanted = value === undefined ? undefined : check(value, ranks);
    if (wanted !== undefined) throw new InvalidArgumentError(`backendOptions.${key}`, value, wanted);
  }
}

/** Checks that a backend's ranks can run in threads, or in processes. @throws InvalidArgumentError */
export function checkIsolation({ name, isolations, isolationReason }: BackendKind, isolation: Isolation): void {
  if (isolations.includes(isolation)) return;
  const accepted = isolations.map((one) => JSON.stringify(one)).join(" or ");
  throw new InvalidArgumentError(
    "isolation",
    isolation,
    `${accepted} with the ${name} backend${isolationReason === undefined ? "" : `: ${isolationReason}`}`,
  );
}

/** Checks that a world of the backend can have so many ranks. @throws InvalidArgumentError */
export function checkRanks(
  { name, maxRanks, usesDevices }: Pick<BackendKind, "name" | "maxRanks" | "usesDevices">,
  ranks: number,
  argument = "ranks",
): void {
  if (Number.isInteger(ranks) && ranks >= 1 && ranks <= maxRanks) return;
  const devices = usesDevices ? ", one rank per device of the host" : "";
  throw new InvalidArgumentError(
    argument,
    ranks,
    `an integer from 1 to ${maxRanks} with the ${name} backend${devices}`,
  );
}
