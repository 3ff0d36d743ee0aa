/**
 * Reads MSCCL algorithm files (Azure/msccl, made by microsoft/msccl-tools): thread blocks with one peer to send to and
 * one to receive from, whose steps are s, r, rcs, rrs, rrc, rrcs, cpy, re and nop, ordered across blocks by (depid, deps).
 * MSCCL moves data through FIFOs; here every message has its own place in the receiver's scratch, announced by a signal,
 * so that nothing that MSCCL allows can overwrite what is still needed.
 */
import { deepFreeze, FormatError, wordTable } from "../../core/index.ts";
import type { RawChunk } from "../compiler/index.ts";
import { type ChannelRecord, lowerSound, MEMORY, Recorder, type SemaphoreRecord } from "../compiler/index.ts";
import {
  collectiveChunks,
  DEFAULT_PLAN_OPTIONS,
  type ExecutionPlan,
  type PlanCollective,
  segmentsOf,
} from "../plan/index.ts";
import { parseXml, type XmlElement } from "./xml-subset.ts";

const STEP_TYPES = ["s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop"] as const;
type StepType = (typeof STEP_TYPES)[number];
const BUFFER: Readonly<Record<string, number>> = wordTable({ i: 0, o: 1, s: 2 });

interface Step {
  readonly type: StepType;
  readonly src: readonly [buffer: number, offset: number];
  readonly dst: readonly [buffer: number, offset: number];
  readonly count: number;
  readonly dependsOn: readonly [block: number, step: number] | undefined;
  readonly line: number;
}
interface Block {
  readonly rank: number;
  readonly id: number;
  readonly send: number;
  readonly recv: number;
  readonly channel: number;
  readonly steps: readonly Step[];
}

function reader(element: XmlElement, where: string) {
  const fail = (problem: string, attribute?: string): never => {
    throw new FormatError(`${where}:${element.line}`, problem, {
      field: attribute === undefined ? element.name : `${element.name} ${attribute}`,
    });
  };
  const text = (name: string, fallback?: string): string =>
    element.attributes.get(name) ?? fallback ?? fail("is missing", name);
  const int = (name: string, least: number, fallback?: number): number => {
    const value = Number(text(name, fallback === undefined ? undefined : String(fallback)));
    return Number.isSafeInteger(value) && value >= least && value < 2 ** 31
      ? value
      : fail(`is ${JSON.stringify(text(name))}; expected an integer of ${least} or more`, name);
  };
  return { fail, text, int };
}

function readBlock(element: XmlElement, rank: number, where: string): Block {
  const at = reader(element, where);
  const steps = element.children.map((child, index): Step => {
    const s = reader(child, where);
    if (child.name !== "step") s.fail(`is <${child.name}>; expected <step>`);
    if (s.int("s", 0) !== index) s.fail(`is step ${s.int("s", 0)}; expected ${index}`, "s");
    const type =
      STEP_TYPES.find((t) => t === s.text("type")) ??
      s.fail(`is ${JSON.stringify(s.text("type"))}; expected ${STEP_TYPES.join(", ")}`, "type");
    const side = (name: "src" | "dst"): [number, number] => {
      const buffer = BUFFER[s.text(`${name}buf`, "i")] ?? s.fail("is not i, o or s", `${name}buf`);
      return [buffer, s.int(`${name}off`, -1, 0)];
    };
    const depid = s.int("depid", -1, -1);
    const deps = s.int("deps", -1, -1);
    return {
      type,
      src: side("src"),
      dst: side("dst"),
      count: type === "nop" ? 0 : s.int("cnt", 1),
      dependsOn: depid < 0 || deps < 0 ? undefined : [depid, deps],
      line: child.line,
    };
  });
  return {
    rank,
    id: at.int("id", 0),
    send: at.int("send", -1, -1),
    recv: at.int("recv", -1, -1),
    channel: at.int("chan", 0, 0),
    steps,
  };
}

