/** What a benchmark of programs is asked for, and what it gives: each contender beside the built-in choice. */
import type { ExecutionPlan } from "../../../authoring/plan/index.ts";
import type { BenchJob, BenchRow, Measurement } from "../collectives/bench-types.ts";

/** What is measured: the backend's own choice, one that `algorithm:` names, or a plan. */
export type Contender =
  | { readonly kind: "choice"; readonly name: string }
  | { readonly kind: "algorithm"; readonly name: string }
  /** A plan that was proved by whoever made the job. `endsAlone`: see `PlanProof`. */
  | { readonly kind: "plan"; readonly name: string; readonly plan: ExecutionPlan; readonly endsAlone: boolean };

export interface ProgramJob extends Omit<BenchJob, "graphCalls" | "inPlace" | "algorithm" | "iterationsBySize"> {
  /** The first one is what the others are compared with. */
  readonly contenders: readonly Contender[];
  readonly inPlace: boolean;
  /** Calls that stand in a graph whose replay is timed; the calls themselves where absent. */
  readonly graphCalls?: number;
}

/** A program's figures at one size, and those of the built-in choice in the same loops. */
export interface ProgramRow
  extends Pick<
      BenchRow,
      | "op"
      | "backend"
      | "ranks"
      | "isolation"
      | "sizeBytes"
      | "count"
      | "dtype"
      | "redop"
      | "root"
      | "drive"
      | "repeats"
    >,
    Measurement {
  /** The program's name. */
  readonly program: string;
  readonly inPlace: boolean;
  /** What the backend chooses for this size, by name, and its figures. */
  readonly builtIn: Measurement & { readonly name: string };
  /** Times as fast as the built-in choice: its time over the program's. */
  readonly ratio: number;
}
