/**
 * From a verified plan to one CUDA C++ kernel for all ranks: a strand is a thread block, offsets, peers and protocols are
 * folded in, sizes are arguments. Nothing in it needs the host while it runs, and its launches are counted on the device,
 * so that a captured graph can replay it. Pure; compiling and launching are the runtime's matter.
 */
import { type ExecutionPlan, shapeOf } from "../../../authoring/plan/index.ts";
import { requireShape } from "../../../authoring/verifier/index.ts";
import { type DType, InvalidArgumentError, isLegal, sizeOf, UnsupportedError } from "../../../core/index.ts";
import type { EpilogueKernel } from "../../comm/index.ts";
import { sendsPackets } from "../cpu/lower.ts";
import { reductionDepth } from "../cpu/reduction-depth.ts";
import { type BufferReach, reachOf } from "./buffer-reach.ts";
import { elementSource, type KernelOp, needsOneRounding } from "./elements.ts";
import { EPILOGUE_END, epilogueBeginning, epilogueSource } from "./kernel-epilogue.ts";
import {
  BLOCK_WORDS,
  COUNTER_STRIDE,
  END_WORDS,
  type FoldedSizes,
  foldSizes,
  GREETING_BYTES,
  launchStruct,
  type StateLayout,
  stateLayout,
  type WindowLayout,
  windowLayout,
} from "./launch-layout.ts";
import { mergeLines } from "./merge-lines.ts";
import { ownedChunks } from "./owned-chunks.ts";
import { PRELUDE } from "./prelude.ts";
import { PRIMITIVES, TEAM_MEETING } from "./ptx-primitives.ts";
import { NumberWriter, shapesOf } from "./strand-shapes.ts";
import {
  type DataStep,
  hasPackets,
  hearsScratchPeers,
  oneChunkEach,
  type RankSteps,
  reachesBuffers,
  reduceOpsOf,
  type Step,
  scratchPeers,
  stepsOf,
} from "./strand-steps.ts";
import { StrandWriter } from "./write-strand.ts";

/**
 * How packets lie in memory: `words`, 4 bytes of data beside 4 of a number; `lines`, 112 beside 16, in lines of 128; `sheets`, 120
 * beside 8, in eight lines that a warp moves at a time.
 */
export const PACKET_FORMATS = ["words", "lines", "sheets"] as const;
export type PacketFormat = (typeof PACKET_FORMATS)[number];

export interface CudaOptions {
  readonly dtype: DType;
  /** Takes the place of the collective's operator, which is the default. */
  readonly op?: KernelOp;
  /** Of a block: a multiple of 32. 256 by default. */
  readonly threads?: number;
  /** Units of 16 bytes that a thread loads before it stores. 4 by default; fewer where many threads add many operands. */
  readonly unroll?: number;
  /** Words by default. Lines and sheets need packet operations of one chunk each. */
  readonly packets?: PacketFormat;
  /** Lines by default, where the plan's packets can be lines. False unless told: lines need NVLink between all ranks. */
  readonly prefersLines?: boolean;
  /** Blocks of a multiprocessor that must fit: registers are limited to that. 1 by default. */
  readonly blocksPerMultiprocessor?: number;
  /**
   * Blocks that do a strand together, as a cluster (from sm_90 on): 1, 2, 4 or 8. 1 by default. A block moves no more than its
   * multiprocessor does, however many threads it has.
   */
  readonly blocksPerStrand?: number;
  /** Launches may follow each other without the ranks' meeting: what the verifier's promise `relaunch` says. False by default. */
  readonly relaunches?: boolean;
  /** A rank's output is complete, and its buffers may be reused, when that rank ends. False by default. */
  readonly endsAlone?: boolean;
  /** Turns after which a wait gives up and reports. Without it, waits end only by the abort word. */
  readonly debugTurns?: number;
  /**
   * Ranks are processes: what a rank tells of its buffers are addresses of its own, and the launch says what to add to them. False
   * by default.
   */
  readonly interprocess?: boolean;
  /** What a rank's blocks do with its output when it is complete. */
  readonly epilogue?: EpilogueKernel;
}

