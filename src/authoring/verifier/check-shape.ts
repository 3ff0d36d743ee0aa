/**
 * Whether a plan holds together: every index names something, ranges lie inside their buffers, lists that belong
 * together have one length, channels lead to the owner of the buffer they are used with. Nothing else of the verifier
 * looks at a plan that fails here, so it may trust what passed.
 */
import {
  BUFFERS,
  type BufferKind,
  type ChannelKind,
  type ExecutionPlan,
  OP_KINDS,
  type Op,
  type OpKind,
  type OpOf,
  PLAN_REDUCE_OPS,
  type Range,
  type RankPlan,
  type RemoteRange,
  type SwitchRange,
} from "../plan/index.ts";
import { checkCollective } from "./check-collective.ts";
import type { Findings } from "./findings.ts";

type Complain = (problem: string, hint: string, code?: "malformed" | "wrong-peer" | "packet-mix") => void;

/** An average is a sum that is divided once, at the end: no operation does that. */
const STEP_OPS = PLAN_REDUCE_OPS.filter((name) => name !== "avg");

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

class OpChecker {
  readonly #plan: ExecutionPlan;
  readonly #rank: RankPlan;
  readonly #say: Complain;
  constructor(plan: ExecutionPlan, rank: RankPlan, say: Complain) {
    this.#plan = plan;
    this.#rank = rank;
    this.#say = say;
  }

  range(range: Range, what: string): void {
    this.#within(this.#rank, range.buffer, range.index, range.size, what);
  }

