/**
 * Collectives of a group whose ranks share hosts: shared memory inside a host, sockets between hosts. Which calls are made so,
 * and which by the schedules that know no hosts, is a table's, by collective, size and layout.
 */
import type { CollectiveName } from "../../../collectives/index.ts";
import { type DType, isSmallFloat, type ReduceOp } from "../../../core/index.ts";
import type { GroupPlace } from "../../comm/index.ts";
import { Choices, choiceNews, type KernelNames } from "../../executor/internal.ts";
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
import { HIERARCHICAL, hierarchyTables, KINDS, type PiecedName } from "./hierarchy-choices.ts";
import { HostSetup, type RunGathering, type Setup } from "./host-setup.ts";
import type { TcpContext } from "./tcp-context.ts";

const WORKS: Readonly<Record<Exclude<PiecedName, "barrier">, (parts: PieceCallParts) => PieceWork>> = {
  all_reduce: allReducePieces,
  all_gather: allGatherPieces,
  broadcast: broadcastPieces,
  reduce: reducePieces,
  reduce_scatter: reduceScatterPieces,
};

/** Operators whose result depends on when it is rounded. */
const ROUNDS = (redop: ReduceOp | undefined) =>
  typeof redop === "object" || redop === "sum" || redop === "prod" || redop === "avg";

/** A call as its group has it. */
interface HostedCall {
  readonly op: PiecedName;
  readonly dtype: DType;
  readonly redop: ReduceOp | undefined;
  readonly root: number;
  readonly partBytes: number;
  /** Bytes of the larger of a rank's two buffers. */
  readonly sizeBytes: number;
  readonly input: Uint8Array;
  readonly output: Uint8Array;
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
  /** Makes it by a schedule that knows no hosts. */
  readonly flat: () => void;
  readonly done: () => void;
}

export class Hierarchy {
  readonly #context: TcpContext;
  readonly #group: GroupPlace;
  readonly #key: GroupKey;
  readonly #addresses = new HostAddresses();
  #setup: HostSetup | undefined;
  #place: HostPlace | "flat" | undefined;
  #choices: Choices | undefined;
  #running: PieceRun | undefined;
  readonly #counts = new Map<string, number>();

  constructor(context: TcpContext, group: GroupPlace, key: GroupKey) {
    this.#context = context;
    this.#group = group;
    this.#key = key;
    if (group.ranks.length === 1) this.#place = "flat";
  }

  /** Calls that it served, by `collective hierarchical`. */
  get counts(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#counts);
  }

  /** Whether a call may be made inside hosts and between them, depending on its size: `start` decides. */
  mayServe(op: string, partBytes: number): op is PiecedName {
    return this.#place !== "flat" && isPieced(op) && (partBytes > 0 || op === "barrier");
  }

  /** Begins a call that it may serve: inside hosts and between them, or flat. */
  start(call: HostedCall, ways: CallWays): void {
    if (typeof this.#place === "object") {
      this.#serve(this.#place, call, ways);
      return;
    }
    const { rank, ranks } = this.#group;
    const { hostMark: mark, hierarchy: mode, folder, tensors } = this.#context.options;
    const { helper } = this.#context;
    this.#setup = new HostSetup({ rank, size: ranks.length, mark, mode, folder, tensors, helper }, ways.gather);
    this.#setup.start((setup) => {
      this.#setup = undefined;
      const place = this.#settle(setup);
      if (place === undefined) ways.flat();
      else this.#serve(place, call, ways);
    });
  }

  #settle({ layout, mode, memory, why }: Setup): HostPlace | undefined {
    const { group, ranks, rank } = this.#group;
    const news = choiceNews(rank);
    if (memory === undefined) {
      this.#place = "flat";
      news?.selected?.(
        `chorale select: group ${group} of ${ranks.length} ranks on tcp (${layoutText(layout)}): sockets between all ranks; ${why}`,
      );
      return undefined;
    }
    const links = (layout.hosts[layout.host] ?? []).map((member) => this.#context.linkOf(ranks[member] ?? -1));
    const { activities } = this.#context.hosts;
    const wake = () => {
      for (const [member, link] of links.entries()) {
        if (link === undefined || !memory.takeSleeper(member) || link.isOver) continue;
        link.signal(KIND.wake, { group: this.#key, lane: LANE.collective, seq: 0, slot: 0 });
      }
    };
    const place = new HostPlace({ layout, memory, activities, wake });
    this.#place = place;
    const kernels = KINDS as unknown as KernelNames;
    const topology = layoutText(layout);
    this.#choices = new Choices(
      { backend: "tcp", group, numRanks: ranks.length, topology, kernels },
      [hierarchyTables(layout, mode)],
      news,
    );
    return place;
  }

  #serve(place: HostPlace, call: HostedCall, ways: CallWays): void {
    const { op } = call;
    const { carrier, flat, print, disagree, lost } = ways;
    const messages = new ColumnMessages(carrier, place.layout);
    const work = this.#isChosen(place, call) ? this.#work(place, call, messages) : undefined;
    if (work === undefined || work.numPieces > MAX_PIECES) {
      flat();
      return;
    }
    this.#counts.set(`${op} ${HIERARCHICAL}`, (this.#counts.get(`${op} ${HIERARCHICAL}`) ?? 0) + 1);
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
  }

  #isChosen(place: HostPlace, { op, dtype, redop, sizeBytes }: HostedCall): boolean {
    // 16- and 8-bit floats are rounded once, which two steps would do twice.
    if (place.layout.hosts.length > 1 && isSmallFloat(dtype) && ROUNDS(redop)) return false;
    return this.#choices?.choose(op as CollectiveName, dtype, sizeBytes).served.name === HIERARCHICAL;
  }

  #work({ layout, memory }: HostPlace, call: HostedCall, messages: ColumnMessages): PieceWork {
    const { op } = call;
    if (op === "barrier") return barrierPieces(layout, messages);
    const { rank, ranks } = this.#group;
    const { dtype, redop, root, partBytes, input, output } = call;
    const span = (bytes: Uint8Array): Span => ({ bytes, address: this.#addresses.of(bytes) });
    return WORKS[op]({
      ...{ op, dtype, redop, root, partBytes, layout, memory, messages, rank },
      size: ranks.length,
      input: span(input),
      output: span(output),
    });
  }

  /** Ends what runs, and lets the memory go: the group has failed, or is closed. */
  close(): void {
    this.#setup?.stop();
    this.#running?.stop();
    const place = this.#place;
    this.#place = "flat";
    if (typeof place === "object") place.memory.close();
  }
}

const isPieced = (op: string): op is PiecedName => Object.hasOwn(KINDS, op);
