/**
 * The verdict on a finished exploration: what the outputs hold against what the collective asks for, what became of the
 * inputs, and which races matter to either.
 */

import type { SignalOp, WaitOp } from "../plan/index.ts";
import { lastAtMost, placeOfSite } from "./access-log.ts";
import { type Geometry, placeOfCell } from "./cell-geometry.ts";
import { checkBarrier, checkPromises, type Promises } from "./check-promises.ts";
import { collectiveOperator, type Expectation, expectationOf } from "./expected-output.ts";
import type { Exploration } from "./explore-plan.ts";
import { type Finding, type Findings, type OpRef, opRef } from "./findings.ts";
import type { Race } from "./races.ts";
import type { Values } from "./symbolic-values.ts";

/** The operation with a number (`Geometry.opBase`). */
function refOfOp(geometry: Geometry, id: number): OpRef {
  const strand = geometry.opBase.findLastIndex((ops) => ops.length > 0 && ops[0]! <= id);
  const rank = geometry.strandRank[strand]!;
  const own = strand - geometry.strandBase[rank]!;
  const op = lastAtMost(geometry.opBase[strand]!, id);
  const isLoop = geometry.plan.ranks[rank]!.strands[own]!.ops[op]!.kind === "pipeline";
  return opRef(geometry.plan, rank, own, op, isLoop ? id - geometry.opBase[strand]![op]! : undefined);
}

const isSamePlace = (a: OpRef, b: OpRef) =>
  a.rank === b.rank && a.strand === b.strand && a.op === b.op && a.body === b.body;

/** What the parts of a judgement have in common. */
interface Case {
  readonly geometry: Geometry;
  readonly values: Values;
  readonly run: Exploration;
  readonly findings: Findings;
  /** The collective says what outputs hold. */
  readonly meaningful: boolean;
  readonly operator: string;
  /** Races that matter. */
  readonly guilty: Set<number>;
  /** Values found right, with what was expected then. */
  readonly correct: Map<number, string>;
  /** Wrong outputs, with when they went wrong. */
  readonly wrong: { readonly when: number; readonly finding: Finding }[];
}

/** Wrong outputs whose first cause is looked for. */
const MAX_CAUSES = 256;
/** Wrong outputs that are put in order; the rest is counted. A wrong plan of 64 ranks has a quarter of a million. */
const MAX_ORDERED = 4096;

/** Compares what the run left in memory with what the collective asks for. */
export function judge(
  geometry: Geometry,
  values: Values,
  run: Exploration,
  promises: Promises | undefined,
  findings: Findings,
): void {
  const { plan } = geometry;
  const expect = isOpenSendRecv(plan) ? inferSenders(geometry, values, run) : expectationOf(plan);
  const operator = collectiveOperator(plan);
  const meaningful = plan.collective.operation !== "test";
  const guilty = new Set<number>();
  const all: Case = { geometry, values, run, findings, meaningful, operator, guilty, correct: new Map(), wrong: [] };
  const { inPlace, mayOverwriteInput } = plan.collective;
  for (let launch = 0; launch < geometry.launches; launch++) {
    for (const rank of plan.ranks) {
      for (let chunk = 0; chunk < rank.output.chunks; chunk++) {
        const expected = meaningful ? expect(rank.rank, chunk) : undefined;
        if (!meaningful || expected !== undefined) checkOutput(all, launch, rank.rank, chunk, expected);
      }
      if (!meaningful || (!inPlace && mayOverwriteInput !== true)) checkInput(all, launch, rank.rank);
    }
  }
  // First cause first: what is listed last is cut off.
  for (const { finding } of all.wrong.sort((a, b) => a.when - b.when)) findings.add(finding);
  reportRaces(geometry, run.memory.races, guilty, findings);
  reportMixes(geometry, run, findings);
  if (run.memory.forgot && !findings.hasErrors) {
    findings.atRank(-1, {
      code: "undecided",
      severity: "error",
      message:
        "a place is written in no order, or overwritten with packets, too often to compare all reads with all writes",
      hint: "order the writes and the reads of that place by signals or barriers",
    });
  }
  if (run.changing !== undefined && !findings.hasErrors) {
    const { rank, strand, op, body } = placeOfSite(geometry, run.changing);
    findings.at(plan, [rank, strand, op, body], {
      code: "undecided",
      severity: "error",
      message:
        "moves packets in a loop, the whole range in every iteration, and other data than in the first: what is left after many iterations is not decided",
      hint: "move packets outside the loop, or the same data every time",
    });
  }
  if (plan.collective.operation === "barrier") checkBarrier(geometry, run, findings);
  if (promises !== undefined) checkPromises(geometry, run, promises, findings);
}

