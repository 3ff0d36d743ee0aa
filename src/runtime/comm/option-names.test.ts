/** Options that a call does not have. */
import { describe, expect, it } from "vitest";
import { OPERATIONS, type OperationName } from "../../collectives/index.ts";
import { checkOptionNames } from "./option-names.ts";

const values = {
  timeoutMs: 5,
  signal: AbortSignal.timeout(1000),
  dtype: "f32",
  output: [],
  algorithm: "ring-all-reduce",
  op: "max",
  root: 1,
  counts: [1],
  sendCounts: [1],
  recvCounts: [1],
  name: "half",
  input: [],
  force: true,
};

/** Those of its own that each call takes besides a deadline, a signal and an element type, as contract.ts types them. */
const taken: Readonly<Record<OperationName, readonly (keyof typeof values)[]>> = {
  all_reduce: ["output", "algorithm", "op"],
  broadcast: ["output", "algorithm", "root"],
  reduce: ["output", "algorithm", "op", "root"],
  all_gather: ["output", "algorithm"],
  all_gather_v: ["output", "algorithm", "counts"],
  reduce_scatter: ["output", "algorithm", "op"],
  reduce_scatter_v: ["output", "algorithm", "op", "counts"],
  all_to_all: ["output", "algorithm"],
  all_to_all_v: ["output", "algorithm", "sendCounts", "recvCounts"],
  gather: ["output", "algorithm", "root"],
  scatter: ["output", "algorithm", "root"],
  barrier: [],
  send: [],
  recv: [],
};

describe("options of a call", () => {
  it.each(Object.keys(OPERATIONS) as OperationName[])("%s takes its own, and refuses those of others", (op) => {
    const refused = Object.entries(values).flatMap(([name, value]) => {
      try {
        checkOptionNames(op, { [name]: value });
        return [];
      } catch (error) {
        expect(String(error)).toContain(`options of ${op} is "${name}"; expected one of timeoutMs, signal, dtype`);
        return [name];
      }
    });
    const its = new Set<string>(["timeoutMs", "signal", "dtype", ...taken[op]]);
    expect(refused).toEqual(Object.keys(values).filter((name) => !its.has(name)));
  });

  it.each(Object.keys(OPERATIONS) as OperationName[])(
    "of %s are refused where one of several is null or another's",
    (op) => {
      const its: readonly string[] = ["timeoutMs", "signal", "dtype", ...taken[op]];
      const isTaken = (options: object) => {
        try {
          checkOptionNames(op, options);
          return true;
        } catch {
          return false;
        }
      };
      for (const [a, one] of Object.entries(values)) {
        expect([op, a, isTaken({ [a]: null })]).toEqual([op, a, false]);
        for (const [b, other] of Object.entries(values)) {
          if (a === b) continue;
          const names = [op, a, b];
          expect([...names, isTaken({ [a]: one, [b]: other })]).toEqual([...names, its.includes(a) && its.includes(b)]);
          expect([...names, isTaken({ [a]: one, [b]: null })]).toEqual([...names, false]);
        }
      }
    },
  );

  it("are refused where they are null, and left out where they are undefined", () => {
    expect(() => checkOptionNames("all_reduce", { op: null })).toThrow("op is null; expected a value, or the option");
    expect(() => checkOptionNames("all_reduce", { op: undefined, reduceOp: undefined })).not.toThrow();
    expect(() => checkOptionNames("split", { label: "half" })).toThrow(/options of split is "label"; .*name$/);
  });
});