  #within(rank: RankPlan, buffer: BufferKind, index: number, size: number, what: string): void {
    if (!BUFFERS.includes(buffer)) {
      this.#say(`${what} names buffer ${String(buffer)}`, `use one of ${BUFFERS.join(", ")}`);
      return;
    }
    const { chunks } = rank[buffer];
    if (!isCount(index) || !isCount(size) || index + size > chunks) {
      this.#say(
        `${what} is chunks [${index}, ${index + size}) of the ${buffer} of rank ${rank.rank}, which has ${chunks}`,
        `stay below ${chunks}, or make the buffer larger`,
      );
    }
  }

  remote(range: RemoteRange, what: string): void {
    const rank = this.#plan.ranks[range.rank];
    if (rank === undefined) {
      this.#say(`${what} is on rank ${range.rank}`, `ranks are 0 to ${this.#plan.ranks.length - 1}`);
      return;
    }
    this.#within(rank, range.buffer, range.index, range.size, what);
  }

  /** `channels[i]` must lead to `ranks[i]`. Plans read from MSCCL++ files name no channels for plain memory access. */
  channels(kind: ChannelKind | undefined, channels: readonly number[], ranks: readonly number[] | undefined): void {
    if (kind !== "memory" && kind !== "port") {
      if (channels.length > 0 || (ranks?.length ?? 0) > 0)
        this.#say(`channel kind is ${String(kind)}`, "use memory or port");
      return;
    }
    const peers = this.#rank.channels[kind];
    for (const id of channels) {
      if (!isCount(id) || id >= peers.length) {
        this.#say(`${kind} channel ${id} does not exist`, `rank ${this.#rank.rank} has ${peers.length} of that kind`);
        return;
      }
    }
    if (ranks === undefined || (channels.length === 0 && kind === "memory")) return;
    if (channels.length !== ranks.length) {
      this.#say(
        `names ${channels.length} channels for ${ranks.length} remote ranges`,
        "give one channel for each remote range, in the same order",
      );
      return;
    }
    channels.forEach((id, i) => {
      if (peers[id] !== ranks[i]) {
        this.#say(
          `uses ${kind} channel ${id}, which leads to rank ${peers[id]}, for a buffer of rank ${ranks[i]}`,
          `use a channel to rank ${ranks[i]}`,
          "wrong-peer",
        );
      }
    });
  }

  sameSizes(sizes: readonly number[]): void {
    if (sizes.some((size) => size !== sizes[0])) {
      this.#say(
        `its ranges have ${[...new Set(sizes)].join(" and ")} chunks`,
        "ranges of one operation are of one size",
      );
    }
  }

  group(op: Op): void {
    if (!("tbg" in op) || op.tbg === undefined) return;
    const { index, size } = op.tbg;
    if (!isCount(size) || size < 1 || !isCount(index) || index >= size) {
      this.#say(`is part ${index} of ${size}`, "parts are numbered from 0 to size - 1");
    }
  }

  reduceOp(op: string): void {
    if (!(STEP_OPS as readonly string[]).includes(op))
      this.#say(`reduces with ${op}`, `use one of ${STEP_OPS.join(", ")}`);
  }

  scratch(range: { readonly buffer: BufferKind } | undefined, what: string): void {
    if (range !== undefined && range.buffer !== "scratch") {
      this.#say(`${what} holds packets, in the ${range.buffer} buffer`, "packets need scratch", "packet-mix");
    }
  }

  onSwitch(range: SwitchRange, what: string): void {
    const channel = this.#rank.channels.switch[range.channel];
    if (channel === undefined) {
      this.#say(
        `switch channel ${range.channel} does not exist`,
        `rank ${this.#rank.rank} has ${this.#rank.channels.switch.length}`,
      );
      return;
    }
    for (const rank of channel.ranks) this.remote({ rank, buffer: channel.buffer, ...slice(range) }, what);
  }

  /** A word out of a few. */
  word(value: string, accepted: readonly string[], what: string): void {
    if (!accepted.includes(value)) this.#say(`${what} is ${String(value)}`, `use one of ${accepted.join(", ")}`);
  }

  /** A local range that the file says to be another rank's: only the executing rank's can be meant. */
  stated(rank: number | undefined, what: string): void {
    if (rank === undefined || rank === this.#rank.rank) return;
    this.#say(
      `its ${what} is said to be on rank ${rank}, but rank ${this.#rank.rank} executes it`,
      `name a chunk of rank ${this.#rank.rank}`,
      "wrong-peer",
    );
  }

  ids(ids: readonly number[], count: number, what: string): void {
    for (const id of ids) {
      if (!isCount(id) || id >= count)
        this.#say(`${what} ${id} does not exist`, `rank ${this.#rank.rank} has ${count}`);
    }
  }

  say: Complain = (...args) => this.#say(...args);
  get numSemaphores(): number {
    return this.#rank.semaphores.length;
  }
}

const slice = ({ index, size }: SwitchRange) => ({ index, size });
const ranksOf = (ranges: readonly RemoteRange[]) => ranges.map((range) => range.rank);