function collectiveOf(
  name: string,
  n: number,
  perLoop: number,
  inPlace: boolean,
  sizes: readonly { readonly input: number; readonly output: number }[],
  fail: (problem: string, attribute?: string) => never,
): PlanCollective {
  const base = { numRanks: n, inPlace };
  /** The format names no root: it is the one rank that has what the others have not, and 0 where all have it. */
  const rootBy = (side: "input" | "output"): number => {
    const having = sizes.flatMap((size, rank) => (size[side] > 0 ? [rank] : []));
    return having.length === 1 ? (having[0] as number) : 0;
  };
  const part = (): number =>
    perLoop % n === 0
      ? perLoop / n
      : fail(`is ${perLoop}; expected a multiple of ${n}, the number of ranks`, "nchunksperloop");
  switch (name.replaceAll("_", "").toLowerCase()) {
    case "allreduce":
      return { ...base, operation: "all_reduce", chunksPerPart: perLoop };
    case "allgather":
      return { ...base, operation: "all_gather", chunksPerPart: part() };
    case "reducescatter":
      return { ...base, operation: "reduce_scatter", chunksPerPart: part() };
    case "alltoall":
      return { ...base, operation: "all_to_all", chunksPerPart: part() };
    case "broadcast":
      return { ...base, operation: "broadcast", chunksPerPart: perLoop, root: rootBy("input") };
    case "reduce":
      return { ...base, operation: "reduce", chunksPerPart: perLoop, root: rootBy("output") };
    default:
      return { ...base, inPlace: false, operation: "custom", chunksPerPart: 1 };
  }
}

/**
 * Reads an MSCCL algorithm as a plan.
 * @throws FormatError with file and line
 */
export function readMscclXml(text: string, where = "algorithm"): ExecutionPlan {
  const root = parseXml(text, where);
  const algo = reader(root, where);
  if (root.name !== "algo") algo.fail(`is <${root.name}>; expected <algo>`);
  const n = algo.int("ngpus", 1);
  if (root.children.length !== n) algo.fail(`has ${root.children.length} <gpu> elements; expected ${n}`, "ngpus");
  const inPlace = algo.text("inplace", "0") === "1";
  const sizes = root.children.map((child) => {
    const gpu = reader(child, where);
    return { input: gpu.int("i_chunks", 0), output: gpu.int("o_chunks", 0), scratch: gpu.int("s_chunks", 0) };
  });
  let collective = collectiveOf(
    algo.text("coll", "custom"),
    n,
    algo.int("nchunksperloop", 1, sizes[0]?.input ?? 1),
    inPlace,
    sizes,
    algo.fail,
  );
  if (collective.operation === "custom") {
    const post = sizes.map(({ output }) => new Array<null>(output).fill(null));
    collective = {
      ...collective,
      custom: {
        name: algo.text("coll", "custom"),
        inputChunks: sizes.map((s) => s.input),
        outputChunks: sizes.map((s) => s.output),
        post,
      },
    };
  }
  const chunks = collectiveChunks(collective) ?? [];
  const blocks = root.children.flatMap((child, rank) => {
    const gpu = reader(child, where);
    if (gpu.int("id", 0) !== rank) gpu.fail(`is gpu ${gpu.int("id", 0)}; expected ${rank}`, "id");
    return child.children.map((block, id) => {
      const made = readBlock(block, rank, where);
      return made.id === id ? made : reader(block, where).fail(`is block ${made.id}; expected ${id}`, "id");
    });
  });
  const recorder = new Recorder({
    numRanks: n,
    inputChunks: (rank) => chunks[rank]?.input ?? 0,
    outputChunks: (rank) => chunks[rank]?.output ?? 0,
    strict: true,
  });
  record(
    recorder,
    blocks,
    sizes.map((s) => s.scratch),
    where,
  );
  recorder.close();
  const ranks = lowerSound(recorder, {
    collective,
    segments: (rank) => segmentsOf(collective, rank),
    instances: 1,
    fusion: true,
    autoSync: "strand",
  });
  return deepFreeze({
    schemaVersion: 1,
    name: algo.text("name", "msccl"),
    mode: "imported",
    collective,
    options: {
      ...DEFAULT_PLAN_OPTIONS,
      minMessageSizeBytes: BigInt(algo.int("minBytes", 0, 0)),
    },
    ranks,
    sources: recorder.sources,
  });
}