/** Looks at a chunk of output, cell by cell, up to the first that is wrong. @param expected undefined: anything */
function checkOutput(all: Case, launch: number, rank: number, chunk: number, expected: Expectation | undefined): void {
  const { geometry, values, run, findings, guilty, correct } = all;
  const { plan, cellsPerChunk: per } = geometry;
  const place = { rank, buffer: "output" as const, index: chunk };
  const first = geometry.base(launch, rank, "output") + chunk * per;
  for (let i = 0; i < per; i++) {
    const final = run.memory.final(first + i, run.finished);
    run.memory.useFinal(first + i);
    if (final.unfinished !== undefined) {
      const at = placeOfSite(geometry, final.unfinished);
      findings.at(plan, [at.rank, at.strand, at.op, at.body], {
        code: "unfinished-put",
        severity: "error",
        chunk: place,
        message: `nobody waits for the put to output[${chunk}] of rank ${rank}: it may arrive after every strand has ended`,
        hint: "signal after the put and let the receiver wait, or flush the channel",
      });
    }
    const races = values.racesOf(final.value);
    if (races !== undefined) {
      for (const race of races) guilty.add(race);
      continue;
    }
    if (expected === undefined) continue;
    const shape = `${expected.kind}:${expected.kind === "reduce" ? `${rank}:${chunk}` : expected.kind === "copy" ? `${expected.rank}:${expected.chunk}` : expected.chunk}:${i}`;
    if (correct.get(final.value) === `${launch}:${shape}`) continue;
    const problem = compare(all, final.value, final.tag, expected, i, launch);
    if (problem === undefined) {
      correct.set(final.value, `${launch}:${shape}`);
      continue;
    }
    if (all.wrong.length >= MAX_ORDERED) {
      findings.skip(problem.code);
      return;
    }
    const { writer } = final;
    const partly =
      writer === undefined &&
      Array.from({ length: per }, (_, k) => run.memory.final(first + k, run.finished)).some(
        (other) => other.writer !== undefined,
      );
    const at = writer === undefined ? undefined : placeOfSite(geometry, writer);
    const ref: OpRef =
      at === undefined ? { rank, strand: -1, op: -1 } : opRef(plan, at.rank, at.strand, at.op, at.body);
    const { isWrong, ...what } = problem;
    const begin =
      isWrong === undefined || all.wrong.length >= MAX_CAUSES ? undefined : values.firstWrong(final.value, isWrong);
    const cause = begin === undefined ? undefined : refOfOp(geometry, begin.op);
    all.wrong.push({
      when: begin?.when ?? Number.POSITIVE_INFINITY,
      finding: {
        ...ref,
        ...what,
        severity: "error",
        chunk: place,
        message: `output[${chunk}] of rank ${rank} ${partly ? "is written only in part" : problem.message}`,
        ...(cause === undefined || isSamePlace(cause, ref) ? {} : { cause }),
      },
    });
    return;
  }
}