const CHECKS: { readonly [K in OpKind]: (op: OpOf<K>, check: OpChecker) => void } = {
  nop: () => {},
  barrier: (op, check) => {
    if (!isCount(op.numStrands) || op.numStrands < 1)
      check.say(`meets ${op.numStrands} strands`, "a barrier has 1 or more");
    if (!isCount(op.barrier)) check.say(`barrier ${op.barrier} is no number`, "number barriers from 0");
  },
  copy: (op, check) => {
    check.range(op.src, "source");
    check.range(op.dst, "destination");
    check.sameSizes([op.src.size, op.dst.size]);
    check.word(op.format, ["plain", "pack", "unpack"], "format");
    if (op.format === "pack") check.scratch(op.dst, "destination");
    if (op.format === "unpack") check.scratch(op.src, "source");
  },
  get: (op, check) => {
    for (const range of op.src) check.remote(range, "source");
    for (const range of op.dst) check.range(range, "destination");
    if (op.src.length !== op.dst.length)
      check.say(`${op.src.length} sources, ${op.dst.length} destinations`, "one each");
    for (const [i, range] of op.src.entries()) check.sameSizes([range.size, op.dst[i]?.size ?? range.size]);
    check.channels(op.channelKind, op.channels, ranksOf(op.src));
  },
  put: (op, check) => {
    for (const range of op.src) check.range(range, "source");
    for (const range of op.dst) check.remote(range, "destination");
    check.word(op.format, ["plain", "pack", "forward"], "format");
    check.word(op.notify, ["none", "signal", "signal-flush"], "notify");
    const oneToMany = op.format === "forward" && op.src.length === 1;
    if (!oneToMany && op.src.length !== op.dst.length)
      check.say(`${op.src.length} sources, ${op.dst.length} destinations`, "give one source for each destination");
    for (let i = 0; i < op.dst.length; i++) {
      const size = op.dst[i]!.size;
      const given = op.src[oneToMany ? 0 : i]?.size ?? size;
      if (given !== size) check.sameSizes([size, given]);
    }
    check.channels(op.channelKind, op.channels, ranksOf(op.dst));
    if (op.notify !== "none" && op.channelKind !== "port")
      check.say("puts with a signal over a memory channel", "only port channels signal with a put");
    if (op.format !== "plain") for (const range of op.dst) check.scratch(range, "destination");
    if (op.format === "forward") for (const range of op.src) check.scratch(range, "source");
  },
  reduce: (op, check) => {
    for (const range of op.src) check.range(range, "source");
    for (const range of op.remoteSrc) check.remote(range, "source");
    check.range(op.dst, "destination");
    if (op.packetDst !== undefined) check.range(op.packetDst, "packet destination");
    for (const range of op.remoteDst) check.remote(range, "destination");
    if (op.src.length + op.remoteSrc.length === 0) check.say("reduces nothing", "give a source");
    check.sameSizes(
      [...op.src, ...op.remoteSrc, op.dst, ...(op.packetDst === undefined ? [] : [op.packetDst]), ...op.remoteDst].map(
        (range) => range.size,
      ),
    );
    check.reduceOp(op.op);
    check.channels(op.channelKind, op.channels, ranksOf([...op.remoteSrc, ...op.remoteDst]));
    check.scratch(op.packetDst, "packet destination");
    if (op.packets) {
      for (const range of op.src.slice(1)) check.scratch(range, "source");
      for (const range of op.remoteDst) check.scratch(range, "destination");
    }
  },
  signal: (op, check) => check.channels(op.channelKind, op.channels, undefined),
  wait: (op, check) => check.channels(op.channelKind, op.channels, undefined),
  flush: (op, check) => {
    if (op.channelKind !== "port")
      check.say(`flushes a ${String(op.channelKind)} channel`, "only port channels have a proxy");
    else check.channels("port", op.channels, undefined);
  },
  acquire: (op, check) => check.ids(op.semaphores, check.numSemaphores, "semaphore"),
  release: (op, check) => check.ids(op.semaphores, check.numSemaphores, "semaphore"),
  "switch-reduce": (op, check) => {
    check.onSwitch(op.src, "source");
    check.range(op.dst, "destination");
    check.sameSizes([op.src.size, op.dst.size]);
    check.reduceOp(op.op);
    check.stated(op.statedRank, "destination");
  },
  "switch-broadcast": (op, check) => {
    check.range(op.src, "source");
    check.onSwitch(op.dst, "destination");
    check.sameSizes([op.src.size, op.dst.size]);
    check.word(op.format, ["plain", "forward"], "format");
    check.stated(op.statedRank, "source");
    if (op.format === "forward") check.scratch(op.src, "source");
  },
  "switch-reduce-broadcast": (op, check) => {
    check.onSwitch(op.src, "source");
    check.onSwitch(op.dst, "destination");
    check.sameSizes([op.src.size, op.dst.size]);
    check.reduceOp(op.op);
  },
  pipeline: (op, check) => {
    if (!isCount(op.unitBytes) || op.unitBytes < 1)
      check.say(`has units of ${op.unitBytes} bytes`, "units have 1 byte or more");
    if (!isCount(op.numChunks)) check.say(`runs over ${op.numChunks} chunks`, "give a number of chunks");
  },
};