/** Says what the steps do, block by block: order across blocks is in semaphores and signals. */
function record(recorder: Recorder, blocks: readonly Block[], scratchChunks: readonly number[], where: string): void {
  const fail = (line: number, problem: string): never => {
    throw new FormatError(`${where}:${line}`, problem);
  };
  scratchChunks.forEach((size, rank) => {
    recorder.scratch(rank, size);
  });
  const key = (from: number, to: number, channel: number) => `${from} ${to} ${channel}`;
  const receives = (type: StepType) => type.startsWith("r") && type !== "re";
  const sends = (type: StepType) => type.endsWith("s");
  // One channel each way for every connection, and a place in scratch for every message that arrives.
  const channels = new Map<
    string,
    { readonly out: ChannelRecord; readonly back: ChannelRecord; readonly slots: RawChunk[]; taken: number }
  >();
  for (const block of blocks) {
    if (block.recv < 0) continue;
    const name = key(block.recv, block.rank, block.channel);
    if (channels.has(name))
      fail(
        block.steps[0]?.line ?? 0,
        `rank ${block.rank} receives from ${block.recv} on channel ${block.channel} in two thread blocks`,
      );
    const slots = block.steps
      .filter((s) => receives(s.type))
      .map(({ count }) => ({ rank: block.rank, buffer: 2, index: recorder.scratch(block.rank, count), size: count }));
    channels.set(name, {
      out: recorder.channel(MEMORY, block.rank, block.recv),
      back: recorder.channel(MEMORY, block.recv, block.rank),
      slots,
      taken: 0,
    });
  }
  const semaphores = new Map<string, SemaphoreRecord>();
  const dependency = (block: Block, index: number, on: readonly [number, number]): SemaphoreRecord => {
    const name = `${block.rank} ${block.id} ${index} ${on[0]} ${on[1]}`;
    const found = semaphores.get(name) ?? recorder.semaphore(block.rank, 0);
    semaphores.set(name, found);
    return found;
  };
  const waiting = new Map<string, { block: Block; index: number }[]>();
  for (const block of blocks) {
    block.steps.forEach((step, index) => {
      if (step.dependsOn === undefined) return;
      const target = blocks.find((b) => b.rank === block.rank && b.id === step.dependsOn?.[0]);
      if (target?.steps[step.dependsOn[1]] === undefined)
        fail(
          step.line,
          `depends on step ${step.dependsOn[1]} of thread block ${step.dependsOn[0]}, which is not there`,
        );
      if (target === block) return;
      const name = `${block.rank} ${step.dependsOn.join(" ")}`;
      waiting.set(name, [...(waiting.get(name) ?? []), { block, index }]);
    });
  }
  for (const block of blocks) {
    let received = 0;
    block.steps.forEach((step, index) => {
      const { rank, id: strand } = block;
      const chunk = ([buffer, offset]: readonly [number, number]): RawChunk => ({
        rank,
        buffer,
        index: offset,
        size: step.count,
      });
      if (step.dependsOn !== undefined && step.dependsOn[0] !== block.id) {
        recorder.acquireOrRelease("acquire", dependency(block, index, step.dependsOn), strand, 3);
      }
      let arrived: RawChunk | undefined;
      if (receives(step.type)) {
        const channel =
          channels.get(key(block.recv, rank, block.channel)) ??
          fail(step.line, `receives in a thread block with recv ${block.recv}`);
        arrived = channel.slots[received++];
        recorder.signalOrWait("wait", channel.back, false, strand, 3);
      }
      // What leaves the step: the result of its first half.
      let result = arrived;
      switch (step.type) {
        case "r":
        case "rcs":
          recorder.copy(rank, "plain", chunk(step.dst), arrived as RawChunk, strand);
          result = chunk(step.dst);
          break;
        case "rrs": {
          const partial = arrived as RawChunk;
          recorder.reduce(rank, partial, [chunk(step.src)], partial, "sum", false, strand);
          break;
        }
        case "rrc":
        case "rrcs":
          recorder.reduce(rank, chunk(step.src), [arrived as RawChunk], chunk(step.dst), "sum", false, strand);
          result = chunk(step.dst);
          break;
        case "cpy":
          recorder.copy(rank, "plain", chunk(step.dst), chunk(step.src), strand);
          break;
        case "re":
          recorder.reduce(rank, chunk(step.dst), [chunk(step.src)], chunk(step.dst), "sum", false, strand);
          break;
        case "s":
          result = chunk(step.src);
          break;
        case "nop":
          break;
      }
      if (sends(step.type)) {
        const channel =
          channels.get(key(rank, block.send, block.channel)) ??
          fail(step.line, `sends to rank ${block.send} on channel ${block.channel}, where nobody receives`);
        const slot =
          channel.slots[channel.taken++] ??
          fail(step.line, `sends more messages to rank ${block.send} than it receives`);
        if (slot.size !== step.count)
          fail(step.line, `sends ${step.count} chunks where rank ${block.send} expects ${slot.size}`);
        recorder.put(channel.out, "plain", "none", slot, result as RawChunk, strand);
        recorder.signalOrWait("signal", channel.out, false, strand, 3);
      }
      for (const { block: other, index: at } of waiting.get(`${rank} ${block.id} ${index}`) ?? []) {
        recorder.acquireOrRelease("release", dependency(other, at, [block.id, index]), strand, 3);
      }
    });
  }
}