/** A kernel's source, and what its launch needs. */
export interface GeneratedKernel {
  readonly source: string;
  /** Name of the kernel. */
  readonly entry: string;
  readonly threads: number;
  readonly blocksPerStrand: number;
  /** Blocks of each rank's launch. They wait for each other: all must be on the device at once. */
  readonly blocks: readonly number[];
  readonly window: WindowLayout;
  readonly state: StateLayout;
  /** What the state's semaphores hold before the first launch, by rank. */
  readonly semaphores: readonly (readonly number[])[];
  /** Chunks of scratch, the most of any rank: with it, and with packets, every window has room for that many. */
  readonly scratchChunks: number;
  /** Slots of scratch that a window has at least: launches that follow each other take one after the other. */
  readonly numSlots: 1 | 2;
  /** Ranks may be as many launches apart as there are slots: the more there are, the less they wait. */
  readonly runsAhead: boolean;
  readonly packets: PacketFormat | undefined;
  /** Whether scratch holds plain data. */
  readonly usesScratch: boolean;
  /** The ranks tell each other where their buffers are. */
  readonly reachesBuffers: boolean;
  /** What the kernels do to each rank's buffers. */
  readonly reached: readonly BufferReach[];
  /** A launch says what to add to the addresses that peers tell. */
  readonly shiftsAddresses: boolean;
  /** Words that a launch gives the epilogue, the last of its parameter. */
  readonly epilogueWords: number;
  /** Strands make one chunk of the result each, alone: an epilogue of whole chunks need not wait for other blocks. */
  readonly ownsChunks: boolean;
  /** Waits end after some turns, and the first that does so is written down in the state. */
  readonly reports: boolean;
  /**
   * Writes the kernel for launches of one size alone, on buffers that begin at multiples of 16 bytes, as all its parts do: it does what
   * `source` does, in fewer instructions, and launches of both may follow each other. Absent where that would gain nothing.
   */
  readonly foldedSource: ((sizes: FoldedSizes) => string) | undefined;
}

export const KERNEL_ENTRY = "chorale_plan";
const DEFAULT_THREADS = 256;

/**
 * Writes the kernel of a plan.
 * @param plan one that the verifier has passed; another one must at least hold together
 * @throws InvalidArgumentError for options that do not fit the plan, UnsupportedError where the dtype and operator would be
 *   rounded more than once, PlanError for a plan with an operation outside its buffers
 * @example
 * import { algorithm } from "chorale/algorithms";
 * import { generateCuda } from "chorale/executor";
 * import { compile } from "chorale/language";
 *
 * const plan = compile(algorithm("one-shot-packet-all-reduce").make({ numRanks: 2, instances: 8 }));
 * const { source, blocks } = generateCuda(plan, { dtype: "bf16" });
 * blocks // [16, 16]
 */
