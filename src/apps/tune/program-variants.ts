/**
 * What is tried of a program: more instances of it, other arguments, and on devices other shapes of its kernel. Each variant is
 * a plan with a name of its own. Refuses nothing that the verifier would: whoever runs a variant proves it first.
 */
import { compile, type Program } from "../../authoring/compiler/index.ts";
import { type ExecutionPlan, hashPlan, shapeOf } from "../../authoring/plan/index.ts";
import { type SimulatedMachine, simulate } from "../../authoring/simulator/index.ts";
import { ChoraleError, InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { generateCuda, type PacketFormat } from "../../runtime/executor/index.ts";
import { type Candidate, MAX_OPS, numOpsOf } from "./candidates.ts";
import type { TuneJob } from "./tune-types.ts";

/** A program as a user's file makes it, or a plan, which has no instances to vary. */
export interface ProgramSource {
  /** How its arguments differ from the program as written, such as `chunks=16`; empty for the program as written. */
  readonly differs: string;
  readonly program: Program | ExecutionPlan;
}

/** What is varied of a kernel, and of a program's instances. What is absent is up to the tuner. */
export interface ProgramSearch {
  readonly instances?: readonly number[];
  /** On devices: threads of a block. */
  readonly threads?: readonly number[];
  /** On devices: units of 16 bytes that a thread loads before it stores. */
  readonly unroll?: readonly number[];
  /** On devices: how packets lie in memory. */
  readonly packets?: readonly PacketFormat[];
  /** On devices: blocks that do a strand together. */
  readonly blocks?: readonly number[];
}

/** A variant. Its label is the name under which it is stored, which ends in digits of the plan's hash. */
export interface ProgramVariant extends Candidate {
  /** In words, such as `4 instances, chunks=16`; `as written` for the first one. */
  readonly differs: string;
}

const KI = 2 ** 10;
/** On cores strands of a rank share one: more instances only shorten waits. On devices each is a block or more. */
const INSTANCES = { cores: [1, 2, 4], devices: [1, 2, 4, 8, 16, 32, 64] } as const;
/** Simulated time is off by some tens of percent: whatever is within this factor of the best is measured. */
const CLOSE = 2;
/** Plans, and shapes of one plan, that are measured at a size. */
const MOST_PLANS = 3;
const MOST_SHAPES = 3;

const isProgram = (given: Program | ExecutionPlan): given is Program => "recorder" in given;

/** The plan of a program, not proved. */
function planWith(given: Program | ExecutionPlan, instances?: number): ExecutionPlan {
  if (!isProgram(given)) return given;
  const options = instances === undefined ? given.options : { ...given.options, instances };
  return compile({ ...given, options }, { verify: false });
}

/**
 * The variants of a program, the program as written first.
 * @throws InvalidArgumentError for arguments with which it computes something else
 */
export function variantsOf(
  sources: readonly [ProgramSource, ...ProgramSource[]],
  { instances }: ProgramSearch,
  onDevices: boolean,
): readonly [ProgramVariant, ...ProgramVariant[]] {
  const [{ program }] = sources;
  const written = planWith(program);
  const name = (program.name ?? "program").toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  const base = name.replaceAll(/^[^a-z]+|-$/g, "") || "program";
  const found = new Map<string, ProgramVariant>();
  const add = (plan: ExecutionPlan, differs: string, words: string) => {
    const hash = hashPlan(plan);
    const tag = words === "" ? "" : `-${words}`;
    if (!found.has(hash)) found.set(hash, { label: `${base}${tag}-h${hash.slice(0, 8)}`, differs, plan });
  };
  add(written, "as written", "");
  for (const source of sources) {
    requireSame(written, source);
    const own = isProgram(source.program) ? source.program.options.instances : 1;
    const tried = isProgram(source.program)
      ? (instances ?? [own, ...INSTANCES[onDevices ? "devices" : "cores"]])
      : [own];
    for (const count of tried) {
      const plan = planOrNone(source.program, count);
      if (plan === undefined || !fitsAllSizes(plan) || numOpsOf(plan) > MAX_OPS) continue;
      const many = `${count} instance${count === 1 ? "" : "s"}`;
      const words = [
        ...(count === own ? [] : [`x${count}`]),
        ...(source.differs.toLowerCase().match(/[a-z0-9]+/g) ?? []),
      ];
      add(
        plan,
        [...(count === own ? [] : [many]), ...(source.differs === "" ? [] : [source.differs])].join(", "),
        words.join("-"),
      );
    }
  }
  return [...found.values()] as unknown as readonly [ProgramVariant, ...ProgramVariant[]];
}

/** With so many instances, where the program can be cut so. */
function planOrNone(program: Program | ExecutionPlan, instances: number): ExecutionPlan | undefined {
  try {
    return planWith(program, instances);
  } catch (error) {
    if (error instanceof ChoraleError) return undefined;
    throw error;
  }
}

/** A variant takes the program's place at every size: it may not refuse any. */
function fitsAllSizes(plan: ExecutionPlan): boolean {
  const { exact, needsWhole } = shapeOf(plan);
  return !exact && !needsWhole;
}

function requireSame(written: ExecutionPlan, { program, differs }: ProgramSource): void {
  const text = (plan: Pick<ExecutionPlan, "collective">, ranks: number) =>
    `${plan.collective.operation} of ${ranks} ranks${plan.collective.inPlace ? ", in place" : ""}, root ${plan.collective.root ?? 0}`;
  const plan = planWith(program);
  const [is, should] = [text(plan, plan.ranks.length), text(written, written.ranks.length)];
  if (is !== should)
    throw new InvalidArgumentError("--try", described(`${differs}: ${is}`), `what the program computes, ${should}`);
}

/** A machine on which plans are simulated before they are measured. */
export interface RankingMachine {
  readonly inventory: Inventory;
  readonly machine: SimulatedMachine;
}

/** The variants that are worth measuring on devices at a size, by simulated time. */
export function rankOnDevices(
  variants: readonly ProgramVariant[],
  sizeBytes: number,
  { inventory, machine }: RankingMachine,
): readonly ProgramVariant[] {
  let best = Number.POSITIVE_INFINITY;
  const timed = variants.map((variant) => {
    const untilUs = Number.isFinite(best) ? CLOSE * best : undefined;
    const { completed, timeUs } = simulate(variant.plan, {
      inventory,
      machine,
      sizeBytes,
      ...(untilUs === undefined ? {} : { untilUs }),
    });
    const us = completed ? timeUs : Number.POSITIVE_INFINITY;
    best = Math.min(best, us);
    return { variant, us };
  });
  return timed
    .filter(({ us }) => us <= CLOSE * best)
    .sort((a, b) => a.us - b.us)
    .slice(0, MOST_PLANS)
    .map(({ variant }) => variant);
}

/** Shapes that can pay, the likeliest first: of programs that send packets and of others, at small sizes and at large ones. */
const USUAL = {
  packets: {
    small: ["256.lines", "256.words", "128.lines", "128.words"],
    large: ["1024.lines", "512.sheets", "512.lines", "1024.words", "512.words"],
  },
  data: { small: ["256", "128", "512"], large: ["512", "512.u8", "256"] },
} as const;

function shapesAt(sizeBytes: number, sendsPackets: boolean, search: ProgramSearch): readonly string[] {
  const size = sizeBytes <= 64 * KI ? "small" : "large";
  const usual = USUAL[sendsPackets ? "packets" : "data"][size];
  const { threads = size === "small" ? [256, 128, 512] : [512, 256], unroll, blocks } = search;
  if ([search.threads, search.packets, unroll, blocks].every((list) => list === undefined)) return usual;
  const packets = sendsPackets ? (search.packets ?? ["lines", "words"]) : [undefined];
  const words = (list: readonly number[] | undefined, letter: string) =>
    list?.map((value) => `${letter}${value}`) ?? [undefined];
  return threads.flatMap((count) =>
    packets.flatMap((format) =>
      words(unroll, "u").flatMap((units) =>
        words(blocks, "b").map((many) => [count, units, many, format].filter((word) => word !== undefined).join(".")),
      ),
    ),
  );
}

/** Labels of what is measured of a variant on devices at a size: the shapes that can be kernels here. */
export function shapedLabels(
  { label, plan }: ProgramVariant,
  sizeBytes: number,
  { dtype }: Pick<TuneJob, "dtype">,
  search: ProgramSearch,
): readonly string[] {
  const kernel = (packets?: PacketFormat) => {
    try {
      return generateCuda(plan, { dtype, ...(packets === undefined ? {} : { packets }) });
    } catch (error) {
      if (error instanceof ChoraleError) return undefined;
      throw error;
    }
  };
  const plain = kernel();
  if (plain === undefined) return [];
  const sendsPackets = plain.packets !== undefined;
  const takesLines = sendsPackets && kernel("lines") !== undefined;
  const most = search.threads === undefined ? MOST_SHAPES : Number.POSITIVE_INFINITY;
  return shapesAt(sizeBytes, sendsPackets, search)
    .filter((shape) => takesLines || !/(lines|sheets)$/.test(shape))
    .slice(0, most)
    .map((shape) => `${label}@${shape}`);
}
