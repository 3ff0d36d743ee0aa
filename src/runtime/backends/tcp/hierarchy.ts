/**
 * Collectives of a group whose ranks share hosts: shared memory inside a host, sockets between hosts. Which calls are made so,
 * which by the schedules that know no hosts, and which by a plan, is a table's, by collective, size and layout.
 */
import type { CollectiveName } from "../../../collectives/index.ts";
import { type DType, isSmallFloat, type ReduceOp } from "../../../core/index.ts";
import type { GroupPlace } from "../../comm/index.ts";
import { type Choice, Choices, choiceNews, loadEarly } from "../../executor/internal.ts";
import {
  allGatherPieces,
  allReducePieces,
  barrierPieces,
  broadcastPieces,
  type Carrier,
  ColumnMessages,
  HostPlace,
  layoutText,
  MAX_PIECES,
  type PieceCallParts,
  PieceRun,
  type PieceWork,
  reducePieces,
  reduceScatterPieces,
} from "../../hosts/index.ts";
import { HostAddresses, type Span } from "../../memory/index.ts";
import { type GroupKey, KIND, LANE, type Print } from "./frame.ts";
import { hierarchyTables } from "./hierarchy-choices.ts";
import { HostSetup, type RunGathering, type Setup } from "./host-setup.ts";
import {
  HIERARCHICAL,
  isPieced,
  labelOf,
  type PiecedName,
  SOCKET_KERNELS,
  type SocketWay,
  wayOf,
} from "./socket-ways.ts";
import type { TcpContext } from "./tcp-context.ts";

const WORKS: Readonly<Record<Exclude<PiecedName, "barrier">, (parts: PieceCallParts) => PieceWork>> = {
  all_reduce: allReducePieces,
  all_gather: allGatherPieces,
  broadcast: broadcastPieces,
  reduce: reducePieces,
  reduce_scatter: reduceScatterPieces,
};

/** Operators whose result depends on when it is rounded. */
const rounds = (redop: ReduceOp | undefined) =>
  typeof redop === "object" || redop === "sum" || redop === "prod" || redop === "avg";

/** A call as its group has it. */
interface HostedCall {
  readonly op: CollectiveName;
  readonly dtype: DType;
  readonly redop: ReduceOp | undefined;
  readonly root: number;
  readonly partBytes: number;
  /** Bytes of the larger of a rank's two buffers. */
  readonly sizeBytes: number;
  readonly input: Uint8Array;
  readonly output: Uint8Array;
  /** What the call itself names: then no table is asked. */
  readonly named: SocketWay | undefined;
}

/** The ways to make a call. */
export interface CallWays {
  readonly carrier: Carrier;
  readonly gather: RunGathering;
  readonly print: Print;
  /** Fails the group because a member, by group rank, makes another call. */
  readonly disagree: (member: number, theirs: Print) => void;
  /** Fails the group because the call will not end, though all make it. */
  readonly lost: () => void;
  /** Makes it by a schedule that knows no hosts: the named one, or by size. */
  readonly flat: (way?: SocketWay) => void;
  /** Makes it by a plan. */
  readonly plan: (choice: Choice) => void;
  readonly done: () => void;
}

export class Hierarchy {
  readonly #context: TcpContext;
  readonly #group: GroupPlace;
  readonly #key: GroupKey;
  readonly #addresses = new HostAddresses();
  #setup: HostSetup | undefined;
  /** `undefined` until the members know where they are. */
  #place: HostPlace | "flat" | undefined;
  #topology: string | undefined;
  #choices: Choices | undefined;
  #isClosed = false;
  /** Collectives that this world's tables are about. */
  readonly #tabled: ReadonlySet<string>;
  #running: PieceRun | undefined;
  readonly #counts = new Map<string, number>();

  constructor(context: TcpContext, group: GroupPlace, key: GroupKey) {
    this.#context = context;
    this.#group = group;
    this.#key = key;
    if (group.ranks.length === 1) this.#place = "flat";
    const tables = (context.options.choices?.tables ?? []).filter(
      ({ ranks: [least, most] }) => least <= group.ranks.length && group.ranks.length <= most,
    );
    this.#tabled = new Set(tables.map(({ collective }) => collective));
  }