export function generateCuda(plan: ExecutionPlan, options: CudaOptions): GeneratedKernel {
  const {
    dtype,
    threads = DEFAULT_THREADS,
    blocksPerMultiprocessor = 1,
    blocksPerStrand: team = 1,
    epilogue,
  } = options;
  requireShape(plan);
  const ops = kernelOps(plan, options);
  const numRanks = plan.ranks.length;
  const { ranks, unroll, usesPackets, format } = stepsFor(plan, options);
  const hasLines = format === "lines" || format === "sheets";
  const window = windowLayout(plan);
  const most = (of: (rank: RankSteps) => number) => Math.max(0, ...ranks.map(of));
  const numBarriers = most(({ lowered }) => lowered.barriers.length);
  const state = stateLayout({
    numBlocks: team * most(({ strands }) => strands.length),
    numCounters: most(({ lowered }) => lowered.numCounters),
    numSemaphores: most(({ lowered }) => lowered.semaphores.length),
    numBarriers: numBarriers + (epilogue === undefined ? 0 : 1),
  });
  const isReaching = ranks.map(({ strands }) => strands.some((steps) => steps.some(reachesBuffers)));
  const reaches = isReaching.includes(true);
  const shiftsAddresses = reaches && options.interprocess === true;
  const usesScratch = dataSteps(ranks).some(hasScratch);
  const relaunches = options.relaunches === true;
  const parts = options.endsAlone !== true;
  // A launch in which nothing but scratch is shared is apart from those that have other slots.
  const runsAhead = !relaunches && !parts && !reaches;
  const meets = reaches || !(relaunches || runsAhead);
  const meetsAll = meets && !relaunches;
  const { exact } = shapeOf(plan);
  const reached = reachOf(ranks);
  // Chunks are as many units as they must be then, and the last of them short, or empty.
  const owned = epilogue === undefined || parts || team > 1 ? undefined : ownedChunks(plan, ranks, reached);
  const lockSemaphores = ranks.some(({ strands }) => strands.some((steps) => steps.some(takesSeveral)));
  const numbers = new NumberWriter(numRanks);
  const shapes = shapesOf(ranks);
  const writers = shapes.map(
    (shape, index) =>
      new StrandWriter({
        shape,
        index,
        numbers,
        exact,
        lines: hasLines,
        lockSemaphores,
        hasBuffers: meets,
        meetsAll,
        team,
        runsAhead,
        // Other strands would wait for what they do not need.
        loadsFirst: format === "lines" && shapes.length === 1,
        op: (own) => (own === (plan.collective.reduceOp ?? "sum") ? (options.op ?? own) : own),
      }),
  );
  const bodies = writers.map((writer) => writer.write());
  const blocks = ranks.map(({ strands }) => team * Math.max(1, strands.length));
  const numSlots = plan.options.useDoubleScratchBuffer ? 2 : 1;
  const { debugTurns } = options;
  const source = [
    ...heading(plan, options, format),
    ...(debugTurns === undefined ? [] : [`#define CHORALE_DEBUG ${debugTurns}u`]),
    constantSource({
      NUM_RANKS: numRanks,
      THREADS: threads,
      TEAM: team,
      UNROLL: unroll,
      // Every buffer, and what each strand moves of it, begins and ends at a multiple of 16 bytes.
      WHOLE_UNITS: 0,
      BLOCKS_PER_SM: blocksPerMultiprocessor,
      // Groups of strands cut their ranges at multiples of it.
      GRANULE: exact ? Math.max(sizeOf(dtype), usesPackets ? 4 : 1) : 16,
      ...layoutConstants(window, state),
      // Its blocks meet where those of one more barrier of the plan would.
      ...(epilogue === undefined ? {} : { STATE_EPILOGUE: state.barriers + 2 * numBarriers }),
    }),
    ...(team === 1 ? [] : ["#define CHORALE_CLUSTER __cluster_dims__(TEAM, 1, 1)"]),
    PRIMITIVES,
    ...(team === 1 ? [] : [TEAM_MEETING]),
    launchStruct(numRanks, shiftsAddresses, epilogue?.numWords ?? 0),
    elementSource(dtype, ops, numRanks),
    PRELUDE.waiting,
    shiftsAddresses ? PRELUDE.meetingOfProcesses : PRELUDE.meeting,
    ...(runsAhead ? [waitsFor(ranks), PRELUDE.slots] : []),
    PRELUDE.shares,
    `${PRELUDE.units}\n\n${PRELUDE.moves}`,
    ...(format === undefined ? [] : [PRELUDE[format]]),
    ...numbers.tables,
    ...bodies,
    ...(epilogue === undefined ? [] : [epilogueSource(epilogue, parts, owned)]),
    kernel(ranks, shapes, {
      meets,
      // A rank in which a strand meets the others ends no launch before they have begun it.
      meetsAtEnd: meets && !ranks.every(({ strands }, rank) => (meetsAll ? strands.length > 0 : isReaching[rank])),
      parts,
      meetsWhen:
        !relaunches || !(usesScratch || usesPackets)
          ? undefined
          : numSlots === 2 && hearsScratchPeers(ranks)
            ? "L.part == 0"
            : "isResized(L, last)",
      runsAhead,
      numSlots,
      team,
      first: writers[0]?.first,
      epilogue: epilogue && epilogueBeginning(owned),
    }),
  ];
  const text = `${source.filter((part) => part !== "").join("\n\n")}\n`;
  return {
    source: text,
    entry: KERNEL_ENTRY,
    threads,
    blocksPerStrand: team,
    blocks,
    window,
    state,
    semaphores: ranks.map(({ lowered }) => lowered.semaphores),
    scratchChunks: Math.max(0, ...plan.ranks.map(({ scratch }) => scratch.chunks)),
    numSlots,
    runsAhead,
    packets: format,
    usesScratch,
    reachesBuffers: reaches,
    reached,
    shiftsAddresses,
    epilogueWords: epilogue?.numWords ?? 0,
    ownsChunks: owned !== undefined,
    reports: debugTurns !== undefined,
    foldedSource:
      epilogue === undefined && gainsByFolding(ranks, { usesPackets, reaches, exact })
        ? (sizes) => foldSizes(text, sizes)
        : undefined,
  };
}

