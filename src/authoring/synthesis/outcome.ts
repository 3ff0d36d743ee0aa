/** What is found for a problem: the bound with its witness, and a schedule with its time. */
import type { Schedule, Witness } from "../certificate/index.ts";
import type { Rational } from "./rational.ts";

export interface Outcome {
  readonly bound: Rational;
  readonly witness: Witness;
  readonly time: Rational;
  readonly schedule: Schedule;
  /** Steps between ranks on the longest way of any data. */
  readonly height: number;
}

export type Bound = Pick<Outcome, "bound" | "witness">;