  /** Calls that it served, by `collective hierarchical`, and those that plans of a table did. */
  get counts(): Readonly<Record<string, number>> {
    return { ...this.#choices?.counts(), ...Object.fromEntries(this.#counts) };
  }
  /** How the group lies on its hosts, once its members know. */
  get topology(): string | undefined {
    return this.#topology;
  }

  /** Whether a call may be made otherwise than flat, depending on its size: `start` decides. */
  mayServe(op: string, partBytes: number): boolean {
    if (this.#isClosed || this.#group.ranks.length === 1 || (partBytes === 0 && op !== "barrier")) return false;
    return (this.#place !== "flat" && isPieced(op)) || this.#tabled.has(op);
  }

  /** Why no call of the world can be made host by host. Otherwise it is the same for all calls: what cannot be made so is made flat. */
  get refusal(): string | undefined {
    return this.#context.options.hierarchy === "off" ? "the world's hierarchy option is off" : undefined;
  }

  /** Begins a call that it may serve: inside hosts and between them, by a plan, or flat. */
  start(call: HostedCall, ways: CallWays): void {
    if (this.#place !== undefined) {
      this.#serve(call, ways);
      return;
    }
    const { rank, ranks } = this.#group;
    const { hostMark: mark, hierarchy: mode, folder, tensors } = this.#context.options;
    const { helper } = this.#context;
    this.#setup = new HostSetup({ rank, size: ranks.length, mark, mode, folder, tensors, helper }, ways.gather);
    this.#setup.start((setup) => {
      this.#setup = undefined;
      this.#settle(setup);
      this.#serve(call, ways);
    });
  }

  #settle({ layout, mode, memory, why }: Setup): void {
    const { group, ranks, rank } = this.#group;
    const { choices: tables } = this.#context.options;
    const news = choiceNews(rank);
    const topology = layoutText(layout);
    this.#topology = topology;
    // Whoever wants every call made host by host has chosen.
    const own = tables === undefined || mode === "on" ? [] : [tables];
    if (memory !== undefined || own.length > 0) {
      this.#choices = new Choices(
        { backend: "tcp", group, numRanks: ranks.length, topology, kernels: SOCKET_KERNELS },
        [...own, hierarchyTables(layout, memory === undefined ? "off" : mode)],
        news,
      );
      if (own.length > 0) loadEarly(this.#choices, () => !this.#isClosed);
    }
    if (memory === undefined) {
      this.#place = "flat";
      news?.selected?.(
        `chorale select: group ${group} of ${ranks.length} ranks on tcp (${topology}): sockets between all ranks; ${why}`,
      );
      return;
    }
    const links = (layout.hosts[layout.host] ?? []).map((member) => this.#context.linkOf(ranks[member] ?? -1));
    const { activities } = this.#context.hosts;
    const wake = () => {
      for (const [member, link] of links.entries()) {
        if (link === undefined || !memory.takeSleeper(member) || link.isOver) continue;
        link.signal(KIND.wake, { group: this.#key, lane: LANE.collective, seq: 0, slot: 0 });
      }
    };
    this.#place = new HostPlace({ layout, memory, activities, wake });
  }

  #serve(call: HostedCall, ways: CallWays): void {
    const { op, dtype, redop, sizeBytes, named } = call;
    const choice = named === undefined ? this.#choices?.choose(op, dtype, sizeBytes) : undefined;
    if (choice?.served.kind === "plan") {
      ways.plan(choice);
      return;
    }
    const way = named ?? (choice === undefined ? undefined : wayOf(choice.served.label));
    if (way?.isHierarchical !== true) {
      ways.flat(way);
      return;
    }
    const place = this.#place;
    const isHere = typeof place === "object" && isPieced(op) && !roundsTwice(place, dtype, redop);
    if (!isHere || !this.#run(place, op, call, way, ways)) ways.flat();
  }

  /** @returns false where the call has too many pieces */
  #run(place: HostPlace, op: PiecedName, call: HostedCall, way: SocketWay, ways: CallWays): boolean {
    const { carrier, print, disagree, lost } = ways;
    const messages = new ColumnMessages(carrier, place.layout);
    const work = this.#work(place, op, call, way, messages);
    if (work.numPieces > MAX_PIECES) return false;
    const label = `${op} ${labelOf(HIERARCHICAL, way.pieceBytes)}`;
    this.#counts.set(label, (this.#counts.get(label) ?? 0) + 1);
    this.#running = new PieceRun(place, work, {
      print,
      disagree,
      lost,
      done: () => {
        this.#running = undefined;
        ways.done();
      },
    });
    this.#running.start();
    return true;
  }

  #work(
    { layout, memory }: HostPlace,
    op: PiecedName,
    call: HostedCall,
    { pieceBytes: mostPieceBytes }: SocketWay,
    messages: ColumnMessages,
  ): PieceWork {
    if (op === "barrier") return barrierPieces(layout, messages);
    const { rank, ranks } = this.#group;
    const { dtype, redop, root, partBytes, input, output } = call;
    const span = (bytes: Uint8Array): Span => ({ bytes, address: this.#addresses.of(bytes) });
    return WORKS[op]({
      ...{ op, dtype, redop, root, partBytes, layout, memory, messages, rank, mostPieceBytes },
      size: ranks.length,
      input: span(input),
      output: span(output),
    });
  }

  /** Ends what runs, and lets the memory go: the group has failed, or is closed. */
  close(): void {
    this.#setup?.stop();
    this.#running?.stop();
    this.#isClosed = true;
    const place = this.#place;
    this.#place = "flat";
    if (typeof place === "object") place.memory.close();
  }
}

/** 16- and 8-bit floats are rounded once, which two steps would do twice. */
const roundsTwice = ({ layout }: HostPlace, dtype: DType, redop: ReduceOp | undefined) =>
  layout.hosts.length > 1 && isSmallFloat(dtype) && rounds(redop);