/** Checks the options, and writes the steps of all ranks for the form of their packets. @throws InvalidArgumentError */
function stepsFor(plan: ExecutionPlan, options: CudaOptions) {
  const { threads = DEFAULT_THREADS, blocksPerMultiprocessor = 1, blocksPerStrand: team = 1 } = options;
  if (!Number.isInteger(threads) || threads < 32 || threads > 1024 || threads % 32 !== 0)
    throw new InvalidArgumentError("threads", threads, "a multiple of 32, from 32 to 1024");
  if (!TEAMS.includes(team)) throw new InvalidArgumentError("blocksPerStrand", team, TEAMS.join(", "));
  const ranks: readonly RankSteps[] = plan.ranks.map(({ rank }) => stepsOf(plan, rank));
  const unroll = options.unroll ?? unrollOf(ranks, threads * blocksPerMultiprocessor);
  if (!Number.isInteger(unroll) || unroll < 1 || unroll > 16)
    throw new InvalidArgumentError("unroll", unroll, "a whole number from 1 to 16");
  const usesPackets = sendsPackets(plan) || dataSteps(ranks).some(hasPackets);
  const likesLines = options.prefersLines === true && takesLines(plan, ranks);
  const format = usesPackets ? (options.packets ?? (likesLines ? "lines" : "words")) : undefined;
  if (format === undefined || format === "words") return { ranks, unroll, usesPackets, format };
  if (!takesLines(plan, ranks))
    throw new InvalidArgumentError("packets", format, `words: ${plan.name ?? "this plan"} cuts chunks of packets`);
  const merged = ranks.map(({ lowered, strands }) => ({
    lowered,
    strands: strands.map((steps) => mergeLines(oneChunkEach(steps))),
  }));
  return { ranks: merged, unroll, usesPackets, format };
}

const hasScratch = ({ ins, outs }: DataStep) => [...ins, ...outs].some(({ buffer }) => buffer === "scratch");

/**
 * Whether a kernel of one size takes less time: of those that send packets, whose launches are short, up to a tenth less
 * (bench/results/cuda-folded-2026-11-29.md). Not known are where peers' buffers begin, and cuts that a size does not decide.
 */
function gainsByFolding(
  ranks: readonly RankSteps[],
  of: { readonly usesPackets: boolean; readonly reaches: boolean; readonly exact: boolean },
): boolean {
  return of.usesPackets && !of.reaches && !of.exact && !dataSteps(ranks).some(({ windowed }) => windowed);
}

/** Whether a step takes more of semaphores than one unit of one: strands that do so at once may wait for each other. */
const takesSeveral = (step: Step) =>
  step.kind === "acquire" && (step.count > 1 || step.numbers.some((n, i) => i % 2 === 1 && n > 1));

/** Where things lie in windows, and in the state of a rank. */
const layoutConstants = (window: WindowLayout, state: StateLayout) => ({
  COUNTER_STRIDE,
  GREETING_BYTES,
  WINDOW_COUNTERS: window.counters,
  WINDOW_GREETINGS: window.greetings,
  WINDOW_FAREWELLS: window.farewells,
  WINDOW_BEGUN: window.begun,
  BLOCK_WORDS,
  STATE_BLOCKS: state.blocks,
  STATE_TAKEN: state.taken,
  STATE_SEMAPHORES: state.semaphores,
  STATE_BARRIERS: state.barriers,
  STATE_LOCK: state.lock,
  STATE_ENDED: state.ended,
  END_WORDS,
  STATE_REPORT: state.report,
});

