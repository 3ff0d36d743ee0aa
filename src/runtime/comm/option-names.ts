/** Which options a call takes: programs in JavaScript have nobody else who looks at their names. */
import { OPERATIONS, type OperationName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import { opCode } from "./call-fingerprint.ts";

/** Calls that take options and move no tensors by the table of operations. */
type OtherCall = "batch" | "broadcast_object" | "capture" | "gather_objects" | "replay" | "run" | "split";
export type CallName = OperationName | OtherCall;

const EVERY = ["timeoutMs", "signal", "dtype"];

const OTHERS: Readonly<Record<OtherCall, readonly string[]>> = {
  batch: EVERY,
  broadcast_object: [...EVERY, "root"],
  capture: EVERY,
  gather_objects: EVERY,
  replay: EVERY,
  // It refuses an algorithm in words of its own.
  run: [...EVERY, "input", "output", "op", "force", "algorithm"],
  split: [...EVERY, "name"],
};

function namesOf(op: OperationName): readonly string[] {
  const { output, pointToPoint, reduces, rooted, variable } = OPERATIONS[op];
  if (pointToPoint || output === "none") return EVERY;
  const counts = op === "all_to_all_v" ? ["sendCounts", "recvCounts"] : ["counts"];
  return [
    ...EVERY,
    "output",
    "algorithm",
    ...(reduces ? ["op"] : []),
    ...(rooted ? ["root"] : []),
    ...(variable ? counts : []),
  ];
}

const NAMES: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ...Object.entries(OTHERS).map(([call, names]) => [call, new Set(names)] as const),
  ...(Object.keys(OPERATIONS) as OperationName[]).map((op) => [op, new Set(namesOf(op))] as const),
]);

/** The names that most calls have and no others, as bits. */
export const PLAIN_OPTIONS = { output: 1, op: 2, root: 4, algorithm: 8, input: 16 } as const;
type PlainName = keyof typeof PLAIN_OPTIONS;
/** What stands for the names of options of which some have no bit. */
const NOT_PLAIN = -1;
const PLAIN_NAMES = Object.fromEntries(
  [...NAMES].map(([call, names]) => [
    call,
    (Object.keys(PLAIN_OPTIONS) as PlainName[]).reduce(
      (bits, name) => bits | (names.has(name) ? PLAIN_OPTIONS[name] : 0),
      0,
    ),
  ]),
) as Readonly<Record<CallName, number>>;

/** An operation, with what calls would look up by its name. */
export interface NamedCall {
  readonly op: OperationName;
  readonly code: number;
  /** Bits of the names of options that most calls have. */
  readonly plainNames: number;
}
/** Made once: a caller with one operation reads its own faster than a function that all share looks one up. */
export const NAMED_CALLS = Object.fromEntries(
  (Object.keys(OPERATIONS) as OperationName[]).map((op) => [op, { op, code: opCode(op), plainNames: PLAIN_NAMES[op] }]),
) as { readonly [O in OperationName]: NamedCall };

/**
 * The bits of the names of options; `NOT_PLAIN` where one is null, no name of `PLAIN_OPTIONS`, or none that the call has, and of an
 * object of a class, whose accessors no loop finds.
 */
function plainBits(names: number, options: { readonly [N in PlainName]?: unknown }): number {
  let bits = 0;
  // Names are not looked up, of a list of five.
  for (const name in options) {
    if (name === "output" && options.output !== null) bits |= PLAIN_OPTIONS.output;
    else if (name === "op" && options.op !== null) bits |= PLAIN_OPTIONS.op;
    else if (name === "root" && options.root !== null) bits |= PLAIN_OPTIONS.root;
    else if (name === "algorithm" && options.algorithm !== null) bits |= PLAIN_OPTIONS.algorithm;
    else if (name === "input" && options.input !== null) bits |= PLAIN_OPTIONS.input;
    else return NOT_PLAIN;
  }
  // A property is read in place where `Object.getPrototypeOf` is a call of the engine's: some 10 ns.
  return (bits & ~names) === 0 && options.constructor === Object ? bits : NOT_PLAIN;
}

/**
 * Refuses options that `call` does not have, which would be ignored, and null, which is no value of any of them. What is
 * undefined counts as left out.
 * @returns the bits of their names (`PLAIN_OPTIONS`); -1 where there are others
 * @throws InvalidArgumentError
 */
export function checkOptionNames(call: CallName, options: object, plainNames = PLAIN_NAMES[call]): number {
  // Most calls: looking their names up took a tenth of the smallest.
  const bits = plainBits(plainNames, options);
  if (bits !== NOT_PLAIN) return bits;
  for (const name in options) {
    const value = (options as Readonly<Record<string, unknown>>)[name];
    if (value === undefined) continue;
    const names = NAMES.get(call);
    if (names?.has(name) === false) {
      throw new InvalidArgumentError(`options of ${call}`, name, `one of ${[...names].join(", ")}`);
    }
    if (value === null) throw new InvalidArgumentError(name, null, "a value, or the option left out");
  }
  return NOT_PLAIN;
}