function checkOp(op: Op, check: OpChecker): void {
  if (!OP_KINDS.includes(op.kind)) {
    check.say(`operation ${String((op as { kind: unknown }).kind)} is unknown`, `known are ${OP_KINDS.join(", ")}`);
    return;
  }
  (CHECKS[op.kind] as (op: Op, check: OpChecker) => void)(op, check);
  check.group(op);
}

/** Checks that a plan holds together. @returns false when it does not: nothing else can be said about it then */
export function checkShape(plan: ExecutionPlan, findings: Findings): boolean {
  const before = findings.list.length;
  const atPlan = (rank: number, message: string, hint: string) =>
    findings.atRank(rank, { code: "malformed", severity: "error", message, hint });
  // Programs without types hand over anything that looks like a plan to them.
  if (plan?.ranks?.length === undefined || typeof plan.collective !== "object") {
    atPlan(-1, "this is not an execution plan", "give what compile(program) or readPlan(text) returned");
    return false;
  }
  const n = plan.ranks.length;
  if (plan.collective.numRanks !== n) {
    atPlan(-1, `the plan has ${n} ranks, its collective ${plan.collective.numRanks}`, "give every rank a plan");
    return false;
  }
  plan.ranks.forEach((rank, r) => {
    if (rank.rank !== r) atPlan(r, `ranks[${r}] is the plan of rank ${rank.rank}`, "list ranks in order");
    for (const buffer of BUFFERS) {
      const { chunks } = rank[buffer];
      if (!isCount(chunks)) atPlan(r, `the ${buffer} buffer has ${chunks} chunks`, "give a number of chunks");
    }
    for (const kind of ["memory", "port"] as const) {
      rank.channels[kind].forEach((peer, id) => {
        if (!isCount(peer) || peer >= n)
          atPlan(r, `${kind} channel ${id} leads to rank ${peer}`, `ranks are 0 to ${n - 1}`);
      });
    }
    rank.channels.switch.forEach((channel, id) => {
      if (channel.ranks.some((peer) => !isCount(peer) || peer >= n))
        atPlan(r, `switch channel ${id} spans ranks ${channel.ranks.join(", ")}`, `ranks are 0 to ${n - 1}`);
      else if (!channel.ranks.includes(r))
        atPlan(r, `switch channel ${id} does not include its own rank`, `add rank ${r} to it`);
    });
    rank.semaphores.forEach((semaphore, id) => {
      if (!isCount(semaphore.initialValue))
        atPlan(r, `semaphore ${id} begins at ${semaphore.initialValue}`, "begin at 0 or more");
    });
  });
  checkCollective(plan, atPlan);
  if (findings.list.length > before) return false;
  for (const rank of plan.ranks) {
    rank.strands.forEach((strand, s) => {
      if (strand.id !== s)
        atPlan(rank.rank, `strands[${s}] has the id ${strand.id}`, "number strands from 0, in order");
      let place: readonly [op: number, body?: number] = [0];
      const say: Complain = (problem, hint, code = "malformed") =>
        findings.at(plan, [rank.rank, s, place[0], place[1]], { code, severity: "error", message: problem, hint });
      const checker = new OpChecker(plan, rank, say);
      strand.ops.forEach((op, o) => {
        place = [o];
        checkOp(op, checker);
        if (op.kind !== "pipeline") return;
        for (const [b, inner] of (op.body as readonly Op[]).entries()) {
          place = [o, b];
          if (inner.kind === "pipeline")
            say("is a loop in a loop", "loops do not nest: give the inner one a strand, or unroll it");
          else checkOp(inner, checker);
        }
      });
    });
  }
  return findings.list.length === before;
}