/** Looks whether the caller's input is as it was; where a collective means nothing, whether races reach it. */
function checkInput(all: Case, launch: number, rank: number): void {
  const { geometry, values, run, findings, meaningful, guilty } = all;
  const { plan, cellsPerChunk: per } = geometry;
  const begin = geometry.base(launch, rank, "input");
  const leaf = geometry.leafBase[rank]! + launch * geometry.numLeaves;
  for (let i = 0; i < plan.ranks[rank]!.input.chunks * per; i++) {
    const final = run.memory.final(begin + i, run.finished);
    const { writer } = final;
    if (writer === undefined) continue;
    const races = values.racesOf(final.value);
    if (!meaningful) {
      for (const race of races ?? []) guilty.add(race);
      run.memory.useFinal(begin + i);
      continue;
    }
    if (values.equal(final.value, values.leaf(leaf + i))) continue;
    const at = placeOfSite(geometry, writer);
    findings.at(plan, [at.rank, at.strand, at.op, at.body], {
      code: "input-overwritten",
      severity: "error",
      chunk: { rank, buffer: "input", index: Math.floor(i / per) },
      message: `input[${Math.floor(i / per)}] of rank ${rank} is overwritten, and the collective is not in place`,
      hint: "work in scratch or in the output, or declare the collective in place (or mayOverwriteInput)",
    });
    i = (Math.floor(i / per) + 1) * per - 1;
  }
}

/** What is wrong with the value of cell number `cell` of a chunk, if anything is. */
function compare(
  { geometry, values, operator }: Case,
  value: number,
  tag: number,
  expected: Expectation,
  cell: number,
  launch: number,
): (Pick<Finding, "code" | "message" | "hint"> & { readonly isWrong?: (value: number) => boolean }) | undefined {
  const { plan, cellsPerChunk: per } = geometry;
  if (tag !== 0) {
    return { code: "packet-mix", message: "holds packets, not data", hint: "unpack the packets into the output" };
  }
  const flat = values.flatten(value);
  if (flat.undefined) {
    return {
      code: "undefined-output",
      message: flat.leaves.size === 0 ? "is never written" : "was computed from memory that nobody had written",
      hint: "write it, or wait until the peer has written what is read",
      isWrong: (part) => values.isTainted(part),
    };
  }
  const leafOf = (rank: number, chunk: number) =>
    geometry.leafBase[rank]! + launch * geometry.numLeaves + chunk * per + cell;
  const wanted = new Map<number, number>();
  if (expected.kind === "copy") wanted.set(leafOf(expected.rank, expected.chunk), 1);
  else if (expected.kind === "reduce-all")
    for (const rank of plan.ranks) wanted.set(leafOf(rank.rank, expected.chunk), 1);
  else for (const { rank, chunk } of expected.from) wanted.set(leafOf(rank, chunk), 1);
  const missing = [...wanted.keys()].filter((leaf) => !flat.leaves.has(leaf));
  const foreign = [...flat.leaves.keys()].filter((leaf) => !wanted.has(leaf));
  const doubled = [...flat.leaves].filter(([leaf, count]) => wanted.has(leaf) && count > 1).map(([leaf]) => leaf);
  const name = (leaf: number) => leafName(geometry, leaf);
  const holds = `; it holds ${list([...flat.leaves.keys()], name)}`;
  if (foreign.length > 0) {
    return {
      // Where what belongs there and what does not came together first.
      isWrong: (part) => {
        const leaves = [...values.flatten(part).leaves.keys()];
        return leaves.some((leaf) => !wanted.has(leaf)) && leaves.some((leaf) => wanted.has(leaf));
      },
      code: "misplaced",
      message: `holds ${list(foreign, name)}, which ${foreign.length === 1 ? "does" : "do"} not belong there${missing.length > 0 ? `, and lacks ${list(missing, name)}` : ""}`,
      hint: "check the chunk indices of the operations that lead there",
    };
  }
  if (missing.length > 0) {
    return {
      code: "missing-contribution",
      message: `lacks ${list(missing, name)}${holds}`,
      hint: "one of the operations that should bring it is missing, comes too early, or goes elsewhere",
    };
  }
  if (doubled.length > 0) {
    return {
      isWrong: (part) => [...values.flatten(part).leaves.values()].some((count) => count > 1),
      code: "doubled-contribution",
      message: `holds ${list(doubled, name)} more than once`,
      hint: "an operation adds what was added before",
    };
  }
  if (flat.mixed.length > 0 || (flat.op !== undefined && flat.op !== (operator === "avg" ? "sum" : operator))) {
    const used = flat.mixed.length > 0 ? flat.mixed.join(" and ") : flat.op;
    return {
      isWrong: (part) => {
        const { mixed, op } = values.flatten(part);
        return mixed.length > 0 || (op !== undefined && op !== (operator === "avg" ? "sum" : operator));
      },
      code: "wrong-operator",
      message: `was combined with ${used}, the collective reduces with ${operator}`,
      hint: "use one operator throughout",
    };
  }
  return undefined;
}