function constantSource(constants: Readonly<Record<string, number>>): string {
  const lines = Object.entries(constants).map(([name, value]) => `  ${name} = ${value},`);
  return `enum : int {\n${lines.join("\n")}\n};`;
}

function kernelOps(plan: ExecutionPlan, { dtype, op }: CudaOptions): KernelOp[] {
  const own = plan.collective.reduceOp ?? "sum";
  const ops = [...reduceOpsOf(plan)].map((named): KernelOp => (named === own ? (op ?? named) : named));
  for (const used of ops) {
    if (used !== "preMulSum" && !isLegal(used, dtype))
      throw new InvalidArgumentError("op", used, `an operator that ${dtype} has`);
    if (needsOneRounding(dtype, used) && reductionDepth(plan) > 1) {
      throw new UnsupportedError(
        `${used} of ${dtype} by a plan that combines partial results`,
        "every step would round again; use f32, or an algorithm that combines all operands at once",
      );
    }
  }
  return [...new Set(ops)];
}

function dataSteps(ranks: readonly RankSteps[]): DataStep[] {
  return ranks.flatMap(({ strands }) => strands.flat().filter((step): step is DataStep => step.kind === "data"));
}

/** Which ranks have to be done with a slot of scratch before a rank writes there. */
function waitsFor(ranks: readonly RankSteps[]): string {
  const peers = scratchPeers(ranks);
  const what = "// Whether a rank writes scratch that the peer uses.";
  const head = "__device__ __forceinline__ bool waitsFor(int rank, int peer) {";
  if (peers.every(({ size }) => size === ranks.length - 1)) return `${what}\n${head} return rank != peer; }`;
  const rows = peers.map((row) => `{${ranks.map((_, peer) => (row.has(peer) ? 1 : 0)).join(", ")}}`);
  const table = `CHORALE_TABLE signed char WAITS_FOR[NUM_RANKS][NUM_RANKS] = {${rows.join(", ")}};`;
  return `${what}\n${table}\n${head} return WAITS_FOR[rank][peer] != 0; }`;
}

function takesLines(plan: ExecutionPlan, ranks: readonly RankSteps[]): boolean {
  const isCut = (step: DataStep) => hasPackets(step) && (step.parts > 1 || step.raw);
  return !shapeOf(plan).exact && !dataSteps(ranks).some(isCut);
}

/** Sizes of a cluster that every device from sm_90 on takes. */
const TEAMS: readonly number[] = [1, 2, 4, 8];

/** Registers of all threads of a multiprocessor: what is loaded at once may take half of them, four a unit. */
const REGISTERS = 65_536;
const DEFAULT_UNROLL = 4;

function unrollOf(ranks: readonly RankSteps[], threads: number): number {
  const numOperands = Math.max(1, ...dataSteps(ranks).map(({ ins }) => ins.length));
  return Math.max(1, Math.min(DEFAULT_UNROLL, Math.floor(REGISTERS / threads / 8 / numOperands)));
}

function heading(
  plan: ExecutionPlan,
  { dtype, op, blocksPerStrand = 1 }: CudaOptions,
  format: PacketFormat | undefined,
): string[] {
  const { operation, reduceOp, inPlace } = plan.collective;
  const what = [
    operation,
    ...(reduceOp === undefined ? [] : [op ?? reduceOp]),
    dtype,
    `${plan.ranks.length} ranks`,
    ...(inPlace ? ["in place"] : []),
    ...(format === undefined ? [] : [`packets as ${format}`]),
  ];
  return [
    `// Generated by chorale from the plan ${JSON.stringify(plan.name ?? "unnamed")}: ${what.join(", ")}.\n` +
      `// Every strand of the plan is ${blocksPerStrand === 1 ? "a thread block" : `a cluster of ${blocksPerStrand} thread blocks`}; comments repeat its operations, as the first strand of a kind does them.`,
  ];
}

