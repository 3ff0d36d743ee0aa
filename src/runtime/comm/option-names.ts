/** Which options a call takes: programs in JavaScript have nobody else who looks at their names. */
import { OPERATIONS, type OperationName } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";

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

/**
 * Refuses options that `call` does not have, which would be ignored, and null, which is no value of any of them. What is
 * undefined counts as left out.
 * @throws InvalidArgumentError
 */
export function checkOptionNames(call: CallName, options: object): void {
  for (const name in options) {
    const value = (options as Readonly<Record<string, unknown>>)[name];
    if (value === undefined) continue;
    const names = NAMES.get(call);
    if (names?.has(name) === false) {
      throw new InvalidArgumentError(`options of ${call}`, name, `one of ${[...names].join(", ")}`);
    }
    if (value === null) throw new InvalidArgumentError(name, null, "a value, or the option left out");
  }
}