function list(leaves: readonly number[], name: (leaf: number) => string): string {
  const shown = leaves.slice(0, 4).map(name).join(", ");
  return leaves.length === 0 ? "nothing" : leaves.length > 4 ? `${shown} and ${leaves.length - 4} more` : shown;
}

function leafName(geometry: Geometry, leaf: number): string {
  const launch = Math.floor(leaf / Math.max(1, geometry.numLeaves));
  const local = leaf - launch * geometry.numLeaves;
  let rank = geometry.leafBase.length - 1;
  while (rank > 0 && geometry.leafBase[rank]! > local) rank--;
  const chunk = Math.floor((local - geometry.leafBase[rank]!) / geometry.cellsPerChunk);
  return `input[${chunk}] of rank ${rank}${geometry.launches > 1 ? ` (launch ${launch + 1})` : ""}`;
}

function reportRaces(
  geometry: Geometry,
  races: readonly Race[],
  guilty: ReadonlySet<number>,
  findings: Findings,
): void {
  const { plan } = geometry;
  const ordered = [...races].sort((a, b) => Number(guilty.has(b.id)) - Number(guilty.has(a.id)));
  for (const race of ordered) {
    const wrong = guilty.has(race.id) || race.mayHang;
    const a = placeOfSite(geometry, race.first);
    const b = placeOfSite(geometry, race.second);
    const place = placeOfCell(geometry, race.cell);
    const verb = (writes: boolean, tag: number) =>
      tag > 0 ? (writes ? "writes packets to" : "reads packets from") : writes ? "writes" : "reads";
    const where = `${place.buffer}[${place.index}] of rank ${place.rank}`;
    const other = `rank ${b.rank} strand ${b.strand} op ${b.op}${b.body === undefined ? "" : `.${b.body}`}`;
    const effect = race.mayHang
      ? "; the reader of packets may wait for ever"
      : wrong
        ? "; an output depends on which of them comes first"
        : "; no output depends on it";
    findings.at(plan, [a.rank, a.strand, a.op, a.body], {
      code: race.sameStrand ? "hazard" : "race",
      severity: wrong ? "error" : "warning",
      chunk: place,
      message: `${verb(race.firstWrites, race.firstTag)} ${where} while ${other} ${verb(race.secondWrites, race.secondTag)} it: nothing orders the two${effect}`,
      hint: hintFor(plan, race, a, b),
      related: [opRef(plan, b.rank, b.strand, b.op, b.body)],
    });
  }
}

type Place = ReturnType<typeof placeOfSite>;

function hintFor(plan: Geometry["plan"], race: Race, a: Place, b: Place): string {
  if (race.sameStrand)
    return "put a nop (sync) or barrier between the two operations: the threads of a strand do not wait for each other";
  if (a.rank === b.rank && !(race.firstWrites && race.secondWrites)) {
    const reader = race.firstWrites ? b : a;
    if (isPortPut(plan, reader))
      return "the proxy reads the source of a put later: flush, or put with signal and flush, before it is written again";
  }
  if (relaxedBetween(plan, a, b))
    return "a signal or wait between the two is relaxed, which orders nothing: leave relaxed out where data is handed over";
  return "let one side signal after its access and the other wait before its own";
}