/** What a kernel does besides its strands' steps. */
interface KernelEnds {
  readonly meets: boolean;
  /** Some rank has no strand that waits for the others to begin: no peer may be two launches ahead. */
  readonly meetsAtEnd: boolean;
  readonly parts: boolean;
  /**
   * When ranks meet before they write scratch, as C++: where the size is another than in the launch before, unless each hears of
   * the others in every launch that has bytes.
   */
  readonly meetsWhen: string | undefined;
  /** Ranks wait for each other as slots of scratch say. */
  readonly runsAhead: boolean;
  readonly numSlots: number;
  /** Blocks of a strand. */
  readonly team: number;
  /** What loads that which all strands pack first. */
  readonly first: string | undefined;
  /** What begins the epilogue, where there is one. */
  readonly epilogue: readonly string[] | undefined;
}

function kernel(
  ranks: readonly RankSteps[],
  shapes: ReturnType<typeof shapesOf>,
  { meets, meetsAtEnd, parts, meetsWhen, runsAhead, numSlots, team, first, epilogue }: KernelEnds,
): string {
  const block = team === 1 ? "strand" : "block";
  const lines = [
    "CHORALE_KERNEL chorale_plan(const __grid_constant__ Launch L) {",
    `  const int rank = (int)L.rank, ${team === 1 ? "strand = (int)blockIdx.x" : "block = (int)blockIdx.x, strand = block / TEAM"};`,
    ...(first === undefined ? [] : [`  const Unit first = ${first};`]),
    `  const uint4 last = loadPacket16(blockState(L, ${block}));`,
    "  const u32 launch = last.x + 1, told = last.w + (L.done == nullptr ? 0u : 1u);",
    ...(meetsWhen === undefined ? [] : [`  if (${meetsWhen}) meetAfterResize(L, launch);`]),
    ...(meets ? ["  CHORALE_SHARED(Buffers, buffers);", `  if (${block} == 0) greet(L, launch);`] : []),
    ...(runsAhead ? [`  if (${block} == 0) tellBegun(L, rank, launch);`] : []),
    ...(epilogue ?? []),
    `  const i64 slot = ${runsAhead ? "launch & (u32)(L.slots - 1)" : numSlots === 2 ? "launch & 1u" : "0"};`,
  ];
  const more = `${meets ? ", buffers" : ""}${first === undefined ? "" : ", first"}`;
  const call = (index: number) => `strand_${index}(L, rank, strand, launch, slot${more});`;
  // Which code a strand has: mostly the same on all ranks.
  const most = Math.max(0, ...ranks.map(({ strands }) => strands.length));
  const shapeAt = (rank: number, strand: number) =>
    shapes.findIndex(({ members }) => members.some((m) => m.rank === rank && m.strand === strand));
  const table = ranks.map((_, rank) => Array.from({ length: most }, (_, strand) => shapeAt(rank, strand)));
  const alike = table.every((row) => row.every((shape, strand) => shape === table[0]![strand]));
  if (shapes.length === 1 && alike) lines.push(`  ${call(0)}`);
  else if (alike) {
    let from = 0;
    const row = table[0]!;
    for (let strand = 1; strand <= row.length; strand++) {
      if (row[strand] === row[from]) continue;
      const word = from === 0 ? "if" : "else if";
      lines.push(
        strand === row.length ? `  else ${call(row[from]!)}` : `  ${word} (strand < ${strand}) ${call(row[from]!)}`,
      );
      from = strand;
    }
  } else {
    lines.unshift(
      `CHORALE_TABLE signed char SHAPES[${ranks.length}][${most}] = {${table.map((row) => `{${row.join(", ")}}`).join(", ")}};`,
    );
    lines.push("  switch (SHAPES[rank][strand]) {");
    for (let s = 0; s < shapes.length; s++) lines.push(`    case ${s}: ${call(s)} break;`);
    lines.push("  }");
  }
  lines.push(
    "  __syncthreads();",
    `  if (threadIdx.x == 0) storePacket16(blockState(L, ${block}), remembered(L, launch, told));`,
    ...(meetsAtEnd
      ? [
          "  // Also a rank that reaches nobody's buffers: no peer may be two launches ahead.",
          `  if (${block} == 0) meetRanks(L, launch, buffers);`,
        ]
      : []),
    ...(epilogue === undefined ? [] : EPILOGUE_END),
    parts && epilogue === undefined
      ? "  partRanks(L, gridDim.x, launch, told);"
      : "  tellEnd(L, blockIdx.x, gridDim.x, told);",
    "}",
  );
  return lines.join("\n");
}
