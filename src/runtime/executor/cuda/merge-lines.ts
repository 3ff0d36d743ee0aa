/**
 * Steps that move lines of packets, joined where they follow each other in a strand: what is loaded comes at once, not one
 * after the other, and a sum is sent from where it was added. A position belongs to one thread in all of them, so that nothing
 * is read before it is written; and whoever waits for several lines sends nothing in between.
 */
import { DATA_NUMBERS, type DataStep, isUser, type Place, type Step } from "./strand-steps.ts";

/** Lines that a thread holds at once: each takes four registers. */
const MOST_PAIRS = 4;

const { places, perPlace } = DATA_NUMBERS;

const isPlain = (step: Step | undefined): step is DataStep =>
  step?.kind === "data" && !step.raw && !step.windowed && step.parts === 1;
/** What a step says of its places' numbers: all of the first `numIns`, and the rest. */
const numbersOf = ({ numbers, ins }: DataStep) => {
  const end = places + perPlace * ins.length;
  return { head: numbers.slice(0, places), ins: numbers.slice(places, end), outs: numbers.slice(end) };
};
const isSame = (a: readonly number[], b: readonly number[]) =>
  a.length === b.length && a.every((value, i) => value === b[i]);
/** Whether what a step writes first is what another one reads first, of the same length. */
const continues = (step: DataStep, from: DataStep): boolean => {
  const [now, before] = [numbersOf(step), numbersOf(from)];
  const [read, written] = [step.ins[0] as Place, from.outs[0] as Place];
  return (
    isSame(now.head, before.head) &&
    isSame(now.ins.slice(0, perPlace), before.outs.slice(0, perPlace)) &&
    read.own &&
    written.own &&
    read.buffer === written.buffer
  );
};

/** Joins the steps of a strand whose packets are lines. */
export function mergeLines(steps: readonly Step[]): Step[] {
  const result: Step[] = [];
  for (const step of steps) {
    const before = result.at(-1);
    const meeting = before?.kind === "meet" ? before : undefined;
    const last = meeting === undefined ? before : result.at(-2);
    const joined = isPlain(step) && isPlain(last) ? join(last, step, meeting !== undefined) : undefined;
    if (joined === undefined) {
      result.push(step);
      continue;
    }
    result.length -= meeting === undefined ? 1 : 2;
    if (meeting !== undefined) result.push(meeting);
    result.push(joined);
  }
  return result;
}

function join(last: DataStep, step: DataStep, meets: boolean): DataStep | undefined {
  if (last.code === "unpack" && step.code === "reducePackets") return addAll(last, step);
  if (meets) return undefined;
  if (last.code === "reducePackets" && step.code === "pack") return addAndSend(last, step);
  if (last.code !== step.code || (step.code !== "pack" && step.code !== "unpack")) return undefined;
  return sendAll(last, step) ?? pairUp(last, step);
}

/** An operand that was only taken out to be added to others is added with them. */
function addAll(last: DataStep, step: DataStep): DataStep | undefined {
  const [own] = step.outs;
  const [taken, added] = [numbersOf(last), numbersOf(step)];
  const overwrites = step.outs.length === 1 && own?.own === true && isSame(taken.outs, added.outs);
  if (last.ins.length > 1 || last.outs.length > 1 || !overwrites || !continues(step, last)) return undefined;
  return {
    ...step,
    ins: [...last.ins, ...step.ins.slice(1)],
    numbers: [...added.head, ...taken.ins, ...added.ins.slice(perPlace), ...added.outs],
  };
}

/**
 * A sum goes to the peers as it is written, unless that would send less of it: an operation does as much as its shortest chunk
 * has, and scratch, where the sum may stand, has whole ones.
 */
function addAndSend(last: DataStep, step: DataStep): DataStep | undefined {
  if (!step.ins.some(isUser) && last.ins.some(isUser)) return undefined;
  if (last.outs.length > 1 || step.ins.length > 1 || last.op !== step.op || !continues(step, last)) return undefined;
  return {
    ...last,
    outs: [...last.outs, ...step.outs],
    numbers: [...last.numbers, ...numbersOf(step).outs],
  };
}

/** What is sent from one source is loaded once. */
function sendAll(last: DataStep, step: DataStep): DataStep | undefined {
  const [now, before] = [numbersOf(step), numbersOf(last)];
  const isOne = step.code === "pack" && last.ins.length === 1 && step.ins.length === 1;
  const [source, sent] = [step.ins[0] as Place, last.ins[0] as Place];
  const isSource = source.own && sent.own && source.buffer === sent.buffer && isSame(now.ins, before.ins);
  if (!isOne || !isSource || !isSame(now.head, before.head)) return undefined;
  return { ...last, outs: [...last.outs, ...step.outs], numbers: [...last.numbers, ...now.outs] };
}

/** Every place that is read goes to a place of its own. */
function pairUp(last: DataStep, step: DataStep): DataStep | undefined {
  const isPair = step.ins.length === 1 && step.outs.length === 1 && last.ins.length === last.outs.length;
  const [now, before] = [numbersOf(step), numbersOf(last)];
  if (!isPair || last.ins.length === MOST_PAIRS || !isSame(now.head, before.head)) return undefined;
  return {
    ...last,
    ins: [...last.ins, ...step.ins],
    outs: [...last.outs, ...step.outs],
    numbers: [...now.head, ...before.ins, ...now.ins, ...before.outs, ...now.outs],
  };
}