function isPortPut(plan: Geometry["plan"], { rank, strand, op, body }: Place): boolean {
  const outer = plan.ranks[rank]!.strands[strand]!.ops[op]!;
  const inner = outer.kind === "pipeline" ? outer.body[body ?? 0] : outer;
  return inner?.kind === "put" && inner.channelKind === "port";
}

/** Says whether one side signals the other after its access, the other waits before its own, and one of these is relaxed. */
function relaxedBetween(plan: Geometry["plan"], a: Place, b: Place): boolean {
  const opsOf = ({ rank, strand }: Place) => plan.ranks[rank]!.strands[strand]!.ops;
  const leadsTo = (from: number, to: number) => (op: SignalOp | WaitOp) =>
    op.channels.some((id) => plan.ranks[from]!.channels[op.channelKind][id] === to);
  const ordered = (first: Place, second: Place) => {
    const signals = opsOf(first)
      .filter((op, i): op is SignalOp => i > first.op && op.kind === "signal")
      .filter(leadsTo(first.rank, second.rank));
    const waits = opsOf(second)
      .filter((op, i): op is WaitOp => i < second.op && op.kind === "wait")
      .filter(leadsTo(second.rank, first.rank));
    return signals.length > 0 && waits.length > 0 && [...signals, ...waits].some((op) => op.relaxed);
  };
  return a.rank !== b.rank && (ordered(a, b) || ordered(b, a));
}

function reportMixes(geometry: Geometry, run: Exploration, findings: Findings): void {
  const seen = new Set<number>();
  for (const mix of run.memory.mixes) {
    if (seen.has(mix.site.id)) continue;
    seen.add(mix.site.id);
    const at = placeOfSite(geometry, mix.site);
    const place = placeOfCell(geometry, mix.cell);
    findings.at(geometry.plan, [at.rank, at.strand, at.op, at.body], {
      code: "packet-mix",
      severity: "warning",
      chunk: place,
      message: `reads ${place.buffer}[${place.index}] of rank ${place.rank} as plain data, but packets lie there: what it gets is undefined`,
      hint: "unpack the packets, or send plain data",
    });
  }
}

/** A send/recv read from a file that does not say who sends to whom. */
export function isOpenSendRecv(plan: Geometry["plan"]): boolean {
  return plan.collective.operation === "send_recv" && plan.collective.sendTo === undefined;
}

/**
 * For such a plan: every rank has to hold the whole input of one other rank, chunk by chunk, and no two ranks that of the
 * same. Whose is read off the first chunk that holds one input chunk in its own place.
 */
function inferSenders(geometry: Geometry, values: Values, run: Exploration) {
  const { plan, cellsPerChunk: per } = geometry;
  const senders = plan.ranks.map((rank) => {
    for (let chunk = 0; chunk < rank.output.chunks; chunk++) {
      const { value } = run.memory.final(geometry.base(0, rank.rank, "output") + chunk * per, run.finished);
      const flat = values.flatten(value);
      const [leaf] = flat.leaves.keys();
      if (flat.leaves.size !== 1 || leaf === undefined || flat.undefined) continue;
      const from = geometry.leafBase.findLastIndex((base) => base <= leaf);
      if (leaf - geometry.leafBase[from]! === chunk * per) return from;
    }
    return (rank.rank + plan.ranks.length - 1) % plan.ranks.length;
  });
  const n = plan.ranks.length;
  const apart = new Set(senders).size === n && senders.every((sender, rank) => sender !== rank || n === 1);
  if (!apart) {
    // Not everybody's input arrives somewhere else: then the others are held to the step that most ranks keep.
    const keeping = (shift: number) => senders.filter((sender, rank) => sender === (rank + n - shift) % n).length;
    const shifts = senders.map((_, shift) => shift).slice(n === 1 ? 0 : 1);
    const step = shifts.reduce((best, shift) => (keeping(shift) > keeping(best) ? shift : best), shifts[0]!);
    senders.forEach((_, rank) => {
      senders[rank] = (rank + n - step) % n;
    });
  }
  return (rank: number, chunk: number): Expectation | undefined => ({ kind: "copy", rank: senders[rank]!, chunk });
}
